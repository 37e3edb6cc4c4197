"""The parts that a projection is made of: an event of a response, and what is open while more may come of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Final, NamedTuple

import orjson

from palaver.operations import StoredEvent

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


@dataclass(slots=True)
class OpenText:
    """An item of text that more may come of."""

    index: int
    id: str
    step: str
    attempt: int
    pieces: list[str] = field(default_factory=list)
    key: tuple[object, ...] = ()
    """The same for all who have the same item at the same place."""

    def __post_init__(self) -> None:
        self.key = self.id, self.index, self.step, self.attempt

    @property
    def text(self) -> str:
        """All of it so far."""
        return "".join(self.pieces)

    @property
    def place(self) -> dict[str, Any]:
        """The fields that say in events which item it is."""
        return {"item_id": self.id, "output_index": self.index}


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


def text_delta(opened: OpenText, text: str) -> dict[str, Any]:
    """Return the fields of more of a text."""
    return {**opened.place, "content_index": 0, "delta": text, "logprobs": []}


def thought_delta(opened: OpenText, text: str) -> dict[str, Any]:
    """Return the fields of more of a thought."""
    return {**opened.place, "summary_index": 0, "delta": text}


class LatestDelta:
    """The payload of the delta that was asked for last, read once: all who watch a run ask for it together."""

    def __init__(self) -> None:
        self._event: StoredEvent | None = None
        self._data: Mapping[str, Any] = {}

    def of(self, event: StoredEvent) -> Mapping[str, Any]:
        """Return the payload of an event."""
        if self._event is not event:
            self._event, self._data = event, event.data
        return self._data


LATEST: Final = LatestDelta()


class SharedDelta:
    """The delta that was asked for last, as it is shown and on the wire: the same for all who have it at the same
    place."""

    __slots__ = ("event", "frame", "key", "shown")

    def __init__(self) -> None:
        self.event: StoredEvent | None = None
        self.key: tuple[object, ...] = ()
        self.shown: ShownEvent | None = None
        self.frame: bytes | None = None


SHARED: Final = SharedDelta()


def frame(number: int, kind: str, fields: Any) -> bytes:
    """Return an event on the wire."""
    data = orjson.dumps({"type": kind, "sequence_number": number, **fields})
    return b"event: %b\ndata: %b\n\n" % (kind.encode(), data)
