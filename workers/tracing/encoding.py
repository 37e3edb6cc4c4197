"""OTLP's messages as bytes, put together from parts.

The encoding of a message is that of its parts, one behind the other, and most parts of our spans come again and again:
what all spans of a run have, an attribute with the same value. Those are encoded once, by OpenTelemetry's own classes.
To make each span with these takes five times as long.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import lru_cache
from struct import Struct
from typing import Any, Final

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, KeyValue
from opentelemetry.proto.trace.v1.trace_pb2 import ResourceSpans, ScopeSpans, Span

Attributes = Mapping[str, Any]

_KEPT: Final = 4096
"""Attributes that stay in memory, with their values: about 1 MB."""
_NAMES: Final = 256
_FIXED64: Final = 1
_LENGTH: Final = 2
"""The form of a field: eight bytes (1), or its length and so many bytes (2)."""


def _tag(number: int, written: int) -> bytes:
    return bytes((number << 3 | written,))


_RESOURCE_SPANS: Final = _tag(ExportTraceServiceRequest.RESOURCE_SPANS_FIELD_NUMBER, _LENGTH)
_SCOPE_SPANS: Final = _tag(ResourceSpans.SCOPE_SPANS_FIELD_NUMBER, _LENGTH)
_SPANS: Final = _tag(ScopeSpans.SPANS_FIELD_NUMBER, _LENGTH)
_ATTRIBUTES: Final = _tag(Span.ATTRIBUTES_FIELD_NUMBER, _LENGTH)
_VALUE: Final = _tag(KeyValue.VALUE_FIELD_NUMBER, _LENGTH)
_TEXT: Final = _tag(AnyValue.STRING_VALUE_FIELD_NUMBER, _LENGTH)
_ID: Final = _tag(Span.SPAN_ID_FIELD_NUMBER, _LENGTH) + bytes((8,))
_BEGAN: Final = _tag(Span.START_TIME_UNIX_NANO_FIELD_NUMBER, _FIXED64)
_ENDED: Final = _tag(Span.END_TIME_UNIX_NANO_FIELD_NUMBER, _FIXED64)
_IDENTITY: Final = Struct("<2s8scQcQ")
_DOUBLE: Final = Struct("<d")


def part(attributes: Attributes, **fields: Any) -> bytes:
    """The part of a span that is these fields and attributes of it."""
    span = Span(**fields)
    fill(span.attributes, attributes)
    encoded: bytes = span.SerializeToString()
    return encoded


def shared(attributes: Attributes) -> bytes:
    """Attributes whose values other spans have as well."""
    return b"".join([_shared(name, value) for name, value in attributes.items()])


@lru_cache(maxsize=_KEPT, typed=True)
def _shared(name: str, value: Any) -> bytes:
    return part({name: value})


def own(attributes: Mapping[str, str | float]) -> bytes:
    """Attributes whose values no other span has."""
    return b"".join([_own(name, value) for name, value in attributes.items()])


def _own(name: str, value: str | float) -> bytes:
    if isinstance(value, str):
        return _field(_ATTRIBUTES, _key(name) + _field(_VALUE, _field(_TEXT, value.encode())))
    return _number(name) + _DOUBLE.pack(value)


@lru_cache(maxsize=_NAMES)
def _key(name: str) -> bytes:
    encoded: bytes = KeyValue(key=name).SerializeToString()
    return encoded


@lru_cache(maxsize=_NAMES)
def _number(name: str) -> bytes:
    """An attribute up to its value, which comes last and has the same length for every number."""
    return part({name: 0.0})[: -_DOUBLE.size]


def identity(span_id: str, began: int, ended: int) -> bytes:
    """The part of a span that is its id and its times (ns)."""
    return _IDENTITY.pack(_ID, bytes.fromhex(span_id), _BEGAN, began, _ENDED, ended)


def request(resource: Attributes, scope: str, version: str, spans: Iterable[bytes]) -> bytes:
    """Encode a request to the collector: the spans, their sender, and their maker."""
    of_resource, of_scope = ResourceSpans(), ScopeSpans()
    fill(of_resource.resource.attributes, resource)
    of_scope.scope.name, of_scope.scope.version = scope, version
    of_scope_and_spans = of_scope.SerializeToString() + b"".join([_field(_SPANS, span) for span in spans])
    return _field(_RESOURCE_SPANS, of_resource.SerializeToString() + _field(_SCOPE_SPANS, of_scope_and_spans))


def fill(field: Any, attributes: Attributes) -> None:
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
                for item in value:
                    held.array_value.values.add(string_value=item)


def _field(tag: bytes, message: bytes) -> bytes:
    """A message, or a text, as a field of another message: the field's tag, a length, and so many bytes."""
    length = len(message)
    if length < 0x80:
        return b"%b%c%b" % (tag, length, message)
    head = bytearray(tag)
    while length >= 0x80:
        head.append(length & 0x7F | 0x80)
        length >>= 7
    head.append(length)
    return bytes(head) + message
