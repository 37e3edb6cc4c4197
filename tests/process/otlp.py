"""A receiver of traces, as collectors are: OTLP over HTTP, decoded with OpenTelemetry's own classes."""

from __future__ import annotations

import threading
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Final

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.common.v1.common_pb2 import AnyValue
from opentelemetry.proto.trace.v1.trace_pb2 import Span as Proto
from opentelemetry.proto.trace.v1.trace_pb2 import Status

ROOT: Final = "invoke_agent"
LATE: Final = 300.0
"""Seconds in which the last span has come: another worker waits for five before it sends in the place of a dead one."""


@dataclass(frozen=True)
class Span:
    """A span, as it came."""

    trace_id: str
    span_id: str
    parent_id: str
    name: str
    kind: str
    attributes: dict[str, Any]
    events: tuple[tuple[str, tuple[tuple[str, Any], ...]], ...]
    failed: bool
    said: str
    began: int
    ended: int

    @property
    def run_id(self) -> str:
        """The run that it is of."""
        return str(self.attributes["palaver.run.id"])

    @property
    def is_root(self) -> bool:
        """Whether it is a run's own."""
        return bool(self.attributes["gen_ai.operation.name"] == ROOT)


class Receiver:
    """What came at ``url``."""

    def __init__(self) -> None:
        self.bodies: list[bytes] = []
        self._spans: list[Span] = []
        self.answers = 200
        """The status that it answers with; what it refuses it has not received."""
        self.refused = 0
        self.unanswered = 0
        """Requests that have come, and that nobody answers as long as `silent` goes on."""
        self._speaks = threading.Event()
        self._speaks.set()
        self.on_body: Callable[[], object] | None = None
        """Called once, when the next body has come and is not answered yet."""
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(self))
        self.url = f"http://127.0.0.1:{self._server.server_port}"
        self._lock = threading.Lock()

    @contextmanager
    def silent(self) -> Iterator[None]:
        """Accept requests and answer none of them; what comes meanwhile is lost."""
        self._speaks.clear()
        try:
            yield
        finally:
            self._speaks.set()

    def take(self, path: str, body: bytes) -> int:
        """Take a request; the status of the answer."""
        if not self._speaks.is_set():
            self.unanswered += 1
            self._speaks.wait()
            return 503
        status = self._take(path, body)
        if status == 200 and self.on_body is not None:
            act, self.on_body = self.on_body, None
            act()
        return status

    def _take(self, path: str, body: bytes) -> int:
        with self._lock:
            if self.answers != 200:
                self.refused += 1
            elif path == "/v1/traces":
                self.bodies.append(body)
                self._spans += _spans(body)
                return 200
            return self.answers if path == "/v1/traces" else 404

    @property
    def spans(self) -> list[Span]:
        """All of them, those that came again as well."""
        with self._lock:
            return [*self._spans]

    def of(self, run_id: str) -> list[Span]:
        """The spans of a run, each once, in the order of their beginnings."""
        found = {span.span_id: span for span in self.spans if span.run_id == run_id}
        return sorted(found.values(), key=lambda span: (span.began, not span.is_root))

    def roots(self) -> set[str]:
        """The runs of which the span of the run itself has come."""
        return {span.run_id for span in self.spans if span.is_root}

    def check(self) -> Counter[str]:
        """Every run that a span is of has one root, all of its spans are in one trace and below that, and what came
        again was the same. How many spans there are, and how many came again."""
        distinct: dict[tuple[str, str], Span] = {}
        again = 0
        for span in self.spans:
            known = distinct.setdefault((span.trace_id, span.span_id), span)
            again += known is not span
            assert known == span, f"not the same when it came again: {known} and {span}"
        runs: dict[str, list[Span]] = defaultdict(list)
        for span in distinct.values():
            runs[span.run_id].append(span)
        for run_id, spans in runs.items():
            roots = [span for span in spans if span.is_root]
            assert len(roots) == 1, f"{run_id} has {len(roots)} roots and {len(spans)} spans"
            assert {span.trace_id for span in spans} == {roots[0].trace_id}, f"{run_id} is in several traces"
            orphans = [span for span in spans if not span.is_root and span.parent_id != roots[0].span_id]
            assert not orphans, f"{run_id} has orphans: {orphans}"
        return Counter(spans=len(distinct), runs=len(runs), again=again)

    @contextmanager
    def serving(self) -> Iterator[Receiver]:
        """Take requests as long as this is open."""
        thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.05})
        thread.start()
        try:
            yield self
        finally:
            self._server.shutdown()
            thread.join()
            self._server.server_close()


def _handler(receiver: Receiver) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["content-length"]))
            status = receiver.take(self.path, body)
            with suppress(ConnectionError):  # whoever asked has lost patience
                self.send_response(status)
                self.send_header("content-length", "0")
                self.end_headers()

        def log_message(self, format: str, *args: Any) -> None:
            pass

    return Handler


def _spans(body: bytes) -> Iterator[Span]:
    for resource in ExportTraceServiceRequest.FromString(body).resource_spans:
        for scope in resource.scope_spans:
            for span in scope.spans:
                yield decoded(span)


def decoded(span: Proto) -> Span:
    """A span as it is sent."""
    return Span(
        span.trace_id.hex(),
        span.span_id.hex(),
        span.parent_span_id.hex(),
        span.name,
        Proto.SpanKind.Name(span.kind),
        {each.key: _value(each.value) for each in span.attributes},
        tuple((event.name, _pairs(event.attributes)) for event in span.events),
        span.status.code == Status.STATUS_CODE_ERROR,
        span.status.message,
        span.start_time_unix_nano,
        span.end_time_unix_nano,
    )


def _pairs(attributes: Any) -> tuple[tuple[str, Any], ...]:
    return tuple((each.key, _value(each.value)) for each in attributes)


def _value(value: AnyValue) -> Any:
    kind = value.WhichOneof("value")
    if kind == "array_value":
        return tuple(map(_value, value.array_value.values))
    return getattr(value, kind) if kind else None
