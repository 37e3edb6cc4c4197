"""One call of a tool of a server: asked for, left while a person or a task is waited for, and gone on with.

How its request ended decides which failure it is: what the model reads, and what the step knows of it.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from functools import partial
from typing import Any, Final

import orjson

from palaver.errors import ErrorClass, RetryableToolError, ToolError, ToolFailure
from palaver.errors.finding import ToolFinding
from palaver.errors.tool_findings import find_answer, find_lost, find_said, find_unreached
from palaver.steps.verdicts import AskPerson
from palaver.tools import ToolContext, ToolDeclaration
from palaver.tools.context import LeftCall
from workers.sources.containment import CallLeft

from .credentials import ServerAccess
from .offered_tools import OfferedTool, offers_of, visible
from .questions import AskedCall, asked_by
from .results import presented_result
from .server import Server, one_line
from .tasks import KeptTask, RemoteTask
from .tool_lists import read_list
from .wire import (
    ENDED,
    HEADER_MISMATCH,
    INVALID_PARAMS,
    UNKNOWN,
    InvalidAnswer,
    Lost,
    Message,
    NeverSent,
    NotTried,
    RequestRefused,
    RpcError,
    SessionGone,
)

_ROUNDS: Final = 5
"""Times that a server may ask for the same call again with its own state."""
_PROGRESS_APART: Final = 0.5
"""Seconds between two reports of progress that are looked at."""
_REFUSED: Final = 400
"""The status of a server that refuses without one."""


class RemoteCall:
    """One call, and what becomes of it: its result, or a failure that says whether the server may have done it."""

    def __init__(
        self,
        server: Server,
        offer: OfferedTool,
        declared: ToolDeclaration,
        arguments: Mapping[str, Any],
        context: ToolContext,
    ) -> None:
        self._server = server
        self._offer = offer
        self._declared = declared
        self._arguments = arguments
        self._context = context
        self._reported = 0.0
        self.sent = False
        """True once the server may have it."""
        self._headers = offer.headers_with(arguments)

    async def result(self) -> object:
        """The result for the model.

        Raises:
            CallLeft: it goes on later.
            RetryableToolError: the call may be made again: the server has not taken it, or it is idempotent.
            ToolError: the server refused it, it failed, or that is unknown.
        """
        with self._server.accesses.using(self._context) as access:
            return await self._result(access)

    async def _result(self, access: ServerAccess) -> object:
        self._access = access
        self._task = RemoteTask(self._server, access, self._declared, self._context)
        left = self._context.left
        try:
            answer = await (self._answered({}) if left is None else self._gone_on(left))
            return presented_result(answer, self._offer.output_schema)
        except ENDED as error:
            if isinstance(error, SessionGone) or (isinstance(error, RpcError) and error.code == INVALID_PARAMS):
                # With a session the server may have forgotten which tools it had; or the tool is gone, or other than
                # it was.
                self._server.last_list.expire()
                self._server.note_change()
            raise failure_of_call(error, self._server, self._offer) from error

    async def _gone_on(self, left: LeftCall) -> Message:
        """The result of a call that was left before."""
        kept = orjson.loads(left.kept)
        if "task" in kept:
            self.sent = True
            return await self._task.go_on(KeptTask.of(kept["task"]), left.answer)
        asked = AskedCall.of(kept)
        if left.answer is not None:
            asked = asked.answered(orjson.loads(left.answer))
        if asked.pending is not None:
            raise self._left(asked, answered=False)
        return await self._answered(asked.again, asked.asked)

    async def _answered(self, again: dict[str, Any], asked: int = 0) -> Message:
        """The result of the server, in as many rounds as it wants with its own state. It has ``asked`` so many
        questions before."""
        for _ in range(_ROUNDS):
            answer = await self._access.renewing(partial(self._asked, again))
            match answer.get("resultType", "complete"):
                case "complete":
                    return dict(answer)
                case "input_required" if answer.get("inputRequests"):
                    raise self._question(answer, asked)
                case "input_required":
                    again = self._own_state(answer)
                case "task":
                    self._task.begin(answer)
                case other:
                    raise InvalidAnswer(f"it sent a result of the kind {str(other)[:40]!r}")
        raise InvalidAnswer("it asks for the same call again and again")

    def _question(self, answer: Message, asked: int) -> CallLeft:
        label = self._server.label
        if not self._server.section.ask_timeout:
            raise ToolError(f"{label} asks a person something, which the operator does not allow")
        return self._left(asked_by(answer, label, asked))

    def _left(self, asked: AskedCall, *, answered: bool = True) -> CallLeft:
        assert asked.pending is not None  # else there is nothing to wait for
        verdict = AskPerson(asked.pending, self._server.section.ask_timeout, asked.dump())
        return CallLeft(verdict, answered=answered)

    def _own_state(self, answer: Message) -> dict[str, Any]:
        if not isinstance(state := answer.get("requestState"), str):
            raise InvalidAnswer("it wants something and does not say what")
        return {"requestState": state}

    async def _asked(self, again: Mapping[str, Any]) -> Message:
        try:
            return await self._sent(again)
        except RpcError as error:
            if error.code != HEADER_MISMATCH:
                raise
        # The server looked at headers alone: the tool has others by now.
        listed = await read_list(self._access.connection)
        found, _ = offers_of(self._server.label, self._server.section, listed.tools)
        offer = next((each for each in found if each.name == self._offer.name), self._offer)
        self._headers = offer.headers_with(self._arguments)
        return await self._sent(again)

    async def _sent(self, again: Mapping[str, Any]) -> Message:
        trace = {} if self._context.traceparent is None else {"traceparent": self._context.traceparent}
        return await self._access.connection.ask(
            "tools/call",
            {"name": self._offer.name, "arguments": dict(self._arguments), **again},
            name=self._offer.name,
            param_headers=self._headers,
            meta=trace,
            progress=self._heard,
            sending=self._sending,
        )

    def _sending(self) -> None:
        self.sent = True

    def _heard(self, progress: Message) -> None:
        now = time.monotonic()
        if now - self._reported < _PROGRESS_APART:
            return
        self._reported = now
        done, total, text = progress.get("progress"), progress.get("total"), progress.get("message")
        fraction = done / total if _is_number(done) and _is_number(total) and total > 0 else None  # type: ignore[operator]
        self._context.progress(visible(text[:2_000]) if isinstance(text, str) else "", fraction=fraction)


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def failure_of_call(error: Exception, server: Server, offer: OfferedTool) -> ToolFailure:
    """Return the failure of a call of ``offer`` whose request ended so."""
    label, idempotent = server.label, offer.declaration.idempotent
    words = one_line(error, offer.declaration.timeout)
    match error:
        case NeverSent():
            failure: ToolFailure = RetryableToolError(
                f"{label} was not reached: {words}", retry_after=error.retry_after
            )
            return _found(failure, _unsent(error, str(failure)))
        case RequestRefused():
            failure = ToolError(f"{label} did not take the call: {words}")
            status = error.status if error.status >= _REFUSED else _REFUSED
            return _found(failure, find_answer(str(failure), status, sent=False))
        case Lost() if idempotent:
            failure = RetryableToolError(f"{label} did not answer: {words}")
            return _found(failure, _lost(error, str(failure)))
        case Lost():
            failure = ToolError(f"{label} did not answer: {words}: {UNKNOWN}")
            return _found(failure, _lost(error, str(failure)))
        case RpcError():
            failure = ToolError(f"{label} answered with an error: {words} ({error.code})")
            return _found(failure, find_said(str(failure), offer.errors.get(str(error.code))))
    return ToolError(f"{label} did not answer: {words}: {UNKNOWN}")


def _unsent(error: NeverSent, message: str) -> ToolFinding:
    if error.status:
        wait = {} if error.retry_after is None else {"retry-after": str(error.retry_after)}
        return find_answer(message, error.status, headers=wait, sent=False)
    tried = not isinstance(error, NotTried)
    return find_unreached(message, "connect_error", retry_after=error.retry_after, tried=tried)


def _lost(error: Lost, message: str) -> ToolFinding:
    if error.status:
        return find_answer(message, error.status, sent=True)
    return find_lost(message, ErrorClass.CONNECTION, "connection")


def _found(failure: ToolFailure, finding: ToolFinding) -> ToolFailure:
    failure.finding = finding
    return failure
