"""Spans of the records that the store has."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any, Final

import orjson
from opentelemetry.proto.trace.v1.trace_pb2 import Span, Status

from palaver.events import EventKind
from palaver.store.scripting.contracts.steps import SpanOutcome, VerdictKind
from palaver.vocabulary.ids import call_of
from palaver.vocabulary.lifecycle import RunStatus

from . import names
from .otlp import Attributes, fill, shared
from .records import EndedAttempt, EndedRun, Record, RunFacts

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


def add_spans(made: Any, record: Record, content: Mapping[str, str]) -> None:
    """Add the spans of a record to those that are ``made``, with the attributes of ``content``: the calls within an
    attempt are spans, too."""
    if isinstance(record, EndedRun):
        _add_run(made, record, content)
        return
    run, call_id = record.run, call_of(record.step)
    if call_id:
        own = {names.STEP: record.step, names.CALL: call_id, **content}
        _add_attempt(made, record, _call(run, record.tool or "unknown"), {}, own)
    else:
        own = {name: record.note[key] for key, name in _OF_ONE.items() if key in record.note}
        _add_attempt(made, record, _chat(run, record.model), _of_answer(record), {**own, **content})
    for inline_id, tool, since, seconds, error in record.note.get("inline", ()):
        began = record.began * 1_000_000 + int(since * 1e9)
        _add(
            made,
            _call(run, tool),
            run.trace.span_id(record.step, record.fence, inline_id),
            (began, began + int(seconds * 1e9)),
            {names.STEP: record.step},
            {names.CALL: inline_id},
            error=error or "",
        )


def _of_answer(record: EndedAttempt) -> dict[str, Any]:
    note = record.note
    attributes = {names.STEP: record.step, **_usage(*note.get("usage", (0, 0, 0, 0, 0)))}
    if "finish_reason" in note:
        attributes[names.FINISH_REASONS] = (note["finish_reason"],)
    if "response_model" in note:
        attributes[names.RESPONSE_MODEL] = note["response_model"]
    return attributes


def _add_attempt(made: Any, record: EndedAttempt, template: Span, common: Attributes, own: Attributes) -> None:
    span_id = record.run.trace.span_id(record.step, record.fence)
    error, message = _error(record)
    _add(made, template, span_id, _times(record), {**common, **_of_attempt(record)}, own, error=error, message=message)


def _of_attempt(record: EndedAttempt) -> dict[str, Any]:
    attributes = {names.ATTEMPT: record.number, names.WORKER: record.worker, names.OUTCOME: record.outcome}
    return {**attributes, names.CODE: record.note["error"][1]} if "error" in record.note else attributes


def _error(record: EndedAttempt) -> tuple[str, str]:
    """Return the class of the error that an attempt ended with, and its message; both empty if it did not fail."""
    if record.outcome == SpanOutcome.LOST:
        return "worker_lost", "worker lost"
    if "error" in record.note:
        return record.note["error"][0], record.note["error"][1]
    return ("internal", record.outcome) if record.outcome == VerdictKind.GIVE_UP else ("", "")


def _add_run(made: Any, record: EndedRun, content: Mapping[str, str]) -> None:
    run, error = record.run, record.error
    common = {
        names.STATUS: record.status,
        names.STOP_REASON: record.stop_reason,
        names.MODEL_CALLS: record.model_calls,
        names.TOOL_CALLS: record.tool_calls,
        **_usage(*record.tokens),
        **({names.CODE: error["code"]} if error else {}),
    }
    _add(
        made,
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
        events=record.events,
        error=error.get("class", "") if record.status == RunStatus.FAILED else "",
        message=error.get("code", ""),
    )


def _add_event(span: Span, fields: Mapping[str, str]) -> None:
    kind, data = fields["kind"], orjson.loads(fields["data"])
    details = {name: data[name] for name in _SAID.get(kind, ()) if data.get(name) is not None}
    if "error" in data:
        details |= {"error.class": data["error"]["class"], "error.code": data["error"]["code"]}
    if "action" in data:
        details |= {"action.type": data["action"]["type"], "action.tool": data["action"]["tool"]}
    event = span.events.add(name=kind, time_unix_nano=int(fields["at"]) * 1_000_000)
    fill(event.attributes, {f"{names.EVENT}{name}": value for name, value in details.items()})


@lru_cache(maxsize=_KEPT)
def _chat(run: RunFacts, model: str) -> Span:
    """Return the common part of all calls of the model that the run makes."""
    name = model.partition("/")[2] or "unknown"
    attributes = _of_model(run, model, names.CHAT)
    return _begun(run, run.trace.root_id, f"{names.CHAT} {name}", Span.SPAN_KIND_CLIENT, attributes)


@lru_cache(maxsize=_KEPT)
def _call(run: RunFacts, tool: str) -> Span:
    """Return the common part of all calls of the tool that the run makes."""
    attributes = {names.OPERATION: names.EXECUTE_TOOL, names.TOOL: tool, names.TOOL_TYPE: "function"}
    return _begun(run, run.trace.root_id, f"{names.EXECUTE_TOOL} {tool}", Span.SPAN_KIND_INTERNAL, attributes)


def _begun(run: RunFacts, parent_id: str, name: str, kind: Span.SpanKind.ValueType, attributes: Attributes) -> Span:
    span = Span(
        trace_id=bytes.fromhex(run.trace.trace_id),
        parent_span_id=bytes.fromhex(parent_id),
        flags=_FLAGS,
        name=name,
        kind=kind,
    )
    fill(span.attributes, {names.RUN: run.run_id, **attributes})
    return span


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


def _add(
    made: Any,
    template: Span,
    span_id: str,
    times: tuple[int, int],
    common: Attributes,
    own: Attributes,
    *,
    events: Sequence[Mapping[str, str]] = (),
    error: str = "",
    message: str = "",
) -> None:
    """Add a span: a copy of the ``template`` of its run, with attributes whose values are common, and those with its
    very own."""
    began, ended = times
    # By one clock, Redis's; it may have been set back meanwhile.
    span = made.add(span_id=bytes.fromhex(span_id), start_time_unix_nano=began, end_time_unix_nano=max(began, ended))
    span.MergeFrom(template)
    span.attributes.extend([shared(name, value) for name, value in common.items()])
    fill(span.attributes, own)
    for event in events:
        _add_event(span, event)
    if error:
        fill(span.attributes, {names.ERROR: error})
        span.status.code, span.status.message = Status.STATUS_CODE_ERROR, message or error
