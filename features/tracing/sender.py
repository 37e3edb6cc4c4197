"""Sends the records of traces to a collector: away from the steps, one worker for a shard, and for as long as it takes.

A collector that is away costs a line in the log now and then. Records wait in the store meanwhile; when there are too
many, the oldest go.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any, Final

import requests
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.sdk.resources import OTELResourceDetector, Resource

from palaver.store.redis.connection import StreamEntry
from palaver.version import __version__
from palaver.vocabulary.limits import limit_of

from .content import content_of
from .otlp import empty_request, spans_of
from .outbox import HOLD, SpanOutbox
from .records import read
from .spans import add_spans

log = logging.getLogger("palaver.tracing")

_EVERY: Final = 1.0
"""Seconds between two looks of the worker that sends."""
_OTHERS: Final = 2.0
"""The same of those that would if it were gone."""
_LONGEST: Final = 60.0
"""Seconds between two tries while the collector is away, and between two lines in the log about it."""
_SHORT: Final = 256
"""Bytes of an answer; a collector says nothing, or that it took all of it."""
_UNWANTED: Final = frozenset({400, 413, 422})
"""Statuses of a collector that would take the same spans no better another time."""
_MISSHAPEN: Final = (LookupError, ValueError, TypeError, AttributeError, OverflowError)
"""Exceptions from reading a record that is none, or one of a newer version."""


class _Exporter(OTLPSpanExporter):
    """OpenTelemetry's, for its settings, its connection and its patience, with what is no span of the SDK."""

    def send(self, request: ExportTraceServiceRequest) -> bool:
        """Send a request; tell whether it was taken."""
        return self._client.export(request.SerializeToString()).success


class SpanSender:
    """Sends the spans of the outbox, as long as this worker is the one to do so."""

    def __init__(self, outbox: SpanOutbox, worker: str, *, content: bool) -> None:
        """``OTEL_EXPORTER_OTLP_…`` and ``OTEL_RESOURCE_ATTRIBUTES`` of the environment say where to, and what else."""
        self._outbox = outbox
        self._worker = worker
        self._content = content
        own = Resource({"service.name": "palaver", "service.version": __version__})
        self._resource = own.merge(OTELResourceDetector().detect())
        self._status = 0
        session = requests.Session()
        session.stream = True
        session.hooks["response"].append(self._answered)
        self._exporter = _Exporter(session=session)
        # It has a line for each try.
        logging.getLogger("opentelemetry").setLevel(logging.CRITICAL)
        self._delay = _EVERY
        self._logged_at = -_LONGEST

    async def run(self) -> None:
        """Send, for ever."""
        try:
            while True:
                # Each is held right before it is sent: a slow collector takes longer for one than a hold lasts.
                more = [sent for shard in self._outbox.there() if (sent := await self._send_held(shard)) is not None]
                if not any(more):
                    await asyncio.sleep(self._delay if more else _OTHERS)
        finally:
            with contextlib.suppress(Exception):
                for shard in self._outbox.shards:
                    await self._outbox.release(shard, self._worker)

    async def _send_held(self, shard: str) -> bool | None:
        """Send as `_send_some`; None if another one does."""
        return await self._send_some(shard) if await self._outbox.hold(shard, self._worker) else None

    async def _send_some(self, shard: str) -> bool:
        """Send a batch of spans; tell whether there is more to send at once."""
        records = await self._outbox.read(shard, limit_of("span_batch"))
        if not records:
            return False
        taken, made = await self._spans(records)
        if spans_of(made) and not await self._sent(shard, made):
            if self._status not in _UNWANTED:
                self._delay = min(2 * self._delay, _LONGEST)
                self._say("the collector does not take traces (%s); they wait", self._status or "no answer")
                return False
            self._say("the collector refuses spans with status %s; they are dropped", self._status)
        self._delay = _EVERY
        await self._outbox.forget(shard, taken)
        return len(taken) == limit_of("span_batch")

    async def _spans(self, records: Sequence[StreamEntry]) -> tuple[Sequence[StreamEntry], ExportTraceServiceRequest]:
        """A request with the spans of as many of the first records as are sent at once."""
        request = empty_request(self._resource.attributes, "palaver", __version__)
        made = spans_of(request)
        characters = 0
        for number, (_, fields) in enumerate(records, 1):
            there = len(made)
            try:
                record = read(fields)
                content = await content_of(record, self._outbox) if self._content else {}
                add_spans(made, record, content)
            except _MISSHAPEN as error:
                del made[there:]
                self._say("a record of a newer version is in no trace: %r", error)
                continue
            characters += sum(map(len, content.values()))
            if characters > limit_of("span_batch_content"):
                return records[:number], request
        return records, request

    async def _sent(self, shard: str, request: ExportTraceServiceRequest) -> bool:
        """Send the request; tell whether the collector took it. As long as it has not answered, no other worker
        sends."""
        sending = asyncio.ensure_future(in_thread(lambda: self._export(request)))
        while not sending.done():
            await asyncio.wait({sending}, timeout=HOLD / 3)
            await self._outbox.hold(shard, self._worker)
        return sending.result()

    def _export(self, request: ExportTraceServiceRequest) -> bool:
        self._status = 0
        return self._exporter.send(request)

    def _answered(self, response: requests.Response, **_: Any) -> None:
        self._status = response.status_code
        # Its text is not wanted, and may have no end. A short one is read, so that the connection is used again.
        if int(response.headers.get("content-length", _SHORT + 1)) <= _SHORT:
            response.content  # noqa: B018
        else:
            response.close()

    def _say(self, sentence: str, *facts: object) -> None:
        if time.monotonic() - self._logged_at >= _LONGEST:
            self._logged_at = time.monotonic()
            log.warning(sentence, *facts)


async def in_thread(work: Callable[[], bool]) -> bool:
    """The answer of ``work``, from a thread that is not waited for when the process ends."""
    loop = asyncio.get_running_loop()
    done: asyncio.Future[bool] = loop.create_future()

    def settle(answer: bool) -> None:
        if not done.done():
            done.set_result(answer)

    def run() -> None:
        answer = False
        try:
            answer = work()
        except Exception:
            log.exception("spans are not sent")
        with contextlib.suppress(RuntimeError):  # the loop has ended
            loop.call_soon_threadsafe(settle, answer)

    threading.Thread(target=run, name="traces", daemon=True).start()
    return await done
