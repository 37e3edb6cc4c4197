"""Putting an answer on the wire at its pace, and breaking it where the script says so."""

from __future__ import annotations

import asyncio
import socket
import struct
import time
from collections.abc import Iterable
from typing import NoReturn

from aiohttp import web
from multidict import CIMultiDict

from .exchanges import Exchange
from .wire import Event

JSON = "application/json"
SSE = "text/event-stream"


class AnswerSender:
    """The way back to one client. Its methods write down in the exchange how far it has come."""

    def __init__(self, request: web.BaseRequest, exchange: Exchange, id_header: str, end: bytes) -> None:
        self._request = request
        self._exchange = exchange
        self._end = end
        self._headers = {id_header: f"req-{exchange.n}", "Cache-Control": "no-cache"}

    async def whole(
        self,
        status: int,
        body: bytes,
        *,
        content_type: str = JSON,
        headers: dict[str, str] | None = None,
        events: int = 0,
    ) -> web.StreamResponse:
        """Answer in one write; `events` of them are in the body when it is a stream."""
        named = CIMultiDict(self._headers | {"Content-Type": content_type})
        named.update(headers or {})
        response = web.Response(status=status, body=body, headers=named)
        if content_type == SSE:
            response.enable_chunked_encoding()
        await response.prepare(self._request)
        self._begun(status)
        await response.write_eof()
        self._exchange.chunks_sent = events
        return response

    async def stream(self, events: Iterable[Event], rate: float | None) -> web.StreamResponse:
        """Answer event by event, one write each, at `rate` tokens a second."""
        response = await self.part_of_stream(events, rate)
        await response.write_eof(self._end)
        return response

    async def part_of_stream(self, events: Iterable[Event], rate: float | None) -> web.StreamResponse:
        """Send events and leave the response open."""
        response = web.StreamResponse(headers=self._headers | {"Content-Type": SSE})
        await response.prepare(self._request)
        self._begun(200)
        loop = asyncio.get_running_loop()
        due = loop.time()
        for event, tokens in events:
            if rate is not None and tokens:
                due += tokens / rate
                delay = due - loop.time()
                if delay > 0:
                    await asyncio.sleep(delay)
            await response.write(event)
            self._exchange.chunks_sent += 1
        return response

    async def part_of_document(self, body: bytes, *, promised: int | None) -> web.StreamResponse:
        """Send a body that is shorter than the Content-Length `promised`; None promises none."""
        response = web.StreamResponse(headers=self._headers | {"Content-Type": JSON})
        response.content_length = promised
        await response.prepare(self._request)
        self._begun(200)
        await response.write(body)
        return response

    def write(self, data: bytes) -> None:
        """Put bytes on the wire that need not be HTTP."""
        if self._request.transport is not None:
            self._request.transport.write(data)
            self._exchange.first_byte_at = time.time()

    async def silence(self) -> NoReturn:
        """Say nothing more until the client goes away, which cancels this."""
        await asyncio.get_running_loop().create_future()
        raise AssertionError("that future is never set")

    def drop(self) -> None:
        """Close the connection after what was written: to the client, a body without its end."""
        if self._request.transport is not None:
            self._request.transport.close()

    def reset(self) -> None:
        """Abort the connection, so that the client sees a reset and not an orderly close."""
        transport = self._request.transport
        if transport is None:
            return
        connection = transport.get_extra_info("socket")
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        transport.abort()

    def _begun(self, status: int) -> None:
        self._exchange.status = status
        self._exchange.first_byte_at = time.time()
