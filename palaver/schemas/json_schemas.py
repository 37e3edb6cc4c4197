"""Checks values against JSON schemas, in bounded time.

A schema comes from a client or from the author of a tool, a value from a model or a client. A check holds the event
loop, and the library holds Python's lock meanwhile, so that no thread could be given a deadline. The work is bounded
before it begins instead:

- Patterns are matched in linear time, and each is charged by the size that it compiles to, for all texts that it may
  meet. A limit of its length would bound nothing: a character takes 18 times as long for ``(a|b)*a(a|b){400}c`` as for
  ``(a|b)*a(a|b){14}c``.
- References stay within the schema, and are counted as often as they are followed.
- Of a schema that refers to itself, and of patterns in many choices within each other, it is only asked whether a value
  fits. To explain why not would take exponential time.

The library is imported with the first schema: it is 3 MB of each process, and many never see one.
"""

from __future__ import annotations

from functools import lru_cache
from itertools import islice
from typing import TYPE_CHECKING, Any, Final, NamedTuple
from urllib.parse import unquote

import orjson

from palaver.late import dataclass
from palaver.schemas.json_pointers import pointer
from palaver.vocabulary.limits import count_exceeded, limit_of

if TYPE_CHECKING:
    import jsonschema_rs

_MASK: Final = "it"
"""Stands for a value in messages: no value that was sent is repeated."""
_PATTERN: Final = 1 << 16
_DFA: Final = 1 << 14
"""Bytes that a pattern, and the state to match it, may take: it is matched in linear time, and a pattern for which that
is not so is refused."""
_WEIGHTS: Final = ((1, 1 << 13), (3, 1 << 14))
"""The weights of patterns that compile to at most so many bytes: by the time that a character takes where nearly each
is a new state, as for ``(a|b)*a(a|b){14}c``, which is 0.5 and 1.5 µs on a core of 2024; and 4.5 for the others."""
_HEAVIEST: Final = 9
_CACHED: Final = 16
"""Schemas that stay compiled, with at most a few MB each."""
_APART: Final = frozenset({"properties", "prefixItems"})
"""Keywords that hold schemas of which a value meets one."""
_ASIDE: Final = frozenset({"$defs", "definitions"})
"""Keywords that hold schemas which only references lead to; no other is compiled."""
_HOLDERS: Final = _APART | _ASIDE | {"patternProperties", "dependentSchemas", "dependencies"}
"""Keywords whose schemas have names, which are no keywords; or places."""
_TWICE: Final = frozenset({"unevaluatedProperties", "unevaluatedItems"})
"""Keywords for which what stands beside them is looked at again."""
_MOST_FAULTS: Final = 50
"""Faults that are looked at; a model sees a few of them."""
_ALL_FAULTS: Final = 5_000
"""The number of values times parts of the schema up to which all faults are looked for, which takes 50 µs each; beyond,
one is."""
_A_VALUE: Final = 64
"""Characters that cost as much as a value: a pattern looks at all of them."""
_LEVELS: Final = 64
"""Levels of a schema with its references followed: its own depth is bounded by that of a body."""
_POINTED: Final = str.maketrans({"~": "~0", "/": "~1"})


@dataclass(frozen=True, slots=True)
class SchemaMismatch:
    """A part of a value that does not fit: the place, the fault in words without the value, and names of an object if
    the fault is about them."""

    place: tuple[int | str, ...]
    message: str
    missing: str | None = None
    unexpected: tuple[str, ...] = ()

    @classmethod
    def of(cls, error: jsonschema_rs.ValidationError) -> SchemaMismatch:
        """Return the misfit for an error of the library."""
        from jsonschema_rs import ValidationErrorKind as Kind

        place, message = tuple(error.instance_path), error.message.removeprefix(f"{_MASK} ")
        match error.kind:
            case Kind.Required() as kind:
                return cls(place, message, missing=kind.property)
            case Kind.AdditionalProperties() as kind:
                return cls(place, message, unexpected=tuple(kind.unexpected))
            case _:
                return cls(place, message)


class Unfit(ValueError):
    """A schema that nothing can be held to; says why, with a JSON pointer into it."""

    def __init__(self, pointer: str, why: str) -> None:
        super().__init__(why)
        self.pointer = pointer


