"""The arguments of ``settle.lua`` for a verdict."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from math import ceil
from typing import Any, Final, assert_never

import orjson

from palaver.errors import ErrorClass, Failure, ResponseTooLarge
from palaver.errors.sentences import IN_DOUBT
from palaver.events import EventKind
from palaver.schemas.actions import digest
from palaver.schemas.models import Message, ToolCall, Usage
from palaver.steps.leases import Lease, OfferedPlace, Shown
from palaver.steps.stuck import Nudge
from palaver.steps.verdicts import (
    AskPerson,
    Condensed,
    Continue,
    Finish,
    FormatMismatch,
    GiveUp,
    HandBack,
    LogNote,
    OpenCall,
    Postpone,
    ReasoningDropped,
    RetryAfter,
    ToolOutcome,
    Verdict,
)
from palaver.store.reading.records import NANODOLLARS
from palaver.store.redis import keys
from palaver.store.scripting.contracts import steps as contracts
from palaver.store.scripting.contracts.steps import NewCall, NewEntry, Settle, Used, VerdictKind
from palaver.vocabulary.ids import safe_call_id
from palaver.vocabulary.lifecycle import RunStatus, StopReason
from palaver.vocabulary.limits import count_exceeded, limit_of

_Work = Continue | Finish | RetryAfter | GiveUp
"""The verdicts of work that was done, or failed."""
_TEXTS: Final = (bytes, str)
_BEGUN: Final = f"The call had begun.{IN_DOUBT}"
"""To the model, of a call that was left to go on later and then met a failure that is not its own."""
_REFUSALS: Final = frozenset({ErrorClass.INVALID_TOOL_CALL, ErrorClass.TOOL_DENIED})
"""The error classes with which a model step answers a call that it does not make."""


def settlement(
    lease: Lease, verdict: Verdict, shown: Shown, trace_note: bytes | None = None, place: OfferedPlace | None = None
) -> Settle | contracts.HandBack | contracts.Postpone | contracts.Ask:
    """The script that applies ``verdict``, of whose message watchers were ``shown`` so much; ``trace_note`` is what the
    trace of the run is told, and ``place`` is where its worker would go on with the run.

    Raises:
        ValueError: the verdict would leave a call of its message without an answer.
        ResponseTooLarge: the verdict brings more than one script may take: Redis does nothing else meanwhile.
    """
    run = keys.of_run(lease.run_id, lease.conversation_id)
    match verdict:
        case Postpone(delay=delay, reason=reason, code=code, failure=failure, usage=usage, begun=begun, kept=kept):
            return contracts.Postpone(
                run=run,
                step=lease.step,
                fence=lease.fence,
                delay=delay,
                reason=reason,
                code=code,
                error=None if failure is None else _error(failure, lease),
                begun=begun,
                kept=kept,
                used=used(usage),
            )
        case AskPerson(usage=usage, kept=kept):
            return contracts.Ask(
                run=run,
                step=lease.step,
                fence=lease.fence,
                action=_question(lease, verdict),
                kept=kept,
                used=used(usage),
            )
        case HandBack(begun=begun, usage=usage):
            return contracts.HandBack(
                run=run, step=lease.step, fence=lease.fence, begun=begun, used=used(usage), trace_note=trace_note
            )
        case Continue() | Finish() | RetryAfter() | GiveUp():
            return _settle(lease, verdict, run, shown, trace_note, place)
        case _:
            assert_never(verdict)


def _settle(
    lease: Lease,
    verdict: _Work,
    run: keys.RunKeys,
    shown: Shown,
    trace_note: bytes | None,
    place: OfferedPlace | None,
) -> Settle:
    stop: StopReason | None = None
    error: bytes | None = None
    delay, fallback = 0.0, False
    attempts: int | None = None
    message: Message | None = None
    outcomes: tuple[ToolOutcome, ...] = ()
    calls: tuple[OpenCall, ...] = ()
    match verdict:
        case Continue():
            kind, message = VerdictKind.CONTINUE, verdict.message
            outcomes, calls = verdict.outcomes, verdict.calls
        case Finish():
            kind, message, stop = VerdictKind.FINISH, verdict.message, verdict.stop_reason
            error = _error(verdict.withheld, lease) if verdict.withheld else None
        case RetryAfter():
            kind, fallback, attempts = VerdictKind.RETRY, verdict.fallback, verdict.attempts
            delay, error = verdict.delay, _error(verdict.failure, lease)
        case GiveUp() if lease.kind.asks_model:
            kind, stop, error = VerdictKind.GIVE_UP, verdict.stop_reason, _end(verdict, lease)
            message = verdict.message
        case GiveUp(failure) if failure.recoverable:
            kind, outcomes = VerdictKind.CONTINUE, (ToolOutcome.failed(lease.answers, failure),)
        case GiveUp(failure):
            kind, stop, error = VerdictKind.GIVE_UP, verdict.stop_reason, _end(verdict, lease)
            outcomes = (ToolOutcome.failed(lease.answers, failure if lease.kept is None else failure.noting(_BEGUN)),)
    finishes, ending = (
        kind is VerdictKind.FINISH,
        next((outcome.message for outcome in outcomes if outcome.ends_run), None),
    )
    last = ending if kind is VerdictKind.CONTINUE else message
    entries = _entries(lease, verdict, message, outcomes, shown)
    opened = _opened(lease, message, outcomes, calls, finishes)
    texts = [value for record in (*entries, *opened) for value in record if isinstance(value, _TEXTS)]
    if sum(map(len, texts)) > limit_of("verdict"):
        count_exceeded("verdict")
        raise ResponseTooLarge(f"the answer and what comes of it are larger than {limit_of('verdict')} bytes")
    return Settle(
        run_id=lease.run_id,
        conversation_id=lease.conversation_id,
        run=run,
        step=lease.step,
        fence=lease.fence,
        verdict=kind,
        stop=stop,
        fallback=fallback,
        error=error,
        failed=_failed(lease, verdict),
        attempts=attempts,
        rule=verdict.rule if isinstance(verdict, RetryAfter) else None,
        delay=delay,
        streamed=shown is Shown.HALF,
        used=used(verdict.usage),
        ends=ending is not None,
        output=last.text or None if last else None,
        tool_calls=len(outcomes),
        trace_note=trace_note,
        in_place=() if place is None else (place,),
        entries=tuple(entries),
        calls=tuple(opened),
    )


def _entries(
    lease: Lease, verdict: _Work, message: Message | None, outcomes: Sequence[ToolOutcome], shown: Shown
) -> list[NewEntry]:
    """The entries of the log, in this order: changes of the prompt, the answer, results of tools."""
    entries = [_log_note(note, lease) for note in verdict.notes]
    if message is not None:
        entries.append(_message(lease, verdict, message, shown))
    if isinstance(verdict, Continue | GiveUp) and verdict.misfit is not None:
        entries.append(_mismatch_note(verdict.misfit, lease))
    for outcome in outcomes:
        result = orjson.dumps(_finished(outcome, lease))
        entries.append(NewEntry(EventKind.TOOL_FINISHED, outcome.message.call_id or None, result))
    return entries


def _message(lease: Lease, verdict: _Work, message: Message, shown: Shown) -> NewEntry:
    deltas = 0 if shown is Shown.ALL else _deltas_of(message)
    data: dict[str, Any] = {"deltas": (lease.try_number, deltas)} if deltas else {}
    data |= {"step": lease.step, "model": lease.agent.model, "message": _compact(message)}
    if isinstance(verdict, Continue | Finish) and verdict.prompt_tokens:
        data["prompt_tokens"] = verdict.prompt_tokens
    if verdict.usage.model_calls:
        data["output_tokens"] = verdict.usage.output_tokens
        if verdict.usage.cost_usd is not None:
            data["cost_usd"] = verdict.usage.cost_usd
    if isinstance(verdict, Continue) and message.tool_calls:
        data |= _about_calls(lease, verdict, message.tool_calls)
    opaque = None if isinstance(verdict, RetryAfter) else verdict.opaque
    stored = opaque.stored if opaque else None
    return NewEntry(EventKind.MESSAGE_CREATED, None, orjson.dumps(data), stored, deltas)


def _deltas_of(message: Message) -> int:
    """Number of the deltas that its text makes."""
    return ceil(len(message.content) / limit_of("delta")) if isinstance(message.content, str) else 0


def _failed(lease: Lease, verdict: _Work) -> ErrorClass | None:
    match verdict:
        case RetryAfter() | GiveUp():
            return verdict.failure.error_class
        case Continue(outcomes=outcomes) if not lease.kind.asks_model:
            return next((outcome.failure.error_class for outcome in outcomes if outcome.failure), None)
        case _:
            return None


def used(usage: Usage) -> Used:
    """Return a step's usage for the scripts."""
    cost: int | None = 0
    if usage.model_calls:
        cost = None if usage.cost_usd is None else round(usage.cost_usd * NANODOLLARS)
    return Used(
        usage.input_tokens,
        usage.cached_tokens,
        usage.cache_write_tokens,
        usage.output_tokens,
        usage.reasoning_tokens,
        usage.model_calls,
        cost,
    )


