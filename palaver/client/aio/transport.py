"""Requests and answers over HTTP: one try, as many as it takes, or a stream."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import httpx

from palaver.client.answers import MAX_ANSWER, Response, error_of, unexpected
from palaver.client.backoff import Tries
from palaver.client.config import Config
from palaver.client.errors import ClientError
from palaver.client.http import lost, request_options
from palaver.client.requests.request import Request
from palaver.client.tasks import sleep


class ApiTransport:
    """The connections to one API; ``timeout`` seconds may pass in silence."""

    def __init__(self, config: Config, timeout: float, on_wait: Callable[[ClientError, float], None] | None) -> None:
        self.url = config.url
        self.timeout = timeout
        self._on_wait = on_wait
        self._http = httpx.AsyncClient(**config.client_options)

    async def aclose(self) -> None:
        """Close the connections."""
        await self._http.aclose()

    async def call(self, request: Request, wait: float = 0.0) -> Response:
        """Send, and again while that is safe and may help. The answer may take ``wait`` seconds longer.

        Raises:
            ClientError: as `send`, the last time.
        """
        tries = Tries(request, self.timeout)
        while True:
            try:
                return await self.send(request, self.timeout + wait)
            except ClientError as error:
                pause = tries.pause_after(error)
                if self._on_wait is not None:
                    self._on_wait(error, pause)
            await sleep(pause)

    async def send(self, request: Request, silence: float) -> Response:
        """Send once, and read the whole answer.

        Raises:
            ConnectionFailed: no answer, or not all of it.
            APIError: an answer that is no success.
        """
        async with self._stream(request, silence, silence) as response:
            return _success(request, await _read(response))

    @asynccontextmanager
    async def open(self, request: Request, silence: float) -> AsyncIterator[tuple[Response, AsyncIterator[bytes]]]:
        """Send once, and read only the head; then the body as it comes, with ``silence`` seconds between two bytes.

        Raises:
            ClientError: as `send`, while the body is read, too.
        """
        async with self._stream(request, silence, self.timeout) as response:
            if not response.is_success:
                _success(request, await _read(response))
            yield _head(response), response.aiter_bytes()

    @asynccontextmanager
    async def _stream(self, request: Request, silence: float, connect: float) -> AsyncIterator[httpx.Response]:
        try:
            async with self._http.stream(**request_options(request, silence, connect)) as response:
                yield response
        except httpx.RequestError as error:
            raise lost(self.url, request, error) from None


async def _read(response: httpx.Response) -> Response:
    body = bytearray()
    async for chunk in response.aiter_bytes():
        body += chunk
        if len(body) > MAX_ANSWER:
            raise unexpected(_head(response))
    return _head(response, bytes(body))


def _head(response: httpx.Response, body: bytes = b"") -> Response:
    return Response(response.status_code, dict(response.headers), body)


def _success(request: Request, response: Response) -> Response:
    if response.ok:
        return response
    error = error_of(response)
    error.run_id = error.run_id or request.run_id
    raise error
