"""A call of a tool: what the tool may know of it, and what watchers see of it meanwhile."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping
from contextlib import closing, suppress
from datetime import UTC, datetime, timedelta
from types import MappingProxyType
from typing import Any, Final

from palaver.errors import InvalidToolCall, ToolError, UnknownTool
from palaver.errors.sentences import IN_DOUBT
from palaver.schemas.actions import ClientTool, digest
from palaver.schemas.arguments import read
from palaver.schemas.mcp_servers import own_label
from palaver.schemas.models import ToolCall
from palaver.secrets.redaction import Passing, compared
from palaver.steps.leases import Lease, ProgressDelta
from palaver.tools import ToolContext, ToolDeclaration
from palaver.tools.context import LeftCall
from palaver.tools.schemas import fitting
from palaver.vocabulary.limits import limit_of
from palaver.vocabulary.names import did_you_mean, some_of

from ..sources.containment import ToolAnswer
from .attempt import Attempt
from .delta_writer import DeltaWriter

_OTHERWISE: Final = "This tool is declared otherwise now than when you were offered it: look at its parameters again."
_APART: Final = 1.0 / limit_of("progress")
"""Seconds between two events about the progress of one call."""


def client_tool_of(attempt: Attempt, call: ToolCall) -> ClientTool | None:
    """The client tool that ``call`` names; None if it names another tool.

    Raises:
        InvalidToolCall: the arguments are no JSON object, or do not fit a tool that is acknowledged. The client
            checks those of others.
    """
    for tool in attempt.lease.agent.client_tools:
        if tool.name == call.name:
            read(call.arguments) if tool.acknowledgement is None else fitting(tool, call.arguments)
            return tool
    return None


def tool_of(attempt: Attempt, call: ToolCall) -> tuple[ToolDeclaration, dict[str, Any]]:
    """The tool that ``call`` asks for, and its arguments.

    Raises:
        UnknownTool: the agent has no such tool.
        InvalidToolCall: the arguments do not fit it.
        ToolError: the tool of a call that was left is gone, or others would be taken for it.
    """
    agent = attempt.lease.agent
    if call.name not in agent.tools:
        return _own_tool_of(attempt, call)
    if attempt.lease.kept is not None:
        return _tool_of_left(attempt, call)
    try:
        return attempt.runtime.tools.check(call.name, call.arguments, attempt.calls.offered.get(call.name))
    except InvalidToolCall as error:
        if attempt.lease.shown in (None, attempt.runtime.tools[call.name].digest):
            raise
        raise InvalidToolCall(f"{error}. {_OTHERWISE}") from None


def own_tool(attempt: Attempt, name: str) -> ToolDeclaration | None:
    """The tool of that name of a server that the agent names itself; None if there is none."""
    return None if attempt.own is None else attempt.own.declarations.get(name)


def _own_tool_of(attempt: Attempt, call: ToolCall) -> tuple[ToolDeclaration, dict[str, Any]]:
    """The same of a call that is of none of the tools that the agent names."""
    agent, tool = attempt.lease.agent, own_tool(attempt, call.name)
    if tool is None:
        own = () if attempt.own is None else attempt.own.declarations
        offered = (*agent.tools, *(tool.name for tool in agent.client_tools), *own)
        hint = did_you_mean(call.name, offered) or f"; there are: {some_of(offered) or 'none'}"
        raise UnknownTool(f"there is no tool {call.name!r}{hint}")
    if attempt.lease.kept is not None:
        return tool, read(call.arguments)
    if (label := own_label(attempt.shadowed, call.name)) is not None:
        why = f"the label {label!r} is also that of the tool {attempt.shadowed[label]!r} of this installation"
        raise ToolError(f"nothing was called: {why}: the agent has to give its server another label")
    return tool, fitting(tool, call.arguments)


def _tool_of_left(attempt: Attempt, call: ToolCall) -> tuple[ToolDeclaration, dict[str, Any]]:
    """The same of a call that goes on: its arguments did fit when it began, and may not fit the tool of today."""
    try:
        return attempt.runtime.tools[call.name], read(call.arguments)
    except UnknownTool:
        raise ToolError(f"{call.name} is no longer there.{IN_DOUBT}") from None


def is_risky(attempt: Attempt, call: ToolCall) -> bool:
    """Tell whether the tool that ``call`` names is declared risky."""
    agent = attempt.lease.agent
    if call.name not in agent.tools:
        own = own_tool(attempt, call.name)
        return own is not None and own.risky
    return call.name not in agent.subagents and attempt.runtime.tools[call.name].risky


async def make_call(
    attempt: Attempt, tool: ToolDeclaration, call: ToolCall, arguments: Mapping[str, Any]
) -> ToolAnswer:
    """Call ``tool``; return its answer for the model.

    Raises:
        CallLeft: the call goes on later.
        ToolFailure: what the model is told in place of a result.
    """
    with closing(ProgressBuffer(attempt.runtime.deltas, attempt.lease, call)) as progress:
        lease = attempt.lease
        context = ToolContext(
            run_id=lease.run_id,
            conversation_id=lease.conversation_id,
            call_id=call.id,
            attempt=lease.try_number,
            metadata=MappingProxyType(lease.metadata),
            submitted_by=lease.submitted_by,
            deadline=datetime.now(UTC) + timedelta(seconds=min(tool.timeout, attempt.time_left)),
            idempotency_key=_key(lease, call),
            report=progress.report,
            traceparent=_traceparent(lease, call),
            secrets=MappingProxyType(attempt.secrets),
            left=None if lease.kept is None else LeftCall(lease.kept, lease.answer),
        )
        most = lease.agent.max_tool_result
        if attempt.own is not None and tool.name not in lease.agent.tools:
            return await attempt.own.call(tool.within(most), arguments, context)
        return await attempt.runtime.tools.call(tool.name, arguments, context, most)


def _traceparent(lease: Lease, call: ToolCall) -> str | None:
    """The span of the call: of its step, or within that of the model's."""
    if lease.trace is None:
        return None
    within = call.id if lease.kind.asks_model else ""
    return lease.trace.traceparent(lease.trace.span_id(lease.step, lease.fence, within))


