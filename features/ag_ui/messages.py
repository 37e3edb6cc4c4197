"""Messages of the log as AG-UI has them, and a snapshot of a thread."""

from __future__ import annotations

import mimetypes
from collections.abc import Mapping, Sequence
from contextlib import aclosing
from typing import Any, Final, NamedTuple
from urllib.parse import urlsplit

import orjson

from api.kit.shown_run import Content, text_in
from palaver import operations
from palaver.errors import UnknownConversation
from palaver.events import EventKind
from palaver.operations import Backend, LogEntry
from palaver.schemas.arguments import as_json
from palaver.schemas.content import inline_data
from palaver.vocabulary.limits import count_exceeded, limit_of

from .frames import AgEvent, call_name, message_id, result_id

_AHEAD: Final = 8
"""Messages of a client that may be missing in the log one after the other, and the next one is found yet."""
_OURS: Final = frozenset({EventKind.MESSAGE_CREATED, EventKind.TOOL_FINISHED})


def result_text(content: Content) -> str:
    """Return the result of a call as a text; one with images as JSON."""
    return content if isinstance(content, str) else orjson.dumps([dict(part) for part in content]).decode()


class SaidWords(NamedTuple):
    """Words of the user in a message of a client, and its id there."""

    id: str
    words: str


def said_in(messages: Sequence[Mapping[str, Any]]) -> Sequence[SaidWords]:
    """Return what a snapshot needs of a client's messages: a stream holds no more of its request."""
    users = [message for message in messages if message.get("role") == "user"]
    said = [(message.get("id"), _words(message.get("content"))) for message in users]
    return [SaidWords(of, words) for of, words in said if isinstance(of, str) and words is not None]


def results_in(messages: Sequence[Mapping[str, Any]]) -> frozenset[str]:
    """Return the ids of the calls whose results a client has."""
    return frozenset(str(each.get("toolCallId")) for each in messages if each.get("role") == "tool")


class KnownMessages:
    """The words of the user as a client has them: it finds them again in a snapshot by ids of its own alone."""

    def __init__(self, said: Sequence[SaidWords]) -> None:
        self._said = said
        self._next = 0

    def id_of(self, text: str) -> str | None:
        """Return the id that the client has for the next message with these words, if it has one."""
        for at in range(self._next, min(self._next + _AHEAD, len(self._said))):
            said = self._said[at]
            # What the page has said beside the words stands before them.
            if text.endswith(said.words) if said.words else not text:
                self._next = at + 1
                return said.id
        return None


def _words(content: Any) -> str | None:
    if isinstance(content, str):
        return content
    if not isinstance(content, list) or not all(isinstance(part, dict) for part in content):
        return None
    return "".join(text for part in content if isinstance(text := part.get("text"), str))


async def snapshot_of(
    backend: Backend, conversation_id: str, said: Sequence[SaidWords], *, before: tuple[str, int] | None = None
) -> AgEvent | None:
    """Return the messages of a thread for a client that has ``said`` these words; but for those that came behind an
    event of a run, ``before`` which it is shown: the client hears of them next. None for a thread of more than may be
    shown: clients keep what they have.

    Raises:
        StoreUnavailable: a part of it took too long.
    """
    shown: list[AgEvent] = []
    known, size = KnownMessages(said), 0
    try:
        async with aclosing(operations.read_log(backend, conversation_id)) as pages:
            async for page in pages:
                for entry in page:
                    size += len(entry.payload)
                    made = None if entry.withdrawn or entry.type not in _OURS else _message(entry, known, before)
                    if made is not None:
                        shown.append(made)
                if size > limit_of("ag_ui_snapshot"):
                    count_exceeded("ag_ui_snapshot")
                    return None
    except UnknownConversation:
        return None
    return {"type": "MESSAGES_SNAPSHOT", "messages": shown}


def _message(entry: LogEntry, known: KnownMessages, before: tuple[str, int] | None) -> AgEvent | None:
    data = entry.data
    message = data["message"]
    if message["role"] == "user":
        return None if data.get("nudge") else _users(entry, message["content"], known)
    if before is not None and entry.run_id == before[0] and entry.seq > before[1]:
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
                "function": {"name": call["name"], "arguments": as_json(call["arguments"])},
            }
            for call in message["tool_calls"]
        ]
    return made


def _users(entry: LogEntry, content: Content, known: KnownMessages) -> AgEvent:
    shown = content if isinstance(content, str) else [made for part in content if (made := _part(part)) is not None]
    own_id = known.id_of(text_in(content))
    return {"id": own_id or f"msg_{entry.position}", "role": "user", "content": shown}


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
