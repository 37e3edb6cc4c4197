"""Entries of a conversation's log as scripts answer them, and the messages for a model in them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import orjson

from palaver.events import MESSAGES, EventKind
from palaver.schemas.content import parts_from
from palaver.schemas.models import Message, ToolCall
from palaver.schemas.opaque import Opaque
from palaver.schemas.unchecked import unchecked
from palaver.steps.leases import LogMessage, LogTail
from palaver.store.redis.connection import StreamEntry

EVERY_RUN: Final = ""
"""In the place of a run, in a withdrawn part of a log: nothing of it is told to models, of whichever run it is."""
_MESSAGES: Final = frozenset(
    kind.encode() for kind in (*MESSAGES, EventKind.CONVERSATION_CONDENSED, EventKind.REASONING_DROPPED)
)
"""The entries that a model's messages are derived from."""


class Withdrawn:
    """The parts of a conversation's log that models are not told of any more.

    ``text`` is the JSON that the conversation has: for each part its first and its last position, and the run whose
    part it is (`EVERY_RUN`: of all of them). Others that were queued meanwhile have entries between those.
    """

    def __init__(self, text: bytes | None) -> None:
        self._parts: dict[str, list[tuple[int, int]]] = {}
        for first, last, run_id in orjson.loads(text or b"[]"):
            self._parts.setdefault(run_id, []).append((first, last))

    def has(self, position: int, run_id: str) -> bool:
        """Tell whether the entry of this run at this position is in one of the parts."""
        parts = (*self._parts.get(run_id, ()), *(self._parts.get(EVERY_RUN, ()) if run_id != EVERY_RUN else ()))
        return any(first <= position <= last for first, last in parts)

    def without(self, run_id: str | None, through: int) -> bytes:
        """Return the parts that begin up to position ``through`` and are not of ``run_id``, as JSON; empty if there is
        none. A part of every run that goes beyond ``through`` is left out: what comes behind is something else now."""
        remaining = [
            (first, last, owner)
            for owner, parts in self._parts.items()
            for first, last in parts
            if owner != run_id and first <= through and (owner != EVERY_RUN or last <= through)
        ]
        return orjson.dumps(remaining) if remaining else b""


def in_reply(entry: Any) -> StreamEntry:
    """An entry as a script's reply has it: its fields, each with its name before it."""
    entry_id, fields = entry
    return entry_id, dict(zip(fields[::2], fields[1::2], strict=True))


def number(entry_id: bytes) -> int:
    """The number of a stream's entry: of an event in its run, of an entry in its log."""
    return int(entry_id.partition(b"-")[0])


def read_tail(reply: Sequence[Any]) -> LogTail:
    """The messages in a page of the log: the answer of ``_tail.lua``, in its order."""
    since, since_at, page, ends, withdrawals, withdrawn = reply
    entries = [in_reply(entry) for entry in page]
    last = entries[-1] if entries else None
    return LogTail(
        tuple(_messages(entries, Withdrawn(withdrawn))),
        position=number(last[0]) if last else since,
        position_at=int(last[1][b"at"]) if last else since_at,
        rebuilt=since == 0,
        ends=bool(ends),
        withdrawals=withdrawals,
    )


def _messages(tail: Sequence[StreamEntry], withdrawn: Withdrawn) -> list[LogMessage]:
    """The messages for the model in the log's ``tail``."""
    messages = []
    for entry_id, fields in tail:
        position = number(entry_id)
        run_id = fields[b"run"].decode()
        if fields[b"type"] in _MESSAGES and not withdrawn.has(position, run_id):
            data = orjson.loads(fields[b"data"])
            message = data.get("message") or {"role": "user", "content": data.get("summary", "")}
            messages.append(
                LogMessage(
                    position,
                    unchecked(Message, _as_fields(message)),
                    run_id=run_id,
                    nudge=data.get("nudge", False),
                    misfit="error" in data and data.get("nudge", False),
                    left_out_after=data.get("left_out_after"),
                    through=data.get("through", 0),
                    prompt_tokens=data.get("prompt_tokens", 0),
                    opaque=Opaque.from_stored(fields[b"opaque"]) if b"opaque" in fields else None,
                    drops=data.get("origin", ""),
                )
            )
    return messages


def _as_fields(message: dict[str, Any]) -> dict[str, Any]:
    if isinstance(message.get("content"), list):
        message["content"] = parts_from(message["content"])
    if "tool_calls" in message:
        message["tool_calls"] = tuple(unchecked(ToolCall, call) for call in message["tool_calls"])
    return message
