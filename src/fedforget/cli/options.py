"""Options that several commands share, and the configuration of a run from them."""

from __future__ import annotations

import difflib
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import fields
from pathlib import Path
from typing import Annotated, Any

import typer

from fedforget.errors import ConfigError, unknown_choice
from fedforget.models import MODELS
from fedforget.server.presets import PRESETS, configure_from, read_tables
from fedforget.server.run_config import RunConfig
from fedforget.server.server_config import ServerConfig

ModelName = Annotated[
    str | None, typer.Option("--model", help=f"{', '.join(MODELS)}; default ials.", rich_help_panel="Configuration")
]
Seed = Annotated[int | None, typer.Option(help="Seed of all random draws; default 0.", rich_help_panel="Configuration")]
Preset = Annotated[
    str | None,
    typer.Option(help=f"{' or '.join(PRESETS)} (the FRU paper's recipe).", rich_help_panel="Configuration"),
]
ConfigFile = Annotated[
    Path | None,
    typer.Option("--config", help="A TOML file with any of these settings.", rich_help_panel="Configuration"),
]
Assignments = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        metavar="KEY=VALUE",
        help="Any other setting, such as training.epochs=10; repeatable. List: fedforget components.",
        rich_help_panel="Configuration",
    ),
]
Candidates = Annotated[
    list[str] | None, typer.Option(help="Items to choose from, comma-separated; repeatable; default all.")
]
Exclude = Annotated[list[str] | None, typer.Option(help="Items to leave out, comma-separated; repeatable.")]
Yes = Annotated[bool, typer.Option("--yes", help="Do not ask before what cannot be undone.")]
#: Seed and preset of benchmarks, which have no configuration file.
BenchSeed = Annotated[int, typer.Option("--seed", help="Seed of all random draws.")]
BenchPreset = Annotated[str, typer.Option("--preset", help=f"{' or '.join(PRESETS)} (the FRU paper's recipe).")]
_TEST_SHARE = typer.Option("--test", help="Fraction of each user's items kept for evaluation.", rich_help_panel="Data")
TestShare = Annotated[float, _TEST_SHARE]
#: The same where it may be left out; then it is 0.2.
NewTestShare = Annotated[float | None, _TEST_SHARE]


def named_models(names: str) -> list[str]:
    """The models of a comma-separated list."""
    for name in names.split(","):
        if name not in MODELS:
            raise unknown_choice("model", name, sorted(MODELS))
    return names.split(",")


def run_config(
    model: str | None,
    preset: str | None,
    seed: int | None,
    file: Path | None,
    assignments: Sequence[str] | None,
    server: Mapping[str, Any] | None = None,
) -> RunConfig:
    """The configuration from a file and options; options take precedence. ``server`` has other defaults."""
    tables = {} if file is None else read_tables(file)
    if server is not None:
        tables["server"] = {**server, **tables.get("server", {})}
    if preset is not None:
        tables["preset"] = preset
    if model is not None:
        table = tables.get("model", {})
        table = {"name": table} if isinstance(table, str) else dict(table)
        tables["model"] = {**table, "name": model} if table.get("name", model) == model else {"name": model}
    if seed is not None:
        tables["seed"] = seed
    for assignment in assignments or ():
        key, value = parse_assignment(assignment)
        known = configure_from(tables).to_dict()
        known["server"] = {**dict.fromkeys(field.name for field in fields(ServerConfig)), **known["server"]}
        assign(tables, resolve(key, known), value)
    return configure_from(tables)


def parse_assignment(text: str) -> tuple[list[str], Any]:
    """The key and the value of KEY=VALUE. Values are TOML; what is not TOML is text."""
    key, equals, value = text.partition("=")
    if not equals or not key.strip():
        raise ConfigError(f"--set {text!r} is not KEY=VALUE.", "Example: --set training.epochs=10")
    try:
        parsed = tomllib.loads(f"value = {value}")["value"]
    except tomllib.TOMLDecodeError:
        parsed = value.strip()
    return key.strip().split("."), parsed


def resolve(key: Sequence[str], tables: Mapping[str, Any]) -> list[str]:
    """The full path of a key that may leave out its first tables, as in ``epochs`` for ``training.epochs``.

    The last part may be a setting that the table does not have, such as that of a component that is yet to be chosen.
    """
    for known, rest in ((key, []), (key[:-1], key[-1:])):
        found = [path for path in _paths(tables) if known and path[-len(known) :] == list(known)]
        if len(found) == 1 or (found and list(known) in found):
            return (list(known) if list(known) in found else found[0]) + list(rest)
        if found:
            names = " or ".join(".".join(path) for path in found)
            raise ConfigError(f"--set {'.'.join(key)} could be {names}.", "Give the full name.")
    settings = [".".join(path) for path in _paths(tables)]
    by_last = {name.rpartition(".")[2]: name for name in settings}
    close = difflib.get_close_matches(key[-1], list(by_last), n=1)
    hint = f"Did you mean {by_last[close[0]]}? " if close else ""
    raise ConfigError(f"Unknown setting {'.'.join(key)!r}.", f"{hint}All settings: fedforget components.")


def assign(tables: dict[str, Any], path: Sequence[str], value: Any) -> None:
    """Set one value in nested tables. A component that was given by its name becomes a table."""
    *parents, last = path
    for name in parents:
        below = tables.get(name, {})
        if not isinstance(below, str | Mapping):
            raise ConfigError(f"--set {'.'.join(path)}: {name} is {below!r}, not a table.", "Set it by its own name.")
        tables[name] = {"name": below} if isinstance(below, str) else dict(below)
        tables = tables[name]
    present = tables.get(last)
    if isinstance(value, str) and isinstance(present, Mapping) and "name" not in present:
        value = {**present, "name": value}  # settings of a component that were given before its name
    tables[last] = value


def _paths(tables: Mapping[str, Any]) -> Iterator[list[str]]:
    """The path of every table and value that a user may set."""
    for name, value in tables.items():
        if name in ("format", "id", "trajectory", "engine", "data", "joins", "attack"):
            continue
        yield [name]
        if isinstance(value, Mapping):
            yield from ([name, *path] for path in _paths(value))
