"""Spans of the records that the store has, each as the bytes that it is sent as."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Any, Final

import orjson
from opentelemetry.proto.trace.v1.trace_pb2 import Span, Status

from palaver.events import EventKind
from palaver.store.scripting.contracts.steps import SpanOutcome, VerdictKind
from palaver.vocabulary.ids import call_of
from palaver.vocabulary.lifecycle import RunStatus

from . import names
from .encoding import Attributes, fill, identity, own, part, shared
from .records import Attempt, EndedRun, Record, RunFacts

_FLAGS: Final = 0x301
"""Sampled; and that the parent is of another process is known, and so."""
_KEPT: Final = 1024
"""Runs, and models and tools, whose parts stay in memory."""
_SAID: Final[Mapping[str, Sequence[str]]] = {
    EventKind.RUN_WAITING: ("step", "reason", "code", "delay"),
    EventKind.RUN_RETRYING: ("step", "attempt", "delay", "fallback"),
    EventKind.RUN_PAUSING: ("now",),
    EventKind.RUN_CANCELLING: ("mode",),
    EventKind.STEP_LOST: ("step", "attempt", "worker"),
    EventKind.ACTION_REQUIRED: ("step",),
    EventKind.ACTION_RESOLVED: ("call_id", "decision"),
    EventKind.BUDGET_WARNING: ("what", "limit"),
    EventKind.CONVERSATION_CONDENSED: ("step",),
}
"""The fields of events that are no content. A reason that a person gives is."""


_OF_ONE: Final = {"first_token": names.TIME_TO_FIRST_CHUNK, "response_id": names.RESPONSE_ID}
"""Attributes that each model call has for itself."""


def spans(record: Record, content: Mapping[str, str]) -> Iterator[bytes]:
    """The spans of a record, with the attributes of ``content``: the calls within an attempt are spans, too."""
    if isinstance(record, EndedRun):
        yield _run(record, content)
        return
    call_id = call_of(record.step)
    yield _tool_step(record, call_id, content) if call_id else _model_step(record, content)
    run = record.run
    for inline_id, tool, since, seconds, error in record.note.get("inline", ()):
        began = record.began * 1_000_000 + int(since * 1e9)
        yield _span(
            _call(run, tool),
            run.trace.span_id(record.step, record.fence, inline_id),
            (began, began + int(seconds * 1e9)),
            {names.STEP: record.step},
            {names.CALL: inline_id},
            error=error or "",
        )


def _model_step(record: Attempt, content: Mapping[str, str]) -> bytes:
    note = record.note
    common = {names.STEP: record.step, **_of_attempt(record), **_usage(*note.get("usage", (0, 0, 0, 0, 0)))}
    if "finish_reason" in note:
        common[names.FINISH_REASONS] = (note["finish_reason"],)
    if "response_model" in note:
        common[names.RESPONSE_MODEL] = note["response_model"]
    special = {name: note[fact] for fact, name in _OF_ONE.items() if fact in note}
    return _attempt(record, _chat(record.run, record.model), common, {**special, **content})


def _tool_step(record: Attempt, call_id: str, content: Mapping[str, str]) -> bytes:
    special = {names.STEP: record.step, names.CALL: call_id, **content}
    return _attempt(record, _call(record.run, record.tool or "unknown"), _of_attempt(record), special)


def _attempt(record: Attempt, run_part: bytes, common: Attributes, special: Mapping[str, str | float]) -> bytes:
    span_id = record.run.trace.span_id(record.step, record.fence)
    error, message = _error(record)
    return _span(run_part, span_id, _times(record), common, special, error=error, message=message)


def _of_attempt(record: Attempt) -> dict[str, Any]:
    attributes = {names.ATTEMPT: record.number, names.WORKER: record.worker, names.OUTCOME: record.outcome}
    return {**attributes, names.CODE: record.note["error"][1]} if "error" in record.note else attributes


def _error(record: Attempt) -> tuple[str, str]:
    """Return the class of the error that an attempt ended with, and its message; both empty if it did not fail."""
    if record.outcome == SpanOutcome.LOST:
        return "worker_lost", "worker lost"
    if "error" in record.note:
        return record.note["error"][0], record.note["error"][1]
    return ("internal", record.outcome) if record.outcome == VerdictKind.GIVE_UP else ("", "")


def _run(record: EndedRun, content: Mapping[str, str]) -> bytes:
    run, error = record.run, record.error
    common = {
        names.STATUS: record.status,
        names.STOP_REASON: record.stop_reason,
        names.MODEL_CALLS: record.model_calls,
        names.TOOL_CALLS: record.tool_calls,
        **_usage(*record.tokens),
        **({names.CODE: error["code"]} if error else {}),
    }
    return _span(
        _begun(
            run,
            run.trace.caller_id,
            f"{names.INVOKE_AGENT} {run.agent}" if run.agent else names.INVOKE_AGENT,
            Span.SPAN_KIND_INTERNAL,
            _of_model(run, record.model, names.INVOKE_AGENT),
        ),
        run.trace.root_id,
        _times(record),
        common,
        content,
        events=[*map(_event, record.events)],
        error=error.get("class", "") if record.status == RunStatus.FAILED else "",
        message=error.get("code", ""),
    )


def _event(fields: Mapping[str, str]) -> Span.Event:
    kind, data = fields["kind"], orjson.loads(fields["data"])
    details = {name: data[name] for name in _SAID.get(kind, ()) if data.get(name) is not None}
    if "error" in data:
        details |= {"error.class": data["error"]["class"], "error.code": data["error"]["code"]}
    if "action" in data:
        details |= {"action.type": data["action"]["type"], "action.tool": data["action"]["tool"]}
    event = Span.Event(name=kind, time_unix_nano=int(fields["at"]) * 1_000_000)
    fill(event.attributes, {f"{names.EVENT}{name}": value for name, value in details.items()})
    return event


@lru_cache(maxsize=_KEPT)
def _chat(run: RunFacts, model: str) -> bytes:
    """Return the part of a span that all of the run's calls of the model share."""
    name = model.partition("/")[2] or "unknown"
    attributes = _of_model(run, model, names.CHAT)
    return _begun(run, run.trace.root_id, f"{names.CHAT} {name}", Span.SPAN_KIND_CLIENT, attributes)


