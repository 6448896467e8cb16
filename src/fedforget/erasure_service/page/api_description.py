"""ApiDescription: an OpenAPI document, laid out for a page."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

#: Groups of operations, in this order; others follow.
TAGS = ("OpenDSR", "Service")
#: Constraints of a value, in words.
CONSTRAINTS = {
    "minLength": "at least {} characters",
    "maxLength": "at most {} characters",
    "minimum": "at least {}",
    "maximum": "at most {}",
    "minItems": "at least {} entries",
    "maxItems": "at most {} entries",
    "pattern": "matches {}",
    "default": "default {}",
}


@dataclass(frozen=True)
class Field:
    """A parameter, or a field of a schema. ``link`` is the name of a schema."""

    name: str
    place: str
    type: str
    link: str
    required: bool
    text: str


@dataclass(frozen=True)
class Answer:
    """A response of an operation."""

    code: str
    text: str
    type: str
    link: str


@dataclass(frozen=True)
class Operation:
    """One operation of the API."""

    anchor: str
    method: str
    path: str
    text: str
    secured: bool
    parameters: Sequence[Field]
    body: str
    body_link: str
    answers: Sequence[Answer]


@dataclass(frozen=True)
class Schema:
    """A schema: its fields, or the values that it allows; an example if it has one."""

    name: str
    text: str
    fields: Sequence[Field]
    values: Sequence[str]
    example: str


@dataclass(frozen=True)
class ApiDescription:
    """An API: operations by group, and schemas."""

    title: str
    version: str
    text: str
    groups: Sequence[tuple[str, Sequence[Operation]]]
    schemas: Sequence[Schema]


def describe(document: Mapping[str, Any]) -> ApiDescription:
    """The description of an API from its OpenAPI document."""
    groups: dict[str, list[Operation]] = {tag: [] for tag in TAGS}
    for path, operations in document["paths"].items():
        for method, operation in operations.items():
            tag = (operation.get("tags") or ["Other"])[0]
            groups.setdefault(tag, []).append(_operation(path, method, operation))
    schemas = document.get("components", {}).get("schemas", {})
    return ApiDescription(
        title=document["info"]["title"],
        version=document["info"]["version"],
        text=document["info"].get("description", ""),
        groups=[(tag, found) for tag, found in groups.items() if found],
        schemas=[_schema(name, schemas[name]) for name in sorted(schemas)],
    )


def _operation(path: str, method: str, operation: Mapping[str, Any]) -> Operation:
    content: dict[str, dict[str, Any]] = operation.get("requestBody", {}).get("content", {})
    body: dict[str, Any] = next(iter(content.values()), {}).get("schema", {})
    return Operation(
        anchor=operation.get("operationId", f"{method}{path}"),
        method=method.upper(),
        path=path,
        text=operation.get("description", operation.get("summary", "")),
        secured=bool(operation.get("security")),
        parameters=[_parameter(one) for one in operation.get("parameters", ())],
        body=_type(body) if content else "",
        body_link=_link(body),
        answers=[_answer(code, one) for code, one in operation["responses"].items()],
    )


def _parameter(one: Mapping[str, Any]) -> Field:
    schema = one.get("schema", {})
    text = _words(one.get("description", ""), schema)
    return Field(one["name"], one["in"], _type(schema), _link(schema), one.get("required", False), text)


def _answer(code: str, one: Mapping[str, Any]) -> Answer:
    contents: dict[str, dict[str, Any]] = one.get("content", {})
    media = next(iter(contents), "")
    schema: dict[str, Any] = contents.get(media, {}).get("schema", {})
    kind = _type(schema) if _link(schema) else media
    return Answer(code, one.get("description", ""), kind, _link(schema))


def _schema(name: str, schema: Mapping[str, Any]) -> Schema:
    required, example = schema.get("required", ()), schema.get("example")
    fields = [
        Field(key, "", _type(one), _link(one), key in required, _words(one.get("description", ""), one))
        for key, one in schema.get("properties", {}).items()
    ]
    return Schema(
        name,
        schema.get("description", ""),
        fields,
        [str(value) for value in schema.get("enum", ())],
        "" if example is None else json.dumps(example, indent=2),
    )


def _type(schema: Mapping[str, Any]) -> str:
    """The type of a value, in words."""
    if "$ref" in schema:
        return str(schema["$ref"]).rsplit("/", 1)[-1]
    if "const" in schema:
        return json.dumps(schema["const"])
    for name in ("anyOf", "oneOf", "allOf"):
        if name in schema:
            return " or ".join(dict.fromkeys(_type(one) for one in schema[name]))
    if schema.get("type") == "array":
        return f"list of {_type(schema.get('items', {}))}"
    if "enum" in schema:
        return " or ".join(json.dumps(value) for value in schema["enum"])
    if schema.get("type") == "object" and isinstance(schema.get("additionalProperties"), dict):
        return f"object of {_type(schema['additionalProperties'])}"
    kind, form = schema.get("type", "any"), schema.get("format")
    return f"{kind} ({form})" if form else str(kind)


def _link(schema: Mapping[str, Any]) -> str:
    """The name of the schema that a value refers to; '' if there is none."""
    if "$ref" in schema:
        return str(schema["$ref"]).rsplit("/", 1)[-1]
    inner = [schema["items"]] if "items" in schema else [*schema.get("anyOf", ()), *schema.get("allOf", ())]
    return next((name for one in inner if (name := _link(one))), "")


def _words(text: str, schema: Mapping[str, Any]) -> str:
    """A description with the constraints of a value."""
    inner: dict[str, Any] = next((one for one in schema.get("anyOf", ()) if one.get("type") != "null"), {})
    found = {**inner, **schema}
    limits = [form.format(found[name]) for name, form in CONSTRAINTS.items() if found.get(name) not in (None, [], {})]
    return " ".join(part for part in (text, f"({', '.join(limits)})" if limits else "") if part)
