"""Schemas of answers, fitted to what a provider holds its models to.

Claude's structured outputs, and OpenAI's with ``strict``, take a part of JSON Schema and refuse a request that has more
of it. What only narrows values down is taken out and told to the model in the description, and the answer is checked
against the schema as its author wrote it. Whatever else is changed leaves nothing but answers that fit that one.
What cannot be said at all is refused, with its place.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import Any, Final
from urllib.parse import unquote

import orjson

from palaver.schemas.grammars import EVERYWHERE, Grammar
from palaver.schemas.json_pointers import Path, names_in, pointer
from palaver.schemas.json_schemas import recursion_of, referred
from palaver.schemas.schema_types import TYPE_OF, TYPES, both, is_type, told_types
from palaver.vocabulary.limits import limit_of

_ANNOTATIONS: Final = frozenset((
    "$schema", "$id", "$comment", "$anchor", "title", "description", "default", "examples", "deprecated", "readOnly",
    "writeOnly",
))  # fmt: skip
"""Keywords that constrain nothing."""
_DEFINITIONS: Final = frozenset(("$defs", "definitions"))
_ASIDE: Final = _ANNOTATIONS | _DEFINITIONS
_UNION: Final = ("anyOf", "oneOf")
_WHAT: Final = frozenset(
    ("type", "properties", "items", "prefixItems", "enum", "const", "$ref", "anyOf", "oneOf", "allOf")
)
_MOVED: Final = re.compile(r"/(?:oneOf|allOf|prefixItems|items/\d+)(?:/|$)")
"""Matches a reference into what is written otherwise."""
_IRREGULAR: Final = re.compile(r"\\[bBpPkAzZ]|\(\?|\{\d*,?\d{3,}")
"""What patterns are not held to: edges of words, classes of Unicode, groups of a special kind, many repetitions."""


_CACHED: Final = 64


class NotTaken(ValueError):
    """A schema that a provider does not take and that cannot be changed so that it does; says why, with the place."""

    def __init__(self, path: Path, why: str) -> None:
        super().__init__(why)
        self.path = path


def fitted(schema: dict[str, Any], grammar: Grammar) -> dict[str, Any]:
    """Return ``schema`` as the provider takes it; equal to it, in the same order, if that is how it is.

    Raises:
        NotTaken: it cannot be.
        Unfit: nothing can be held to it.
    """
    return _fitted(orjson.dumps(schema), grammar)


@lru_cache(maxsize=_CACHED)
def _fitted(text: bytes, grammar: Grammar) -> dict[str, Any]:
    schema = orjson.loads(text)
    fitting = _Fitting(schema, grammar)
    made = fitting.whole()
    if grammar.most_optional is not None and fitting.optional > grammar.most_optional:
        fitting = _Fitting(schema, replace(grammar, all_required=True))
        made = fitting.whole()
    fitting.require_bounds()
    return made


class _Fitting:
    """One schema on its way."""

    def __init__(self, schema: dict[str, Any], grammar: Grammar) -> None:
        self._root = schema
        self._grammar = grammar
        self._taken = EVERYWHERE | grammar.keywords
        self._parts = self._unions = self._values = 0
        self._targets = frozenset(_targets(schema))
        self.optional = 0
        """Properties that are not required."""

    def whole(self) -> dict[str, Any]:
        """The schema. Raises NotTaken."""
        grammar = self._grammar
        if (place := recursion_of(self._root)) is not None and not grammar.recursive:
            raise NotTaken(tuple(names_in(place)), f"leads back into itself, which {grammar.whose} does not take")
        made = self._part(self._root, (), (), 0)
        if grammar.object_at_top and made.get("type") != "object":
            raise NotTaken((), f"has to be an object at the top for {grammar.whose}: put it into a property")
        if grammar.all_required and not _ends(made, made, frozenset()):
            raise NotTaken((), f"would never end: {grammar.whose} has to write every property")
        return made

    def require_bounds(self) -> None:
        """Raises NotTaken if there is more in the schema than may be."""
        grammar = self._grammar
        for there, most, what in (
            (self._unions, grammar.most_unions, "parts with anyOf or several types"),
            (self._values, grammar.most_values, "values in enum"),
        ):
            if most is not None and there > most:
                raise NotTaken((), f"has {there} {what}; {grammar.whose} takes {most}")

    def _part(self, part: Any, path: Path, within: tuple[str, ...], level: int) -> dict[str, Any]:
        """A part at ``path``, which is reached by the references ``within``, below so many objects."""
        self._parts += 1
        if self._parts > limit_of("schema_parts"):
            raise NotTaken(path, "has too many parts once its alternatives are written out")
        if not isinstance(part, dict):
            raise NotTaken(path, f"says nothing of its type, which {self._grammar.whose} does not take")
        target = part.get("$ref")
        if isinstance(target, str) and path and (target in within or (len(part) == 1 and not _MOVED.search(target))):
            if _MOVED.search(target):
                raise NotTaken((*path, "$ref"), "leads back into a choice: give that a name in $defs, and refer to it")
            return {"$ref": target}
        flat, within = self._flat(part, within)
        if (union := next((name for name in _UNION if any(map(_says_what, flat.get(name, ())))), None)) is not None:
            return self._alternatives(flat, union, path, within, level)
        return self._kept(_typed(flat, path, self._grammar.whose), path, within, level)

    def _flat(self, part: dict[str, Any], within: tuple[str, ...]) -> tuple[dict[str, Any], tuple[str, ...]]:
        """A part with what it refers to, and all that it has to fit besides, as one; what two of them say of the same
        thing may be less than both."""
        together = part.get("allOf")
        if not isinstance(part.get("$ref"), str) and not isinstance(together, list):
            return part, within
        flat = {name: value for name, value in part.items() if name not in ("$ref", "allOf")}
        if isinstance(target := part.get("$ref"), str) and target not in within:
            within = (*within, target)
            other, within = self._flat(referred(self._root, target), within)
            flat = both(flat, other)
        for member in together or ():
            if isinstance(member, dict):
                other, within = self._flat(member, within)
                flat = both(flat, other)
        return flat, within

    def _alternatives(
        self, flat: dict[str, Any], union: str, path: Path, within: tuple[str, ...], level: int
    ) -> dict[str, Any]:
        """A part that fits one of several; what stands beside them is a part of each."""
        self._unions += 1
        beside = {name: value for name, value in flat.items() if name not in _ASIDE and name != union}
        made = {name: value for name, value in flat.items() if name in ("title", "description")}
        made["anyOf"] = [
            self._part(both(beside, member) if beside and isinstance(member, dict) else member,
                       (*path, union, place), within, level)
            for place, member in enumerate(flat[union])
        ]  # fmt: skip
        for name in _DEFINITIONS & flat.keys():
            made[name] = self._definitions(flat[name], (*path, name), within)
        return {name: made[name] for name in sorted(made, key=[*flat, "anyOf"].index)}

    def _named(self, held: Mapping[str, Any], path: Path, within: tuple[str, ...], level: int) -> dict[str, Any]:
        return {name: self._part(member, (*path, name), within, level) for name, member in held.items()}

    def _definitions(self, held: Mapping[str, Any], path: Path, within: tuple[str, ...]) -> dict[str, Any]:
        """Definitions, without those that are not taken and that nothing refers to."""
        made: dict[str, Any] = {}
        for name, member in held.items():
            here = (*path, name)
            place = f"#{pointer(here)}"
            try:
                made[name] = self._part(member, here, within, 0)
            except NotTaken:
                if any(target == place or target.startswith(f"{place}/") for target in self._targets):
                    raise
        return made

    def _kept(self, flat: dict[str, Any], path: Path, within: tuple[str, ...], level: int) -> dict[str, Any]:
        """A part with what is taken of it; what is not stands in its description."""
        made: dict[str, Any] = {}
        noted: dict[str, Any] = {}
        whose = self._grammar.whose
        kinds = flat["type"] if isinstance(flat["type"], list) else [flat["type"]]
        self._unions += len(kinds) > 1
        for name, value in flat.items():
            match name:
                case _ if name in TYPE_OF and not is_type(TYPE_OF[name], kinds):
                    pass
                case "properties":
                    made[name] = self._named(value, (*path, name), within, level + 1)
                case "$defs" | "definitions":
                    made[name] = self._definitions(value, (*path, name), within)
                case "prefixItems" | "items" if isinstance(value, list):
                    rest = flat.get("items" if name == "prefixItems" else "additionalItems")
                    row = [*value, rest] if isinstance(rest, dict) and rest else value
                    made["items"] = {"anyOf": self._row(row, (*path, name), within, level)}
                case "items" if "prefixItems" not in flat:
                    made[name] = self._part(value, (*path, name), within, level)
                case "items" | "additionalItems":
                    pass
                case "patternProperties" | "additionalProperties" if value not in (True, False, {}):
                    raise NotTaken((*path, name), f"is for names that are not known, and {whose} writes no other")
                case "nullable" if value is True:
                    raise NotTaken((*path, name), 'is a word of OpenAPI that says nothing here: add "null" to the type')
                case "exclusiveMinimum" | "exclusiveMaximum" if isinstance(value, bool):  # draft 4
                    if value and (bound := "minimum" if name == "exclusiveMinimum" else "maximum") in flat:
                        (made if name in self._taken else noted)[name] = flat[bound]
                case "const" if not is_type(TYPES[type(value)], kinds):
                    raise NotTaken((*path, name), "has no value of the type")
                case "const" if isinstance(value, dict | list):
                    noted[name] = value
                case "enum" if any(isinstance(each, dict | list) for each in value):
                    noted[name] = value
                case "enum":
                    made[name] = [each for each in value if is_type(TYPES[type(each)], kinds)]
                    if not made[name]:
                        raise NotTaken((*path, name), "has no value of the type")
                case "minItems" if self._grammar.most_items is not None and value > self._grammar.most_items:
                    made[name], noted[name] = self._grammar.most_items, value
                case "format" if value not in self._grammar.formats:
                    noted[name] = value
                case "pattern" if _IRREGULAR.search(value):
                    noted[name] = value
                case _ if name in self._taken:
                    made[name] = value
                case _ if name not in _ANNOTATIONS and value is not True and value != {}:
                    noted[name] = value
        self._values += len(made.get("enum", ()))
        if "object" in kinds:
            self._close(made, path, level)
        if "array" in kinds and not isinstance(made.get("items"), dict) and self._grammar.all_required:
            raise NotTaken((*path, "items"), f"is missing: {whose} has to know what is in an array")
        if noted:
            said = ", ".join(f"{name}: {orjson.dumps(value).decode()}" for name, value in noted.items())
            made["description"] = f"{made['description']} ({said})" if made.get("description") else f"({said})"
        return made

    def _row(self, members: Sequence[Any], path: Path, within: tuple[str, ...], level: int) -> list[dict[str, Any]]:
        self._unions += 1
        return [self._part(member, (*path, place), within, level) for place, member in enumerate(members)]

    def _close(self, made: dict[str, Any], path: Path, level: int) -> None:
        """An object has these properties and no other."""
        grammar, names = self._grammar, made.get("properties", {})
        if not names and made.get("additionalProperties", "properties" not in made) is not False:
            raise NotTaken(path, f"names no properties, and {grammar.whose} writes no other")
        if grammar.most_levels is not None and level >= grammar.most_levels:
            raise NotTaken(path, f"is deeper than {grammar.most_levels} objects, which {grammar.whose} does not take")
        required = made.get("required", [])
        if unknown := [name for name in required if name not in names]:
            raise NotTaken((*path, "required"), f"names {unknown[0]!r:.80}, which is none of the properties")
        if grammar.all_required and len({*required}) < len(names):
            made["required"] = [*names]
        self.optional += len(names) - len({*required})
        made["additionalProperties"] = False


def _targets(part: Any) -> Iterator[str]:
    """Yield what is referred to."""
    for member in part.values() if isinstance(part, dict) else part:
        if isinstance(member, dict | list):
            yield from _targets(member)
    if isinstance(part, dict) and isinstance(target := part.get("$ref"), str):
        yield unquote(target)


def _says_what(member: Any) -> bool:
    """Tell whether an alternative says what it is, and does not only narrow down what it stands in."""
    return not isinstance(member, dict) or not _WHAT.isdisjoint(member)


def _typed(flat: dict[str, Any], path: Path, whose: str) -> dict[str, Any]:
    """A part with its type, where it goes without saying. Raises NotTaken."""
    if "type" in flat:
        return flat
    if not (kinds := told_types(flat)):
        raise NotTaken(path, f"says nothing of its type, which {whose} does not take")
    return {"type": kinds[0] if len(kinds) == 1 else kinds, **flat}


def _ends(part: dict[str, Any], root: dict[str, Any], within: frozenset[str]) -> bool:
    """Tell whether a value of the part can have an end, if every property has to be written."""
    if isinstance(target := part.get("$ref"), str):
        return target not in within and _ends(referred(root, target), root, within | {target})
    if "anyOf" in part:
        return any(_ends(member, root, within) for member in part["anyOf"])
    if part.get("type") == "array":
        return not part.get("minItems") or _ends(part["items"], root, within)
    if part.get("type") != "object":
        return True
    return all(_ends(member, root, within) for member in part.get("properties", {}).values())
