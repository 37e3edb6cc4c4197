"""The blocks of an answer, as far as they came, and what of them is sent back unchanged: reasoning, signatures, and
what is of no kind that is known here."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import orjson

from palaver.errors import MalformedResponse, ProviderError
from palaver.secrets.redaction import redact

from ..bounds import Parts, parsed
from ..calls import as_meant
from ..sent_back import SentBack, admit_part, as_stored, unchanged
from ..verbatim import members
from .blocks import BLOCKS

_PLAIN: Final = frozenset(("text", "tool_use"))
"""Kinds that a message of any protocol has."""


class Block:
    """One block."""

    __slots__ = ("cited", "ended", "first", "identity", "kind", "pieces", "place", "text")

    def __init__(self, place: int, kind: str, first: str, identity: str) -> None:
        self.place = place
        self.kind = kind
        self.identity = identity
        self.first = first
        """Its JSON, as it began."""
        self.text: list[str] = []
        """Its part of the answer's text."""
        self.cited: list[str] = []
        """The JSON of each source of that, as it came."""
        self.pieces: dict[str, list[str]] = {}
        self.ended = False

    @property
    def is_sent_back(self) -> bool:
        """True if it is to be sent back as it is."""
        return self.kind not in _PLAIN

    def json(self) -> str:
        """The block as it is now. What came at once is as it came.

        Raises:
            MalformedResponse: its input is no JSON object.
            ResponseTooLarge: its input has more in it than may be.
        """
        if not self.pieces:
            return self.first
        Parts().admit(orjson.loads(self.first))
        fields = members(self.first)
        for name, pieces in self.pieces.items():
            text = "".join(pieces)
            # The input of a provider's own tool comes as JSON, everything else as text.
            if name != "input":
                fields[name] = orjson.dumps(text).decode()
            elif text:
                fields[name] = _object(text)
        return "{" + ",".join(f"{orjson.dumps(name).decode()}:{value}" for name, value in fields.items()) + "}"


class Blocks(SentBack):
    """All blocks of an answer, by their indices."""

    def __init__(self) -> None:
        super().__init__()
        self.by_index: dict[int, Block] = {}
        self.at: dict[int | None, Block] = {}
        """The newest block at each index that the provider says, and the newest of all, at None."""

    def begin(self, index: int | None, kind: str, first: str, identity: str) -> tuple[Block, bool]:
        """A block that begins, and whether it is new. Some servers begin one again, and some begin each at the same
        index, or at none.

        Raises:
            ResponseTooLarge: they are too many, or larger than may be kept.
        """
        known = None if index is None else self.at.get(index)
        if known is not None and not known.ended and (known.kind, known.identity) == (kind, identity):
            return known, False
        place = index if index is not None and index not in self.by_index else max(self.by_index, default=-1) + 1
        admit_part(self.by_index, "blocks")
        block = Block(place, kind, "" if kind in _PLAIN else first, identity)
        self.by_index[place] = self.at[index] = self.at[None] = block
        self.grow(len(block.first))
        return block, True

    def add(self, block: Block, name: str, text: str) -> None:
        """Add more to a block that is sent back. Raises ResponseTooLarge if all are larger than may be."""
        if not block.is_sent_back:
            return
        self.grow(len(text))
        if name not in block.pieces:
            begun = None if name == "input" else orjson.loads(block.first).get(name)
            block.pieces[name] = [begun] if isinstance(begun, str) else []
        block.pieces[name].append(text)

    def cite(self, block: Block, sources: Sequence[str]) -> None:
        """Add sources to a text. Raises ResponseTooLarge if all that is sent back is larger than may be."""
        self.grow(sum(map(len, sources)))
        block.cited += sources

    def so_far(self) -> str:
        """Return the blocks to send back of an answer that was cut off: those that have ended, and are signed where
        they think."""
        return self._layout({}, cut=True)

    def whole(self, call_ids: Mapping[int, str]) -> str:
        """Return the blocks to send back of an answer with these calls: JSON for ``blocks.restored``, without secrets
        of this process. What may be signed is left out rather than changed. Empty if there is nothing but text and
        calls.

        Raises:
            MalformedResponse: a block of it is no JSON.
            ResponseTooLarge: it is larger than may be.
        """
        return self._layout(call_ids, cut=False)

    def _layout(self, call_ids: Mapping[int, str], *, cut: bool) -> str:
        if not any(block.is_sent_back or block.cited for block in self.by_index.values()):
            return ""
        layout: list[Any] = []
        something = False
        for index, block in self.by_index.items():
            if block.kind == "tool_use":
                layout += [call_ids[index]] if index in call_ids else []
            elif block.is_sent_back:
                text = _finished(block) if cut else block.json()
                if text and (raw := unchanged(text)):
                    layout.append(raw)
                    something = True
            if block.text:
                # As the log has it.
                length = len(redact("".join(block.text)))
                cited = unchanged(f"[{','.join(block.cited)}]") if block.cited else None
                layout.append(length if cited is None else [length, cited])
                something = something or cited is not None
        if not something:
            return ""
        return as_stored({BLOCKS: layout}, cut=cut)


def _finished(block: Block) -> str:
    """The JSON of a block of an answer that was cut off; empty if it is not whole."""
    if not block.ended:
        return ""
    try:
        text = block.json()
    except ProviderError:
        return ""
    return text if block.kind != "thinking" or orjson.loads(text).get("signature") else ""


def _object(text: str) -> str:
    """The JSON text of an object. Raises MalformedResponse if it is none, ResponseTooLarge if it has too much in it."""
    text = as_meant(text) or "{}"
    try:
        if isinstance(parsed(text.encode()), dict):
            return text
    except ValueError:
        pass
    raise MalformedResponse("the input of a block is no JSON object")
