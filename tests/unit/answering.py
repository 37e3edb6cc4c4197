"""A model server of raw bytes, and a call of a model by nobody who watches."""

from __future__ import annotations

import asyncio

from palaver.schemas.models import AgentSpec
from workers.models.call_clock import CallProgress
from workers.models.model import ModelPort
from workers.protocols import CHAT_COMPLETIONS, ModelReply


class Answering:
    """A server that says the same to every request, and leaves its connections open."""

    def __init__(self, answer: bytes) -> None:
        self._answer = answer
        self._writers: list[asyncio.StreamWriter] = []
        self.heads: list[tuple[str, dict[str, str]]] = []
        """The first line of each request, and its headers by their names in lower case."""

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
        while first := await reader.readline():
            headers: dict[str, str] = {}
            while line := (await reader.readline()).decode().strip():
                name, _, value = line.partition(": ")
                headers[name.lower()] = value
            self.heads.append((first.decode().strip(), headers))
            await reader.readexactly(int(headers.get("content-length", 0)))
            writer.write(self._answer)


async def complete(
    port: ModelPort,
    agent: AgentSpec,
    body: bytes = b"{}",
    *,
    time_left: float = 30,
    max_calls: int = 1,
    request_id: str = "run_1:1:1",
) -> ModelReply:
    """Ask in chat completions. Raises what the port raises."""
    return await port.complete(
        agent,
        body,
        on_begin=lambda: None,
        show=lambda text, thoughts: None,
        time_left=time_left,
        request_id=request_id,
        reader=CHAT_COMPLETIONS.reader(max_calls=max_calls),
        progress=CallProgress(),
    )
