"""The informational heads before a response: they are counted, and a connection that one of them changes is closed."""

from __future__ import annotations

from http import HTTPStatus
from typing import Any

import aiohttp
from aiohttp.client_proto import ResponseHandler
from aiohttp.http_exceptions import BadHttpMessage

from palaver.vocabulary.limits import count_exceeded, limit_of


class CountedResponse(aiohttp.ClientResponse):
    """An answer whose informational heads (``100 Continue``, ``103 Early Hints``) are counted: aiohttp reads as many as
    there are, and gives no other task a turn as long as it has some."""

    async def start(self, connection: Any) -> aiohttp.ClientResponse:
        """Read heads up to the one that counts.

        Raises:
            aiohttp.ClientResponseError: too many come before it, or what comes is no head.
        """
        protocol: ResponseHandler = connection.protocol
        heads = 0

        async def read() -> Any:
            nonlocal heads
            heads += 1
            if heads > limit_of("answer_heads"):
                count_exceeded("answer_heads")
                raise BadHttpMessage("too many heads before the answer")
            head = await ResponseHandler.read(protocol)
            if head[0].code == HTTPStatus.SWITCHING_PROTOCOLS:
                # What follows on this connection is no HTTP: no other call may be sent there.
                protocol.force_close()
            return head

        # In place of its own, for as long as heads are read.
        protocol.read = read  # type: ignore[method-assign]
        try:
            return await super().start(connection)
        finally:
            del protocol.read
