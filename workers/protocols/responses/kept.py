"""The items of an answer, as far as they came, and what of them is sent back unchanged: encrypted reasoning, and what
is of no kind that is known here."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any, Final

import orjson

from palaver.secrets.redaction import hide
from palaver.vocabulary.limits import most

from ..bounds import too_large
from .items import ITEMS, PLAIN

log = logging.getLogger("palaver.workers.protocols.responses.kept")

_MOST: Final = most("answer_opaque")
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
        """Of the turn, in which a message was said; the provider wants it back."""
        self.argued = self.thought = self.ended = False
        """Whether arguments, or what the model thinks, came in pieces; whether it is whole."""


class Items:
    """All items of an answer, by their indices."""

    def __init__(self) -> None:
        self.found: dict[int, Item] = {}
        self._size = 0

    def begin(self, index: Any, kind: str) -> Item:
        """An item that begins.

        Raises:
            ValueError: there is one at ``index`` already.
            ResponseTooLarge: they are too many.
        """
        if type(index) is not int or index in self.found:
            raise ValueError("an item begins at no place of its own")
        if len(self.found) == most("answer_blocks"):
            raise too_large("answer_blocks", "the answer has", "items")
        item = self.found[index] = Item(kind)
        return item

    def keep(self, item: Item, raw: str) -> None:
        """Keep it as it came. Raises ResponseTooLarge if all are larger than may be."""
        self._size += len(raw)
        if self._size > _MOST:
            raise too_large("answer_opaque", "what the answer has to be sent back unchanged is", "bytes")
        item.raw = raw

    def so_far(self) -> str:
        """What is sent back of an answer that was cut off."""
        return self._layout({}, cut=True)

    def whole(self, call_ids: Mapping[int, str]) -> str:
        """What is sent back of an answer with these calls: JSON for ``items.restored``, without secrets of this
        process. What is encrypted is left out rather than changed. Empty if there is nothing but text and calls."""
        return self._layout(call_ids, cut=False)

    def _layout(self, call_ids: Mapping[int, str], *, cut: bool) -> str:
        layout: list[Any] = []
        something = False
        for index in sorted(self.found):
            item = self.found[index]
            if item.kind == "message":
                phase = item.phase if hide(item.phase) == item.phase else ""
                layout.append([item.length, phase] if phase else item.length)
                something = something or bool(phase)
            elif item.kind == "function_call":
                layout += [call_ids[index]] if index in call_ids else []
            elif item.raw and item.kind not in PLAIN:
                if hide(item.raw) == item.raw:
                    layout.append(orjson.Fragment(item.raw))
                    something = True
                else:
                    log.warning("what a provider wants back unchanged has a secret of this process and is not kept")
        if not something:
            return ""
        text = orjson.dumps({ITEMS: layout}).decode()
        if len(text.encode()) > _MOST:
            if cut:
                return ""
            raise too_large("answer_opaque", "what the answer has to be sent back unchanged is", "bytes")
        return text


def phase_of(item: Mapping[str, Any]) -> str:
    """The phase of a message, if it has one that is short."""
    phase = item.get("phase")
    return phase if isinstance(phase, str) and len(phase) <= _LONGEST_PHASE else ""