@lru_cache(maxsize=_KEPT)
def _call(run: RunFacts, tool: str) -> bytes:
    """Return the part of a span that all of the run's calls of the tool share."""
    attributes = {names.OPERATION: names.EXECUTE_TOOL, names.TOOL: tool, names.TOOL_TYPE: "function"}
    return _begun(run, run.trace.root_id, f"{names.EXECUTE_TOOL} {tool}", Span.SPAN_KIND_INTERNAL, attributes)


def _begun(run: RunFacts, parent_id: str, name: str, kind: Span.SpanKind.ValueType, attributes: Attributes) -> bytes:
    return part(
        {names.RUN: run.run_id, **attributes},
        trace_id=bytes.fromhex(run.trace.trace_id),
        parent_span_id=bytes.fromhex(parent_id),
        flags=_FLAGS,
        name=name,
        kind=kind,
    )


def _of_model(run: RunFacts, model: str, operation: str) -> Attributes:
    provider, _, name = model.partition("/")
    attributes = {
        names.OPERATION: operation,
        names.PROVIDER: provider,
        names.REQUEST_MODEL: name,
        names.CONVERSATION: run.conversation_id,
        names.AGENT: run.agent,
    }
    return {name: value for name, value in attributes.items() if value}


def _usage(prompt: int, cached: int, cache_write: int, answered: int, thought: int) -> Attributes:
    attributes = {names.INPUT_TOKENS: prompt, names.OUTPUT_TOKENS: answered}
    if cached or cache_write or thought:
        more = {names.CACHED_TOKENS: cached, names.CACHE_WRITE_TOKENS: cache_write, names.REASONING_TOKENS: thought}
        attributes |= {name: tokens for name, tokens in more.items() if tokens}
    return attributes


def _times(record: Record) -> tuple[int, int]:
    return record.began * 1_000_000, record.ended * 1_000_000


def _span(
    run_part: bytes,
    span_id: str,
    times: tuple[int, int],
    common: Attributes,
    special: Mapping[str, str | float],
    *,
    events: Sequence[Span.Event] = (),
    error: str = "",
    message: str = "",
) -> bytes:
    """Encode a span: ``run_part``, which all spans of its kind in a run share, attributes with values that are common,
    and those with its very own."""
    began, ended = times
    # By one clock, Redis's; it may have been set back meanwhile.
    made = run_part + shared(common) + own(special) + identity(span_id, began, max(began, ended))
    if events:
        made += part({}, events=events)
    if error:
        made += part({names.ERROR: error}, status=Status(code=Status.STATUS_CODE_ERROR, message=message or error))
    return made
