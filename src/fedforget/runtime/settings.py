"""Settings: values from a configuration file or the command line, checked against the fields of a dataclass."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from types import NoneType, UnionType
from typing import Any, TypeVar, Union, get_args, get_origin, get_type_hints

from fedforget.errors import ConfigError, unknown_choice

T = TypeVar("T")


class SettingError(ConfigError, ValueError):
    """A setting is unknown or has a value of the wrong type."""


WORDS = {bool: "true or false", int: "a whole number", float: "a number", str: "text", tuple: "a list"}


def build_from(cls: type[T], table: Any, where: str) -> T:
    """Build a dataclass from a table of settings; an object is returned as it is."""
    if isinstance(table, cls):
        return table
    if not isinstance(table, Mapping):
        raise SettingError(f"{where} is {table!r}.", f"Give a table of settings, such as {where}.{_names(cls)[0]}.")
    for name in table:
        if name not in _names(cls):
            known = [f"{where}.{setting}" for setting in _names(cls)]
            raise unknown_choice("setting", f"{where}.{name}", known, error=SettingError)
    return cls(**check_types(cls, table, f"{where}."))


def check_types(cls: type, values: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """The values, converted to the types of the fields; a value of another type is an error."""
    try:
        hints = get_type_hints(cls)
    except (NameError, TypeError):  # annotations of a class from outside that cannot be evaluated
        return dict(values)
    return {name: _checked(value, hints.get(name), f"{prefix}{name}") for name, value in values.items()}


def _checked(value: Any, kind: Any, name: str) -> Any:
    value = value.item() if hasattr(value, "item") and not hasattr(value, "__len__") else value
    if get_origin(kind) in (Union, UnionType):
        if value is None and NoneType in get_args(kind):
            return None
        kinds = [option for option in get_args(kind) if option is not NoneType]
        return _checked(value, kinds[0], name) if len(kinds) == 1 else value
    plain = get_origin(kind) or kind
    if plain is tuple and isinstance(value, list | tuple):
        return tuple(value)
    if plain is float and isinstance(value, int) and not isinstance(value, bool):
        return float(value)
    if plain in WORDS and (not isinstance(value, plain) or (plain is not bool and isinstance(value, bool))):
        raise SettingError(f"{name} is {value!r}.", f"Give {WORDS[plain]}.")
    return value


def _names(cls: Any) -> list[str]:
    return [field.name for field in fields(cls)]
