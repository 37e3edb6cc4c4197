"""A client of either side: HTTP and a socket, as OpenHands' own client uses them, and nothing that costs more."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any, Final, Self

import httpx
import orjson
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import WebSocketException

from bench.asked import BenchError
from bench.openhands.sides import Side
from bench.rig import Rig

PROMPT: Final = "Use `think` for every sum, and say what they all add up to."
"""Of the agents of both sides: that of the reference's own has 15,000 characters."""
PATIENCE: Final = 150.0
"""Seconds for whatever a side is asked, and for a run."""
_AT_A_TIME: Final = 8
"""Conversations that are begun side by side."""


class Clients:
    """Connections to a side."""

    def __init__(self, rig: Rig, side: Side, http: httpx.AsyncClient) -> None:
        self.side = side
        self._rig = rig
        self._http = http
        self._sockets = AsyncExitStack()

    @classmethod
    @asynccontextmanager
    async def of(cls, rig: Rig, side: Side) -> AsyncIterator[Self]:
        """As many as are needed."""
        limits = httpx.Limits(max_connections=None, max_keepalive_connections=None)
        async with httpx.AsyncClient(trust_env=False, timeout=PATIENCE, limits=limits, base_url=side.url) as http:
            clients = cls(rig, side, http)
            async with clients._sockets:
                yield clients

    async def open(self, model: str, text: str) -> Conversation:
        """Begin a conversation, listen to it, and say something."""
        body = {
            "agent": {
                "kind": "Agent",
                "llm": {
                    "model": f"openai/{model}",
                    "base_url": self._rig.model_url,
                    "api_key": "any",
                    "usage_id": "agent",
                    "stream": False,
                },
                "tools": [],
                "system_prompt": PROMPT,
            },
            "workspace": {"kind": "LocalWorkspace", "working_dir": str(self._rig.folder)},
            "max_iterations": 500,
            "client_tools": [],
            "tags": {},
            "autotitle": False,
        }
        id = (await self.ask("POST", "/api/conversations", body))["id"]
        url = f"{self.side.url.replace('http', 'ws', 1)}/sockets/events/{id}"
        socket = await self._sockets.enter_async_context(connect(url, proxy=None, max_size=None, ping_interval=None))
        await socket.recv()
        conversation = Conversation(self, id, socket)
        await conversation.say(text)
        return conversation

    async def open_all(self, count: int, model: str) -> list[Conversation]:
        """So many, each with words of its own."""
        gate = asyncio.Semaphore(_AT_A_TIME)

        async def one(number: int) -> Conversation:
            async with gate:
                return await self.open(model, f"{number}: what do they all add up to?")

        return list(await asyncio.gather(*(one(number) for number in range(count))))

    async def ask(self, method: str, path: str, body: Any = None) -> Any:
        """What it answers.

        Raises:
            BenchError: it refuses.
        """
        response = await self.answer(method, path, body)
        if response.is_error:
            raise BenchError(f"{self.side.name}: {method} {path}: {response.status_code} {response.text[:300]}")
        return response.json()

    async def answer(self, method: str, path: str, body: Any = None) -> httpx.Response:
        """The same, refusals included.

        Raises:
            BenchError: there is no answer.
        """
        content = None if body is None else orjson.dumps(body)
        try:
            return await self._http.request(method, path, content=content, headers={"Content-Type": "application/json"})
        except httpx.HTTPError as error:
            raise BenchError(f"{self.side.name}: {method} {path}: {type(error).__name__} {error}") from None


class Conversation:
    """One of them."""

    def __init__(self, clients: Clients, id: str, socket: ClientConnection) -> None:
        self._clients = clients
        self._id = id
        self._path = f"/api/conversations/{id}"
        self._socket = socket
        self.stopped_at = 0.0

    def at(self, clients: Clients) -> Conversation:
        """The same, over other connections; its socket stays what it was."""
        return Conversation(clients, self._id, self._socket)

    async def say(self, text: str) -> None:
        """Send a message, and do not run."""
        content = [{"type": "text", "text": text}]
        await self._clients.ask("POST", f"{self._path}/events", {"role": "user", "content": content, "run": False})

    async def run(self) -> int:
        """Ask for a run; the status of the answer."""
        return (await self._clients.answer("POST", f"{self._path}/run")).status_code

    async def stop(self, how: str) -> None:
        """Pause or interrupt."""
        await self._clients.ask("POST", f"{self._path}/{how}")

    async def status(self) -> str:
        """Its execution status, read by HTTP."""
        return str((await self._clients.ask("GET", self._path))["execution_status"])

    async def finished(self) -> None:
        """Listen until it has told that it is finished, as the client's ``run()`` does.

        Raises:
            BenchError: it stopped otherwise, or not at all.
        """
        try:
            async with asyncio.timeout(PATIENCE):
                async for frame in self._socket:
                    # Most frames are of no account here: a driver that read them all would be measured with its side.
                    if '"full_state"' in frame:
                        status = orjson.loads(frame)["value"]["execution_status"]
                        if status == "finished":
                            self.stopped_at = time.monotonic()
                            return
                        if status in ("error", "stuck"):
                            raise BenchError(f"{self._clients.side.name}: a conversation ended with {status}")
        except TimeoutError:
            raise BenchError(f"{self._clients.side.name}: a conversation has not ended in {PATIENCE:g} s") from None
        except WebSocketException as error:
            raise BenchError(f"{self._clients.side.name}: a socket was closed: {error}") from None
        raise BenchError(f"{self._clients.side.name}: a socket was closed")

    async def run_and_finish(self) -> None:
        """Run, and listen until it is over."""
        listening = asyncio.create_task(self.finished())
        if (status := await self.run()) != httpx.codes.OK:
            listening.cancel()
            raise BenchError(f"{self._clients.side.name}: POST …/run was answered with {status}")
        await listening


async def run_all(conversations: Sequence[Conversation]) -> float:
    """Run them all at once; seconds from the first request to the last end."""
    begun = time.monotonic()
    await asyncio.gather(*(each.run_and_finish() for each in conversations))
    return max(each.stopped_at for each in conversations) - begun
