"""The messages of an attempt or a run, for its span: only with PALAVER_TRACE_CONTENT.

They are read from the conversation's log when the span is sent, and stored nowhere else: messages that were deleted
meanwhile are in no trace.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

import orjson

from palaver.events import EventKind
from palaver.store.reading.events import LogEntry
from palaver.vocabulary.ids import call_of
from palaver.vocabulary.limits import count_exceeded, limit_of

from . import names
from .outbox import SpanOutbox
from .records import EndedRun, Record

_BEHIND: Final = 16
"""Entries that a script writes for an attempt before its outcome, at most."""
_BEFORE: Final = 200
"""Entries that are looked through for the messages of a model call that are new since the one before."""


async def content_of(record: Record, outbox: SpanOutbox) -> Mapping[str, str]:
    """Return the attributes of a record's span that are content: for a model call the messages that are new since the
    one before."""
    conversation_id = record.run.conversation_id
    if isinstance(record, EndedRun):
        inputs, output = await outbox.input_and_output(record.run.run_id, conversation_id)
        answer = output and [_message({"role": "assistant", "content": output})]
        return _fitting({names.INPUT_MESSAGES: [*map(_message, inputs)], names.OUTPUT_MESSAGES: answer})
    place, call_id = record.entries, call_of(record.step)
    after = await outbox.log(conversation_id, place + 1, _BEHIND)
    before = await outbox.log_before(conversation_id, place, _BEFORE)
    own = next((entry.data for entry in after if _brings(entry, record.step)), None)
    if call_id:
        result = own and own["message"].get("content")
        return _fitting({names.ARGUMENTS: _arguments(before, record.step, call_id), names.RESULT: result})
    messages = [*map(_message, _new(before))][::-1]
    return _fitting({names.INPUT_MESSAGES: messages, names.OUTPUT_MESSAGES: own and [_message(own["message"])]})


def _brings(entry: LogEntry, step: str) -> bool:
    return entry.type in (EventKind.MESSAGE_CREATED, EventKind.TOOL_FINISHED) and entry.data.get("step") == step


def _new(before: list[LogEntry]) -> Iterator[Mapping[str, Any]]:
    """The messages since the last answer of a model, the newest first."""
    for entry in before:
        if entry.type not in (EventKind.MESSAGE_CREATED, EventKind.TOOL_FINISHED):
            continue
        message = entry.data["message"]
        if message["role"] == "assistant":
            return
        yield message


def _arguments(before: list[LogEntry], step: str, call_id: str) -> str | None:
    seq = step.partition("/")[0]
    for entry in before:
        if entry.type == EventKind.MESSAGE_CREATED and entry.data.get("step") == seq:
            calls = entry.data["message"].get("tool_calls") or ()
            return next((call["arguments"] for call in calls if call["id"] == call_id), None)
    return None


def _message(message: Mapping[str, Any]) -> Mapping[str, Any]:
    """A message as the conventions have it: parts of types."""
    content = message.get("content") or ""
    if message["role"] == "tool":
        parts = [{"type": "tool_call_response", "id": message.get("call_id"), "response": content}]
    elif isinstance(content, str):
        parts = [{"type": "text", "content": content}] if content else []
    else:
        parts = [{"type": "text", "content": part["text"]} if "text" in part else {"type": "uri"} for part in content]
    for call in message.get("tool_calls") or ():
        parts.append({"type": "tool_call", "id": call["id"], "name": call["name"], "arguments": call["arguments"]})
    return {"role": message["role"], "parts": parts}


def _fitting(values: Mapping[str, Any]) -> Mapping[str, str]:
    """Return the values that are there, as text, none of it too long."""
    texts = {
        name: value if isinstance(value, str) else orjson.dumps(value).decode()
        for name, value in values.items()
        if value
    }
    if any(len(text) > limit_of("span_content") for text in texts.values()):
        count_exceeded("span_content")
    return {name: text[: limit_of("span_content")] for name, text in texts.items()}
