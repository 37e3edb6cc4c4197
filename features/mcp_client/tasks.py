"""Tasks that a server makes of calls (``io.modelcontextprotocol/tasks``): asked for again and again, by any worker.

The step keeps the task's id before anybody asks for it the first time, and holds no place between two times. Asking
changes nothing at the server, so it is repeated whatever happens, until the time for it is over.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict, replace
from functools import partial
from typing import Any, Final, NoReturn

import orjson

from palaver.errors import ToolError, ToolTimeout
from palaver.late import dataclass
from palaver.steps.verdicts import AskPerson, Postpone
from palaver.tools import ToolContext, ToolDeclaration
from palaver.vocabulary.lifecycle import WaitReason
from workers.sources.containment import CallLeft, is_cancel

from .credentials import ServerAccess
from .offered_tools import visible
from .questions import questions_in
from .server import Server, one_line
from .wire import ENDED, UNKNOWN, InvalidAnswer, Lost, Message, NeverSent

_SOONEST, _USUAL, _LATEST = 1.0, 5.0, 60.0
"""Seconds between two times that a server is asked for a task."""
_PATIENCE: Final = 30.0
"""Seconds for the answer at most."""
_FAREWELL: Final = 1.0
"""Seconds in which a server is told that a task is not awaited any more."""
_LONGEST_ID: Final = 1_024


@dataclass(frozen=True, slots=True)
class KeptTask:
    """A task, as it is kept from one time to the next."""

    id: str
    until: float
    """The time at which it is not awaited any more, by this clock."""
    delay: float
    """Seconds between two times."""
    failures: int = 0
    """Times in a row that the server was not there."""
    answered: tuple[str, ...] = ()
    """Keys of its questions that are answered: each is once."""
    asking: str | None = None
    """Key of the question that a person is asked."""

    def dump(self) -> str:
        """Return it as JSON."""
        return orjson.dumps({"task": asdict(self)}).decode()

    @classmethod
    def of(cls, kept: Mapping[str, Any]) -> KeptTask:
        """Read what `dump` has written."""
        return cls(**{**kept, "answered": tuple(kept["answered"])})


class RemoteTask:
    """The task of one call."""

    def __init__(self, server: Server, access: ServerAccess, declared: ToolDeclaration, context: ToolContext) -> None:
        self._server = server
        self._access = access
        self._declared = declared
        self._context = context

    def begin(self, answer: Message) -> NoReturn:
        """The server has made a task of the call.

        Raises:
            CallLeft: it is asked for later.
            InvalidAnswer: it is none.
        """
        task_id, longest = answer.get("taskId"), self._server.section.task_timeout
        if not longest:
            raise InvalidAnswer("it made a task of the call, which was not asked for")
        if not isinstance(task_id, str) or not 0 < len(task_id) <= _LONGEST_ID:
            raise InvalidAnswer("it made a task of the call that has no id")
        self._leave(KeptTask(task_id, time.time() + longest, _delay(answer)))

    async def go_on(self, task: KeptTask, answer: str | None) -> Message:
        """Ask for the task; return its result. ``answer`` is that of the person who was asked its question.

        Raises:
            CallLeft: it goes on, or asks a person something.
            ToolError: it has none.
            InvalidAnswer: what came is no task.
        """
        try:
            return await self._looked_at(task, answer)
        except asyncio.CancelledError as error:
            if is_cancel(error):
                await self._cancel(task)
            raise

    async def _looked_at(self, task: KeptTask, answer: str | None) -> Message:
        if time.time() >= task.until:
            await self._cancel(task)
            longest = self._server.section.task_timeout
            raise ToolTimeout(f"{self._declared.name} took longer than {longest:g} s: {UNKNOWN}")
        try:
            now = await self._ask("tasks/get", task)
        except (NeverSent, Lost, TimeoutError) as error:
            wait = error.retry_after if isinstance(error, NeverSent) else None
            delay = min(_LATEST, max(wait or 0.0, task.delay, 2.0 ** min(task.failures, 6)))
            self._leave(replace(task, failures=task.failures + 1), delay, answered=False)
        except ENDED as error:
            reason = one_line(error, _PATIENCE)
            raise ToolError(f"{self._server.label} says no more of its task: {reason}: {UNKNOWN}") from error
        return await self._by_status(replace(task, failures=0), now, answer)

    async def _by_status(self, task: KeptTask, now: Message, answer: str | None) -> Message:
        label = self._server.label
        match now.get("status"):
            case "working":
                if isinstance(text := now.get("statusMessage"), str):
                    self._context.progress(visible(text[:2_000]))
                self._leave(replace(task, delay=_delay(now, task.delay)))
            case "input_required":
                await self._question(task, now, answer)
            case "completed" if isinstance(result := now.get("result"), dict):
                return dict(result)
            case "failed" if isinstance(error := now.get("error"), dict):
                reason = one_line(Exception(str(error.get("message"))), 0)
                raise ToolError(f"{label} answered with an error: {reason} ({error.get('code')!s:.20})")
            case "cancelled":
                raise ToolError(f"{label} has cancelled the call: {UNKNOWN}")
        raise InvalidAnswer("it sent what is no task")

    async def _question(self, task: KeptTask, now: Message, answer: str | None) -> NoReturn:
        """Raises:
        CallLeft: the question is asked, or answered.
        ToolError: it cannot be put to a person.
        """
        requests = now.get("inputRequests")
        if not isinstance(requests, dict):
            raise InvalidAnswer("it wants something and does not say what")
        left = {key: request for key, request in requests.items() if key not in task.answered}
        if not left:
            self._leave(task)
        if answer is not None and task.asking is not None and task.asking in left:
            responses = {task.asking: orjson.loads(answer)}
            try:
                await self._ask("tasks/update", task, inputResponses=responses)
            except (NeverSent, Lost, TimeoutError):
                # Whether it has come shows when the task is looked at: it asks again or goes on.
                self._leave(task, answered=False)
            self._leave(replace(task, answered=(*task.answered, task.asking), asking=None), _SOONEST)
        if not self._server.section.ask_timeout:
            await self._cancel(task)
            label = self._server.label
            raise ToolError(f"{label} asks a person something, which the operator does not allow: {UNKNOWN}")
        asked = questions_in(left, self._server.label, len(task.answered))
        key, question = next(iter(asked.items()))
        raise CallLeft(AskPerson(question, self._server.section.ask_timeout, replace(task, asking=key).dump()))

    def _leave(self, task: KeptTask, delay: float | None = None, *, answered: bool = True) -> NoReturn:
        wait = max(_SOONEST, min(task.delay if delay is None else delay, task.until - time.time()))
        verdict = Postpone(wait, self._server.label, WaitReason.REMOTE_TASK, begun=True, kept=task.dump())
        raise CallLeft(verdict, answered=answered)

    async def _ask(self, method: str, task: KeptTask, **params: Any) -> Message:
        # Less than the call may take: a poll that hangs says nothing of the task.
        async with asyncio.timeout(min(_PATIENCE, self._declared.timeout / 3)):
            return await self._access.renewing(
                partial(self._access.connection.ask, method, {"taskId": task.id, **params}, name=task.id)
            )

    async def _cancel(self, task: KeptTask) -> None:
        """Tell the server that it is not awaited, if it is there."""
        with suppress(*ENDED, TimeoutError):
            async with asyncio.timeout(_FAREWELL):
                await self._access.connection.ask("tasks/cancel", {"taskId": task.id}, name=task.id)


def _delay(task: Message, otherwise: float = _USUAL) -> float:
    wanted = task.get("pollIntervalMs")
    is_number = isinstance(wanted, int | float) and not isinstance(wanted, bool)
    return max(_SOONEST, min(_LATEST, wanted / 1000)) if is_number else otherwise  # type: ignore[operator]
