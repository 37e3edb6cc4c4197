"""The questions on a connection of a model server of the bench: one at a time, read whole before it is answered."""

from __future__ import annotations

import asyncio
import re
from typing import Final, cast

import orjson

_LENGTH: Final = re.compile(rb"content-length: *(\d+)", re.IGNORECASE)


class Questions(asyncio.Protocol):
    """A connection, with at most one question at a time."""

    _transport: asyncio.Transport
    _received = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        self._received += data
        head, blank, body = self._received.partition(b"\r\n\r\n")
        length = _LENGTH.search(head)
        if blank and length is not None and len(body) >= int(length[1]):
            self._received = b""
            self.answer(head, orjson.loads(body)["model"])

    def answer(self, head: bytes, model: str) -> None:
        """Answer a question with this head, to this model."""
        raise NotImplementedError
