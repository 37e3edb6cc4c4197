"""OTLP's messages, made with OpenTelemetry's own classes.

What spans have alike, such as all that a run has, and an attribute whose value comes again, is made once and copied
into each span. The SDK's `ReadableSpan` takes five times as long (ADR 0042).
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Any, Final

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.common.v1.common_pb2 import KeyValue
from opentelemetry.proto.trace.v1.trace_pb2 import Span

Attributes = Mapping[str, Any]

_KEPT: Final = 4096
"""Attributes that are kept, with their values: about 1 MB."""


def empty_request(resource: Attributes, scope: str, version: str) -> ExportTraceServiceRequest:
    """A request that has no spans yet: what sends them, and what made them."""
    made = ExportTraceServiceRequest()
    of_resource = made.resource_spans.add()
    fill(of_resource.resource.attributes, resource)
    of_scope = of_resource.scope_spans.add()
    of_scope.scope.name, of_scope.scope.version = scope, version
    return made


def spans_of(request: ExportTraceServiceRequest) -> Any:
    """The spans of a request, to which others may be added."""
    return request.resource_spans[0].scope_spans[0].spans


@lru_cache(maxsize=_KEPT, typed=True)
def shared(name: str, value: Any) -> KeyValue:
    """An attribute whose value other spans have as well, to be copied."""
    span = Span()
    fill(span.attributes, {name: value})
    made: KeyValue = span.attributes[0]
    return made


def fill(field: Any, attributes: Attributes) -> None:
    """Put attributes into a field of a message that has such. Raises TypeError for a value that none has."""
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
            case tuple():
                for item in value:
                    held.array_value.values.add(string_value=item)
            case _:
                raise TypeError(f"{name} has a value of another type")
