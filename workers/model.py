"""The model port: one streamed call of an OpenAI-compatible ``/chat/completions``.

httpx's API on aiohttp's connections: httpx's own pool scans all its connections for each request, 10 to 14 ms of CPU with 500
in flight (shared measurements; `make bench` repeats the comparison that matters).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from enum import StrEnum
from typing import Any

import aiohttp
import httpx
import orjson
from httpx_aiohttp import AiohttpTransport

from palaver.errors import (
    ConfigurationError,
    FirstTokenTimeout,
    IdleTimeout,
    ProviderError,
    ProviderHTTPError,
    ResponseTooLarge,
    TotalTimeout,
)
from palaver.models import AgentSpec
from palaver.providers import Provider
from palaver.tools import Registry
from workers.completion import Completion, Reply

_ERROR_BYTES = 64 * 1024
"""Of an error's body that are read: enough for every provider's error object."""


class _Waiting(StrEnum):
    FIRST = "first"
    IDLE = "idle"


class ModelPort:
    """Calls providers over one connection pool."""

    def __init__(self, providers: Mapping[str, Provider]) -> None:
        self._providers = providers
        self._client: httpx.AsyncClient | None = None

    def _connected(self) -> httpx.AsyncClient:
        if self._client is None:
            self._client = httpx.AsyncClient(
                transport=AiohttpTransport(
                    client=lambda: aiohttp.ClientSession(
                        connector=aiohttp.TCPConnector(limit=0, ttl_dns_cache=60), auto_decompress=True, trust_env=False
                    )
                ),
                trust_env=False,
                follow_redirects=False,
            )
        return self._client

    async def close(self) -> None:
        """Close all connections."""
        if self._client is not None:
            await self._client.aclose()

    async def complete(
        self,
        agent: AgentSpec,
        body: bytes,
        *,
        on_text: Callable[[str], None],
        time_left: float,
        request_id: str,
        completion: Completion,
    ) -> Reply:
        """Ask the model; ``on_text`` gets the answer's text as it comes, ``time_left`` (s) bounds the whole call.

        ``completion`` gathers the answer, so that the caller has what came before a failure.

        Raises:
            ProviderError: of the kind that says what went wrong.
            httpx.HTTPError: the connection did.
            ConfigurationError: no such provider, or its key is missing.
        """
        provider = self._providers.get(agent.provider)
        if provider is None:
            raise ConfigurationError(
                f"the workers know no provider {agent.provider!r}; their PALAVER_PROVIDERS names it, or not"
            )
        try:
            return await self._complete(provider, agent, body, on_text, time_left, request_id, completion)
        except ProviderError as error:
            error.provider, error.model = agent.provider, agent.model_name
            raise

    async def _complete(
        self,
        provider: Provider,
        agent: AgentSpec,
        body: bytes,
        on_text: Callable[[str], None],
        time_left: float,
        request_id: str,
        completion: Completion,
    ) -> Reply:
        timeouts, loop = provider.timeouts, asyncio.get_running_loop()
        end = loop.time() + min(timeouts.total, max(time_left, 0.001))
        headers = {"content-type": "application/json", "x-request-id": request_id}
        headers["x-palaver-run"] = request_id.partition(":")[0]
        if provider.api_key:
            headers["authorization"] = f"Bearer {provider.api_key}"
        request = httpx.Request(
            "POST",
            f"{provider.base_url.rstrip('/')}/chat/completions",
            headers=headers,
            content=body,
            extensions={"timeout": httpx.Timeout(None, connect=timeouts.connect).as_dict()},
        )
        waiting = _Waiting.FIRST
        try:
            async with asyncio.timeout_at(min(end, loop.time() + timeouts.first_token)) as limit:
                response = await self._connected().send(request, stream=True)
                try:
                    if response.status_code != 200:
                        raise ProviderHTTPError(
                            response.status_code, await _beginning(response), dict(response.headers)
                        )
                    streamed = "event-stream" in response.headers.get("content-type", "")
                    received, whole = 0, bytearray()
                    async for data in response.aiter_bytes():
                        waiting = _Waiting.IDLE
                        limit.reschedule(min(end, loop.time() + timeouts.idle))
                        received += len(data)
                        if received > provider.max_response_bytes:
                            raise ResponseTooLarge(f"the answer is larger than {provider.max_response_bytes} bytes")
                        if streamed:
                            if text := completion.feed(data):
                                on_text(text)
                        else:
                            whole += data
                    if not streamed and (text := completion.read(bytes(whole))):
                        on_text(text)
                    return completion.reply()
                finally:
                    await response.aclose()
        except TimeoutError:
            if loop.time() >= end:
                raise TotalTimeout(f"the model call took longer than {min(timeouts.total, time_left):g} s") from None
            if waiting is _Waiting.FIRST:
                raise FirstTokenTimeout(f"the model did not begin to answer within {timeouts.first_token:g} s") from None
            raise IdleTimeout(f"the model's stream stalled for {timeouts.idle:g} s") from None


async def _beginning(response: httpx.Response) -> bytes:
    found = bytearray()
    async for data in response.aiter_bytes():
        found += data
        if len(found) >= _ERROR_BYTES:
            break
    return bytes(found[:_ERROR_BYTES])


def request_body(agent: AgentSpec, messages: list[bytes], registry: Registry) -> bytes:
    """The request's JSON, put together from messages that are JSON already."""
    options: dict[str, Any] = {"model": agent.model_name, "stream": agent.stream}
    if agent.stream:
        options["stream_options"] = {"include_usage": True}
    if agent.temperature is not None:
        options["temperature"] = agent.temperature
    if agent.max_output_tokens is not None:
        options["max_tokens"] = agent.max_output_tokens
    if agent.tools:
        options["tools"] = [
            {
                "type": "function",
                "function": {"name": tool.name, "description": tool.description, "parameters": tool.schema},
            }
            for tool in (registry[name] for name in agent.tools)
        ]
        if agent.parallel_tool_calls is not None:
            options["parallel_tool_calls"] = agent.parallel_tool_calls
    system = [orjson.dumps({"role": "system", "content": agent.instructions})] if agent.instructions else []
    return orjson.dumps(options)[:-1] + b',"messages":[' + b",".join(system + messages) + b"]}"
