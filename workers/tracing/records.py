"""Spans of the records that the store has: an attempt of a step, the calls within it, and the run itself.

They are made as the messages of OTLP that they are sent as: the SDK's own spans cost six times as much to encode.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any, Final

import orjson
from opentelemetry.proto.trace.v1.trace_pb2 import Span, Status

from palaver.events import EventKind
from palaver.ids import call_of
from palaver.lifecycle import RunStatus
from palaver.store.connection import Fields
from palaver.store.contracts.steps import SpanOutcome, VerdictKind
from palaver.traces import Trace

from . import names

Attributes = dict[str, Any]

_FLAGS: Final = 0x301
"""Sampled; and that the parent is of another process is known, and so."""
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


class Record:
    """What the store has for the trace of a run: of an attempt if it names a step, else of the run."""

    def __init__(self, fields: Fields) -> None:
        self._fields = {name.decode(): value for name, value in fields.items()}
        self.trace = Trace.from_stored(self.text("trace"))
        self.run_id = self.text("run")
        self.conversation_id = self.text("conversation")
        agent, *self._models = self.text("names").split() or ["-"]
        self.agent = "" if agent == "-" else agent

    def text(self, name: str) -> str:
        """A field, empty if there is none."""
        return self._fields.get(name, b"").decode()

    def number(self, name: str) -> int:
        """A field that is a number."""
        return int(self._fields[name])

    @property
    def step(self) -> str:
        """Of which this is an attempt; empty for a run."""
        return self.text("step")

    @cached_property
    def model(self) -> str:
        """``provider/name`` of the model that is or would be asked; empty if nobody knows."""
        place = self.number("model")
        return self._models[place] if place < len(self._models) else ""

    @cached_property
    def told(self) -> Mapping[str, Any]:
        """What the worker of the attempt says; nothing if it could not."""
        found: Mapping[str, Any] = orjson.loads(self._fields.get("told") or b"{}")
        return found

    def json(self, name: str) -> Any:
        """A field that is JSON."""
        return orjson.loads(self._fields[name])


def spans(record: Record, content: Mapping[str, str]) -> Iterator[Span]:
    """The spans of a record, with the attributes of ``content``: the calls within an attempt are spans, too."""
    if not record.step:
        yield _run(record, content)
        return
    yield _attempt(record, content)
    for call_id, tool, since, seconds, error in record.told.get("inline", ()):
        began = record.number("began") * 1_000_000 + int(since * 1e9)
        attributes = {**_of_tool(tool, call_id), names.STEP: record.step, names.RUN: record.run_id}
        yield _span(
            record,
            f"{names.EXECUTE_TOOL} {tool}",
            record.trace.span_id(record.step, record.number("fence"), call_id),
            times=(began, began + int(seconds * 1e9)),
            attributes=attributes,
            error=error or "",
        )


def _attempt(record: Record, content: Mapping[str, str]) -> Span:
    outcome, told, call_id = record.text("outcome"), record.told, call_of(record.step)
    attributes: Attributes = {
        names.RUN: record.run_id,
        names.STEP: record.step,
        names.ATTEMPT: record.number("attempt"),
        names.WORKER: record.text("worker"),
        names.OUTCOME: outcome,
        **content,
    }
    if call_id:
        tool = record.text("tool") or "unknown"
        name, attributes = f"{names.EXECUTE_TOOL} {tool}", {**_of_tool(tool, call_id), **attributes}
    else:
        name, attributes = f"{names.CHAT} {_model_name(record)}", {**_of_model(record, names.CHAT), **attributes}
        attributes |= _usage(*told.get("usage", (0, 0, 0, 0, 0)))
        if "finish_reason" in told:
            attributes[names.FINISH_REASONS] = (told["finish_reason"],)
        if "first_token" in told:
            attributes[names.TIME_TO_FIRST_CHUNK] = told["first_token"]
    error, said = _error(outcome, told)
    if "error" in told:
        attributes[names.CODE] = told["error"][1]
    return _span(
        record,
        name,
        record.trace.span_id(record.step, record.number("fence")),
        kind=Span.SPAN_KIND_INTERNAL if call_id else Span.SPAN_KIND_CLIENT,
        attributes=attributes,
        error=error,
        said=said,
    )


def _error(outcome: str, told: Mapping[str, Any]) -> tuple[str, str]:
    """The class of the error that an attempt ended with, and what is said of it; both empty if it did not fail."""
    if outcome == SpanOutcome.LOST:
        return "worker_lost", "worker lost"
    if "error" in told:
        return told["error"][0], told["error"][1]
    return ("internal", outcome) if outcome == VerdictKind.GIVE_UP else ("", "")


def _run(record: Record, content: Mapping[str, str]) -> Span:
    error = record.json("error") or {}
    *tokens, model_calls, tool_calls = map(int, record.text("used").split())
    attributes: Attributes = {
        **_of_model(record, names.INVOKE_AGENT),
        names.RUN: record.run_id,
        names.STATUS: record.text("status"),
        names.STOP_REASON: record.text("stop_reason"),
        names.MODEL_CALLS: model_calls,
        names.TOOL_CALLS: tool_calls,
        **_usage(*tokens),
        **content,
    }
    if error:
        attributes[names.CODE] = error["code"]
    return _span(
        record,
        f"{names.INVOKE_AGENT} {record.agent}" if record.agent else names.INVOKE_AGENT,
        record.trace.root_id,
        parent_id=record.trace.caller_id,
        attributes=attributes,
        events=[_event(dict(zip(each[::2], each[1::2], strict=True))) for each in record.json("events") or ()],
        error=error.get("class", "") if record.text("status") == RunStatus.FAILED else "",
        said=error.get("code", ""),
    )


def _event(fields: Mapping[str, str]) -> Span.Event:
    kind, data = fields["kind"], orjson.loads(fields["data"])
    said = {name: data[name] for name in _SAID.get(kind, ()) if data.get(name) is not None}
    if "error" in data:
        said |= {"error.class": data["error"]["class"], "error.code": data["error"]["code"]}
    if "action" in data:
        said |= {"action.type": data["action"]["type"], "action.tool": data["action"]["tool"]}
    attributes = {f"{names.EVENT}{name}": value for name, value in said.items()}
    event = Span.Event(name=kind, time_unix_nano=int(fields["at"]) * 1_000_000)
    fill(event.attributes, attributes)
    return event


def _of_model(record: Record, operation: str) -> Attributes:
    provider, _, model = record.model.partition("/")
    found = {
        names.OPERATION: operation,
        names.PROVIDER: provider,
        names.REQUEST_MODEL: model,
        names.CONVERSATION: record.conversation_id,
        names.AGENT: record.agent,
    }
    return {name: value for name, value in found.items() if value}


def _model_name(record: Record) -> str:
    return record.model.partition("/")[2] or "unknown"


def _of_tool(tool: str, call_id: str) -> Attributes:
    return {names.OPERATION: names.EXECUTE_TOOL, names.TOOL: tool, names.TOOL_TYPE: "function", names.CALL: call_id}


def _usage(given: int, cached: int, cache_write: int, answered: int, thought: int) -> Attributes:
    more = {names.CACHED_TOKENS: cached, names.CACHE_WRITE_TOKENS: cache_write, names.REASONING_TOKENS: thought}
    used = {names.INPUT_TOKENS: given, names.OUTPUT_TOKENS: answered}
    return used | {name: tokens for name, tokens in more.items() if tokens}


def _span(
    record: Record,
    name: str,
    span_id: str,
    *,
    attributes: Attributes,
    parent_id: str | None = None,
    kind: Span.SpanKind.ValueType = Span.SPAN_KIND_INTERNAL,
    times: tuple[int, int] | None = None,
    events: Sequence[Span.Event] = (),
    error: str = "",
    said: str = "",
) -> Span:
    """A span; unless told otherwise a child of the run's, over the time of its record (ns)."""
    began, ended = times or (record.number("began") * 1_000_000, record.number("ended") * 1_000_000)
    parent = record.trace.root_id if parent_id is None else parent_id
    span = Span(
        trace_id=bytes.fromhex(record.trace.trace_id),
        span_id=bytes.fromhex(span_id),
        parent_span_id=bytes.fromhex(parent),
        flags=_FLAGS,
        name=name,
        kind=kind,
        start_time_unix_nano=began,
        # By one clock, Redis's; it may have been set back meanwhile.
        end_time_unix_nano=max(began, ended),
        events=events,
    )
    fill(span.attributes, attributes)
    if error:
        fill(span.attributes, {names.ERROR: error})
        span.status.code, span.status.message = Status.STATUS_CODE_ERROR, said or error
    return span


def fill(field: Any, attributes: Mapping[str, Any]) -> None:
    """Put attributes into a field of a message that has such."""
    for name, value in attributes.items():
        held = field.add(key=name).value
        match value:
            case str():
                held.string_value = value
            case bool():
                held.bool_value = value
            case int():
                held.int_value = value
            case float():
                held.double_value = value
            case _:
                for each in value:
                    held.array_value.values.add(string_value=each)
