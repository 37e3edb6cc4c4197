"""Every method of the clients, written once: what to ask, when to ask again, what it means."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from palaver.client import answers, patience, requests
from palaver.client.errors import WaitTimeout
from palaver.client.flow import Emit, Flow, Lost, Request, Response, Send, Sleep, Stream
from palaver.client.following import follow
from palaver.errors import RunFailed
from palaver.lifecycle import RunStatus
from palaver.models import AgentSpec, Budget, Conversation, Event, Message, Run

LONG_POLL: Final = 30
"""Seconds that one request may wait for a run's end: below the idle limit of common proxies (60)."""
PAGE: Final = 100
"""Runs of one page of a list."""


@dataclass(frozen=True, slots=True)
class Core:
    """The methods as flows. ``url`` is for messages only; ``timeout`` seconds may pass in silence."""

    url: str
    timeout: float
    now: Callable[[], float] = time.monotonic

    def submit(
        self,
        input: str | Sequence[Message | Mapping[str, Any]],
        *,
        agent: AgentSpec | Mapping[str, Any] | None = None,
        model: str | None = None,
        instructions: str | None = None,
        tools: Sequence[str] = (),
        max_steps: int | None = None,
        conversation_id: str | None = None,
        on_conflict: str | None = None,
        start_after: datetime | None = None,
        start_by: datetime | None = None,
        deadline: datetime | None = None,
        budget: Budget | Mapping[str, int] | None = None,
        metadata: Mapping[str, str] | None = None,
        tags: Sequence[str] = (),
        idempotency_key: str | None = None,
        wait: int = 0,
    ) -> Flow[Run]:
        """Submit a run; returns it as it is then, mostly queued.

        Say who answers with ``agent``, or with ``model`` and, if wanted, ``instructions``, ``tools`` and
        ``max_steps``, or with neither to go on with the conversation's own. The request carries an
        idempotency key, a fresh one unless given, so that it is sent again after a lost answer without
        making a second run. With ``wait`` the answer comes when the run has ended, or after so many seconds.

        Raises:
            APIError: the API refused it; `Unprocessable` names the fields.
            ConnectionFailed: no answer, several times. With your own ``idempotency_key`` you may try again.
            ValueError: arguments that do not go together, or a time without a zone.
        """
        request = requests.submit_run(
            input=input,
            agent=requests.agent_object(agent, model, instructions, tools, max_steps),
            conversation_id=conversation_id,
            on_conflict=on_conflict,
            start_after=start_after,
            start_by=start_by,
            deadline=deadline,
            budget=budget,
            metadata=metadata,
            tags=tags,
            idempotency_key=idempotency_key,
            wait=wait,
        )
        return answers.run_of((yield from self._call(request, wait)))

    def run(
        self,
        input: str | Sequence[Message | Mapping[str, Any]],
        *,
        agent: AgentSpec | Mapping[str, Any] | None = None,
        model: str | None = None,
        instructions: str | None = None,
        tools: Sequence[str] = (),
        max_steps: int | None = None,
        conversation_id: str | None = None,
        on_conflict: str | None = None,
        start_after: datetime | None = None,
        start_by: datetime | None = None,
        deadline: datetime | None = None,
        budget: Budget | Mapping[str, int] | None = None,
        metadata: Mapping[str, str] | None = None,
        tags: Sequence[str] = (),
        idempotency_key: str | None = None,
        timeout: float | None = None,
        raise_on_failure: bool = True,
    ) -> Flow[Run]:
        """`submit` and `wait` in one; ``timeout`` as there. Returns the ended run.

        Raises:
            RunFailed: its status is ``failed``, unless ``raise_on_failure`` is False. Other ends return.
            WaitTimeout: it did not end in time; it goes on.
            APIError, ConnectionFailed, ValueError: as `submit` and `wait`.
        """
        begun = self.now()
        run = yield from self.submit(
            input,
            agent=agent,
            model=model,
            instructions=instructions,
            tools=tools,
            max_steps=max_steps,
            conversation_id=conversation_id,
            on_conflict=on_conflict,
            start_after=start_after,
            start_by=start_by,
            deadline=deadline,
            budget=budget,
            metadata=metadata,
            tags=tags,
            idempotency_key=idempotency_key,
            wait=LONG_POLL if timeout is None else int(min(timeout, LONG_POLL)),
        )
        if not run.status.terminal:
            left = None if timeout is None else max(timeout - (self.now() - begun), 0.0)
            run = yield from self.wait(run.id, left)
        if raise_on_failure and run.status is RunStatus.FAILED:
            raise RunFailed(run.error or {}, run.id)
        return run

    def wait(self, run_id: str, timeout: float | None = None) -> Flow[Run]:
        """Wait until the run has ended, in whichever way, and return it.

        ``timeout`` is in seconds; None waits as long as it takes, 0 looks once. Until then it keeps trying
        over 429, 5xx and network errors. A server that does not answer at all may cost a second more.

        Raises:
            WaitTimeout: it did not end in time; it goes on.
            NotFound: there is no such run.
            APIError: any other 4xx.
        """
        ends = None if timeout is None else self.now() + timeout
        status: RunStatus | None = None
        failures = idle = 0
        while True:
            begun = self.now()
            left = float(LONG_POLL) if ends is None else max(ends - begun, 0.0)
            poll = int(min(left, LONG_POLL))
            patient = self.timeout if ends is None else min(self.timeout, max(left - poll, 1.0))
            answer: Response | Lost = yield Send(requests.get_run(run_id, poll), poll + patient)
            if isinstance(answer, Response) and answer.ok:
                run = answers.run_of(answer)
                if run.status.terminal:
                    return run
                status, failures = run.status, 0
                # Before its time and before the end: the run needs somebody, or the server does not wait.
                idle = idle + 1 if self.now() - begun < poll / 2 or poll == 0 else 0
                pause = min(0.1 * 2.0**idle, 2.0) if idle else 0.0
            else:
                error = patience.failure(self.url, answer)
                if not patience.passing(error):
                    raise error
                failures += 1
                pause = patience.capped(failures, error)
            if ends is not None and timeout is not None:
                if self.now() >= ends:
                    raise WaitTimeout(run_id, timeout, status)
                pause = min(pause, ends - self.now())
            yield Sleep(max(pause, 0.0))

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
        limit: int | None = None,
    ) -> Stream[Run]:
        """Runs, newest first, page by page as you iterate; at most ``limit`` of them.

        Raises:
            APIError, ConnectionFailed: a page cannot be had.
        """
        cursor: str | None = None
        left = limit
        while left is None or left > 0:
            size = PAGE if left is None else min(left, PAGE)
            request = requests.list_runs(
                status=status, conversation_id=conversation_id, tag=tag, limit=size, cursor=cursor
            )
            response = yield from self._call(request)
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

    def cancel(self, run_id: str, reason: str | None = None) -> Flow[Run]:
        """Ask the run to stop; returns it, cancelling or already cancelled. Asking twice is asking once.

        Raises:
            Conflict: it had ended otherwise before (``run_ended``).
            NotFound: there is no such run.
            APIError, ConnectionFailed: it could not be asked.
        """
        return answers.run_of((yield from self._call(requests.cancel_run(run_id, reason))))

    def create_conversation(
        self,
        *,
        agent: AgentSpec | Mapping[str, Any] | None = None,
        model: str | None = None,
        instructions: str | None = None,
        tools: Sequence[str] = (),
        max_steps: int | None = None,
    ) -> Flow[Conversation]:
        """Begin a conversation without a run; the agent as in `submit`.

        Raises:
            APIError, ConnectionFailed, ValueError: as `submit`, but a lost answer is not asked for again.
        """
        request = requests.create_conversation(requests.agent_object(agent, model, instructions, tools, max_steps))
        return answers.conversation_of((yield from self._call(request)))

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

    def _call(self, request: Request, wait: float = 0.0) -> Flow[Response]:
        return patience.call(self.url, request, self.timeout + wait)
