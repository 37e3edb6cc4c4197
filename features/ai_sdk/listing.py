"""The messages of a chat, for a page that is loaded."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Sequence
from contextlib import aclosing, suppress
from typing import Any, Final

import orjson
from pydantic import Field
from starlette.responses import Response

from api.http.answers import answer_json
from api.http.queries import FARTHEST, Number, Query
from api.kit.signatures import AgentInPath
from palaver import operations
from palaver.errors import UnknownConversation, UnknownRun
from palaver.operations import Backend, LogEntry
from palaver.schemas.fields import DataModel
from palaver.vocabulary.limits import count_exceeded, limit_of

from .assembly import AssembledMessage
from .dialect import AI_SDK, ChatInPath, conversation_of_chat
from .projection import ChatProjection
from .values import parts_of

_LOOKED_THROUGH: Final = 2000
"""Log entries that one page looks through."""
_TURN: Final = 128
"""Entries after which others get a turn on the loop."""


class MessagesOfChatQuery(Query):
    """The messages to list, and their number."""

    limit: Number = Field(default=20, ge=1, le=100, description="Messages of the user on a page, with their answers.")
    before: Number = Field(default=0, ge=0, le=FARTHEST, description="`nextBefore` of the page before.")


class UiMessages(DataModel):
    """A page of messages, the oldest first: the newest page is the first one."""

    messages: list[dict[str, Any]]
    nextBefore: int | None
    """Older ones are on the page with this as `before`; null if there are none."""


@AI_SDK.route(
    "GET",
    "/ui/agents/{name}/chat/{chat_id}/messages",
    scope="runs:read",
    tag="ai_sdk",
    summary="List the messages of a chat",
    answers={200: ("A page of UI messages; none if there is no such chat.", UiMessages)},
)
async def messages(backend: Backend, name: AgentInPath, chat_id: ChatInPath, query: MessagesOfChatQuery) -> Response:
    """A page begins with them: `useChat({messages, resume: true})`. An answer that is being written has what is in the
    log of it; the stream brings the rest."""
    conversation_id = conversation_of_chat(backend, chat_id)
    entries: Sequence[LogEntry] = ()
    more, tools = False, frozenset[str]()
    with suppress(UnknownConversation):
        entries, more = await _entries(backend, conversation_id, query)
        tools = await _client_tools(backend, entries)
    first = entries[0].position if entries and more else None
    shown = await _messages(entries, tools)
    return answer_json(orjson.dumps({"messages": shown, "nextBefore": first}))


async def _client_tools(backend: Backend, entries: Sequence[LogEntry]) -> frozenset[str]:
    """Return the tools of the client, by the newest run that they come from."""
    for entry in reversed(entries):
        if entry.run_id:
            with suppress(UnknownRun):
                run = await operations.read_run(backend, entry.run_id)
                return frozenset(tool.name for tool in run.agent.client_tools)
    return frozenset()


async def _entries(
    backend: Backend, conversation_id: str, query: MessagesOfChatQuery
) -> tuple[Sequence[LogEntry], bool]:
    """Return the entries of a page, which begins with a message of the user, and true if there are older ones."""
    found: list[LogEntry] = []
    turns = size = 0
    log = operations.read_log(backend, conversation_id, after=query.before, newest_first=True)
    async with aclosing(log) as pages:
        async for page in pages:
            for entry in page:
                if turns >= query.limit or len(found) >= _LOOKED_THROUGH:
                    return found[::-1], True
                found.append(entry)
                size += len(entry.payload)
                is_turn = operations.begins_turn(entry)
                turns += is_turn
                # A page ends with a message of the user, unless there is too much behind it.
                if size > limit_of("answer_bytes") * (1 if is_turn else 2):
                    count_exceeded("answer_bytes")
                    return found[::-1], True
    return found[::-1], False


async def _messages(entries: Sequence[LogEntry], client_tools: frozenset[str]) -> list[dict[str, Any]]:
    """Return the messages that the entries are: one for each of the user's, and one for each run that has answered."""
    shown: list[dict[str, Any] | AssembledMessage] = []
    answers: dict[str, tuple[ChatProjection, AssembledMessage]] = {}
    for number, entry in enumerate(entries, 1):
        if number % _TURN == 0:
            await asyncio.sleep(0)
        if entry.withdrawn:
            continue
        if operations.begins_turn(entry):
            content = parts_of(entry.data["message"]["content"])
            shown.append({"id": f"msg_{entry.position}", "role": "user", "parts": content})
        elif entry.run_id:
            if entry.run_id not in answers:
                machine = ChatProjection(entry.run_id, client_tools=client_tools, edge=math.inf)
                made = AssembledMessage()
                made.add([machine.opening()])
                answers[entry.run_id] = machine, made
            machine, made = answers[entry.run_id]
            before = bool(made.parts)
            made.add(machine.read(entry))
            if made.parts and not before:
                shown.append(made)
    return [message if isinstance(message, dict) else message.shown() for message in shown]
