"""Values against JSON schemas, each of which may be made to cost as much as it can.

A schema comes from a client or from whoever declares a tool, a value from a model or a client. Patterns are matched in
linear time; references stay within the schema and are counted as often as they are followed. Of a schema that refers to
itself it is asked only whether a value fits: the library says that in linear time, and where a value does not fit in
exponential.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import islice
from typing import Any, Final

import jsonschema_rs

from palaver.limits import beyond, most

_MASK: Final = "it"
"""What stands for a value: none that was sent is said again."""
_PATTERNS: Final = jsonschema_rs.RegexOptions(size_limit=1 << 16, dfa_size_limit=1 << 18)
"""Linear in the text, without what would not be; and of bounded size."""
_TOLD: Final = 50
"""Faults that are looked at; a model is told a few of them."""
_ALL_FAULTS: Final = 5_000
"""Of values times parts of the schema: up to here all faults are looked for, which takes 50 µs each; beyond, one is."""
_A_VALUE: Final = 64
"""Characters that cost as much as a value: a pattern looks at all of them."""
_LEVELS: Final = 64
"""Of a schema, references followed: its own depth is bounded by that of a body."""
_POINTED: Final = str.maketrans({"~": "~0", "/": "~1"})


@dataclass(frozen=True, slots=True)
class Misfit:
    """What of a value does not fit: where, in words without the value, and the library's kind if it was looked for."""

    place: tuple[int | str, ...]
    said: str
    kind: Any = None

    @classmethod
    def of(cls, error: jsonschema_rs.ValidationError) -> Misfit:
        """What the library found."""
        return cls(tuple(error.instance_path), error.message.removeprefix(f"{_MASK} "), error.kind)


class Unfit(ValueError):
    """A schema that nothing can be held to; says why, with a JSON pointer into it."""

    def __init__(self, pointer: str, why: str) -> None:
        super().__init__(why)
        self.pointer = pointer


def misfits(schema: dict[str, Any], found: Any) -> list[Misfit]:
    """What of ``found`` does not fit; of much that does not, a part.

    Raises:
        Unfit: as `require_fit` says.
    """
    extent, validator = _prepared(schema)
    work = extent.size * _amount(found)
    if work > most("schema_work"):
        beyond("schema_work")
        return [Misfit((), "has too many values for so large a schema")]
    if validator.is_valid(found):
        return []
    if extent.recursive:
        return [Misfit((), "does not fit in some place")]
    if work > _ALL_FAULTS:
        return [Misfit.of(_first(validator, found))]
    return [Misfit.of(each) for each in islice(validator.iter_errors(found), _TOLD)]


def _first(validator: jsonschema_rs.Validator, found: Any) -> jsonschema_rs.ValidationError:
    """The first fault of what does not fit."""
    try:
        validator.validate(found)
    except jsonschema_rs.ValidationError as error:
        return error
    raise AssertionError("it does not fit")


def require_fit(schema: dict[str, Any]) -> None:
    """Raise Unfit if nothing can be held to ``schema``: it is none, is too large, or costs too much."""
    _prepared(schema)


def _prepared(schema: dict[str, Any]) -> tuple[_Extent, jsonschema_rs.Validator]:
    extent = _Extent(schema)
    try:
        return extent, jsonschema_rs.validator_for(
            schema, mask=_MASK, retriever=_nothing_from_elsewhere, pattern_options=_PATTERNS
        )
    except (ValueError, jsonschema_rs.ValidationError) as error:
        said = str(getattr(error, "message", error)).partition("\n")[0][:200]
        hint = "; a pattern has neither look-around nor back-references" if "regex" in said else ""
        raise Unfit("", f"cannot be held to: {said}{hint}") from None


def _nothing_from_elsewhere(uri: str) -> Any:
    """What a reference to another document gets. Raises ValueError."""
    raise ValueError("a schema has to be whole")


def _amount(found: Any) -> int:
    """How much there is to look at: values, at every level, and texts."""
    amount, left = 0, [found]
    while left:
        each = left.pop()
        amount += 1
        if isinstance(each, str):
            amount += len(each) // _A_VALUE
        elif isinstance(each, dict):
            amount += sum(map(len, each)) // _A_VALUE
            left.extend(each.values())
        elif isinstance(each, list):
            left.extend(each)
    return amount


class _Extent:
    """How large a schema is with its references followed, but for those that lead into themselves.

    Raises:
        Unfit: it is too large, or refers to what is not within it.
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
            raise Unfit(where, f"has more than {_LEVELS} levels, references followed")
        if not isinstance(part, dict | list):
            return 0
        size = 1
        if isinstance(part, dict):
            size += self._referred(part, where, level)
        for name, each in part.items() if isinstance(part, dict) else enumerate(part):
            size += self._size(each, f"{where}/{str(name).translate(_POINTED)}"[:300], level + 1)
        if size > most("schema_parts"):
            beyond("schema_parts")
            raise Unfit(where, f"has more than {most('schema_parts')} parts, references followed")
        return size

    def _referred(self, part: dict[str, Any], where: str, level: int) -> int:
        for name in ("$dynamicRef", "$recursiveRef", "$id"):
            if isinstance(part.get(name), str) and (where or name != "$id"):
                raise Unfit(f"{where}/{name}", "is not supported: refer to #/$defs/NAME of the schema itself")
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
            raise Unfit(f"{where}/$ref", "leads to nothing: refer to #/$defs/NAME of the schema itself") from None
        return found
