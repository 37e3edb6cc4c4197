"""Looking at runs, conversations and queues."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from typing import Any, Final

from palaver.client import answers, requests
from palaver.client.core.base import Base
from palaver.client.flow import Emit, Flow, Stream
from palaver.client.following import follow
from palaver.models import Conversation, Event, Message, Run

PAGE: Final = 100
"""Runs of one page of a list."""


class Reading(Base):
    """What there is."""

    __slots__ = ()

    def get(self, run_id: str, wait: int = 0) -> Flow[Run]:
        """The run as it is now, or once it has ended or ``wait`` seconds are over.

        Raises:
            NotFound: there is no such run (any more).
            APIError, ConnectionFailed: it cannot be had.
        """
        return answers.run_of((yield from self._call(requests.get_run(run_id, wait), wait)))

    def list(
        self,
        *,
        status: str | Iterable[str] | None = None,
        conversation_id: str | None = None,
        tag: str | None = None,
        agent: str | None = None,
        error_class: str | None = None,
        created_after: datetime | None = None,
        created_before: datetime | None = None,
        limit: int | None = None,
    ) -> Stream[Run]:
        """Runs that fit all that is given, newest first, page by page as you iterate; at most ``limit`` of them.

        ``agent`` is an agent's name.

        Raises:
            APIError, ConnectionFailed: a page cannot be had.
            ValueError: a time without a zone, or an empty ``status``.
        """
        wanted = requests.run_filter(
            status=status,
            conversation_id=conversation_id,
            tag=tag,
            agent=agent,
            error_class=error_class,
            created_after=created_after,
            created_before=created_before,
        )
        cursor: str | None = None
        left = limit
        while left is None or left > 0:
            size = PAGE if left is None else min(left, PAGE)
            response = yield from self._call(requests.list_runs(wanted, size, cursor))
            page = answers.page_of(response)
            runs = answers.runs_of(page, response)[:left]
            for run in runs:
                yield Emit(run)
            left = None if left is None else left - len(runs)
            cursor = page.cursor
            if cursor is None:
                return

    def events(self, run_id: str, after: int = 0) -> Stream[Event]:
        """The run's events behind sequence number ``after``, each once and in order, until ``run.finished``.

        A broken connection is made again, after as long as the server asked, behind the last event that
        arrived. Types that this version does not know come through as they are.

        Raises:
            NotFound: there is no such run.
            APIError: any other 4xx.
            ConnectionFailed, Unavailable: never connected, or no sign of life for five minutes.
        """
        return follow(self.url, self.timeout, self.now, run_id, after)

    def conversation(self, conversation_id: str) -> Flow[Conversation]:
        """The conversation: its agent, what is active, what is queued. Raises as `get`."""
        return answers.conversation_of((yield from self._call(requests.get_conversation(conversation_id))))

    def messages(self, conversation_id: str) -> Stream[Message]:
        """The conversation's messages, oldest first, page by page as you iterate. Raises as `get`."""
        position = 0
        while True:
            response = yield from self._call(requests.get_messages(conversation_id, position))
            page = answers.page_of(response)
            for message in answers.messages_of(page, response):
                yield Emit(message)
            if page.after is None or page.after <= position:
                return
            position = page.after

    def queues(self) -> Flow[dict[str, Any]]:
        """How much waits, since when, and who works, as the API says it. Raises as `get`."""
        return answers.object_of((yield from self._call(requests.get_queues())))
