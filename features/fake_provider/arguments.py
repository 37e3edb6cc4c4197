"""Tool arguments that fit a tool's JSON schema, the same for the same call."""

from __future__ import annotations

from typing import Any

import orjson

from .marks import written

MAX_DEPTH = 8
"""A schema may refer to itself; below this depth a value is left empty."""


def marked(last_user: str) -> str | None:
    """Read the user's `[[args {...}]]`, to the letter. Raises InvalidRequest if it is no object."""
    return written(last_user, "args")


def made(schema: dict[str, Any], ordinal: int) -> str:
    """Arguments for the `ordinal`-th call of the turn: the required properties, or all if none is."""
    return orjson.dumps(_object(schema, schema, ordinal, 0, every=not schema.get("required"))).decode()


def _object(root: dict[str, Any], schema: dict[str, Any], ordinal: int, depth: int, *, every: bool) -> dict[str, Any]:
    properties: dict[str, Any] = schema.get("properties") or {}
    names = list(properties) if every else list(schema.get("required") or [])
    return {name: _value(root, properties.get(name, {}), ordinal, depth + 1) for name in names}


def _value(root: dict[str, Any], schema: Any, ordinal: int, depth: int) -> Any:
    if not isinstance(schema, dict):
        return None
    if "const" in schema:
        return schema["const"]
    if schema.get("enum"):
        return schema["enum"][0]
    if depth > MAX_DEPTH:
        return None
    if "$ref" in schema:
        return _value(root, _referred(root, schema["$ref"]), ordinal, depth + 1)
    for union in ("anyOf", "oneOf", "allOf"):
        if schema.get(union):
            options = [option for option in schema[union] if option.get("type") != "null"]
            return _value(root, options[0] if options else {"type": "null"}, ordinal, depth + 1)
    kind = schema.get("type", "object" if "properties" in schema else "string")
    if isinstance(kind, list):
        kind = next((one for one in kind if one != "null"), "null")
    match kind:
        case "string":
            return f"1 + {ordinal}"
        case "integer":
            return int(_within(schema, ordinal))
        case "number":
            return _within(schema, round(0.01 * ordinal, 6))
        case "boolean":
            return True
        case "array":
            return [_value(root, schema.get("items", {}), ordinal, depth + 1)] * schema.get("minItems", 0)
        case "object":
            return _object(root, schema, ordinal, depth, every=False)
    return None


def _within(schema: dict[str, Any], value: float) -> float:
    least = max(value, float(schema.get("minimum", value)))
    return min(least, float(schema.get("maximum", least)))


def _referred(root: dict[str, Any], reference: str) -> Any:
    node: Any = root
    for step in reference.removeprefix("#/").split("/"):
        node = node.get(step, {}) if isinstance(node, dict) else {}
    return node
