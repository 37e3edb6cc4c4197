"""Schemas of tools, fitted to what providers take: they refuse a whole request for one tool whose schema they do not.

OpenAI and Claude want an object at the top, which is no reference, no choice and no ``enum``. What stood there is
merged into one object that every call of the tool fits, and told to the model in the description; the arguments are
checked against the schema as the tool declares it. OpenAI wants to know what is in an array, Claude names of its own
kind for the arguments: theirs come back as the tool calls them.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from functools import lru_cache
from typing import Any, Final, NamedTuple

import orjson

from palaver.schemas.grammars import ToolGrammar
from palaver.schemas.json_schemas import referred
from palaver.schemas.mended_schemas import NAMED, ONE, ROWS, mended
from palaver.schemas.schema_types import both

_NOT_AT_TOP: Final = frozenset(("$ref", "anyOf", "oneOf", "allOf", "enum", "not"))
_TOLD: Final = 1_000
"""Characters of what is not at the top any more that the model is told."""
_LEVELS: Final = 16
_PARTS: Final = 256
"""Levels and parts of references and choices at the top that are looked at; what is beyond says nothing."""
_CACHED: Final = 512


class FittedTool(NamedTuple):
    """The schema of a tool as a provider takes it, as JSON, and the tool's names for arguments that had to be called
    otherwise."""

    schema: bytes
    names: Mapping[str, str]


def fitted_tool(parameters: Mapping[str, Any], grammar: ToolGrammar) -> FittedTool:
    """Return the schema with these ``parameters`` as the provider takes it; as it is, if that is how it is."""
    return _fitted(orjson.dumps(parameters), grammar)


@lru_cache(maxsize=_CACHED)
def _fitted(text: bytes, grammar: ToolGrammar) -> FittedTool:
    given: dict[str, Any] = orjson.loads(text)
    made, names = _renamed(_at_top(mended(given)) if given else given, grammar.names)
    made = _whole(made, given)
    if grammar.described and given:
        made = _described(made)
    return FittedTool(text if made == given else orjson.dumps(made), names)


def _at_top(schema: dict[str, Any]) -> dict[str, Any]:
    """The schema as one object, if it is none."""
    made = schema
    if not _NOT_AT_TOP.isdisjoint(schema):
        made = _merged(schema, schema, 0, iter(range(_PARTS)))
        told = {name: schema[name] for name in schema if name in _NOT_AT_TOP - {"$ref"}}
        if told:
            words = f"Has to fit: {orjson.dumps(told).decode()}"
            words = words if len(words) <= _TOLD else f"{words[:_TOLD]}…"
            made["description"] = f"{made['description']} {words}" if made.get("description") else words
    return made if made.get("type") == "object" else {**made, "type": "object"}


def _merged(part: Any, root: dict[str, Any], level: int, parts: Iterator[int]) -> dict[str, Any]:
    """One object of a schema and all that it refers to, has to fit, and may fit."""
    if not isinstance(part, dict) or level > _LEVELS or next(parts, None) is None:
        return {}
    made = {name: value for name, value in part.items() if name not in _NOT_AT_TOP}
    if isinstance(target := part.get("$ref"), str):
        with suppress(LookupError):
            made = both(made, _merged(referred(root, target), root, level + 1, parts))
    for member in part.get("allOf") or ():
        made = both(made, _merged(member, root, level + 1, parts))
    for name in ("anyOf", "oneOf"):
        members = [_merged(member, root, level + 1, parts) for member in part.get(name) or ()]
        made = both(made, _any_of([member for member in members if "object" in _kinds(member)]))
    return made


def _any_of(members: list[dict[str, Any]]) -> dict[str, Any]:
    """One object that each of these objects is."""
    properties: dict[str, list[Any]] = {}
    for member in members:
        for name, value in member.get("properties", {}).items():
            found = properties.setdefault(name, [])
            found += [] if value in found else [value]
    made: dict[str, Any] = {
        "properties": {n: each[0] if len(each) == 1 else {"anyOf": each} for n, each in properties.items()}
    }
    required = [{*member.get("required", ())} for member in members]
    if needed := [name for name in properties if required and all(name in names for names in required)]:
        made["required"] = needed
    if members and all(member.get("additionalProperties") is False for member in members):
        made["additionalProperties"] = False
    return made


def _kinds(part: Mapping[str, Any]) -> Iterable[str]:
    kinds = part.get("type", "object")
    return kinds if isinstance(kinds, list) else (kinds,)


def _described(part: Any, *, top: bool = True) -> Any:
    """A part that says what is in an array, and at the top which properties there are."""
    if not isinstance(part, dict):
        return part
    made: dict[str, Any] = {}
    for name, value in part.items():
        if isinstance(value, dict) and (name in NAMED or name == "dependencies"):
            made[name] = {each: _described(member, top=False) for each, member in value.items()}
        elif isinstance(value, list) and name in ROWS:
            made[name] = [_described(member, top=False) for member in value]
        else:
            made[name] = _described(value, top=False) if name in ONE else value
    if top:
        made.setdefault("properties", {})
    if "array" in _kinds(part) and "items" not in made:
        made["items"] = {}
    return made


def _whole(made: dict[str, Any], given: dict[str, Any]) -> dict[str, Any]:
    """The schema with all that its references lead to in ``given``, by name where it is elsewhere now; one that leads
    to nothing says nothing."""
    moved: dict[str, str] = {}
    known: dict[str, Any] = {}

    def followed(part: Any) -> Any:
        if isinstance(part, list):
            return [followed(member) for member in part]
        if not isinstance(part, dict):
            return part
        whole = {name: followed(value) for name, value in part.items()}
        if isinstance(target := part.get("$ref"), str) and not _leads(made, target):
            del whole["$ref"]
            if _leads(given, target):
                whole["$ref"] = placed(target)
        return whole

    def placed(target: str) -> str:
        if target not in moved:
            name = f"moved_{hashlib.sha256(target.encode()).hexdigest()[:8]}"
            moved[target] = f"#/$defs/{name}"
            known[name] = followed(mended(referred(given, target)))
        return moved[target]

    whole: dict[str, Any] = followed(made)
    return {**whole, "$defs": {**whole.get("$defs", {}), **known}} if known else whole


def _leads(schema: dict[str, Any], target: str) -> bool:
    """Tell whether a reference leads to a schema."""
    try:
        return isinstance(referred(schema, target), dict | bool)
    except LookupError:
        return False


def _renamed(schema: dict[str, Any], names: re.Pattern[str] | None) -> tuple[dict[str, Any], Mapping[str, str]]:
    """The schema with names for its arguments that all match, and the tool's name for each that did not."""
    properties = schema.get("properties", {})
    odd = [name for name in properties if names is not None and not names.fullmatch(name)]
    if not odd:
        return schema, {}
    called: dict[str, str] = {}
    for name in odd:
        safe = re.sub(r"[^A-Za-z0-9_.-]", "_", name)[:50]
        if safe in properties or safe in called.values() or len(name) > len(safe) or not safe:
            safe = f"{safe}_{hashlib.sha256(name.encode()).hexdigest()[:8]}"
        called[name] = safe
    made = {**schema, "properties": {called.get(name, name): value for name, value in properties.items()}}
    if isinstance(required := schema.get("required"), list):
        made["required"] = [called.get(name, name) for name in required]
    return made, {safe: name for name, safe in called.items()}
