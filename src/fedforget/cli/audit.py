"""``fedforget audit``: what others can find out."""

from __future__ import annotations

import typer

from fedforget.cli.audit_server import server

app = typer.Typer(no_args_is_help=True, help="Attack a federation, and measure what the attacks find out.")
app.command()(server)


@app.callback()
def _audit() -> None:
    """Attack a federation, and measure what the attacks find out."""