def _log_note(note: LogNote, lease: Lease) -> NewEntry:
    match note:
        case Condensed():
            data = {"step": lease.step, "summary": note.summary, "through": note.through}
            return NewEntry(EventKind.CONVERSATION_CONDENSED, None, orjson.dumps(data))
        case ReasoningDropped():
            data = {"step": lease.step, "origin": note.origin}
            return NewEntry(EventKind.REASONING_DROPPED, None, orjson.dumps(data))
        case Nudge():
            data = {"message": _compact(Message(role="user", content=note.text)), "nudge": True}
            data |= {} if note.left_out_after is None else {"left_out_after": note.left_out_after}
            return NewEntry(EventKind.MESSAGE_CREATED, None, orjson.dumps(data))


def _mismatch_note(misfit: FormatMismatch, lease: Lease) -> NewEntry:
    error = misfit.failure.to_error(step=lease.step, attempt=lease.try_number)
    data = {"message": _compact(Message(role="user", content=misfit.text)), "nudge": True, "error": error}
    return NewEntry(EventKind.MESSAGE_CREATED, None, orjson.dumps(data))


def _opened(
    lease: Lease, message: Message | None, outcomes: Sequence[ToolOutcome], calls: Sequence[OpenCall], finishes: bool
) -> list[NewCall]:
    """The calls of ``message``, for ``settle.lua``.

    Raises:
        ValueError: a call has neither a step nor an answer, or its id cannot name a step.
    """
    if message is None or not message.tool_calls:
        return []
    steps = {step.call.id: step for step in calls}
    answered = {outcome.message.call_id for outcome in outcomes}
    if len({call.id for call in message.tool_calls}) != len(message.tool_calls):
        raise ValueError("two calls of one message have the same id")
    opened: list[NewCall] = []
    for call in message.tool_calls:
        if call.id in steps:
            if not safe_call_id(call.id):
                raise ValueError("the id of a call cannot be part of a step's name")
            step = steps[call.id]
            action, queue = _action(lease, step), step.queue or step.kind.queue
            call_json = call.model_dump_json()
            opened.append(
                NewCall(
                    call.id,
                    call.name,
                    queue,
                    step.idempotent,
                    call_json,
                    action,
                    step.limit,
                    step.shown,
                    step.at_hand,
                )
            )
        elif finishes or call.id in answered:
            opened.append(NewCall(call.id, call.name, None, False, None, None, None, None, False))
        else:
            raise ValueError("a call has neither a step nor an answer")
    return opened


