"""Conversations: begin, find, describe, read and watch them."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import aclosing
from functools import partial
from typing import Literal, Unpack

from palaver.client.aio.following import follow
from palaver.client.aio.paging import pages
from palaver.client.aio.transport import ApiTransport
from palaver.client.answers import conversation_of, conversations_of, count_of, messages_of, page_of
from palaver.client.functions import ClientToolset
from palaver.client.options import ConversationChanges, ConversationOptions, agent_object, check
from palaver.client.requests import conversations
from palaver.client.resuming import ConversationCursor
from palaver.events import Event
from palaver.schemas.conversation import (
    Conversation,
    ConversationCount,
    ConversationFilter,
    ConversationMessage,
    ConversationOrder,
)


class AsyncConversations:
    """The methods of the client about conversations."""

    _transport: ApiTransport

    async def create_conversation(self, **options: Unpack[ConversationOptions]) -> Conversation:
        """Begin a conversation without a run; the agent as in `submit`. With an ``id``, a UUID or one that this server
        made, it is the conversation of that id if there is one, as it is.

        Raises:
            APIError, ConnectionFailed, ValueError: as `submit`; without an ``id`` a lost answer is not asked for again.
        """
        check(options, ConversationOptions)
        agent = agent_object(options, ClientToolset.of(options.get("client_tools", ())))
        return conversation_of(await self._transport.call(conversations.create_conversation(agent, options)))

    async def conversation(self, conversation_id: str) -> Conversation:
        """The conversation: its agent, its fields, its active run, its queued runs. Raises as `get`."""
        return conversation_of(await self._transport.call(conversations.get_conversation(conversation_id)))

    async def conversations(
        self,
        *,
        limit: int | None = None,
        order: ConversationOrder = "-updated",
        **filters: Unpack[ConversationFilter],
    ) -> AsyncGenerator[Conversation, None]:
        """Conversations that fit all conditions, those with news first unless ``order`` says otherwise, page by page as
        you iterate; at most ``limit`` of them.

        Raises:
            APIError, ConnectionFailed: a page cannot be had.
            ValueError: a time without a zone, or an empty ``status``.
        """
        check(filters, ConversationFilter)
        admitted = conversations.conversation_filter(filters)
        ask = partial(conversations.list_conversations, admitted, order)
        async with aclosing(pages(self._transport, ask, limit)) as conversation_pages:
            async for page, response in conversation_pages:
                for conversation in conversations_of(page, response):
                    yield conversation

    async def count_conversations(self, **filters: Unpack[ConversationFilter]) -> ConversationCount:
        """Count the conversations that fit all conditions. Raises as `conversations`."""
        check(filters, ConversationFilter)
        admitted = conversations.conversation_filter(filters)
        return count_of(await self._transport.call(conversations.count_conversations(admitted)))

    async def change_conversation(self, conversation_id: str, **changes: Unpack[ConversationChanges]) -> Conversation:
        """Change the fields of a conversation: a new value takes the place of the old one, None takes it away. A new
        agent answers from the next run on.

        Raises:
            Conflict: ``conversation_revised``, it has another ``revision`` than the one given.
            NotFound: there is no such conversation (any more).
            APIError, ConnectionFailed, ValueError: as `submit`; with a ``revision`` a lost answer is not asked again.
        """
        check(changes, ConversationChanges)
        agent = agent_object(changes, ClientToolset.of(changes.get("client_tools", ())))
        return conversation_of(
            await self._transport.call(conversations.change_conversation(conversation_id, agent, changes))
        )

    async def messages(
        self,
        conversation_id: str,
        *,
        include: Literal["reasoning", "opaque"] | None = None,
        newest_first: bool = False,
    ) -> AsyncGenerator[ConversationMessage, None]:
        """The conversation's messages, oldest first unless asked otherwise, page by page as you iterate; with what the
        model thought, or with all that its provider wants back unchanged, if ``include`` asks for it. Raises as
        `get`."""
        position: int | None = 0
        while position is not None:
            request = conversations.get_messages(
                conversation_id, position, include=include, order="-position" if newest_first else None
            )
            response = await self._transport.call(request)
            page = page_of(response)
            for message in messages_of(page, response):
                yield message
            position = None if page.after == position else page.after

    async def conversation_events(
        self, conversation_id: str, after: int | str = 0, *, include: Literal["reasoning"] | None = None
    ) -> AsyncGenerator[Event, None]:
        """The events of a conversation, of all of its runs, behind ``after``: a ``position``, or ``position.seq`` for
        an event behind it that is not in the log. Events of the log come exactly once and in order, and deltas of the
        active run come between, or the text of an answer as one if its run is over. It goes on until the conversation
        is deleted.

        A broken connection is made again, behind the last event that arrived.

        Raises:
            NotFound: there is no such conversation.
            APIError: any other 4xx.
            ConnectionFailed, Unavailable: never connected, or no sign of life for five minutes.
        """
        cursor = ConversationCursor(conversation_id, str(after))
        async with aclosing(follow(self._transport, cursor, include)) as events:
            async for event in events:
                yield event
