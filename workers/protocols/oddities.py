"""The oddities of an answer that was read all the same: each is said once, with its place and without its content."""

from __future__ import annotations

from typing import Any, Final

from .bounds import Parts
from .ends import is_error
from .verbatim import listed, members

_MOST: Final = 8
"""Oddities of one answer that are said."""
_MOST_TOKENS: Final = 1_000_000_000
"""Tokens that one call may report at most."""
_DIGITS: Final = 32
"""Digits of a count that comes as text, at most."""
_KINDS: Final = ((bool, "true or false"), (int | float, "a number"), (str, "a text"), (list, "a list"))


class Oddities:
    """Gathers them, and reads a value as what may stand in its place: what is of another kind carries nothing."""

    def __init__(self) -> None:
        self._said: dict[str, int] = {}

    def __str__(self) -> str:
        """All of them in words; empty if there are none."""
        return "; ".join(what if times == 1 else f"{what} ({times} times)" for what, times in self._said.items())

    def note(self, what: str) -> None:
        """Note one, which is nothing but our own words."""
        if what in self._said or len(self._said) < _MOST:
            self._said[what] = self._said.get(what, 0) + 1

    def note_kind(self, value: Any, place: str, kind: str) -> None:
        """Note that there is a ``value`` at ``place``, where a ``kind`` may stand; null is nothing to speak of."""
        if value is not None:
            found = next((name for of, name in _KINDS if isinstance(value, of)), "an object")
            self.note(f"{place} is {found} in place of {kind}")

    def fields(self, value: Any, place: str) -> dict[str, Any]:
        """The object at ``place``."""
        if isinstance(value, dict):
            return value
        self.note_kind(value, place, "an object")
        return {}

    def inner(self, outer: dict[str, Any], raw: bytes, mark: str) -> bytes:
        """The JSON of the event, or the answer, that is the ``data`` of an object which is none; empty if there is
        none. It is known by its field ``mark``, or is an error; ``raw`` is the JSON of all of it."""
        inner = outer.get("data")
        if mark in outer or is_error(outer.get("error")) or not isinstance(inner, dict):
            return b""
        if mark not in inner and not is_error(inner.get("error")):
            return b""
        Parts().admit(outer)
        self.note("what is said stands in the data of another object")
        return members(raw)["data"].encode()

    def entries(self, value: Any, place: str) -> list[Any]:
        """The list at ``place``. Of an object in its place, its values if they are numbered, else that object."""
        if isinstance(value, list):
            return value
        self.note_kind(value, place, "a list")
        return listed(value) if isinstance(value, dict) else []

    def text(self, value: Any, place: str) -> str:
        """The text at ``place``."""
        if isinstance(value, str):
            return value
        self.note_kind(value, place, "a text")
        return ""

    def index(self, value: Any, place: str) -> int | None:
        """The whole number at ``place``; None for none."""
        if type(value) is int:
            return value
        if isinstance(value, str) and value.isascii() and value.isdecimal() and len(value) < 10:
            value = float(value)
        if isinstance(value, float) and value.is_integer() and abs(value) < 1e15:
            return int(value)
        self.note_kind(value, place, "a whole number")
        return None

    def count(self, value: Any, place: str) -> int:
        """The count at ``place``, as the provider reports it; a nonsensical one must not spoil the sum of the run."""
        try:
            if isinstance(value, str) and len(value) > _DIGITS:
                raise ValueError
            return int(min(max(float(value or 0), 0.0), _MOST_TOKENS))
        except (TypeError, ValueError):
            self.note_kind(value, place, "a count")
            return 0
