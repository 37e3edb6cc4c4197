"""Spans that are put together from parts are what OpenTelemetry's own classes make of the same."""

from __future__ import annotations

from typing import Any

import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.trace.v1.trace_pb2 import ResourceSpans, ScopeSpans, Span

from workers.tracing import encoding

SPAN_ID = "00f067aa0ba902b7"


@pytest.mark.parametrize("length", [0, 1, 90, 126, 127, 128, 129, 16_383, 16_384, 70_000, 2_100_000])
def test_a_request_is_what_the_classes_make(length: int) -> None:
    text = "x" * (length - 2) + "ü" if length > 1 else "x" * length
    common: dict[str, Any] = {"count": 0, "many": 1 << 40, "reasons": ("stop", "length"), "share": 0.5, "yes": True}
    resource = {"service.name": "palaver", "more": text}
    spans = []
    for number in (1, 2):
        made = encoding.part({"kept": "é"}, name=f"span {number}", kind=Span.SPAN_KIND_CLIENT)
        made += encoding.shared(common) + encoding.own({"text": text, "seconds": 0.1, "none": 0.0})
        spans.append(made + encoding.identity(SPAN_ID, 1_795_372_524_316_000_000, (1 << 64) - 1))

    expected = [
        Span(
            name=f"span {number}",
            kind=Span.SPAN_KIND_CLIENT,
            span_id=bytes.fromhex(SPAN_ID),
            start_time_unix_nano=1_795_372_524_316_000_000,
            end_time_unix_nano=(1 << 64) - 1,
        )
        for number in (1, 2)
    ]
    for span in expected:
        encoding.fill(span.attributes, {"kept": "é", **common, "text": text, "seconds": 0.1, "none": 0.0})
    of_scope = ScopeSpans(spans=expected)
    of_scope.scope.name, of_scope.scope.version = "palaver", "1.2"
    of_resource = ResourceSpans(scope_spans=[of_scope])
    encoding.fill(of_resource.resource.attributes, resource)
    sent = encoding.request(resource, "palaver", "1.2", spans)
    assert ExportTraceServiceRequest.FromString(sent) == ExportTraceServiceRequest(resource_spans=[of_resource])


def test_values_that_are_equal_and_of_different_types_are_not_taken_for_each_other() -> None:
    values: list[Any] = [1, True, 1.0, 0, False, 0.0, (), ("1",), "1"]
    decoded = [Span.FromString(encoding.shared({"same": value})).attributes[0].value for value in values]
    assert [each.WhichOneof("value") for each in decoded] == [
        "int_value", "bool_value", "double_value", "int_value", "bool_value", "double_value", None, "array_value",
        "string_value",
    ]  # fmt: skip
