"""What a provider's informational heads do to the connection that they come on."""

from __future__ import annotations

import asyncio

import pytest

from palaver.config.providers import Provider
from palaver.errors import ProviderHTTPError
from palaver.schemas.models import AgentSpec
from workers.models.call_clock import CallProgress
from workers.models.model import ModelPort
from workers.protocols import CHAT_COMPLETIONS

SWITCHING = b"HTTP/1.1 101 Switching Protocols\r\n\r\n"
REFUSED = b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n"


class Answering:
    """A server that says the same to every request, and leaves its connections open."""

    def __init__(self, answer: bytes) -> None:
        self._answer = answer
        self._writers: list[asyncio.StreamWriter] = []

    async def __aenter__(self) -> Answering:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        return self

    async def __aexit__(self, *_: object) -> None:
        self._server.close()
        for writer in self._writers:
            writer.close()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.sockets[0].getsockname()[1]}"

    @property
    def connections(self) -> int:
        """How many there have been."""
        return len(self._writers)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._writers.append(writer)
        while await reader.readline():
            length = 0
            while (line := await reader.readline()).strip():
                if line.lower().startswith(b"content-length:"):
                    length = int(line.partition(b":")[2])
            await reader.readexactly(length)
            writer.write(self._answer)


@pytest.mark.parametrize(
    ("answer", "connections"),
    [
        pytest.param(SWITCHING, 3, id="what follows is no HTTP"),
        pytest.param(REFUSED, 1, id="it can be used again"),
    ],
)
async def test_a_connection_that_was_switched_to_another_protocol_is_not_used_again(
    answer: bytes, connections: int
) -> None:
    agent = AgentSpec(model="odd/m")
    async with Answering(answer) as server:
        port = ModelPort({"odd": Provider(base_url=server.url)})
        for _ in range(3):
            with pytest.raises(ProviderHTTPError):
                await port.complete(
                    agent,
                    b"{}",
                    on_begin=lambda: None,
                    show=lambda text, thoughts: None,
                    time_left=30,
                    request_id="run_1:1:1",
                    reader=CHAT_COMPLETIONS.reader(max_calls=1),
                    progress=CallProgress(),
                )
        await port.close()
        assert server.connections == connections
