"""Events of AG-UI, as objects and on the wire; and the names that runs, messages and calls have there."""

from __future__ import annotations

from typing import Any, Final

from api.kit.projections import Item

AgEvent = Item
"""An event."""
VERSION: Final = "1.0"
"""The version of the protocol."""


def message_id(run_id: str, step: str) -> str:
    """Return the id of the message that a step of a run has brought: the same in a stream and in a snapshot."""
    return f"{run_id}-{step}"


def reasoning_id(run_id: str, step: str, attempt: int | None) -> str:
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


STREAM: Final[dict[str, Any]] = {
    # Without a type: who judges streams takes it for that of an event, and generators of clients for that of the text.
    "schema": {"description": "Events of AG-UI 1.0, as server-sent events."},
    "example": 'data: {"type":"RUN_STARTED","threadId":"thread-1","runId":"run-1","protocolVersion":"1.0"}\n\n',
}
