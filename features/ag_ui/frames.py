"""Events of AG-UI, as objects and on the wire; and the names that runs, messages and calls have there."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

import orjson

from api.kit.streams import Frames
from palaver.events import EventKind
from palaver.operations import StoredEvent

AgEvent = dict[str, Any]
"""An event, as JSON has it: what there is nothing to say about is not there."""
VERSION: Final = "1.0"
"""The version of the protocol."""


def written(events: Iterable[AgEvent]) -> bytes:
    """Return events as they are on the wire."""
    return b"".join(b"data: %b\n\n" % orjson.dumps(event) for event in events)


def message_id(run_id: str, step: str) -> str:
    """Return the id of the message that a step of a run has brought: the same in a stream and in a snapshot."""
    return f"{run_id}-{step}"


def reasoning_id(run_id: str, step: str, attempt: int) -> str:
    """Return the id of what the model thought in an attempt of a step. Snapshots do not take that back."""
    return f"{run_id}-{step}-reasoning-{attempt}"


def call_name(run_id: str, step: str, call_id: str) -> str:
    """Return the id that a call has for clients. Providers give theirs again and again; this one also says where the
    call is from."""
    return f"{run_id}:{step}:{call_id}"


def result_id(run_id: str, step: str, call_id: str) -> str:
    """Return the id of the message with the result of a call that a model step has made."""
    return f"{run_id}-{step}/{call_id}"


def interrupt_id(run_id: str, action_id: str) -> str:
    """Return the id of what a run waits for."""
    return f"{run_id}:{action_id}"


class AgDelta(bytes):
    """A delta on the wire, and what a watcher's state machine has to know of it."""

    kind: str
    message: str
    step: str
    attempt: int
    text: str
    raw: bytes
    """The text in UTF-8."""


def _write(event: StoredEvent) -> AgDelta:
    data = event.data
    if event.type == EventKind.MESSAGE_DELTA:
        kind, of = "TEXT_MESSAGE", message_id(event.run_id, data["step"])
    else:
        kind, of = "REASONING_MESSAGE", reasoning_id(event.run_id, data["step"], data["attempt"])
    frame = AgDelta(written([{"type": f"{kind}_CONTENT", "messageId": of, "delta": data["text"]}]))
    frame.kind, frame.message, frame.text, frame.raw = kind, of, data["text"], data["text"].encode()
    frame.step, frame.attempt = data["step"], data["attempt"]
    return frame


DELTAS: Final[Frames[StoredEvent, AgDelta]] = Frames(_write)
"""Deltas, written once for all who watch a run."""
STREAM: Final[dict[str, Any]] = {
    # Without a type: who judges streams takes it for that of an event, and generators of clients for that of the text.
    "schema": {"description": "Events of AG-UI 1.0, as server-sent events."},
    "example": 'data: {"type":"RUN_STARTED","threadId":"thread-1","runId":"run-1","protocolVersion":"1.0"}\n\n',
}
