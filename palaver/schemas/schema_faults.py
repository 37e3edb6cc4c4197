"""Faults of JSON schemas that requests bring: of the tools that clients run, and of answers."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

import orjson

from palaver.schemas.json_pointers import Path, pointer
from palaver.schemas.structured_output import output_schema_faults
from palaver.vocabulary.limits import count_exceeded, limit_of

_TYPES: Final = ("object", "array", "string", "number", "integer", "boolean", "null")
_HOLDERS: Final[Mapping[str, type[dict[str, Any]] | type[list[Any]]]] = {
    "properties": dict,
    "patternProperties": dict,
    "$defs": dict,
    "anyOf": list,
    "oneOf": list,
    "allOf": list,
    "prefixItems": list,
}
"""Keywords that hold schemas by name or in a row."""


def tool_schema_faults(schema: dict[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield where ``schema`` is none for the arguments of a tool, as a JSON pointer, and why."""
    if schema.get("type") != "object":
        yield "/type", 'must be "object": the arguments of a call are one'
    yield from _size_fault(schema, "tool_schema")
    faults = [*_faults({name: value for name, value in schema.items() if name != "type"}, ())]
    yield from faults or _word_faults(schema)


def answer_schema_faults(schema: dict[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield where ``schema`` is none that an answer can be held to, as a JSON pointer, and why."""
    faults = [*_size_fault(schema, "output_schema"), *_faults(schema, ())]
    yield from faults or output_schema_faults(schema)


def _word_faults(schema: dict[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield where a keyword has a value that JSON Schema does not know: providers refuse the whole request."""
    import jsonschema_rs

    try:
        jsonschema_rs.meta.validate(schema)
    except jsonschema_rs.ValidationError as error:
        yield pointer(tuple(error.instance_path)), "is no JSON schema: a keyword has a value that it cannot have"
    except Exception:
        yield "/$schema", "is a dialect of JSON Schema that is not known here"


def _size_fault(schema: dict[str, Any], limit: str) -> Iterator[tuple[str, str]]:
    size = len(orjson.dumps(schema))
    if size > limit_of(limit):
        count_exceeded(limit)
        yield "", f"has {size} bytes; at most {limit_of(limit)}"


def _faults(schema: Any, path: Path) -> Iterator[tuple[str, str]]:
    if isinstance(schema, bool):
        return
    if not isinstance(schema, dict):
        yield pointer(path), "must be a schema: an object or a boolean"
        return
    if not all(kind in _TYPES for kind in _row(schema.get("type", []))):
        yield pointer((*path, "type")), f"must be one of {', '.join(_TYPES)}, or a list of them"
    required = schema.get("required", [])
    if not isinstance(required, list) or not all(isinstance(name, str) for name in required):
        yield pointer((*path, "required")), "must be a list of names"
    for key, kind in _HOLDERS.items():
        held = schema.get(key, kind())
        if not isinstance(held, kind):
            yield pointer((*path, key)), f"must be {'an object' if kind is dict else 'a list'} of schemas"
            continue
        for name, member in held.items() if isinstance(held, dict) else enumerate(held):
            yield from _faults(member, (*path, key, name))
    for key in ("items", "additionalItems", "additionalProperties", "not"):
        held = schema.get(key, True)
        if key == "items" and isinstance(held, list):  # tuples of older drafts
            for place, member in enumerate(held):
                yield from _faults(member, (*path, key, place))
        else:
            yield from _faults(held, (*path, key))


def _row(value: object) -> list[object]:
    return value if isinstance(value, list) else [value]
