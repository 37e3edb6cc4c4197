"""Answers that have to be JSON, perhaps of a schema: whether a schema can be held to, and whether an answer fits.

A schema comes from a client and an answer from a model, so both may be made to cost as much as they can. Patterns are
matched in linear time; references stay within the schema and are counted as often as they are followed. Of a schema
that refers to itself it is asked only whether an answer fits: the library says that in linear time, and where an answer
does not fit in exponential.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import Any, Final

import jsonschema_rs
from pydantic_core import from_json

from palaver.arguments import exceeded, in_words
from palaver.limits import beyond, most
from palaver.model_options import JsonObjectFormat, JsonSchemaFormat, ResponseFormat, TextFormat
from palaver.tools.schemas import MASK, nothing_from_elsewhere, said_of

_PATTERNS: Final = jsonschema_rs.RegexOptions(size_limit=1 << 16, dfa_size_limit=1 << 18)
"""Linear in the text, without what would not be; and of bounded size."""
_TOLD: Final = 50
"""Faults that are looked at; the model is told a few of them."""
_ALL_FAULTS: Final = 5_000
"""Of values times parts of the schema: up to here all faults are looked for, which takes 50 µs each; beyond, one is."""
_A_VALUE: Final = 64
"""Characters that cost as much as a value: a pattern looks at all of them."""
_LEVELS: Final = 64
"""Of a schema, references followed: its own depth is bounded by that of a body."""
_POINTED: Final = str.maketrans({"~": "~0", "/": "~1"})


class NotAsAsked(ValueError):
    """An answer that is not what its format asks for; says why, in words for the model."""


def structured(wanted: ResponseFormat, text: str) -> Any:
    """What ``text`` is as JSON.

    Raises:
        NotAsAsked: it is none, or does not fit.
    """
    if len(text) > most("structured_output"):
        beyond("structured_output")
        raise NotAsAsked(f"it has more than {most('structured_output')} characters")
    try:
        found = from_json(text.strip().encode(), allow_inf_nan=False)
    except ValueError as error:
        raise NotAsAsked(f"it is not JSON, or not JSON alone: {str(error)[:100]}") from None
    if isinstance(found, dict | list) and (limit := exceeded(found, text)) is not None:
        beyond(limit)
        raise NotAsAsked(f"it has more than {most(limit)} {'levels' if limit == 'arguments_depth' else 'values'}")
    match wanted:
        case JsonObjectFormat() if not isinstance(found, dict):
            raise NotAsAsked("it is no JSON object")
        case JsonSchemaFormat(json_schema=schema):
            _fit(schema, found, _count(found) + len(text) // _A_VALUE)
        case JsonObjectFormat() | TextFormat():
            pass
    return found


def _fit(schema: dict[str, Any], found: Any, values: int) -> None:
    """Raises NotAsAsked if ``found``, which is as much as so many ``values``, does not fit."""
    extent = _Extent(schema)
    work = extent.size * values
    if work > most("structured_output_work"):
        beyond("structured_output_work")
        raise NotAsAsked("it has too many values for so large a schema")
    validator = _validator(schema)
    if validator.is_valid(found):
        return
    faults: list[jsonschema_rs.ValidationError] = []
    if not extent.recursive and work <= _ALL_FAULTS:
        faults = list(islice(validator.iter_errors(found), _TOLD))
    elif not extent.recursive:
        faults = [_first(validator, found)]
    where = f": {in_words([(each.instance_path, said_of(each)) for each in faults], whole='it')}" if faults else ""
    raise NotAsAsked(f"it does not fit the schema{where}")


def _first(validator: jsonschema_rs.Validator, found: Any) -> jsonschema_rs.ValidationError:
    """The first fault of what does not fit."""
    try:
        validator.validate(found)
    except jsonschema_rs.ValidationError as error:
        return error
    raise AssertionError("it does not fit")


def _count(found: Any) -> int:
    """How many values there are, at every level."""
    count, left = 0, [found]
    while left:
        each = left.pop()
        count += 1
        left.extend(each.values() if isinstance(each, dict) else each if isinstance(each, list) else ())
    return count


def output_schema_faults(schema: dict[str, Any]) -> Iterator[tuple[str, str]]:
    """Why answers cannot be held to ``schema``, each with a JSON pointer into it. Its shape was looked at before."""
    try:
        _Extent(schema)
        _validator(schema)
    except _Unfit as error:
        yield error.pointer, str(error)
    except (ValueError, jsonschema_rs.ValidationError) as error:
        said = str(getattr(error, "message", error)).partition("\n")[0][:200]
        hint = "; a pattern has neither look-around nor back-references" if "regex" in said else ""
        yield "", f"cannot be held to: {said}{hint}"


def _validator(schema: dict[str, Any]) -> jsonschema_rs.Validator:
    return jsonschema_rs.validator_for(schema, mask=MASK, retriever=nothing_from_elsewhere, pattern_options=_PATTERNS)


class _Unfit(Exception):
    def __init__(self, pointer: str, why: str) -> None:
        super().__init__(why)
        self.pointer = pointer


class _Extent:
    """How large a schema is with its references followed, but for those that lead into themselves.

    Raises:
        _Unfit: it is too large, or refers to what is not within it.
    """

    def __init__(self, schema: dict[str, Any]) -> None:
        self._schema = schema
        self._sizes: dict[str, int] = {}
        self._following: set[str] = set()
        self.recursive = False
        self.size = self._size(schema, "", 0)

    def _size(self, part: Any, where: str, level: int) -> int:
        """How many objects and arrays there are in ``part``, which is at ``where``."""
        if level > _LEVELS:
            raise _Unfit(where, f"has more than {_LEVELS} levels, references followed")
        if not isinstance(part, dict | list):
            return 0
        size = 1
        if isinstance(part, dict):
            size += self._referred(part, where, level)
        for name, each in part.items() if isinstance(part, dict) else enumerate(part):
            size += self._size(each, f"{where}/{str(name).translate(_POINTED)}"[:300], level + 1)
        if size > most("output_schema_parts"):
            beyond("output_schema_parts")
            raise _Unfit(where, f"has more than {most('output_schema_parts')} parts, references followed")
        return size

    def _referred(self, part: dict[str, Any], where: str, level: int) -> int:
        for name in ("$dynamicRef", "$recursiveRef", "$id"):
            if isinstance(part.get(name), str) and (where or name != "$id"):
                raise _Unfit(f"{where}/{name}", "is not supported: refer to #/$defs/NAME of the schema itself")
        target = part.get("$ref")
        if not isinstance(target, str):
            return 0
        if target in self._following:
            self.recursive = True
            return 0
        if target not in self._sizes:
            self._following.add(target)
            self._sizes[target] = self._size(self._at(target, where), target[1:301], level + 1)
            self._following.discard(target)
        return self._sizes[target]

    def _at(self, target: str, where: str) -> Any:
        """What the reference ``target`` leads to."""
        found: Any = self._schema
        try:
            first, *names = target.split("/")
            if first != "#":
                raise KeyError(first)
            for name in names:
                name = name.replace("~1", "/").replace("~0", "~")
                found = found[int(name) if isinstance(found, list) else name]
        except (KeyError, IndexError, TypeError, ValueError):
            raise _Unfit(f"{where}/$ref", "leads to nothing: refer to #/$defs/NAME of the schema itself") from None
        return found
