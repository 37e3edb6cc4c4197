"""Many who watch conversations, by SSE and by sockets, while workers are killed and the API is restarted: each of them
has every event that is kept, once and in order."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Any, Final

import httpx
import orjson
import pytest
from websockets.asyncio.client import connect
from websockets.exceptions import WebSocketException

from palaver.processes.tasks import end
from palaver.vocabulary.ids import uuid_of
from tests.process.cluster import Cluster
from tests.waiting import aeventually, eventually

pytestmark = pytest.mark.process
CONVERSATIONS: Final = 5
RUNS: Final = 3
WATCHERS: Final = 5
"""Of each conversation, of each kind."""
_AGAIN: Final = 0.1
"""Seconds after which somebody connects again."""


class Watcher:
    """Follows a conversation whatever becomes of its connection."""

    def __init__(self, http: httpx.AsyncClient, conversation_id: str) -> None:
        self.http = http
        self.id = conversation_id
        self.seen: list[str] = []
        """Names of what is kept, in the order in which it came."""
        self.connections = 0

    async def follow(self) -> None:
        """Until it is cancelled."""
        while True:
            with suppress(httpx.HTTPError, WebSocketException, OSError):
                async for name in self.connection():
                    self.seen.append(name)
            await asyncio.sleep(_AGAIN)

    async def has_all(self) -> None:
        """Wait for what there is, and see that it came once and in order."""
        kept = await self.kept()
        await aeventually(lambda: len(self.seen) >= len(kept))
        assert self.seen == kept, (type(self).__name__, self.connections)
        assert self.connections > 1

    def connection(self) -> AsyncIterator[str]:
        """What one connection brings."""
        raise NotImplementedError

    async def kept(self) -> list[str]:
        """What there is."""
        raise NotImplementedError


class StreamWatcher(Watcher):
    """By SSE, as a browser does it: it goes on behind the last id."""

    async def connection(self) -> AsyncIterator[str]:
        headers = {"Accept": "text/event-stream", "Last-Event-ID": self.seen[-1] if self.seen else "0"}
        async with self.http.stream("GET", f"/v1/conversations/{self.id}/events", headers=headers) as answer:
            answer.raise_for_status()
            self.connections += 1
            async for line in answer.aiter_lines():
                name, _, value = line.partition(": ")
                if name == "id" and "." not in value:
                    yield value

    async def kept(self) -> list[str]:
        return [str(event["position"]) for event in await _pages(self.http, self.id)]


class SocketWatcher(Watcher):
    """By a socket, as OpenHands' newer client does it: it reads what it has missed once it is connected again."""

    async def connection(self) -> AsyncIterator[str]:
        url = f"{str(self.http.base_url).replace('http', 'ws', 1)}/openhands/sockets/events/{uuid_of(self.id)}"
        async with connect(url, proxy=None) as socket:
            await socket.recv()
            self.connections += 1
            missed = await self.kept() if self.connections > 1 else []
            for name in missed:
                if name not in self.seen:
                    yield name
            async for frame in socket:
                event = orjson.loads(frame)
                if event.get("key") != "full_state" and event["id"] not in missed:
                    yield event["id"]

    async def kept(self) -> list[str]:
        found, page = list[dict[str, Any]](), ""
        while True:
            where = f"/openhands/api/conversations/{uuid_of(self.id)}/events/search?limit=100{page}"
            answer = (await self.http.get(where)).raise_for_status().json()
            found += answer["items"]
            if answer["next_page_id"] is None:
                # The prompt is no event of the log.
                return [event["id"] for event in found if event["kind"] != "SystemPromptEvent"]
            page = f"&page_id={answer['next_page_id']}"


async def _pages(http: httpx.AsyncClient, conversation_id: str) -> list[dict[str, Any]]:
    found, after = list[dict[str, Any]](), 0
    while True:
        where = f"/v1/conversations/{conversation_id}/events?after={after}"
        page = (await http.get(where, headers={"Accept": "application/json"})).raise_for_status().json()
        found += page["data"]
        if not page["has_more"]:
            return found
        after = found[-1]["position"]


def _restart_api(cluster: Cluster) -> None:
    api = cluster.terminate("api")
    eventually(lambda: not api.running)
    cluster.start("api")


def _disturb(cluster: Cluster, conversations: list[str]) -> None:
    """Runs, and what befalls those who serve them."""
    runs = []
    for number in range(RUNS):
        for conversation in conversations:
            body = cluster.body("tool-3+use-calculator+ttft-300", tools=["calculator"], conversation_id=conversation)
            runs.append(cluster.post({**body, "input": f"number {number}"}))
        cluster.saw(runs[-1], "step.started")
        if number == 1:
            _restart_api(cluster)
        else:
            cluster.kill("worker")
            cluster.start("worker")
    for run_id in runs:
        cluster.ended(run_id)


async def _watch(url: str, conversations: list[str], ready: threading.Event, over: threading.Event) -> None:
    """Watch until all is over, and see that everybody has everything."""
    async with httpx.AsyncClient(base_url=url, timeout=60, trust_env=False) as http:
        kinds = (StreamWatcher, SocketWatcher)
        watchers = [kind(http, each) for each in conversations for kind in kinds for _ in range(WATCHERS)]
        tasks = [asyncio.create_task(each.follow()) for each in watchers]
        try:
            await aeventually(lambda: all(each.connections for each in watchers))
            ready.set()
            await aeventually(over.is_set)
            for each in watchers:
                await each.has_all()
        finally:
            await end(*tasks)


def test_each_watcher_of_a_conversation_has_every_event_once_and_in_order(cluster: Cluster) -> None:
    cluster.expect_traceback("WorkerLostError")
    answers = [cluster.http.post("/v1/conversations", json={}) for _ in range(CONVERSATIONS)]
    conversations = [answer.json()["id"] for answer in answers]
    ready, over = threading.Event(), threading.Event()
    # The watchers are in the other thread: processes end with the thread that has started them.
    with ThreadPoolExecutor(1) as pool:
        watched = pool.submit(asyncio.run, _watch(cluster.stack.url, conversations, ready, over))
        try:
            assert ready.wait(90)
            _disturb(cluster, conversations)
        finally:
            over.set()
        watched.result()
