"""Presets: how a model is trained unless configured otherwise.

``default`` was chosen on the validation data of several data sets (docs/decisions/0009). ``paper`` is the recipe of the
FRU paper, which ``fedforget reproduce`` measures; it exists for models that are trained in local epochs.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

from fedforget.errors import ConfigError, unknown_choice
from fedforget.models import MODELS, NCF, Recommender
from fedforget.protocol.training import LocalTraining
from fedforget.server.optimiser import SGD, Adam
from fedforget.server.run_config import RunConfig
from fedforget.server.server_config import ServerConfig

PRESETS = ["default", "paper"]
#: Settings that belong to one run.
OF_ONE_RUN = ("format", "id", "trajectory", "engine", "data")
#: Default number of rounds, and the number of rounds over which the server's learning rate falls.
ROUNDS = 100
#: Standard deviation of the initial embeddings in the reproduction of the paper (docs/decisions/0003).
PAPER_STD = 0.1


def configure(model: Recommender | str | None = None, preset: str = "default", **settings: Any) -> RunConfig:
    """The configuration of a preset for a model (Fed-iALS by default), with some settings of ``RunConfig`` replaced."""
    if preset not in PRESETS:
        raise unknown_choice("preset", preset, PRESETS)
    chosen = MODELS.build("ials" if model is None else model)
    config = _paper(chosen) if preset == "paper" else _default(chosen)
    return with_settings(config, **settings)


def with_settings(config: RunConfig, **settings: Any) -> RunConfig:
    """A configuration with some fields replaced; None leaves a field as it is."""
    names = [field.name for field in fields(RunConfig)]
    for name in settings:
        if name not in names:
            raise unknown_choice("setting", name, names)
    return replace(config, **{name: value for name, value in settings.items() if value is not None})


def configure_from(tables: Mapping[str, Any]) -> RunConfig:
    """The configuration of a preset, changed by nested tables as in a ``config.toml``.

    Tables may be missing; ``preset`` may be given beside them. What belongs to one run only (``OF_ONE_RUN``) is left
    out, so that the ``config.toml`` of a run can be used for another.
    """
    try:
        model_table = tables.get("model", {})
        model = MODELS.build(model_table if isinstance(model_table, str) else {"name": "ials", **model_table})
        base = configure(model, tables.get("preset", "default")).to_dict()
        changes = {name: value for name, value in tables.items() if name not in ("preset", "model", *OF_ONE_RUN)}
        new = {name: value for name, value in base.items() if name not in OF_ONE_RUN}
        return RunConfig.from_dict(_merged(new, changes))
    except ConfigError:
        raise
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise ConfigError(f"The configuration cannot be read: {error}.", "See docs/configuration.md.") from error


def read_tables(path: Path) -> dict[str, Any]:
    """The tables of a configuration file."""
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise ConfigError(f"{path} cannot be read: {error}.", "Give a TOML file, see docs/configuration.md.") from error


def _default(model: Recommender) -> RunConfig:
    if model.closed_form:
        server = ServerConfig(optimiser=Adam(lr=0.05, horizon=ROUNDS))
        return RunConfig(model=model, training=LocalTraining(epochs=1), server=server)
    if isinstance(model, NCF):
        return RunConfig(model=model, server=ServerConfig(aggregation="root", optimiser=SGD(lr=0.3)))
    server = ServerConfig(aggregation="root", optimiser=SGD(lr=0.3, horizon=ROUNDS))
    return RunConfig(model=model, training=LocalTraining(refit=model.dot_product), server=server)


def _paper(model: Recommender) -> RunConfig:
    if model.closed_form:
        raise ConfigError(
            f"The paper has no recipe for {model.name}.", "Use preset 'default', or model lightgcn, ncf or mf."
        )
    if model.init_std == type(model).init_std:
        model = replace(model, init_std=PAPER_STD)
    return RunConfig(model=model)


def _merged(base: Mapping[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    """Tables changed by other tables; a component of another name replaces the old one with all its settings."""
    result = dict(base)
    for name, value in changes.items():
        old = result.get(name)
        if isinstance(value, str) and isinstance(old, Mapping):
            value = {"name": value}
        if (
            isinstance(value, Mapping)
            and isinstance(old, Mapping)
            and value.get("name", old.get("name")) == old.get("name")
        ):
            result[name] = _merged(old, value)
        else:
            result[name] = value
    return result
