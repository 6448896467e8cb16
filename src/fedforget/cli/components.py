"""``fedforget components``: what a run can be made of, built in and installed."""

from __future__ import annotations

from typing import Any

from rich.table import Table

from fedforget.cli import show
from fedforget.cli.data import AsJson
from fedforget.errors import ConfigError
from fedforget.models import MODELS
from fedforget.protocol.encoding import ENCODINGS
from fedforget.protocol.sampler import SAMPLERS
from fedforget.runtime.components import Registry
from fedforget.server.aggregation import AGGREGATIONS
from fedforget.server.optimiser import OPTIMISERS
from fedforget.server.presets import configure
from fedforget.server.unlearning import METHODS

#: Where a component's settings go: the table of a configuration, or an option of a command.
PLACES: dict[str, Registry[Any]] = {
    "model": MODELS,
    "sampler": SAMPLERS,
    "server.aggregation": AGGREGATIONS,
    "server.optimiser": OPTIMISERS,
    "log.encoding": ENCODINGS,
    "forget --method": METHODS,
}


def components(as_json: AsJson = False) -> None:
    """List models, samplers, aggregation rules, optimisers, log encodings and methods, with their settings.

    Give a setting with --set, such as --set optimiser=adam --set optimiser.lr=0.05. Packages add components through
    entry points; see docs/extending.md.
    """
    listed = {place: {name: _defaults(registry, name) for name in registry} for place, registry in PLACES.items()}
    defaults = configure().to_dict()
    other = {
        section: {name: value for name, value in defaults[section].items() if f"{section}.{name}" not in PLACES}
        for section in ("training", "server", "log")
    }
    table = Table(title="Components and their settings")
    for column in ("setting", "name", "settings with defaults"):
        table.add_column(column, overflow="fold")
    for place, found in listed.items():
        for number, (name, settings) in enumerate(found.items()):
            table.add_row("" if number else place, name, _shown(settings))
        table.add_section()
    for section, settings in other.items():
        table.add_row(section, "", _shown(settings))
    show.result({"components": listed, "settings": other}, as_json, table)


def _defaults(registry: Registry[Any], name: str) -> dict[str, Any]:
    """The settings of a component; for one whose package is broken, the problem."""
    try:
        return registry.defaults(name)
    except ConfigError as error:
        return {"broken": error.problem}


def _shown(values: dict[str, object]) -> str:
    return ", ".join(f"{name}={value}" for name, value in values.items())
