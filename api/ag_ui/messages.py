"""Messages of the log as AG-UI has them, and a snapshot of a thread."""

from __future__ import annotations

import mimetypes
from collections.abc import Mapping, Sequence
from contextlib import aclosing
from typing import Any, Final
from urllib.parse import urlsplit

import orjson

from palaver.errors import UnknownConversation
from palaver.events import EventKind
from palaver.schemas.content import inline_data
from palaver.vocabulary.limits import count_exceeded, limit_of

from .. import operations
from ..operations import Backend, LogEntry
from .frames import AgEvent, call_name, message_id, result_id

Content = str | Sequence[Mapping[str, Any]]
_OURS: Final = frozenset({EventKind.MESSAGE_CREATED, EventKind.TOOL_FINISHED})


def text_in(content: Content) -> str:
    """Return the text of a message, without what is not text."""
    if isinstance(content, str):
        return content
    return "".join(part["text"] for part in content if part["type"] == "text")


def result_text(content: Content) -> str:
    """Return the result of a call as a text; one with images as JSON."""
    return content if isinstance(content, str) else orjson.dumps([dict(part) for part in content]).decode()


async def snapshot_of(backend: Backend, conversation_id: str, *, without: str | None = None) -> AgEvent | None:
    """Return the messages of a thread; but for those that the run ``without`` has brought, which come behind it. None
    for a thread of more than may be shown: clients keep what they have.

    Raises:
        StoreUnavailable: a part of it took too long.
    """
    messages: list[AgEvent] = []
    size = 0
    try:
        async with aclosing(operations.read_log(backend, conversation_id)) as pages:
            async for page in pages:
                for entry in page:
                    size += len(entry.payload)
                    made = None if entry.withdrawn or entry.type not in _OURS else _message(entry, without)
                    if made is not None:
                        messages.append(made)
                if size > limit_of("ag_ui_snapshot"):
                    count_exceeded("ag_ui_snapshot")
                    return None
    except UnknownConversation:
        return None
    return {"type": "MESSAGES_SNAPSHOT", "messages": messages}


def _message(entry: LogEntry, without: str | None) -> AgEvent | None:
    data = entry.data
    message = data["message"]
    if message["role"] == "user":
        return None if data.get("nudge") else _users(entry, message["content"])
    if entry.run_id == without:
        return None
    if message["role"] == "tool":
        step, call_id = (data["step"] or "").partition("/")[0], message["call_id"] or ""
        return {
            "id": result_id(entry.run_id, step, call_id),
            "role": "tool",
            "content": result_text(message["content"]),
            "toolCallId": call_name(entry.run_id, step, call_id),
        }
    step = data["step"] or f"m{entry.seq}"
    made: AgEvent = {"id": message_id(entry.run_id, step), "role": "assistant"}
    if text := text_in(message["content"]):
        made["content"] = text
    if message["tool_calls"]:
        made["toolCalls"] = [
            {
                "id": call_name(entry.run_id, step, call["id"]),
                "type": "function",
                "function": {"name": call["name"], "arguments": call["arguments"]},
            }
            for call in message["tool_calls"]
        ]
    return made


def _users(entry: LogEntry, content: Content) -> AgEvent:
    shown = content if isinstance(content, str) else [made for part in content if (made := _part(part)) is not None]
    return {"id": f"msg_{entry.position}", "role": "user", "content": shown}


def _part(part: Mapping[str, Any]) -> AgEvent | None:
    match part["type"]:
        case "text":
            return {"type": "text", "text": part["text"]}
        case "image" | "file":
            return {"type": "image" if part["type"] == "image" else "document", "source": _source(part["url"])}
        case _:
            return None


def _source(url: str) -> AgEvent:
    if inline := inline_data(url[:200]):
        return {"type": "data", "value": url.partition(",")[2], "mimeType": inline[0]}
    guessed, _ = mimetypes.guess_type(urlsplit(url).path, strict=True)
    return {"type": "url", "value": url} if guessed is None else {"type": "url", "value": url, "mimeType": guessed}
