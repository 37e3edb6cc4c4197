"""Calls of models: one request and its answer, streamed or not, in the protocol that the provider speaks.

httpx's requests, responses and errors on aiohttp's connections. httpx's client adds cookies, redirects and
authentication flows that a model call has no use for: the transport is called directly (ADR 0023).
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import replace
from functools import lru_cache, partial

import httpx

from palaver.config.providers import Provider
from palaver.errors import ProviderError, ProviderHTTPError, ResponseTooLarge, TruncatedStream
from palaver.errors.exceptions import MAX_BODY
from palaver.errors.headers import request_id as request_id_of
from palaver.schemas.endpoints import Endpoint
from palaver.schemas.models import AgentSpec
from palaver.vocabulary.limits import count_exceeded, limit_of

from ..connections.guarded_resolver import GuardedResolver
from ..connections.pool import open_pool
from ..connections.transport import AiohttpTransport, ResponseStream
from ..protocols import WITHHELD, AnswerReader, ModelReply
from .call_clock import CallClock, CallProgress
from .destination import Destination
from .model_terms import ModelTerms
from .reading_turns import LARGE, ReadingTurns

log = logging.getLogger("palaver.workers.models.model")

_NOTHING = b" \t\r\n\xef\xbb\xbf"
"""Bytes before an answer that say nothing: empty lines, and a byte order mark."""
_END_WAIT = 1.0
"""Seconds for the end of a connection's stream, once the answer has ended: then another call can use it."""
_ERROR_WAIT = 2.0
"""Seconds for the rest of an error's body."""


@lru_cache(maxsize=500)
def _destination_of(endpoint: Endpoint) -> Destination:
    """The destination of an endpoint that came with an agent. Its key is a part of what is compared."""
    return Destination(Provider.inline(endpoint))


