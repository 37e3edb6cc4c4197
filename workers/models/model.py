"""Calls of models: one request and its answer, streamed or not, in the protocol that the provider speaks.

httpx's requests, responses and errors on aiohttp's connections. httpx's own pool scans all its connections for each
request (10 to 14 ms of CPU with 500 in flight), and its client adds cookies, redirects and authentication flows that a
model call has no use for: the transport is called directly, 0.17 ms a call where the client costs 0.28 (ADR 0033).
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import replace
from functools import lru_cache

import aiohttp
import httpx
from httpx_aiohttp import AiohttpTransport

from palaver.config.providers import Provider
from palaver.errors import (
    FirstTokenTimeout,
    IdleTimeout,
    ProviderError,
    ProviderHTTPError,
    ResponseTooLarge,
    TotalTimeout,
    TruncatedStream,
)
from palaver.errors.exceptions import MAX_BODY
from palaver.errors.headers import request_id as request_id_of
from palaver.schemas.models import AgentSpec
from palaver.vocabulary.limits import beyond, most

from ..protocols import WITHHELD, AnswerReader, ModelReply, protocol_of
from .call_progress import CallProgress
from .guarded_resolver import GuardedResolver
from .model_terms import ModelTerms
from .response_heads import Answer

_BREATH = 16 * 1024
_PAUSE = 0.005
"""After so many bytes, reading rests for so many seconds at least: the bytes cost a millisecond or two, whatever they
say, and others are to have most of the loop, however many such answers come at a time."""
_REST_PER_STREAM = 0.0001
_SHORTEST_REST = 0.01
"""Seconds that reading a stream rests for each stream that comes just now, if that makes so many: its next tokens come
together. A read costs the loop 20 us whatever it brings, and watchers of so many streams see a delta less often yet."""
_END_WAIT = 1.0
"""Seconds for the end of a connection's stream, once the answer has ended: then another call can use it."""
_ERROR_WAIT = 2.0
"""Seconds for the rest of an error's body."""
_IDLE_SLACK = 0.05
"""A stalled stream is noticed up to this share of its idle timeout late, never early."""


_url = lru_cache(maxsize=1000)(httpx.URL)
"""Where calls are sent: taking a URL apart is a thirtieth of the CPU of a step."""


