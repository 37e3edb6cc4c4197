"""How a verdict is put to ``settle.lua``."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Any, Final

import orjson

from palaver.actions import digest
from palaver.errors import Failure, ResponseTooLarge
from palaver.events import EventKind
from palaver.ids import safe_call_id
from palaver.leases import Lease
from palaver.lifecycle import RunStatus
from palaver.limits import beyond, most
from palaver.models import Message, Usage
from palaver.store.connection import Value
from palaver.stuck import Nudge
from palaver.verdicts import Condensed, Continue, Finish, GiveUp, LogNote, OpenCall, RetryAfter, ToolOutcome

Args = list[Value]
Outcome = Continue | Finish | RetryAfter | GiveUp
"""The verdicts of work that was done, or failed."""
NANODOLLARS: Final = 1_000_000_000
"""In a dollar. Costs are added up as whole numbers: nothing is lost between two calls, however many there are."""


def settle_args(lease: Lease, verdict: Outcome, streamed: bool) -> Args:
    """ARGV of ``settle.lua``.

    Raises:
        ValueError: the verdict would leave a call of its message without an answer.
        ResponseTooLarge: it brings more than one script may be given: Redis does nothing else meanwhile.
    """
    stop, status, failure, delay = "", "", b"", 0
    message: Message | None = None
    outcomes: tuple[ToolOutcome, ...] = ()
    calls: tuple[OpenCall, ...] = ()
    match verdict:
        case Continue():
            kind, message = "continue", verdict.message
            outcomes, calls = verdict.outcomes, verdict.calls
        case Finish():
            kind, message = "finish", verdict.message
            stop, status = verdict.stop_reason, verdict.stop_reason.status
        case RetryAfter():
            kind, delay, failure = "retry", int(verdict.delay * 1000), _error(verdict.failure, lease)
            stop = "fallback" if verdict.fallback else ""
        case GiveUp() if lease.call is None:
            kind, (stop, status, failure) = "give_up", _end(verdict, lease)
        case GiveUp():
            outcomes = (ToolOutcome.failed(lease.call, verdict.failure),)
            kind = "continue"
            if not verdict.failure.recoverable:
                kind, (stop, status, failure) = "give_up", _end(verdict, lease)
    finishes = kind == "finish"
    entries: Args = []
    for note in verdict.notes:
        entries += _log_note(note, lease)
    if message is not None:
        data: dict[str, Any] = {"step": lease.step, "model": lease.agent.model, "message": _compact(message)}
        if isinstance(verdict, Continue | Finish) and verdict.prompt_tokens:
            data["prompt_tokens"] = verdict.prompt_tokens
        opaque = verdict.opaque if isinstance(verdict, Continue | Finish) else None
        entries += (EventKind.MESSAGE_CREATED, "", orjson.dumps(data), opaque.stored if opaque else "")
    for outcome in outcomes:
        finished = orjson.dumps(_finished(outcome, lease))
        entries += (EventKind.TOOL_FINISHED, outcome.message.call_id or "", finished, "")
    opened = _opened(lease, message, outcomes, calls, finishes)
    if sum(len(each) for each in (*entries, *opened) if isinstance(each, bytes | str)) > most("verdict"):
        beyond("verdict")
        raise ResponseTooLarge(f"the answer and what comes of it are larger than {most('verdict')} bytes")
    return [
        lease.step, lease.fence, kind, stop, status, failure, delay, int(streamed),
        *used(verdict.usage),
        message.text if finishes and message else "", len(outcomes),
        len(entries) // 4, *entries, *opened,
    ]  # fmt: skip


def used(usage: Usage) -> Args:
    """What a step used, for the scripts: see ``_limits.lua``."""
    cost: Value = 0
    if usage.model_calls:
        cost = "" if usage.cost_usd is None else round(usage.cost_usd * NANODOLLARS)
    return [usage.input_tokens, usage.cached_tokens, usage.output_tokens, usage.model_calls, cost]


def _log_note(note: LogNote, lease: Lease) -> Args:
    match note:
        case Condensed():
            data = {"step": lease.step, "summary": note.summary, "through": note.through}
            return [EventKind.CONVERSATION_CONDENSED, "", orjson.dumps(data), ""]
        case Nudge():
            data = {"message": _compact(Message(role="user", content=note.text)), "nudge": True}
            return [EventKind.MESSAGE_CREATED, "", orjson.dumps(data), ""]


def _opened(
    lease: Lease, message: Message | None, outcomes: Sequence[ToolOutcome], calls: Sequence[OpenCall], finishes: bool
) -> Args:
    """The calls of ``message``, for ``settle.lua``.

    Raises:
        ValueError: a call has neither a step nor an answer, or its id cannot name a step.
    """
    if message is None or not message.tool_calls:
        return []
    steps = {each.call.id: each for each in calls}
    answered = {outcome.message.call_id for outcome in outcomes}
    if len({call.id for call in message.tool_calls}) != len(message.tool_calls):
        raise ValueError("two calls of one message have the same id")
    opened: Args = []
    for call in message.tool_calls:
        if call.id in steps:
            if not safe_call_id(call.id):
                raise ValueError("the id of a call cannot be part of a step's name")
            step = steps[call.id]
            opened += (
                call.id,
                call.name,
                step.kind.queue,
                int(step.idempotent),
                call.model_dump_json(),
                _action(lease, step),
            )
        elif finishes or call.id in answered:
            opened += (call.id, call.name, "", "", "", "")
        else:
            raise ValueError("a call has neither a step nor an answer")
    return opened


def _action(lease: Lease, step: OpenCall) -> bytes:
    """The action that the call waits for; its id belongs to exactly this call."""
    if step.awaits is None:
        return b""
    call = step.call
    about = digest(call.name, call.arguments)
    own = hashlib.sha256(f"{lease.run_id}/{lease.step}/{call.id}/{about}".encode()).hexdigest()
    return orjson.dumps(
        {
            "id": f"act_{own[:24]}",
            "type": step.awaits,
            "tool": call.name,
            "call_id": call.id,
            "arguments": call.arguments,
            "digest": about,
            "timeout": int(step.timeout * 1000),
        }
    )


def _finished(outcome: ToolOutcome, lease: Lease) -> dict[str, Any]:
    seq, call_id = lease.step.partition("/")[0], outcome.message.call_id
    data: dict[str, Any] = {"step": f"{seq}/{call_id}", "message": _compact(outcome.message)}
    if outcome.failure is not None:
        data["error"] = outcome.failure.to_error(step=data["step"], attempt=lease.try_number)
    return data


def _end(verdict: GiveUp, lease: Lease) -> tuple[str, str, bytes]:
    """Stop reason, status and error of the run that ends here; only a run that failed has an error."""
    status = verdict.stop_reason.status
    return verdict.stop_reason, status, _error(verdict.failure, lease) if status is RunStatus.FAILED else b""


def _error(failure: Failure, lease: Lease) -> bytes:
    return orjson.dumps(failure.to_error(step=lease.step, attempt=lease.try_number))


def _compact(message: Message) -> dict[str, Any]:
    return message.model_dump(exclude_defaults=True)
