"""JSON schemas as generators write them, in the words of JSON Schema 2020-12, which is what providers read.

OpenAPI, older drafts, Python and people have words of their own: ``"type": "STRING"``, ``"exclusiveMinimum": true``,
``"required": null``. What has a meaning is written as it is today, and null in place of a value says nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

ONE: Final = frozenset((
    "items", "additionalItems", "additionalProperties", "not", "if", "then", "else", "contains", "propertyNames",
    "unevaluatedItems", "unevaluatedProperties", "contentSchema",
))  # fmt: skip
ROWS: Final = frozenset(("anyOf", "oneOf", "allOf", "prefixItems"))
NAMED: Final = frozenset(("properties", "patternProperties", "$defs", "definitions", "dependentSchemas"))
"""Keywords that hold a schema, schemas in a row, and schemas with names."""
_OTHER_TYPES: Final[Mapping[str, str]] = {
    "str": "string", "text": "string", "date": "string", "datetime": "string", "uuid": "string", "file": "string",
    "int": "integer", "long": "integer", "float": "number", "double": "number", "decimal": "number", "bool": "boolean",
    "list": "array", "tuple": "array", "dict": "object", "map": "object", "none": "null", "nonetype": "null",
}  # fmt: skip
"""Names of types elsewhere, in lower case, and the one that is meant."""
_ANY: Final = frozenset(("any", "mixed", "unknown", "undefined"))


_VALUES: Final = frozenset(("default", "const", "example", "examples"))
"""Keywords of which null is a value."""


def mended(part: Any) -> Any:
    """Return a schema in words of today; it is equal to ``part``, in the same order, if that is how it is."""
    if not isinstance(part, dict):
        return part
    made: dict[str, Any] = {}
    for name, value in part.items():
        match name, value:
            case _, None if name not in _VALUES:
                pass
            case "type", _:
                if kinds := _kinds(value):
                    made[name] = kinds if isinstance(value, list) else kinds[0]
            case "required", list():
                made[name] = list(dict.fromkeys(value)) if all(isinstance(each, str) for each in value) else value
            case "required", bool():
                pass
            case "items", list():
                if value:
                    made["prefixItems"] = [mended(member) for member in value]
                made["items"] = mended(part.get("additionalItems", {}))
            case "additionalItems", _ if isinstance(part.get("items"), list):
                pass
            case (("exclusiveMinimum" | "exclusiveMaximum"), bool()):
                bound = "minimum" if name == "exclusiveMinimum" else "maximum"
                if value and bound in part:
                    made[name] = part[bound]
            case "$id", str() if value.startswith("#"):
                made.setdefault("$anchor", value[1:])
            case _, dict() if name in NAMED:
                made[name] = {each: {} if member is None else mended(member) for each, member in value.items()}
            case _, [] if name in NAMED:  # as PHP writes an empty object
                made[name] = {}
            case _, list() if name in ROWS:
                if value:
                    made[name] = [mended(member) for member in value]
            case _ if name in ONE:
                made[name] = mended(value)
            case _:
                made[name] = value
    if needed := _needed(part.get("properties")):
        made["required"] = list(dict.fromkeys((*made.get("required", ()), *needed)))
    return made


def _needed(properties: object) -> list[str]:
    """The properties that say themselves that they are required, as in draft 3."""
    held = properties.items() if isinstance(properties, dict) else ()
    return [name for name, part in held if isinstance(part, dict) and part.get("required") is True]


def _kinds(value: object) -> list[object]:
    """Types, each once, under their names of today; none for any."""
    named = [
        each.lower() if isinstance(each, str) else each for each in (value if isinstance(value, list) else [value])
    ]
    if not _ANY.isdisjoint(each for each in named if isinstance(each, str)):
        return []
    return list({str(each): _OTHER_TYPES.get(each, each) if isinstance(each, str) else each for each in named}.values())
