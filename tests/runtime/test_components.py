"""Components: built from objects, names and tables; found where they are registered or installed."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import FrozenInstanceError, dataclass, replace
from pathlib import Path
from typing import ClassVar

import pytest

from fedforget.errors import ConfigError, MissingComponentError
from fedforget.runtime import components
from fedforget.runtime.components import Component, ComponentField, Registry, register

GROUP = "fedforget.test_shapes"
#: A package whose shape is in a module of its own, beside one that names a module which does not exist.
INSTALLED = f"""[{GROUP}]
triangle = made_shapes:Triangle
broken = made_shapes_that_are_not_there:Broken
renamed = made_shapes:Renamed
"""
MODULE = """
from dataclasses import FrozenInstanceError, dataclass, replace
from typing import ClassVar

from tests.runtime.test_components import Shape


@dataclass(frozen=True)
class Triangle(Shape):
    height: float = 2.0

    name: ClassVar[str] = "triangle"


class Renamed(Shape):
    name: ClassVar[str] = "another"
"""


@dataclass(frozen=True)
class Shape(Component):
    """A kind of component that only these tests have."""


@dataclass(frozen=True)
class Circle(Shape):
    radius: float = 1.0
    centre: tuple[int, ...] = (0, 0)

    name: ClassVar[str] = "circle"


@dataclass(frozen=True)
class Point(Shape):
    name: ClassVar[str] = "point"


@pytest.fixture
def shapes() -> Iterator[Registry[Shape]]:
    yield Registry("shape", GROUP, Shape, Circle, Point)
    del components._REGISTRIES["shape"]


@pytest.fixture
def installed(shapes: Registry[Shape], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Registry[Shape]]:
    """The registry, while a package with entry points of its group is installed."""
    info = tmp_path / "made_shapes-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: made-shapes\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(INSTALLED)
    (tmp_path / "made_shapes.py").write_text(MODULE)
    monkeypatch.syspath_prepend(tmp_path)
    components._installed.cache_clear()
    yield shapes
    components._installed.cache_clear()


def test_a_component_is_built_from_itself_its_name_or_a_table(shapes: Registry[Shape]) -> None:
    circle = Circle(3.0)
    assert shapes.build(circle) is circle
    assert shapes.build("circle") == Circle()
    assert shapes.build("circle", radius=3.0) == circle
    assert shapes.build({"name": "circle", "radius": 3.0}) == circle
    assert shapes.build({"name": "circle", "radius": 5.0}, radius=3.0) == circle
    assert shapes.build({"name": "point"}) == Point()


def test_settings_are_plain_values_and_the_name_alone_where_there_are_none() -> None:
    assert Circle(3.0).settings() == Circle(3.0).spec() == {"name": "circle", "radius": 3.0, "centre": [0, 0]}
    assert Point().settings() == {"name": "point"}
    assert Point().spec() == "point"


def test_names_and_defaults_are_listed(shapes: Registry[Shape]) -> None:
    assert list(shapes) == ["circle", "point"]
    assert "circle" in shapes
    assert "square" not in shapes
    assert shapes.defaults("circle") == {"radius": 1.0, "centre": [0, 0]}
    assert components._REGISTRIES["shape"] is shapes


@pytest.mark.parametrize("spec", ["cirlce", {"name": "cirlce", "radius": 2.0}], ids=["name", "table"])
def test_an_unknown_name_is_refused_and_the_closest_one_suggested(shapes: Registry[Shape], spec: object) -> None:
    with pytest.raises(MissingComponentError, match=r"'cirlce'(.|\n)*mean 'circle'"):
        shapes.build(spec)


@pytest.mark.parametrize("spec", [None, 3], ids=str)
def test_a_name_that_is_no_text_is_refused(shapes: Registry[Shape], spec: object) -> None:
    with pytest.raises(MissingComponentError) as refused:
        shapes.build(spec)
    assert GROUP in str(refused.value)


@pytest.mark.parametrize("spec", [{}, {"radius": 2.0}], ids=str)
def test_a_table_without_a_name_is_an_error_of_its_own(shapes: Registry[Shape], spec: object) -> None:
    with pytest.raises(ConfigError, match="A shape has no name") as refused:
        shapes.build(spec)
    assert not isinstance(refused.value, MissingComponentError)


def test_an_unknown_setting_is_refused_with_those_that_there_are(shapes: Registry[Shape]) -> None:
    with pytest.raises(ConfigError, match=r"Shape 'circle' does not take(.|\n)*diameter(.|\n)*radius, centre"):
        shapes.build({"name": "circle", "diameter": 2.0})
    with pytest.raises(ConfigError, match=r"Shape 'point' does not take(.|\n)*settings: none"):
        shapes.build("point", radius=1.0)


def test_a_registered_class_is_found_by_its_name(shapes: Registry[Shape]) -> None:
    @register
    @dataclass(frozen=True)
    class Square(Shape):
        side: float = 1.0

        name: ClassVar[str] = "square"

    assert shapes.build("square", side=2.0) == Square(2.0)
    assert list(shapes) == ["circle", "point", "square"]
    assert shapes.register(Square) is Square


def test_a_class_of_another_kind_or_without_a_name_is_not_registered(shapes: Registry[Shape]) -> None:
    @dataclass(frozen=True)
    class Colour(Component):
        name: ClassVar[str] = "red"

    class Nameless(Shape):
        pass

    for other in (Colour, Nameless, int):
        with pytest.raises(ConfigError, match=rf"{other.__name__} is not a shape(.|\n)*Extend Shape"):
            shapes.register(other)  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match=r"Colour(.|\n)*is not a component"):
        register(Colour)
    assert list(shapes) == ["circle", "point"]


def test_a_name_that_is_taken_is_not_given_to_another_class(shapes: Registry[Shape]) -> None:
    class Ring(Circle):
        pass

    with pytest.raises(ConfigError, match=r"a shape named 'circle' already(.|\n)*test_components\.Circle"):
        shapes.register(Ring)
    assert shapes.find("circle") is Circle


def test_a_component_of_an_installed_package_is_listed_found_and_built(installed: Registry[Shape]) -> None:
    assert list(installed) == ["circle", "point", "triangle", "broken", "renamed"]
    assert "triangle" in installed
    built = installed.build({"name": "triangle", "height": 5.0})
    assert isinstance(built, Shape)
    assert built.settings() == {"name": "triangle", "height": 5.0}
    assert installed.defaults("triangle") == {"height": 2.0}
    assert list(installed) == ["circle", "point", "triangle", "broken", "renamed"]


def test_an_entry_point_that_cannot_be_imported_is_named(installed: Registry[Shape]) -> None:
    with pytest.raises(ConfigError, match=r"shape 'broken' \(made_shapes_that_are_not_there:Broken\) cannot be import"):
        installed.build("broken")


def test_an_entry_point_that_leads_to_a_class_of_another_name_is_refused(installed: Registry[Shape]) -> None:
    with pytest.raises(ConfigError, match=r"entry point 'renamed' leads to made_shapes:Renamed(.|\n)*'another'"):
        installed.build("renamed")


def test_a_component_field_takes_an_object_a_name_or_a_table(shapes: Registry[Shape]) -> None:
    @dataclass(frozen=True)
    class Drawing:
        shape: ComponentField[Shape] = ComponentField(shapes, "circle")
        width: int = 1

    assert Drawing().shape == Circle()
    assert (
        Drawing("circle")
        == Drawing(Circle())
        == Drawing({"name": "circle"})
        == replace(Drawing(Point()), shape="circle")
    )
    assert hash(Drawing("point")) == hash(Drawing(Point()))
    assert Drawing("point") != Drawing()
    with pytest.raises(MissingComponentError, match="'cirlce'"):
        Drawing("cirlce")
    with pytest.raises(FrozenInstanceError):
        Drawing().shape = "point"  # type: ignore[misc]