class ModelPort(ModelTerms):
    """Calls providers over one connection pool."""

    def __init__(self, providers: Mapping[str, Provider]) -> None:
        super().__init__(providers)
        self._destinations = {name: Destination(provider) for name, provider in providers.items()}
        self._transports: dict[bool, AiohttpTransport] = {}
        self._streams = 0
        """Number of the streams that come just now."""
        self._turns = ReadingTurns()

    def _connected(self, *, guarded: bool) -> AiohttpTransport:
        """The transport for providers of the table, or that for endpoints of agents."""
        if guarded not in self._transports:
            self._transports[guarded] = open_pool(GuardedResolver() if guarded else None)
        return self._transports[guarded]

    def _request(self, agent: AgentSpec, body: bytes, request_id: str) -> httpx.Request:
        endpoint = agent.endpoint
        inline = endpoint is not None and endpoint.name == agent.provider
        destination = _destination_of(endpoint) if inline else self._destinations[agent.provider]
        return destination.request(body, request_id)

    async def close(self) -> None:
        """Close all connections."""
        for transport in self._transports.values():
            await transport.aclose()

    async def complete(
        self,
        agent: AgentSpec,
        body: bytes,
        *,
        on_begin: Callable[[], None],
        show: Callable[[str, str], None],
        time_left: float,
        request_id: str,
        reader: AnswerReader,
        progress: CallProgress,
    ) -> ModelReply:
        """Ask the model; ``on_begin`` is called once the answer begins to come, ``show`` gets its text and reasoning as
        they come, ``time_left`` (s) bounds the whole call.

        ``reader`` gathers the answer, so that the caller has what came before a failure; ``progress`` says how far
        the call is.

        Raises:
            ProviderError: of the kind that says what went wrong.
            httpx.HTTPError: the connection did.
            KeyError: this worker has no such provider.
        """
        provider = self.provider(agent)
        if provider is None:
            raise KeyError(agent.provider)
        transport = self._connected(guarded=agent.provider not in self._providers)
        request = self._request(agent, body, request_id)
        clock = CallClock(provider.timeouts, time_left, progress)
        try:
            return await self._complete(provider, transport, request, clock, reader, on_begin, show)
        except ProviderError as error:
            error.provider, error.model = agent.provider, agent.model_name
            raise
        finally:
            if oddities := reader.oddities:
                log.warning("%s: the answer of %s is odd: %s", request_id, agent.model, oddities)

    async def _complete(
        self,
        provider: Provider,
        transport: AiohttpTransport,
        request: httpx.Request,
        clock: CallClock,
        reader: AnswerReader,
        on_begin: Callable[[], None],
        show: Callable[[str, str], None],
    ) -> ModelReply:
        response: httpx.Response | None = None
        try:
            async with clock.limit:
                response = await transport.handle_async_request(request)
                stream = response.stream
                assert isinstance(stream, ResponseStream)  # of our transport
                try:
                    return await self._read(response, stream, provider, clock, reader, on_begin, show)
                except httpx.HTTPError as error:
                    raise TruncatedStream("the connection broke in the middle of the answer") from error
                finally:
                    # And with it the work of the provider ends.
                    await stream.aclose()
        except TimeoutError:
            if not clock.limit.expired():
                raise
            raise _of(response, clock.late()) from None
        except ProviderError as error:
            _of(response, error)
            raise

    async def _read(
        self,
        response: httpx.Response,
        stream: ResponseStream,
        provider: Provider,
        clock: CallClock,
        reader: AnswerReader,
        on_begin: Callable[[], None],
        show: Callable[[str, str], None],
    ) -> ModelReply:
        if response.status_code != 200:
            raise ProviderHTTPError(response.status_code, await _beginning(stream), dict(response.headers))
        first = await self._first(stream, provider.max_response_bytes, clock, on_begin)
        # What came says what it is: labels are left out, and wrong.
        read = self._read_document if first.startswith((b"{", b"[")) else self._read_stream
        await read(first, stream, provider.max_response_bytes, clock, reader, show)
        reply = await self._turns.read(clock.progress.received, reader.reply)
        clock.limit.reschedule(None)
        await _end_of(stream)
        if reply.finish_reason == WITHHELD:
            reply = replace(reply, request_id=request_id_of(response.headers))
        return reply

    async def _first(
        self, stream: AsyncIterator[bytes], most_bytes: int, clock: CallClock, on_begin: Callable[[], None]
    ) -> bytes:
        """The first piece with something in it, without what only keeps a connection open; empty for none."""
        async for data in stream:
            clock.read(len(data))
            if clock.progress.received == len(data):
                on_begin()
            _require_room(clock, most_bytes)
            if data := data.lstrip(_NOTHING):
                return data
            if rest := clock.rest(0):
                await asyncio.sleep(rest)
        return b""

    async def _read_stream(
        self,
        data: bytes,
        stream: AsyncIterator[bytes],
        most_bytes: int,
        clock: CallClock,
        reader: AnswerReader,
        show: Callable[[str, str], None],
    ) -> None:
        """Read an answer that comes as events, whose beginning is ``data``, and show it as it comes."""
        progress = clock.progress
        self._streams += 1
        try:
            while data:
                if (waiting := reader.waiting) < LARGE:
                    text, thoughts = reader.feed(data)
                else:
                    text, thoughts = await self._turns.read(waiting, partial(reader.feed, data))
                if text or thoughts:
                    progress.characters += len(text)
                    show(text, thoughts)
                if reader.done:
                    break
                if rest := clock.rest(self._streams):
                    await asyncio.sleep(rest)
                data = await anext(stream, b"")
                clock.read(len(data))
                _require_room(clock, most_bytes)
        finally:
            self._streams -= 1
        text, thoughts = await self._turns.read(reader.waiting, reader.end)
        if text or thoughts:
            progress.characters += len(text)
            show(text, thoughts)

    async def _read_document(
        self,
        data: bytes,
        stream: AsyncIterator[bytes],
        most_bytes: int,
        clock: CallClock,
        reader: AnswerReader,
        show: Callable[[str, str], None],
    ) -> None:
        """Read an answer that comes in one piece, whose beginning is ``data``."""
        most_bytes, whole = min(most_bytes, limit_of("answer_document")), bytearray()
        while data:
            whole += data
            if len(whole) > most_bytes:
                count_exceeded("answer_document")
                raise _too_large(most_bytes)
            if rest := clock.rest(0):
                await asyncio.sleep(rest)
            data = await anext(stream, b"")
            clock.read(len(data))
        if len(whole) >= LARGE:
            clock.came()
        if text := await self._turns.read(len(whole), partial(reader.read, bytes(whole))):
            show(text, "")


def _require_room(clock: CallClock, most_bytes: int) -> None:
    if clock.progress.received > most_bytes:
        count_exceeded("answer")
        raise _too_large(most_bytes)


def _too_large(most_bytes: int) -> ResponseTooLarge:
    return ResponseTooLarge(f"the answer is larger than {most_bytes} bytes")


def _of(response: httpx.Response | None, error: ProviderError) -> ProviderError:
    """``error`` with what leads to the response in the provider's logs."""
    if response is not None:
        error.status, error.request_id = response.status_code, request_id_of(response.headers)
    return error


async def _beginning(stream: AsyncIterator[bytes]) -> bytes:
    """Return what there is of an error's body. If the rest does not come, the status must do."""
    body = bytearray()
    with contextlib.suppress(httpx.HTTPError, TimeoutError):
        async with asyncio.timeout(_ERROR_WAIT):
            async for data in stream:
                body += data
                if len(body) >= MAX_BODY:
                    break
    return bytes(body[:MAX_BODY])


async def _end_of(stream: ResponseStream) -> None:
    """Wait for the end of an answer that is whole, so that its connection can be used again. One that does not end
    is closed."""
    if stream.ended:
        return
    received = 0
    with contextlib.suppress(httpx.HTTPError, TimeoutError):
        async with asyncio.timeout(_END_WAIT):
            async for data in stream:
                received += len(data)
                if received > limit_of("answer_end"):
                    count_exceeded("answer_end")
                    break
