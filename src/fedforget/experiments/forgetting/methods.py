"""The methods that an audit compares, by name: those of ``experiments.variants``, also with settings of their own."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from fedforget.errors import ConfigError, unknown_choice
from fedforget.experiments.variants import VARIANTS, Variant, variants_for
from fedforget.models import Recommender
from fedforget.server.unlearning import METHODS

#: The model as it was before the erasure, and the reference: always audited.
NONE, RETRAIN = "none", "retrain"
#: Short names of variants.
ALIASES = {NONE: "attacked", "fru": "fru-device", "fru-paper": "fru-server"}
DEFAULT = (NONE, "continue", "fedremove", "fru", "retrain-condensed", RETRAIN)


def audited_methods(names: Sequence[str], model: Recommender) -> dict[str, Variant]:
    """The named methods for a model, with ``none`` first and ``retrain`` last.

    A name may have settings: ``fru:stride=5:limit=0.5``. Methods that do not apply to the model are left out.
    """
    wanted = dict.fromkeys([NONE, *(name for name in names if name not in (NONE, RETRAIN)), RETRAIN])
    return variants_for(model, {name: _variant(name, model) for name in wanted})


def _variant(text: str, model: Recommender) -> Variant:
    name, *assignments = text.split(":")
    name = ALIASES.get(name, name)
    if name not in VARIANTS:
        raise unknown_choice("method", text, [*ALIASES, *(known for known in VARIANTS if known != ALIASES[NONE])])
    variant = VARIANTS[name]
    if not assignments:
        return variant
    method = variant.method_for(model) if variant.method_for else variant.method
    if method is None:
        raise ConfigError(f"The method {text!r} has settings.", "It stands for the model before the erasure.")
    settings = {**method.settings(), **_settings(text, assignments)}
    return replace(variant, label=text, method=METHODS.build(settings), method_for=None)


def _settings(text: str, assignments: Sequence[str]) -> Mapping[str, Any]:
    """The settings of KEY=VALUE parts; values are TOML, and text if they are not."""
    settings = {}
    for assignment in assignments:
        key, equals, value = assignment.partition("=")
        if not equals:
            raise ConfigError(f"{assignment!r} in method {text!r} is not KEY=VALUE.", "Example: fru:stride=5")
        try:
            settings[key] = tomllib.loads(f"value = {value}")["value"]
        except tomllib.TOMLDecodeError:
            settings[key] = value
    return settings
