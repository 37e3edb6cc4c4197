"""JSON read strictly: text that parsers disagree about is refused, so that no reader sees another body than we do."""

from __future__ import annotations

import json
import math
import re
from typing import Any, Final, NoReturn

from palaver.errors import FieldError, Refused
from palaver.schemas.json_pointers import Path, pointer
from palaver.vocabulary.limits import count_exceeded, limit_of

_MAX_DEPTH: Final = limit_of("body_depth")
_MAX_VALUES: Final = limit_of("body_values")
_MAX_NAME: Final = limit_of("key_text")
_TOKEN: Final = re.compile(rb'"(?:[^"\\]++|\\.)*+"?|,', re.DOTALL)
"""A text, of which nothing is looked at, or a comma."""
_MAX_DIGITS: Final = 19


def parse(raw: bytes) -> Any:
    """Return the value that ``raw`` is the JSON text of, in UTF-8.

    Raises:
        Refused: it is no JSON; a key is doubled; it is nested too deeply or has too many values; a number is out
            of range; a text holds NUL or half a surrogate pair.
    """
    _count(raw)
    reader = _Reader()
    try:
        value = reader.read(raw.decode("utf-8"))
    except UnicodeDecodeError:
        raise Refused("malformed_json", "The body is not UTF-8.") from None
    except json.JSONDecodeError as error:
        raise Refused("malformed_json", f"Line {error.lineno}, column {error.colno}: {error.msg}.") from None
    except RecursionError:
        raise _too_deep() from None
    # Most bodies cannot hold any of what _inspect looks for.
    opened = raw.count(b"{") + raw.count(b"[")
    suspect = opened > _MAX_DEPTH or raw.count(b",") + opened >= _MAX_VALUES or reader.odd or b"\\u" in raw
    if suspect:
        _inspect(value)
    return value


class _Reader:
    def __init__(self) -> None:
        self.odd = False
        """True if a number was too large; it is infinity in the value."""

    def read(self, text: str) -> Any:
        if text.startswith("\ufeff"):
            raise Refused("malformed_json", "The body starts with a byte order mark.")
        return json.loads(
            text,
            object_pairs_hook=_object,
            parse_constant=_constant,
            parse_float=self._float,
            parse_int=self._int,
        )

    def _float(self, text: str) -> float:
        number = float(text)
        self.odd = self.odd or math.isinf(number)
        return number

    def _int(self, text: str) -> float:
        if len(text) <= _MAX_DIGITS:
            return int(text)
        self.odd = True
        return math.inf


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    entries = dict(pairs)
    if len(entries) != len(pairs):
        raise Refused("duplicate_key", "Parsers disagree about which of the two counts.")
    return entries


def _constant(name: str) -> NoReturn:
    raise Refused("malformed_json", f"{name} is not JSON.")


def _too_deep() -> Refused:
    count_exceeded("body_depth")
    return Refused("too_deep", f"At most {_MAX_DEPTH} levels of objects and arrays.")


def _too_many() -> Refused:
    count_exceeded("body_values")
    return Refused("too_many_items", f"At most {_MAX_VALUES} values in one body.")


def _count(raw: bytes) -> None:
    """Refuse a text with too many values before they are made: there are more of them than commas outside of texts."""
    if raw.count(b",") < _MAX_VALUES:
        return
    commas = texts = 0
    for token in _TOKEN.finditer(raw):
        if token[0] == b",":
            commas += 1
        else:
            texts += 1
        # An object has two texts a value at most: with more it is no JSON, which reading it says at the second.
        if commas >= _MAX_VALUES:
            raise _too_many()
        if texts > 2 * _MAX_VALUES:
            return


def _inspect(value: Any) -> None:
    waiting: list[tuple[Any, Path]] = [(value, ())]
    items = 0
    while waiting:
        part, path = waiting.pop()
        items += 1
        if items > _MAX_VALUES:
            raise _too_many()
        match part:
            case dict() | list():
                if len(path) >= _MAX_DEPTH:
                    raise _too_deep()
                if isinstance(part, dict):
                    for key in part:
                        _inspect_text(key, path)
                    waiting += [(child, (*path, key)) for key, child in part.items()]
                else:
                    waiting += [(child, (*path, index)) for index, child in enumerate(part)]
            case str():
                _inspect_text(part, path)
            case float() if math.isinf(part):
                raise Refused.of_faults([FieldError(pointer(path), "number_out_of_range", "is too large a number")])


def _inspect_text(text: str, path: Path) -> None:
    if "\0" in text:
        raise Refused.of_faults([FieldError(pointer(path), "invalid_unicode", "holds the character NUL")])
    try:
        text.encode()
    except UnicodeEncodeError:
        fault = FieldError(pointer(path), "invalid_unicode", "holds half of a surrogate pair")
        raise Refused.of_faults([fault]) from None