def _action(lease: Lease, step: OpenCall) -> bytes | None:
    """The action that the call waits for; its id belongs to exactly this call."""
    if step.awaits is None:
        return None
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
            **({"second_person": True} if step.second_person else {}),
        }
    )


def _question(lease: Lease, verdict: AskPerson) -> bytes:
    """The action that a call waits for in its middle. It is of this very lease: a server may ask the same again."""
    call = lease.answers
    asked = verdict.question.model_dump(exclude_none=True)
    own = hashlib.sha256(f"{lease.run_id}/{lease.step}/{lease.fence}".encode()).hexdigest()
    return orjson.dumps(
        {
            "id": f"act_{own[:24]}",
            "type": "question",
            "tool": call.name,
            "call_id": call.id,
            "arguments": call.arguments,
            "digest": digest(call.name, orjson.dumps(asked, option=orjson.OPT_SORT_KEYS).decode()),
            "timeout": int(verdict.timeout * 1000),
            "question": asked,
        }
    )


def _about_calls(lease: Lease, verdict: Continue, calls: Sequence[ToolCall]) -> dict[str, Any]:
    """Return the facts about the calls of a message, as they were when the calls came: tools may be declared otherwise
    later."""
    refused = {
        outcome.message.call_id
        for outcome in verdict.outcomes
        if outcome.failure and outcome.failure.error_class in _REFUSALS
    }
    if not lease.allows(len(calls)):
        refused.update(step.call.id for step in verdict.calls)
    in_order = [call.id for call in calls if call.id in refused]
    return {"risky_calls": verdict.risky} | ({"refused_calls": in_order} if in_order else {})


def _finished(outcome: ToolOutcome, lease: Lease) -> dict[str, Any]:
    seq, call_id = lease.step.partition("/")[0], outcome.message.call_id
    data: dict[str, Any] = {"step": f"{seq}/{call_id}", "message": _compact(outcome.message)}
    if outcome.failure is not None:
        data["error"] = outcome.failure.to_error(step=data["step"], attempt=lease.try_number)
    return data


def _end(verdict: GiveUp, lease: Lease) -> bytes | None:
    """Return the error of the run that ends here; None unless it failed, or its answer was withheld."""
    has_error = verdict.stop_reason.status is RunStatus.FAILED or verdict.stop_reason is StopReason.CONTENT_FILTER
    return _error(verdict.failure, lease) if has_error else None


def _error(failure: Failure, lease: Lease) -> bytes:
    return orjson.dumps(failure.to_error(step=lease.step, attempt=lease.try_number))


def _compact(message: Message) -> dict[str, Any]:
    return message.model_dump(exclude_defaults=True)