class ModelPort(ModelTerms):
    """Calls providers over one connection pool."""

    def __init__(self, providers: Mapping[str, Provider]) -> None:
        super().__init__(providers)
        self._transports: dict[bool, AiohttpTransport] = {}
        self._streams = 0
        """Those that come just now."""

    def _connected(self, *, guarded: bool) -> AiohttpTransport:
        """The transport for providers of the table, or that for endpoints of agents."""
        if guarded not in self._transports:
            resolver = GuardedResolver() if guarded else None
            self._transports[guarded] = AiohttpTransport(
                client=lambda: aiohttp.ClientSession(
                    connector=aiohttp.TCPConnector(limit=0, ttl_dns_cache=60, resolver=resolver),
                    # What one conversation is sent must not reach another.
                    cookie_jar=aiohttp.DummyCookieJar(),
                    trust_env=False,
                    response_class=Answer,
                )
            )
        return self._transports[guarded]

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
        try:
            provider = self.provider(agent)
            if provider is None:
                raise KeyError(agent.provider)
            return await self._complete(provider, agent, body, on_begin, show, time_left, request_id, reader, progress)
        except ProviderError as error:
            error.provider, error.model = agent.provider, agent.model_name
            raise

    async def _complete(
        self,
        provider: Provider,
        agent: AgentSpec,
        body: bytes,
        on_begin: Callable[[], None],
        show: Callable[[str, str], None],
        time_left: float,
        request_id: str,
        reader: AnswerReader,
        progress: CallProgress,
    ) -> ModelReply:
        timeouts, loop = provider.timeouts, asyncio.get_running_loop()
        protocol = protocol_of(provider)
        asked_at = loop.time()
        end = asked_at + min(timeouts.total, max(time_left, 0.001))
        headers = {
            "content-type": "application/json",
            # A compressed stream would be held back until a block is full.
            "accept-encoding": "identity",
            "x-request-id": request_id,
            "x-palaver-run": request_id.partition(":")[0],
            **protocol.headers(provider.api_key),
        }
        transport = self._connected(guarded=agent.provider not in self._providers)
        request = httpx.Request(
            "POST",
            _url(f"{provider.base_url.rstrip('/')}{protocol.path}"),
            headers=headers,
            content=body,
            extensions={"timeout": httpx.Timeout(None, connect=timeouts.connect).as_dict()},
        )
        begun = False
        response: httpx.Response | None = None
        progress.received, progress.characters, progress.came_at = 0, 0, asked_at
        progress.first_after = None
        progress.ends_at = min(end, asked_at + timeouts.first_token)
        limit = asyncio.timeout_at(progress.ends_at)
        try:
            async with limit, _answering(await transport.handle_async_request(request)) as (response, stream):
                if response.status_code != 200:
                    raise ProviderHTTPError(response.status_code, await _beginning(stream), dict(response.headers))
                streamed = "event-stream" in response.headers.get("content-type", "")
                most_bytes = provider.max_response_bytes
                if not streamed:
                    most_bytes = min(most_bytes, most("answer_document"))
                received, breath_at, whole, move_at = 0, _BREATH, bytearray(), 0.0
                async for data in stream:
                    now = loop.time()
                    if not begun:
                        begun, progress.first_after = True, now - asked_at
                        self._streams += 1
                        on_begin()
                    # A timer moved for each token costs more than parsing the token.
                    if now >= move_at:
                        move_at = now + timeouts.idle * _IDLE_SLACK
                        progress.ends_at = min(end, move_at + timeouts.idle)
                        limit.reschedule(progress.ends_at)
                    received += len(data)
                    progress.received, progress.came_at = received, now
                    if received > most_bytes:
                        beyond("answer" if streamed else "answer_document")
                        raise ResponseTooLarge(f"the answer is larger than {most_bytes} bytes")
                    if not streamed:
                        whole += data
                    else:
                        text, thoughts = reader.feed(data)
                        if text or thoughts:
                            progress.characters += len(text)
                            show(text, thoughts)
                    if reader.done:
                        break
                    if received >= breath_at:
                        breath_at = received + _BREATH
                        await asyncio.sleep(max(_PAUSE, _ahead(received, now - asked_at)))
                    elif streamed and (rest := self._streams * _REST_PER_STREAM) >= _SHORTEST_REST:
                        await asyncio.sleep(rest)
                if not streamed and (text := reader.read(bytes(whole))):
                    show(text, "")
                reply = reader.reply()
                limit.reschedule(None)
                await _end_of(stream)
                if reply.finish_reason == WITHHELD:
                    reply = replace(reply, request_id=request_id_of(response.headers))
                return reply
        except TimeoutError:
            if not limit.expired():
                raise
            late: ProviderError = IdleTimeout(f"the model's stream stalled for {timeouts.idle:g} s")
            if loop.time() >= end:
                late = TotalTimeout(f"the model call took longer than {min(timeouts.total, time_left):g} s")
            elif not begun:
                late = FirstTokenTimeout(f"the model did not begin to answer within {timeouts.first_token:g} s")
            raise _of(response, late) from None
        finally:
            self._streams -= begun


def _ahead(received: int, elapsed: float) -> float:
    """How many seconds an answer of so many bytes came too early; a flood is read no faster than may be."""
    rate = most("answer_rate")
    ahead = received - most("answer_burst") - rate * elapsed
    if ahead <= 0:
        return 0.0
    beyond("answer_rate")
    return ahead / rate


@contextlib.asynccontextmanager
async def _answering(response: httpx.Response) -> AsyncIterator[tuple[httpx.Response, AsyncIterator[bytes]]]:
    """The response with its bytes as they come; leaving closes the stream, and with it the provider's work.

    Raises:
        ProviderError: what was raised inside, with the response's status and number.
    """
    try:
        assert isinstance(response.stream, httpx.AsyncByteStream)  # an async transport's
        yield response, aiter(response.stream)
    except ProviderError as error:
        _of(response, error)
        raise
    except httpx.HTTPError as error:
        raise _of(response, TruncatedStream("the connection broke in the middle of the answer")) from error
    finally:
        await response.aclose()


def _of(response: httpx.Response | None, error: ProviderError) -> ProviderError:
    """``error`` with what leads to the response in the provider's logs."""
    if response is not None:
        error.status, error.request_id = response.status_code, request_id_of(response.headers)
    return error


async def _beginning(stream: AsyncIterator[bytes]) -> bytes:
    """What there is of an error's body. If the rest does not come, the status must do."""
    found = bytearray()
    with contextlib.suppress(httpx.HTTPError, TimeoutError):
        async with asyncio.timeout(_ERROR_WAIT):
            async for data in stream:
                found += data
                if len(found) >= MAX_BODY:
                    break
    return bytes(found[:MAX_BODY])


async def _end_of(stream: AsyncIterator[bytes]) -> None:
    """Wait for the end of an answer that is whole, so that its connection can be used again. One that does not end
    is closed."""
    received = 0
    with contextlib.suppress(httpx.HTTPError, TimeoutError):
        async with asyncio.timeout(_END_WAIT):
            async for data in stream:
                received += len(data)
                if received > most("answer_end"):
                    beyond("answer_end")
                    break