def misfits(schema: dict[str, Any], value: Any) -> list[SchemaMismatch]:
    """Return the parts of ``value`` that do not fit; if there are many, some of them.

    Raises:
        Unfit: as `require_fit` says.
    """
    extent, validator = _prepared(orjson.dumps(schema))
    values, characters = _amount(value)
    work, matching = extent.size * (values + characters // _A_VALUE), extent.matching * characters
    if work > limit_of("schema_work"):
        count_exceeded("schema_work")
        return [SchemaMismatch((), "has too many values for so large a schema")]
    if matching > limit_of("schema_matching"):
        count_exceeded("schema_matching")
        return [SchemaMismatch((), "has too many characters for the patterns of the schema")]
    if validator.is_valid(value):
        return []
    if extent.recursion or extent.choices * matching > limit_of("schema_matching"):
        return [SchemaMismatch((), "does not fit in some place")]
    if max(work, matching) > _ALL_FAULTS:
        return [SchemaMismatch.of(_first(validator, value))]
    return [SchemaMismatch.of(error) for error in islice(validator.iter_errors(value), _MOST_FAULTS)]


def _first(validator: jsonschema_rs.Validator, value: Any) -> jsonschema_rs.ValidationError:
    """The first fault of what does not fit."""
    from jsonschema_rs import ValidationError

    try:
        validator.validate(value)
    except ValidationError as error:
        return error
    raise AssertionError("it does not fit")


def require_fit(schema: dict[str, Any]) -> None:
    """Raise Unfit if nothing can be held to ``schema``: it is none, is too large, or costs too much."""
    _prepared(orjson.dumps(schema))


def recursion_of(schema: dict[str, Any]) -> str | None:
    """Return the place of a reference that leads back into itself, as a JSON pointer. Raises Unfit as `require_fit`."""
    return _prepared(orjson.dumps(schema))[0].recursion


@lru_cache(maxsize=_CACHED)
def _prepared(text: bytes) -> tuple[_Extent, jsonschema_rs.Validator]:
    """The schema in the JSON ``text``, measured before it is compiled."""
    schema = orjson.loads(text)
    extent = _Extent(schema)
    try:
        return extent, _compiled(schema, _PATTERN)
    except ValueError as error:
        reason = str(getattr(error, "message", error)).partition("\n")[0][:200]
        hint = "; a pattern has neither look-around nor back-references" if "regex" in reason else ""
        place = pointer(tuple(getattr(error, "instance_path", ())))
        raise Unfit(place, f"cannot be held to: {reason}{hint}") from None


def _compiled(schema: dict[str, Any], size: int) -> jsonschema_rs.Validator:
    """Raises ValueError, also the library's own, if it cannot be, with patterns of at most ``size`` bytes."""
    import jsonschema_rs

    options = jsonschema_rs.RegexOptions(size_limit=size, dfa_size_limit=_DFA)
    return jsonschema_rs.validator_for(schema, mask=_MASK, retriever=_nothing_from_elsewhere, pattern_options=options)


def _nothing_from_elsewhere(uri: str) -> Any:
    """Refuse a reference to another document. Raises ValueError."""
    raise ValueError("a schema has to be whole")


def _weight(pattern: str) -> int:
    """Return the weight of ``pattern``."""
    for weight, size in _WEIGHTS:
        try:
            _compiled({"pattern": pattern}, size)
        except ValueError:
            continue
        return weight
    return _HEAVIEST


def _amount(value: Any) -> tuple[int, int]:
    """Count the values at every level, and the characters in texts and names."""
    values, characters, left = 0, 0, [value]
    while left:
        part = left.pop()
        values += 1
        if isinstance(part, str):
            characters += len(part)
        elif isinstance(part, dict):
            characters += sum(map(len, part))
            left.extend(part.values())
        elif isinstance(part, list):
            left.extend(part)
    return values, characters


class _Cost(NamedTuple):
    """The cost of a part of a schema, with its references followed."""

    parts: int
    """Objects and arrays."""
    patterns: int
    """Their weight together: what it takes to compile them."""
    matching: int
    """The weight of those that one text may meet at most."""
    choices: int = 0
    """``anyOf`` and ``oneOf`` within each other: to find out what is wrong, each is looked at again."""


_CHOICES: Final = frozenset({"anyOf", "oneOf"})
_NOTHING: Final = _Cost(0, 0, 0)


class _Extent:
    """The size of a schema with its references followed, but for those that lead into themselves.

    Raises:
        Unfit: it is too large, or refers to what is not within it.
    """

    def __init__(self, schema: dict[str, Any]) -> None:
        self._schema = schema
        self._costs: dict[str, _Cost] = {}
        self._following: set[str] = set()
        self.recursion: str | None = None
        """The place of a reference that leads back into itself."""
        self.size, patterns, matching, self.choices = self._cost(schema, "", 0)
        self.matching = patterns if self.recursion else matching

    def _cost(self, part: Any, where: str, level: int, holder: str = "") -> _Cost:
        """Return the cost of ``part``, which is at ``where``; a ``holder`` is the keyword whose schemas are in it."""
        if level > _LEVELS:
            raise Unfit(where, f"has more than {_LEVELS} levels, references followed")
        if not isinstance(part, dict | list):
            return _NOTHING
        own = self._own(part, where, level) if isinstance(part, dict) and not holder else _NOTHING
        parts, patterns, matching, apart, choices = 1 + own.parts, own.patterns, own.matching, 0, own.choices
        for name, member in part.items() if isinstance(part, dict) else enumerate(part):
            holds = str(name) if name in _HOLDERS and not holder else ""
            cost = self._cost(member, f"{where}/{str(name).translate(_POINTED)}"[:300], level + 1, holds)
            weight = _weight(str(name)) if holder == "patternProperties" else 0
            parts += cost.parts
            _bounded(where, "schema_parts", parts, "parts, references followed")
            if holds in _ASIDE:
                continue
            patterns, choices = patterns + cost.patterns + weight, max(choices, cost.choices)
            if holder in _APART:
                apart = max(apart, cost.matching)
            else:
                matching += cost.matching + weight
            _bounded(where, "schema_patterns", patterns, "patterns, references followed; large ones count as several")
        if isinstance(part, dict) and not holder:
            matching *= 1 if _TWICE.isdisjoint(part) else 2  # schemas are apart in a holder alone
            choices += not _CHOICES.isdisjoint(part)
        return _Cost(parts, patterns, matching + apart, choices)

    def _own(self, part: dict[str, Any], where: str, level: int) -> _Cost:
        """Return the cost of a schema but for the schemas that it holds."""
        cost, pattern = self._referred(part, where, level), part.get("pattern")
        weight = _weight(pattern) if isinstance(pattern, str) else 0
        return _Cost(cost.parts, cost.patterns + weight, cost.matching + weight, cost.choices)

    def _referred(self, part: dict[str, Any], where: str, level: int) -> _Cost:
        for name in ("$dynamicRef", "$recursiveRef", "$id"):
            if isinstance(part.get(name), str) and (where or name != "$id"):
                raise Unfit(f"{where}/{name}", "is not supported: refer to #/$defs/NAME of the schema itself")
        target = part.get("$ref")
        if not isinstance(target, str):
            return _NOTHING
        if target in self._following:
            self.recursion = f"{where}/$ref"
            return _NOTHING
        if target not in self._costs:
            self._following.add(target)
            try:
                part = referred(self._schema, target)
            except LookupError:
                raise Unfit(f"{where}/$ref", "leads to nothing: refer to #/$defs/NAME of the schema itself") from None
            self._costs[target] = self._cost(part, target[1:301], level + 1)
            self._following.discard(target)
        return self._costs[target]


def referred(schema: dict[str, Any], target: str) -> Any:
    """Return the part of ``schema`` that the reference ``target`` leads to. Raises LookupError if it leads to
    nothing."""
    part: Any = schema
    first, *names = target.split("/")
    if first != "#":
        raise LookupError(target)
    try:
        for name in names:
            name = unquote(name).replace("~1", "/").replace("~0", "~")
            part = part[int(name) if isinstance(part, list) else name]
    except (TypeError, ValueError):
        raise LookupError(target) from None
    return part


def _bounded(where: str, limit: str, there: int, what: str) -> None:
    if there > limit_of(limit):
        count_exceeded(limit)
        raise Unfit(where, f"has more than {limit_of(limit)} {what}")