def _key(lease: Lease, call: ToolCall) -> str:
    """The name of a call, and what is asked for: a model may use an id again in a later turn, or in the same one when
    Redis has lost its first answer and it is asked again."""
    return f"{lease.run_id}:{lease.step.partition('/')[0]}:{call.id}:{digest(call.name, call.arguments)[:16]}"


class ProgressBuffer:
    """The newest progress of one call, on its way from the thread of its tool to watchers."""

    def __init__(self, writer: DeltaWriter, lease: Lease, call: ToolCall) -> None:
        self.lost = False
        self.writing: asyncio.Event | None = None
        self._writer = writer
        self._lease = lease
        self._call = call
        self._loop = asyncio.get_running_loop()
        self._newest: tuple[str, float | None] | None = None
        self._notified = False
        """The loop knows that there is something."""
        self._next = 0.0
        """Time (by the loop's clock) at which watchers may be shown the next."""
        self._closed = False
        self._secrets = compared()

    def report(self, text: str, fraction: float | None) -> None:
        """Show this, unless something newer comes before its turn. From any thread, and without waiting."""
        self._newest = text, fraction
        if not self._notified:
            self._notified = True
            # The loop is closed where the process ends.
            with suppress(RuntimeError):
                self._loop.call_soon_threadsafe(self._wait_for_turn)

    def _wait_for_turn(self) -> None:
        self._loop.call_at(self._next, self._writer.wake, self)

    @property
    def pending(self) -> bool:
        """True if there is something to show."""
        return self._newest is not None and not self._closed

    def take(self, *, last: bool = False) -> Iterator[ProgressDelta]:
        """Yield what is to be shown, without secrets."""
        self._next = self._loop.time() + _APART
        # In this order: what is reported from here on is taken below, or wakes the writer again.
        self._notified = False
        newest, self._newest = self._newest, None
        if newest is not None:
            text, fraction = newest
            # Of a text that was cut, the end may be the beginning of a secret.
            shown = Passing(*self._secrets).add(text, last=len(text) < limit_of("progress_text"))
            yield ProgressDelta(self._lease, self._call, shown, fraction)

    def close(self) -> None:
        """The call is over, and its result says more than its progress."""
        self._closed = True
