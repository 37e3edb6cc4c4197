"""The types of JSON in schemas: what tells them, what is about them, and two schemas as one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

TYPES: Final[Mapping[type, str]] = {
    str: "string", bool: "boolean", int: "integer", float: "number", type(None): "null", dict: "object", list: "array",
}  # fmt: skip
_TELLING: Final[Mapping[str, frozenset[str]]] = {
    "object": frozenset(("properties", "required", "additionalProperties")),
    "array": frozenset(("items", "prefixItems")),
    "string": frozenset(("pattern", "minLength", "maxLength", "format")),
    "number": frozenset(("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf")),
}
"""Keywords that tell the type."""
TYPE_OF: Final[Mapping[str, str]] = {
    **{name: kind for kind, names in _TELLING.items() for name in names},
    **dict.fromkeys(("minItems", "maxItems", "uniqueItems", "contains", "additionalItems"), "array"),
}
"""The type of the values that a keyword is about; of others it says nothing."""


def told_types(part: Mapping[str, Any]) -> list[str]:
    """Return the types of which a part that does not say it is: those of its values, or what its keywords are about."""
    values = part.get("enum") if isinstance(part.get("enum"), list) else [part["const"]] if "const" in part else []
    kinds = list(dict.fromkeys(TYPES[type(value)] for value in values or ()))
    if "number" in kinds and "integer" in kinds:
        kinds.remove("integer")
    return kinds or [kind for kind, names in _TELLING.items() if not names.isdisjoint(part)][:1]


def is_type(kind: str, kinds: Sequence[str]) -> bool:
    """Tell whether it is one of these types; integers and numbers are."""
    alike = {"integer": "number", "number": "integer"}
    return kind in kinds or alike.get(kind) in kinds


def both(one: dict[str, Any], other: dict[str, Any]) -> dict[str, Any]:
    """A part that holds to both; where both say something of the same kind, to the first alone."""
    both = {**other, **one}
    for name in ("properties", "$defs", "definitions"):
        if isinstance(mine := one.get(name), dict) and isinstance(others := other.get(name), dict):
            shared = {
                each: {"allOf": [mine[each], others[each]]}
                for each in mine
                if mine[each] != others.get(each, mine[each])
            }
            both[name] = {**others, **mine, **shared}
    if "type" in one and "type" in other:
        kinds = [kind for kind in _row(one["type"]) if kind in _row(other["type"])]
        both["type"] = one["type"] if not kinds else kinds[0] if len(kinds) == 1 else kinds
    if isinstance(one.get("required"), list) and isinstance(other.get("required"), list):
        both["required"] = list(dict.fromkeys((*one["required"], *other["required"])))
    if isinstance(one.get("enum"), list) and isinstance(other.get("enum"), list):
        both["enum"] = [value for value in one["enum"] if value in other["enum"]] or one["enum"]
    return both


def _row(kinds: Any) -> list[Any]:
    return kinds if isinstance(kinds, list) else [kinds]
