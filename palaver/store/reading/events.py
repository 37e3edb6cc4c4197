"""Events as the store has them: what one carries stays the JSON text that its writer made, and is mostly passed on
unread.

The entry of a message whose text was shown to no watcher while it came stands for deltas, too. It carries ``deltas``,
the attempt and their number, and as many numbers before its own are free. A reader of the run's events makes them of
the text: they cost nothing where there is no reader, and are the same to all. The text of any other answer whose
deltas are gone, or were never sent to a watcher, is told as one delta.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from datetime import datetime
from itertools import groupby
from math import ceil
from typing import Any, Final

import orjson

from palaver.errors import UNREADABLE, CorruptRecord
from palaver.events import DELTAS, EventKind, complete, is_complete
from palaver.late import dataclass
from palaver.schemas.opaque import Opaque
from palaver.store.reading.records import action, instant
from palaver.store.redis.connection import Fields
from palaver.store.scripting.log_entries import Withdrawn, number
from palaver.vocabulary.ids import call_of

AMID_ANSWER: Final = frozenset(
    {
        EventKind.RUN_PAUSING,
        EventKind.RUN_CANCELLING,
        EventKind.BUDGET_WARNING,
        EventKind.CONVERSATION_CONDENSED,
        EventKind.REASONING_DROPPED,
    }
)
"""Kinds of entries of the log that may come between the deltas of an answer and the answer."""
_BREAKS_OFF: Final = frozenset({EventKind.RUN_RETRYING, EventKind.STEP_LOST, EventKind.RUN_FINISHED})
_ACTION_REQUIRED: Final = (EventKind.ACTION_REQUIRED.encode(), EventKind.CHILD_ACTION_REQUIRED.encode())


@dataclass(frozen=True, slots=True)
class StoredEvent:
    """An event of a run. ``type`` is an `EventKind`, or what a newer version has written."""

    run_id: str
    seq: int
    at: datetime
    type: str
    payload: bytes
    """A JSON object: the fields that events of its kind have."""

    def __hash__(self) -> int:
        # Enough to tell them apart, and a fourth of the time that all fields take.
        return hash((self.run_id, self.seq))

    @property
    def begins(self) -> int:
        """The number of the first event that it stands for: its own, but for deltas that were joined."""
        return self.seq

    @property
    def data(self) -> dict[str, Any]:
        """The payload. It is parsed at each access."""
        fields: dict[str, Any] = orjson.loads(self.payload)
        return fields

    def to_json(self) -> bytes:
        """The event on the wire: one line."""
        about = orjson.dumps(
            {"type": self.type, "run_id": self.run_id, "seq": self.seq, "at": self.at}, option=orjson.OPT_UTC_Z
        )
        return about if self.payload == b"{}" else b"%b,%b" % (about[:-1], self.payload[1:])


@dataclass(frozen=True, slots=True)
class JoinedDeltas(StoredEvent):
    """Deltas that follow on each other, as one with the number and the time of the last of them."""

    first: int

    @property
    def begins(self) -> int:
        """The number of the first of them."""
        return self.first


@dataclass(frozen=True, slots=True)
class LogEntry(StoredEvent):
    """An entry of a conversation's log: a durable event, at its position in the conversation (from 1)."""

    position: int
    withdrawn: bool = False
    """True if models do not see it any more: its run was rolled back, or the conversation went back to before it."""
    opaque: Opaque | None = None
    """The message's opaque parts, which its provider wants back unchanged. Shown to those who ask for them, and never
    in an event."""
    deltas: tuple[int, int] | None = None
    """The attempt and the number of those that its text stands for."""

    def event(self) -> StoredEvent:
        """The event that it was."""
        return StoredEvent(self.run_id, self.seq, self.at, self.type, self.payload)

    def text(self) -> list[StoredEvent] | None:
        """The deltas that tell it to those who have seen nothing of it: those that it stands for; else one with the
        number before its own, of the first attempt, as the log does not say of which; none if it has no text. None if
        it is not an answer of a model's step."""
        if self.type != EventKind.MESSAGE_CREATED:
            return None
        data = self.data
        if data["step"] is None or data["message"]["role"] != "assistant":
            return None
        text = data["message"]["content"]
        return list(_deltas(self.event(), *(self.deltas or (1, 1)))) if text and isinstance(text, str) else []

    def broken_off(self) -> bool:
        """True if what was seen of an answer before it is not stored."""
        return self.type in _BREAKS_OFF and bool(self._step()) and call_of(self._step()) is None

    def discarded(self, seq: int) -> StoredEvent:
        """The event that has a watcher forget what it has seen of the answer that this is, or says to be broken off."""
        payload = orjson.dumps({"step": self._step(), "attempt": 1})
        return StoredEvent(self.run_id, seq, self.at, EventKind.MESSAGE_DISCARDED, payload)

    def _step(self) -> str:
        data = self.data
        return data.get("step") or (data.get("error") or {}).get("step") or ""


