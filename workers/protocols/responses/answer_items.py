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

    __slots__ = ("argued", "ended", "kind", "length", "phase", "raw", "thought")

    def __init__(self, kind: str) -> None:
        self.kind = kind
        self.raw = ""
        """Its JSON, of one that is sent back as it is."""
        self.length = 0
        """Characters of a message's text."""
        self.phase = ""
        """The phase of the turn in which a message came; the provider wants it back."""
        self.argued = self.thought = self.ended = False
        """True once arguments came in pieces; once reasoning did; once the item is whole."""


class Items(SentBack):
    """All items of an answer, by their indices."""

    def __init__(self) -> None:
        super().__init__()
        self.by_index: dict[int, Item] = {}

    def begin(self, index: Any, kind: str) -> Item:
        """An item that begins.

        Raises:
            ValueError: there is one at ``index`` already.
            ResponseTooLarge: they are too many.
        """
        admit_part(index, self.by_index, "items")
        item = self.by_index[index] = Item(kind)
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
