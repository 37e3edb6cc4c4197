"""A call of an agent: it begins a run, and waits for that without a lease, a slot or a process (ADR 0097)."""

from __future__ import annotations

from functools import partial
from typing import Final

from palaver.errors import (
    ErrorClass,
    Failure,
    NoRoom,
    StaleLease,
    StateConflict,
    TimePassed,
    ToolError,
    UnknownConversation,
    UnknownRun,
)
from palaver.schemas.mcp_servers import JOINT
from palaver.schemas.models import AgentSpec, Message, Run, ToolCall
from palaver.secrets.redaction import Secrets, add_names, redact
from palaver.secrets.sealing import KeyMissing
from palaver.steps.leases import Lease
from palaver.steps.verdicts import Continue, HandBack, Postpone, ToolOutcome, Verdict
from palaver.store.runs.children import BudgetUsed, child_id
from palaver.store.runs.runs import ChildBarred
from palaver.tools.rendering import USUAL_RESULT_CHARS, render
from palaver.vocabulary.lifecycle import RunStatus, WaitReason
from palaver.vocabulary.limits import count_exceeded, limit_of

from ..sources.containment import failure_of
from .agent_tools import message_of
from .attempt import Attempt
from .capabilities import SECRET_KEY

_NO_ROOM: Final = 2.0
"""Seconds until a call for which there was no room is tried again."""
_GONE: Final = "The run that this call began was deleted: what came of it is not known."
_FULL: Final = "This run has begun as many runs of other agents as it may."
_BUDGET: Final = "Not started: the budget of this run is used up."


async def call_agent(attempt: Attempt) -> Verdict:
    """Begin the run of the call, leave it for later until that has ended, and answer with what came of it."""
    call = attempt.lease.answers
    attempt.source = "engine"
    child = await attempt.runtime.store.children.of(attempt.lease)
    if child is None:
        return await _begin(attempt, call)
    return await _end(attempt, call, child) if child.status.terminal else _later(attempt, child.id)


async def _begin(attempt: Attempt, call: ToolCall) -> Verdict:
    lease, runtime = attempt.lease, attempt.runtime
    subagent = lease.agent.subagents[call.name]
    try:
        begun = await runtime.store.children.begin(lease, subagent, message_of(call))
    except ChildBarred as barred:
        match barred.why:
            case "stopping":
                return HandBack(begun=False)
            case "gone":
                return _failed(call, ErrorClass.TOOL_ERROR, _GONE)
            case "full":
                count_exceeded("children")
                return _failed(call, ErrorClass.TOOL_ERROR, _FULL)
            case _:
                raise StaleLease from None
    except BudgetUsed:
        return _failed(call, ErrorClass.TOOL_DENIED, _BUDGET)
    except (NoRoom, StateConflict) as refusal:
        return Postpone(_NO_ROOM, refusal.code, WaitReason.TENANT_LIMIT)
    except TimePassed:
        # The time of this run is over, and a sweeper is about to say so.
        return HandBack(begun=False)
    except UnknownRun:
        raise StaleLease from None
    await runtime.follow_up(begun)
    return _later(attempt, child_id(lease))


async def _end(attempt: Attempt, call: ToolCall, child: Run) -> Verdict:
    """Answer with what came of a child. It may name its tools, and its conversation has secrets of its own."""
    lease, runtime = attempt.lease, attempt.runtime
    try:
        hidden = await runtime.secrets.of_child(child)
    except KeyMissing:
        return await runtime.capabilities.left_to_others(runtime.store, SECRET_KEY, lease.lacking_for)
    except UnknownConversation:
        return _failed(call, ErrorClass.TOOL_ERROR, _GONE)
    add_names(partial(_names_tool, child.agent))
    return Continue(outcomes=(_outcome(call, child, lease, hidden),))


def _names_tool(agent: AgentSpec, name: str) -> bool:
    """Tell whether a child's agent names a tool, or may have it from a client or a server."""
    at_clients = any(name == tool.name for tool in agent.client_tools)
    return name in agent.tools or at_clients or any(name.startswith(f"{label}{JOINT}") for label in agent.mcp_servers)


def _later(attempt: Attempt, run_id: str) -> Postpone:
    return Postpone(attempt.time_left, run_id, WaitReason.AGENT_RUN)


def _failed(call: ToolCall, error_class: ErrorClass, text: str) -> Continue:
    return Continue(outcomes=(ToolOutcome.failed(call, Failure.of(error_class, text)),))


def _outcome(call: ToolCall, child: Run, lease: Lease, hidden: Secrets) -> ToolOutcome:
    """Return the answer to the call: what the run ended with, or why it did not, without what is ``hidden``."""
    if child.status is RunStatus.COMPLETED:
        note = f"[The user changed the arguments of this call to {call.arguments}]\n" if lease.edited else ""
        most = lease.agent.max_tool_result or USUAL_RESULT_CHARS
        content = note + render(redact(hidden.redact(child.output or "")), most)
        return ToolOutcome(Message(role="tool", call_id=call.id, name=call.name, content=content))
    why = child.error or child.incomplete_details
    said = f": {why['class']}: {why['message']}" if why else ""
    text = f"The run of this agent did not complete: it is {child.status} ({child.stop_reason}){said}"
    return ToolOutcome.failed(call, failure_of(ToolError(redact(hidden.redact(text))[: limit_of("tool_error")])))
