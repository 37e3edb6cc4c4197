"""The items of an answer, as far as they came, and what of them is sent back unchanged: encrypted reasoning, and what
is of no kind that is known here."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from palaver.secrets.redaction import redact

from ..sent_back import SentBack, admit_part, as_stored, unchanged
from .items import ITEMS, PLAIN

_LONGEST_PHASE: Final = 64


class Item:
    """One item."""

    __slots__ = ("ended", "identity", "kind", "length", "parts", "phase", "place", "raw", "thought", "whole")

    def __init__(self, place: int, kind: str, identity: str) -> None:
        self.place = place
        self.kind = kind
        self.identity = identity
        self.raw = ""
        """Its JSON, of one that is sent back as it is."""
        self.length = 0
        """Characters of a message's text."""
        self.parts = self.whole = 0
        """Parts of it that are whole, and their characters."""
        self.phase = ""
        """The phase of the turn in which a message came; the provider wants it back."""
        self.thought = self.ended = False
        """True once reasoning came in pieces; once the item is whole."""


class Items(SentBack):
    """All items of an answer, by their places."""

    def __init__(self) -> None:
        super().__init__()
        self.by_index: dict[int, Item] = {}
        self.known: dict[int | str | None, Item] = {}
        """The newest item at each index, with each name, and the newest of all, at None."""
        self.alike = False
        """Items began at an index where another one was not whole."""

    @property
    def ended(self) -> int:
        """The number of those that are whole."""
        return sum(item.ended for item in self.by_index.values())

    def at(self, index: int | str | None, kind: str) -> Item | None:
        """The item of this kind at ``index``, or of this name; None if there is none. Without an index, or at one where
        another began meanwhile, it is the newest that is not whole."""
        item = self.known.get(index)
        if item is not None and item.kind == kind and not (index is None and item.ended):
            return item
        if index is not None and item is None:
            return None
        return next((each for each in reversed(self.by_index.values()) if each.kind == kind and not each.ended), None)

    def named(self, item: Item | None, name: object, kind: str) -> Item | None:
        """``item``, unless another of this kind that is not whole has this name: some servers number all alike."""
        if isinstance(name, str) and name and (item is None or item.identity != name):
            other = self.known.get(name)
            if other is not None and other.kind == kind and not other.ended:
                return other
        return item

    def find(self, place: int, identity: str, kind: object) -> Item | None:
        """The item that an answer has at ``place``, if it has come: of its name, its place, or the first of its kind
        that is not whole."""
        if identity and (named := self.known.get(identity)) is not None:
            return named
        item = self.by_index.get(place)
        if item is not None and item.kind == kind and (not identity or item.identity in ("", identity)):
            return item
        return next((each for each in self.by_index.values() if each.kind == kind and not each.ended), None)

    def begin(self, index: int | str | None, kind: str, identity: str) -> Item:
        """An item that begins, or is said again to begin. Some servers begin each at the same index. Raises
        ResponseTooLarge if they are too many."""
        known = None if index is None else self.known.get(index)
        if known is not None and not known.ended and (known.kind, known.identity) == (kind, identity):
            return known
        self.alike = self.alike or (known is not None and not known.ended)
        place = index if isinstance(index, int) and known is None else max(self.by_index, default=-1) + 1
        admit_part(self.by_index, "items")
        item = self.by_index[place] = Item(place, kind, identity)
        for name in (index, place, identity or None, None):
            self.known[name] = item
        return item

    def keep(self, item: Item, raw: str) -> None:
        """Keep it as it came. Raises ResponseTooLarge if all are larger than may be."""
        self.grow(len(raw))
        item.raw = raw

    def so_far(self) -> str:
        """Return the items to send back of an answer that was cut off."""
        return self._layout({}, cut=True)

    def whole(self, call_ids: Mapping[int, str]) -> str:
        """Return the items to send back of an answer with these calls: JSON for ``items.restored``, without secrets
        of this process. What is encrypted is left out rather than changed. Empty if there is nothing but text and
        calls."""
        return self._layout(call_ids, cut=False)

    def _layout(self, call_ids: Mapping[int, str], *, cut: bool) -> str:
        layout: list[Any] = []
        something = False
        for index in sorted(self.by_index):
            item = self.by_index[index]
            if item.kind == "message":
                phase = item.phase if redact(item.phase) == item.phase else ""
                layout.append([item.length, phase] if phase else item.length)
                something = something or bool(phase)
            elif item.kind == "function_call":
                layout += [call_ids[index]] if index in call_ids else []
            elif item.raw and item.kind not in PLAIN and (raw := unchanged(item.raw)):
                layout.append(raw)
                something = True
        return as_stored({ITEMS: layout}, cut=cut) if something else ""


def phase_of(item: Mapping[str, Any]) -> str:
    """The phase of a message, if it has one that is short."""
    phase = item.get("phase")
    return phase if isinstance(phase, str) and len(phase) <= _LONGEST_PHASE else ""
