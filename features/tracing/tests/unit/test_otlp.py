"""What spans have alike is made once, and is in each of them what it would be alone."""

from __future__ import annotations

from typing import Any

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from features.tracing.otlp import empty_request, shared, spans_of
from features.tracing.records import Record, read
from features.tracing.spans import add_spans


def _record(step: int, told: str = "{}") -> Record:
    trace = f"00-{1:032x}-{2:016x}-01"
    of_run = ("run_1", "conv_1", trace, "researcher fake/tool-1", "0")
    return read(
        {b"attempt": "\n".join((*of_run, "5", "9", str(step), "7", "1", "w1", "", "continue", "3", told)).encode()}
    )


def _sent(*records: Record) -> list[Any]:
    """The spans of a request that is sent with those of ``records``."""
    request = empty_request({"service.name": "palaver"}, "palaver", "1.2")
    for record in records:
        add_spans(spans_of(request), record, {})
    return [*spans_of(ExportTraceServiceRequest.FromString(request.SerializeToString()))]


def test_the_spans_of_a_run_do_not_change_each_other() -> None:
    failed = '{"error":["timeout","slow"],"response_id":"r1","inline":[["c1","send",0.1,0.2,"tool_error"]]}'
    first, inline, second = _sent(_record(1, failed), _record(2))
    assert _sent(_record(2)) == [second]
    assert _sent(_record(1, failed)) == [first, inline]
    assert first.trace_id == inline.trace_id == second.trace_id
    assert len({first.span_id, inline.span_id, second.span_id}) == 3


def test_values_that_are_equal_and_of_different_types_are_not_taken_for_each_other() -> None:
    values: list[Any] = [1, True, 1.0, 0, False, 0.0, (), ("1",), "1"]
    assert [shared("same", value).value.WhichOneof("value") for value in values] == [
        "int_value", "bool_value", "double_value", "int_value", "bool_value", "double_value", None, "array_value",
        "string_value",
    ]  # fmt: skip
