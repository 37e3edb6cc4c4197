"""The events for all sockets of a conversation, written and encoded once for all of them."""

from __future__ import annotations

from collections import OrderedDict
from functools import cached_property, lru_cache
from typing import Any, Final
from uuid import UUID

import orjson

from api.http.sockets import text_frame
from palaver.operations import LogEntry, StoredEvent

from .events import Writer
from .state import Generation

_CACHED: Final = 16
"""Entries of the whole process: sockets need the same one within some turns of the loop."""


_CACHED_DELTAS: Final = 64
"""The same of deltas, of which more come."""


class SharedEvent(dict[str, Any]):
    """An event, and what sockets are sent of it."""

    @cached_property
    def frame(self) -> bytes:
        """The event in JSON, as one frame."""
        return text_frame(orjson.dumps(self))


_last: OrderedDict[tuple[UUID, Generation, int], tuple[Writer, LogEntry, list[SharedEvent]]] = OrderedDict()


@lru_cache(_CACHED_DELTAS)
def _delta(conversation: UUID, generation: Generation, event: StoredEvent) -> SharedEvent:
    return SharedEvent(Writer(conversation, generation).delta(event))


def shared_delta(writer: Writer, event: StoredEvent) -> SharedEvent:
    """Return the event of a delta; it is never changed."""
    return _delta(writer.conversation, writer.generation, event)


def shared(writer: Writer, entry: LogEntry) -> list[SharedEvent]:
    """Return the events of an entry, in order; they are never changed."""
    key = (writer.conversation, writer.generation, entry.position)
    if (last := _last.get(key)) is not None and last[:2] == (writer, entry):
        return last[2]
    events = [SharedEvent(event) for event in writer.of(entry)]
    _last[key] = (writer, entry, events)
    _last.move_to_end(key)
    if len(_last) > _CACHED:
        _last.popitem(last=False)
    return events
