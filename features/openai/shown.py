"""The parts that a projection is made of: an event of a response, and what is open while more may come of it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from types import MappingProxyType
from typing import Any, Final, NamedTuple

import orjson

from api.kit.projections import WrittenDeltas
from api.kit.run_changes import ShownPart

from .items import reasoning_item, summary_part, text_item, text_part
from .tables import ResponseStatus

SPREAD: Final = 1000
"""More than the events that an event of a run becomes: an answer has 128 calls at most, of four events each."""
BEGUN: Final[Mapping[str, ResponseStatus]] = MappingProxyType(
    {
        "response.created": ResponseStatus.QUEUED,
        "response.queued": ResponseStatus.QUEUED,
        "response.in_progress": ResponseStatus.IN_PROGRESS,
    }
)
FINAL: Final = frozenset({"response.completed", "response.failed", "response.incomplete"})
"""Types of events that carry the response itself: as it begins, with its status by then, and at its end."""


KEEP_ALIVE: Final = b": ka\n\n"
"""No event of these streams has an id: clients take a comment behind one for an event without data."""
QUIET: Final = 10.0
"""Seconds after which a client is sent a comment, if none of the events is shown to it."""


class ShownEvent(NamedTuple):
    """An event of a response. The response itself is not among the fields of those that carry it."""

    number: int
    type: str
    fields: Mapping[str, Any]


def frame(number: int, kind: str, fields: Any) -> bytes:
    """Return an event on the wire."""
    data = orjson.dumps({"type": kind, "sequence_number": number, **fields})
    return b"event: %b\ndata: %b\n\n" % (kind.encode(), data)


def _text(run_id: str, part: ShownPart, text: str) -> bytes:
    return orjson.dumps(text)


TEXTS: Final = WrittenDeltas(_text)
"""Deltas as all wires here have them: the text in JSON, once for all who watch."""


class TextForm(NamedTuple):
    """The words of clients for a text that grows."""

    kind: str
    """The beginning of the ids of its items."""
    text: str
    """The beginning of the types of events about the text."""
    part: str
    """The beginning of those about the part that the text is."""
    place: str
    item: Callable[[str, str | None, str], dict[str, Any]]
    part_of: Callable[[str], dict[str, Any]]
    more: dict[str, Any]
    """The other fields of a piece of it."""


FORMS: Final[Mapping[str, TextForm]] = MappingProxyType(
    {
        "text": TextForm(
            "msg",
            "response.output_text",
            "response.content_part",
            "content_index",
            text_item,
            text_part,
            {"logprobs": []},
        ),
        "reasoning": TextForm(
            "rs",
            "response.reasoning_summary_text",
            "response.reasoning_summary_part",
            "summary_index",
            reasoning_item,
            summary_part,
            {},
        ),
    }
)
"""By the kind of a part."""


@dataclass(eq=False)
class OpenText:
    """An item of text that more may come of."""

    form: TextForm
    index: int
    id: str
    pieces: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.place: dict[str, Any] = {"item_id": self.id, "output_index": self.index, self.form.place: 0}
        """The fields that say in events which text it is."""
        self.key = self.id, self.index
        """The same for all who have the same item at the same place."""

    @cached_property
    def _around(self) -> tuple[bytes, bytes, bytes]:
        kind = f"{self.form.text}.delta"
        head = f'event: {kind}\ndata: {{"type":"{kind}","sequence_number":'.encode()
        more = b"," + orjson.dumps(self.form.more)[1:] if self.form.more else b"}"
        return head, b"," + orjson.dumps(self.place)[1:-1] + b',"delta":', more + b"\n\n"

    def framed(self, number: int, text: bytes) -> bytes:
        """Return the frame of more of it, which is a ``text`` in JSON: most of it is that of the one before."""
        head, about, tail = self._around
        return b"%b%d%b%b%b" % (head, number, about, text, tail)


@dataclass(slots=True)
class CallBegun:
    """A call that has no result yet."""

    call: Mapping[str, Any]
    named: tuple[str, str, int]
    """The parts of the id of its item, which is another one in each response that has it."""
    by_client: bool
    index: int | None = None
    """Its place in the output; None while it waits for a decision, or if that was in a response before."""
    request: str | None = None
    """The item that asks for an approval of it."""
