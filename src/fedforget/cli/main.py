"""``fedforget``: the commands, and how errors are printed."""

from __future__ import annotations

import os
import sys
import warnings
from typing import Annotated

import click
import typer
from rich.markup import escape

import fedforget
from fedforget.cli import (
    audit,
    bench,
    components,
    data,
    device,
    flower,
    forget,
    log,
    quickstart,
    receipts,
    reproduce,
    runs,
    serve,
    tokens,
)
from fedforget.cli.show import notes
from fedforget.errors import FedForgetError
from fedforget.runtime.files import reason_of, refused

app = typer.Typer(
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    help="Federated recommendation that can forget.",
    epilog="FEDFORGET_DATA names the folder of your data sets.",
)
app.add_typer(data.app, name="data")
app.add_typer(bench.app, name="bench")
app.add_typer(audit.app, name="audit")
app.add_typer(log.app, name="log")
app.add_typer(flower.app, name="flower")
app.add_typer(device.app, name="device")
app.add_typer(receipts.app, name="receipts")
app.add_typer(tokens.app, name="token")
app.command()(quickstart.quickstart)
app.command()(runs.train)
app.command()(runs.evaluate)
app.command()(runs.recommend)
app.command()(runs.export)
app.command()(forget.forget)
app.command()(serve.serve)
app.command()(components.components)
app.command()(reproduce.reproduce)


INTERRUPTED = 130


def _show_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"fedforget {fedforget.__version__}")
        raise typer.Exit


@app.callback()
def options(
    debug: Annotated[bool, typer.Option("--debug", help="Show the traceback of an error.")] = False,
    version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Show the version.")
    ] = False,
) -> None:
    """Options before the command."""


def run() -> None:
    """Run the command line. Errors are printed without a traceback, unless ``--debug`` is given."""
    warnings.showwarning = lambda message, *_, **__: _say("Note:", "yellow", str(message))
    try:
        code = app(standalone_mode=False)
        if code == INTERRUPTED:
            raise KeyboardInterrupt
        if isinstance(code, int) and code:
            sys.exit(code)
    except FedForgetError as error:
        _print_error(error.problem, error.hint)
        _exit(error.exit_code, error)
    except click.ClickException as error:
        error.show()
        _exit(error.exit_code, error)
    except (click.Abort, KeyboardInterrupt) as error:
        _print_error("Interrupted.", "The same command continues a run from its last finished round.")
        _exit(INTERRUPTED, error)
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(1)
    except OSError as error:
        file, hint = error.filename or "a file", "For the traceback: fedforget --debug COMMAND ..."
        found = refused(file, error) or FedForgetError(f"Cannot use {file}: {reason_of(error)}.", hint)
        _print_error(found.problem, found.hint)
        _exit(found.exit_code, error)
    except Exception as error:
        _print_error(f"Unexpected {type(error).__name__}: {error}", "For the traceback: fedforget --debug COMMAND ...")
        _exit(70, error)


def _print_error(problem: str, hint: str) -> None:
    _say("Error:", "bold red", problem)
    if hint:
        _say("", "", hint)


def _say(label: str, style: str, text: str) -> None:
    """Print a line on standard error, also when no more files can be opened, which colours may need."""
    try:
        head = f"[{style}]{label}[/] " if label else ""
        notes.print(f"{head}{escape(text)}", soft_wrap=True)
    except OSError:
        sys.stderr.write(f"{label} {text}\n".lstrip())


def _exit(code: int, error: BaseException) -> None:
    if "--debug" in sys.argv:
        raise error
    sys.exit(code)
