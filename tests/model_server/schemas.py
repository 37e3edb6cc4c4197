"""Schemas of answers and tools: what Claude and OpenAI refuse a request for, in their words."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any
from urllib.parse import unquote

import jsonschema_rs

from features.fake_provider.requests import InvalidRequest

NAME = re.compile(r"[A-Za-z0-9_.-]{1,64}")
AT_TOP = ("oneOf", "anyOf", "allOf", "enum", "not")
CLAUDE = frozenset({
    "type", "title", "description", "enum", "const", "default", "properties", "required", "additionalProperties",
    "items", "minItems", "anyOf", "allOf", "$ref", "$defs", "definitions", "format", "pattern",
})  # fmt: skip
STRICT = frozenset({
    "type", "title", "description", "enum", "const", "properties", "required", "additionalProperties", "items",
    "minItems", "maxItems", "anyOf", "$ref", "$defs", "definitions", "format", "pattern", "minimum", "maximum",
    "exclusiveMinimum", "exclusiveMaximum", "multipleOf",
})  # fmt: skip
FORMATS = frozenset({"date-time", "time", "date", "duration", "email", "hostname", "ipv4", "ipv6", "uuid"})
LEVELS = 10


def judge_answer_of_claude(schema: dict[str, Any]) -> None:
    """Raise InvalidRequest for a schema that structured outputs do not take."""
    where = "output_config.format.schema"
    optional = unions = 0
    for part in _parts(schema):
        kinds = _kinds(part)
        for name, value in part.items():
            if name not in CLAUDE:
                raise InvalidRequest(f"{where}: For '{kinds[0]}' type, property '{name}' is not supported")
            if name == "minItems" and value not in (0, 1):
                raise InvalidRequest(f"{where}: For 'array' type, 'minItems' values but 0 or 1 are not supported")
            if name == "format" and value not in FORMATS | {"uri"}:
                raise InvalidRequest(f"{where}: String format '{value}' is not supported")
            if name == "items" and not isinstance(value, dict):
                raise InvalidRequest(f"{where}: 'items' must be a schema")
            if name == "enum" and any(isinstance(each, dict | list) for each in value):
                raise InvalidRequest(f"{where}: Enum values must be primitives")
            if name == "allOf" and any("$ref" in each for each in value):
                raise InvalidRequest(f"{where}: allOf with $ref is not supported")
        if not {"type", "anyOf", "allOf", "$ref"} & part.keys():
            raise InvalidRequest(f"{where}: Schema must have a 'type', 'anyOf', 'oneOf', or 'allOf' field")
        if "object" in kinds:
            if part.get("additionalProperties") is not False:
                raise InvalidRequest(
                    f"{where}: For 'object' type, 'additionalProperties' must be explicitly set to false"
                )
            optional += len(part.get("properties", {}).keys() - {*part.get("required", [])})
        unions += "anyOf" in part or len(kinds) > 1
    _require_references(schema, f"{where}: $ref leads to nothing")
    if _recurs(schema, schema, ()):
        raise InvalidRequest(f"{where}: Recursive schemas are not supported")
    if optional > 24 or unions > 16:
        raise InvalidRequest(f"{where}: Schema has too many optional parameters or union types")


def judge_strict_answer(name: str, schema: dict[str, Any]) -> None:
    """Raise InvalidRequest for a schema that OpenAI does not take with ``strict``."""

    def refuse(why: str) -> InvalidRequest:
        return InvalidRequest(f"Invalid schema for response_format '{name}': {why}", "response_format")

    if schema.get("type") != "object":
        raise refuse(f"schema must be a JSON Schema of 'type: \"object\"', got 'type: \"{schema.get('type')}\"'.")
    for part in _parts(schema):
        if "$ref" in part:
            if len(part) > 1 and part is not schema:
                raise refuse(f"$ref cannot have keywords {{{', '.join(part.keys() - {'$ref'})}}}.")
            continue
        for keyword in part:
            if keyword not in STRICT:
                raise refuse(f"'{keyword}' is not permitted.")
        if "type" not in part and "anyOf" not in part:
            raise refuse("schema must have a 'type' key.")
        for value in part.get("enum", ()):
            if part.get("type") == "string" and not isinstance(value, str):
                raise refuse(f"enum value {value} does not validate against {{'type': 'string'}}.")
        if part.get("format", "date") not in FORMATS:
            raise refuse(f"'{part['format']}' is not a valid format.")
        if "object" in _kinds(part):
            if part.get("additionalProperties") is not False:
                raise refuse("'additionalProperties' is required to be supplied and to be false.")
            if {*part.get("properties", {})} != {*part.get("required", [])}:
                raise refuse("'required' is required to be supplied and to be an array including every key.")
        if "array" in _kinds(part) and not isinstance(part.get("items"), dict):
            raise refuse("array schema missing items.")
    _require_references(schema, str(refuse("reference to a component which was not found in the schema.")))
    if _levels(schema) > LEVELS:
        raise refuse(f"{_levels(schema)} levels of nesting exceeds limit of {LEVELS}.")


def judge_tool_of_claude(where: str, schema: dict[str, Any]) -> None:
    """Raise InvalidRequest for the schema of a tool that Claude does not take."""
    if {"oneOf", "allOf", "anyOf"} & schema.keys():
        raise InvalidRequest(f"{where}: input_schema does not support oneOf, allOf, or anyOf at the top level")
    _draft(schema, f"{where}: JSON schema is invalid. It must match JSON Schema draft 2020-12")
    _require_references(schema, f"{where}: JSON schema is invalid")
    if any(not NAME.fullmatch(name) for name in schema.get("properties", {})):
        raise InvalidRequest(f"{where}.properties: Property keys should match pattern '^[a-zA-Z0-9_.-]{{1,64}}$'")


def judge_tool_of_openai(name: str, schema: dict[str, Any]) -> None:
    """Raise InvalidRequest for the schema of a tool that OpenAI does not take. No schema at all is one without
    arguments."""

    def refuse(why: str) -> InvalidRequest:
        return InvalidRequest(f"Invalid schema for function '{name}': {why}", "tools")

    if not schema:
        return
    if schema.get("type") != "object" or any(keyword in schema for keyword in AT_TOP):
        raise refuse(
            "schema must have type 'object' and not have 'oneOf'/'anyOf'/'allOf'/'enum'/'not' at the top level."
        )
    if not isinstance(schema.get("properties"), dict):
        raise refuse("In context=(), object schema missing properties.")
    if any("array" in _kinds(part) and "items" not in part for part in _parts(schema)):
        raise refuse("array schema missing items.")
    _draft(schema, str(refuse("is not valid under any of the given schemas.")))
    _require_references(schema, str(refuse("reference can only point to definitions that are there.")))


def _require_references(schema: dict[str, Any], why: str) -> None:
    for part in _parts(schema):
        try:
            _found(part.get("$ref", "#"), schema)
        except (LookupError, ValueError):
            raise InvalidRequest(why) from None


def _draft(schema: dict[str, Any], why: str) -> None:
    plain = {name: value for name, value in schema.items() if name != "$schema"}
    if not jsonschema_rs.meta.is_valid(plain):
        raise InvalidRequest(why)


def _kinds(part: Mapping[str, Any]) -> list[str]:
    kinds = part.get("type", "any")
    return kinds if isinstance(kinds, list) else [kinds]


def _parts(schema: Any) -> Iterator[dict[str, Any]]:
    """The schema and each that it holds."""
    if not isinstance(schema, dict):
        return
    yield schema
    for name in ("properties", "$defs", "definitions", "patternProperties", "dependentSchemas", "dependencies"):
        for member in schema.get(name, {}).values() if isinstance(schema.get(name), dict) else ():
            yield from _parts(member)
    for name in ("items", "additionalProperties", "not", "if", "then", "else", "contains", "propertyNames"):
        yield from _parts(schema.get(name))
    for name in ("anyOf", "oneOf", "allOf", "prefixItems"):
        for member in schema.get(name, ()):
            yield from _parts(member)


def _recurs(part: Any, root: dict[str, Any], within: tuple[str, ...]) -> bool:
    """Whether a reference leads back into itself."""
    return any(
        each["$ref"] in within or _recurs(_found(each["$ref"], root), root, (*within, each["$ref"]))
        for each in _parts(part)
        if isinstance(each.get("$ref"), str)
    )


def _found(target: str, root: Any) -> Any:
    for name in unquote(target).split("/")[1:]:
        name = name.replace("~1", "/").replace("~0", "~")
        root = root[int(name) if isinstance(root, list) else name]
    return root


def _levels(part: Mapping[str, Any]) -> int:
    """Levels of objects."""
    held = [*part.get("properties", {}).values(), *part.get("anyOf", ())]
    held += [part["items"]] if isinstance(part.get("items"), dict) else []
    return ("object" in _kinds(part)) + max(map(_levels, held), default=0)
