"""Components: the exchangeable parts of a federation, built from a name and settings.

A component is a frozen dataclass: its fields are its settings. Each kind (model, sampler, aggregation rule, ...) has a
``Registry`` that finds classes by name: built-in ones, those that ``register`` added in this process, and those that an
installed package offers through the Python entry points of the registry's group.
"""

from __future__ import annotations

import difflib
from abc import ABC
from collections.abc import Callable, Iterator, Mapping
from dataclasses import MISSING, Field, dataclass, fields
from functools import cache
from importlib.metadata import EntryPoint, entry_points
from typing import Any, ClassVar, Generic, TypeVar, cast

from fedforget.errors import ConfigError, MissingComponentError, unknown_choice
from fedforget.runtime.settings import SettingError, check_types

C = TypeVar("C", bound="Component")


@dataclass(frozen=True)
class Component(ABC):
    """A named object whose fields are its settings. Subclasses are frozen dataclasses too."""

    name: ClassVar[str]

    def settings(self) -> dict[str, Any]:
        """The name and the settings as plain values, as written to ``config.toml``, orders and receipts."""
        return {"name": self.name, **{field.name: _plain(getattr(self, field.name)) for field in fields(self)}}

    def spec(self) -> str | dict[str, Any]:
        """The name if there are no settings, else the name and the settings."""
        settings = self.settings()
        return settings if len(settings) > 1 else self.name


class Registry(Generic[C]):
    """The components of one kind, by name. Each extends ``base``; packages offer more as entry points of ``group``."""

    def __init__(self, kind: str, group: str, base: Callable[..., C], *builtin: type[C]) -> None:
        self.kind = kind
        self.group = group
        self.base = cast("type[C]", base)
        self._known: dict[str, type[C]] = {component.name: component for component in builtin}
        _REGISTRIES[kind] = self

    def __iter__(self) -> Iterator[str]:
        """Iterate over the names: built-in and registered components first, then installed ones."""
        return iter({**self._known, **_installed(self.group)})

    def register(self, component: Any) -> type[C]:
        """Add a component class under its name."""
        kind = isinstance(component, type) and issubclass(component, self.base)
        if not kind or not isinstance(getattr(component, "name", None), str):
            raise ConfigError(
                f"{getattr(component, '__name__', repr(component))} is not a {self.kind}.",
                f"Extend {self.base.__name__} and give the class a name: name: ClassVar[str] = '...'.",
            )
        if reason := _incomplete(component):
            raise ConfigError(f"{component.__name__} cannot be used by its name: {reason}", "See docs/extending.md.")
        registered = self._known.get(component.name, component)
        if (registered.__module__, registered.__qualname__) != (component.__module__, component.__qualname__):
            raise ConfigError(
                f"There is a {self.kind} named {component.name!r} already: "
                f"{registered.__module__}.{registered.__qualname__}.",
                "Choose another name.",
            )
        self._known[component.name] = component
        return self._known[component.name]

    def find(self, name: object) -> type[C]:
        """The component class with a name."""
        known = isinstance(name, str) and name in self._known
        if not known and (entry := _installed(self.group).get(str(name))) is not None:
            self.register(_load(entry, self.kind))
            known = True
        if not known or not isinstance(name, str):
            hint = f"Others need their package installed (entry point group {self.group})."
            raise unknown_choice(self.kind, name, list(self), hint, MissingComponentError)
        return self._known[name]

    def build(self, spec: Any, **settings: Any) -> C:
        """Build a component from its name, or from a table with its name and settings; an object is returned as is."""
        if isinstance(spec, self.base):
            return spec
        if isinstance(spec, list | set):
            raise SettingError(f"The {self.kind} is {spec!r}.", "Give a name, or a table with a name.")
        if isinstance(spec, Mapping):
            if "name" not in spec:
                raise ConfigError(f"A {self.kind} has no name: {dict(spec)}.", f"Known: {', '.join(self)}.")
            settings = {**spec, **settings}
            spec = settings.pop("name")
        component = self.find(spec)
        accepted = [field.name for field in fields(component)]
        for name in settings:
            if name not in accepted:
                close = difflib.get_close_matches(name, accepted, n=1)
                raise ConfigError(
                    f"{self.kind.capitalize()} {spec!r} does not take {name!r}.",
                    f"{f'Did you mean {close[0]!r}? ' if close else ''}Its settings: {', '.join(accepted) or 'none'}.",
                )
        return component(**check_types(component, settings))

    def defaults(self, name: str) -> dict[str, Any]:
        """The settings of a component with their default values; None for those without."""
        return {field.name: _plain(_default(field)) for field in fields(self.find(name))}


class ComponentField(Generic[C]):
    """A dataclass field that holds a component; it may also be given as a name or a table."""

    def __init__(self, registry: Registry[C], default: str) -> None:
        self.registry = registry
        self.default = default

    def __set_name__(self, owner: type, name: str) -> None:
        self.name = name

    def __get__(self, instance: object | None, owner: type | None = None) -> C:
        return cast("C", self.default if instance is None else vars(instance)[self.name])

    def __set__(self, instance: object, value: C | str) -> None:
        vars(instance)[self.name] = self.registry.build(value)


#: Every registry that has been imported, by the kind of its components.
_REGISTRIES: dict[str, Registry[Any]] = {}


def register(component: Any) -> Any:
    """Class decorator: register a component by its name in this process.

    To install a component everywhere, also on devices, offer it as an entry point of a package instead.
    """
    for registry in _REGISTRIES.values():
        if isinstance(component, type) and issubclass(component, registry.base):
            return registry.register(component)
    raise ConfigError(f"{component!r} is not a component.", f"Extend the base class of a {', a '.join(_REGISTRIES)}.")


@cache
def _installed(group: str) -> dict[str, EntryPoint]:
    found: dict[str, EntryPoint] = {}
    for entry in entry_points(group=group):
        if found.setdefault(entry.name, entry).value != entry.value:
            raise ConfigError(
                f"Two packages offer {entry.name!r} in {group}: {found[entry.name].value} and {entry.value}.",
                "Uninstall one of them.",
            )
    return found


def _incomplete(component: type) -> str:
    """Why a component class cannot be used by its name; empty if it can."""
    names = [field.name for field in fields(component)]
    if "name" in names:
        return "name is a field: annotate it as ClassVar[str]."
    own = [name for name, kind in vars(component).get("__annotations__", {}).items() if "ClassVar" not in str(kind)]
    if not set(own) <= set(names):
        return f"its setting {own[0]!r} is not a dataclass field: decorate the class with @dataclass(frozen=True)."
    if missing := getattr(component, "__abstractmethods__", None):
        return f"it does not implement {', '.join(sorted(missing))}."
    return ""


def _load(entry: EntryPoint, kind: str) -> type[Any]:
    try:
        component: type[Any] = entry.load()
    except Exception as error:  # importing a package may raise anything
        raise ConfigError(
            f"The {kind} {entry.name!r} ({entry.value}) cannot be imported: {type(error).__name__}: {error}.",
            "Check the installation of its package.",
        ) from error
    name = getattr(component, "name", None)
    if name != entry.name:
        raise ConfigError(
            f"The entry point {entry.name!r} leads to {entry.value}, whose name is {name!r}.",
            "Give the class the name of its entry point.",
        )
    return component


def _default(field: Field[Any]) -> Any:
    if field.default_factory is not MISSING:
        return field.default_factory()
    return None if field.default is MISSING else field.default


def _plain(value: Any) -> Any:
    if isinstance(value, tuple):
        return [_plain(element) for element in value]
    return value.item() if hasattr(value, "item") else value