@dataclass(frozen=True, slots=True)
class PlacedEvent(StoredEvent):
    """An event in a stream over a conversation, at or behind a position of its log."""

    position: int
    beside: int = 0
    """The number of the last event before it of the run in whose answer it comes; 0 if it comes in none."""

    @classmethod
    def of(cls, event: StoredEvent, position: int, beside: int = 0) -> PlacedEvent:
        """``event`` there."""
        return cls(event.run_id, event.seq, event.at, event.type, event.payload, position, beside)

    def to_json(self) -> bytes:
        """The event on the wire, with its position: one line."""
        return b'%b,"position":%d}' % (StoredEvent.to_json(self)[:-1], self.position)


def joined(events: Sequence[StoredEvent]) -> Sequence[StoredEvent]:
    """Return the same events, with deltas of an attempt that follow on each other as one."""
    if len(events) < 2:
        return events
    found: list[StoredEvent] = []
    for is_delta, group in groupby(events, lambda event: event.type in DELTAS):
        alike = list(group)
        found += _joined_deltas(alike) if is_delta else alike
    return found


def _joined_deltas(deltas: Sequence[StoredEvent]) -> Iterator[StoredEvent]:
    payloads = [delta.data for delta in deltas]
    begin = 0
    for end in range(1, len(deltas) + 1):
        if end < len(deltas) and _goes_on(deltas, payloads, end):
            continue
        last = deltas[end - 1]
        if end - begin == 1:
            yield last
        else:
            text = "".join(payload["text"] for payload in payloads[begin:end])
            payload = orjson.dumps({**payloads[begin], "text": text})
            yield JoinedDeltas(last.run_id, last.seq, last.at, last.type, payload, deltas[begin].begins)
        begin = end


def _goes_on(deltas: Sequence[StoredEvent], payloads: Sequence[dict[str, Any]], place: int) -> bool:
    """Tell whether the delta at ``place`` is more of the text of the one before it, and says nothing else."""
    before, after = payloads[place - 1], payloads[place]
    return (
        deltas[place].type == deltas[place - 1].type
        and deltas[place].begins == deltas[place - 1].seq + 1
        and {**before, "text": None} == {**after, "text": None}
    )


def about_stream(kind: EventKind, run_id: str, seq: int, at: datetime, first: int, last: int) -> StoredEvent:
    """Return an event for one watcher about the events ``first`` to ``last``, behind the one of number ``seq``."""
    return StoredEvent(run_id, seq, at, kind, orjson.dumps({"first": first, "last": last}))


def from_feed(run_id: str, entry_id: bytes, fields: Fields) -> list[StoredEvent]:
    """The event of a feed entry, whose id is the sequence number, behind the deltas that the entry stands for. Raises
    CorruptRecord if it is not as it was written."""
    try:
        return _events(run_id, number(entry_id), fields[b"at"], fields[b"type"], fields[b"data"])
    except UNREADABLE as error:
        raise CorruptRecord(f"the events of {run_id}") from error


def from_log(entry_id: bytes, fields: Fields, withdrawn: Withdrawn | None = None) -> LogEntry:
    """A log entry; its id is the position in the conversation. Raises CorruptRecord if it is not as it was written."""
    try:
        return _from_log(entry_id, fields, withdrawn)
    except UNREADABLE as error:
        raise CorruptRecord(f"the log, at {entry_id[:40].decode(errors='replace')}") from error


def _from_log(entry_id: bytes, fields: Fields, withdrawn: Withdrawn | None) -> LogEntry:
    position, run_id, kind = number(entry_id), fields[b"run"].decode(), fields[b"type"]
    payload, deltas = _payload(kind, fields[b"data"])
    return LogEntry(
        run_id,
        int(fields[b"seq"]),
        instant(fields[b"at"]),
        kind.decode(),
        payload,
        position,
        withdrawn is not None and withdrawn.has(position, run_id),
        Opaque.from_stored(fields[b"opaque"]) if b"opaque" in fields else None,
        deltas,
    )


def from_channel(run_id: str, message: bytes) -> list[StoredEvent]:
    """The same from the feed's channel: ``seq millis type payload``."""
    seq, at, kind, payload = message.split(b" ", 3)
    return _events(run_id, int(seq), at, kind, payload)


def _events(run_id: str, seq: int, at: bytes, kind: bytes, text: bytes) -> list[StoredEvent]:
    payload, deltas = _payload(kind, text)
    event = StoredEvent(run_id, seq, instant(at), kind.decode(), payload)
    return [*_deltas(event, *deltas), event] if deltas else [event]


def _deltas(event: StoredEvent, attempt: int, number: int) -> Iterator[StoredEvent]:
    data = event.data
    text = data["message"]["content"]
    size = ceil(len(text) / number)
    for i in range(number):
        about = {"step": data["step"], "attempt": attempt, "text": text[i * size : (i + 1) * size]}
        yield replace(event, seq=event.seq - number + i, type=EventKind.MESSAGE_DELTA, payload=orjson.dumps(about))


def _payload(kind: bytes, text: bytes) -> tuple[bytes, tuple[int, int] | None]:
    """Return the payload of the event, and the range of deltas that its entry stands for."""
    if kind in _ACTION_REQUIRED:
        # Scripts count in milliseconds.
        data = orjson.loads(text)
        return orjson.dumps({**data, "action": action(data["action"]).model_dump(mode="json")}), None
    name = kind.decode()
    if is_complete(name):
        return text, None
    data = complete(name, orjson.loads(text))
    deltas = data.pop("deltas", None)
    return orjson.dumps(data), deltas and (deltas[0], deltas[1])
