"""What the largest admitted input of each route costs: ``python -m tests.cost.handlers`` measures it on this machine.

Each case is a request of size ``n``, up to what the limits admit. How much is done for it is counted in calls, on a
fake Redis, for ``n``, ``2n`` and ``4n`` (tests/cost/test_handlers.py). How long it has the event loop for itself is
measured at the limit, with a real Redis beside it, in processor time: others on this machine do not count.
"""

from __future__ import annotations

import asyncio
import json
import math
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from typing import Final

from redis.asyncio import Redis
from starlette.types import Message as AsgiMessage

from api.app import create_app
from features.stack.redis_server import RedisServer
from palaver.config.settings import Settings
from palaver.store import Store
from palaver.tools import ToolSet, load_tools
from palaver.vocabulary.limits import MIB
from tests.cost.openai_requests import EVERY as CASES
from tests.cost.requests import Ask, Case
from tests.cost.work import counted
from tests.unit.api_world import POLICIES, PROVIDERS, SETTINGS, RecordingPublisher, World, world

LARGE: Final = SETTINGS.model_copy(update={"max_body": MIB})


@dataclass
class Cost:
    """What a request cost."""

    status: int = 0
    calls: int = 0
    held: float = 0.0
    """Seconds of processor time for which the event loop did nothing else, at most at a time."""


async def ask(api: World, case: Case, wanted: Ask, cost: Cost) -> None:
    """Make the request, and note its status. The application is called as a server calls it."""
    path, _, query = wanted.path.partition("?")
    raw = (
        wanted.body
        if isinstance(wanted.body, bytes)
        else b""
        if wanted.body is None
        else json.dumps(wanted.body).encode()
    )
    scope = {
        "type": "http", "asgi": {"version": "3.0", "spec_version": "2.3"}, "http_version": "1.1", "scheme": "http",
        "method": case.route.split()[0], "path": path, "raw_path": path.encode(), "root_path": "",
        "query_string": query.encode(), "client": ("127.0.0.1", 1), "server": ("127.0.0.1", 80),
        "headers": [(b"host", b"127.0.0.1"), (b"content-type", b"application/json"),
                    (b"accept", wanted.accept.encode())],
    }  # fmt: skip
    given: list[AsgiMessage] = [{"type": "http.request", "body": raw}]

    async def receive() -> AsgiMessage:
        return given.pop() if given else await asyncio.Future()

    async def send(message: AsgiMessage) -> None:
        cost.status = message.get("status", cost.status)

    await api.app(scope, receive, send)


async def count(case: Case, n: int) -> Cost:
    """The calls of the case's request of size ``n``."""
    cost = Cost()
    async with world(LARGE) as api:
        wanted = await case.prepare(api, n)
        # What is made once, at the first request, is not what this one costs.
        await ask(api, CASES[-1], Ask("/healthz"), Cost())
        with counted() as work:
            await ask(api, case, wanted, cost)
    cost.calls = work.calls
    return cost


@contextmanager
def watched(cost: Cost) -> Iterator[None]:
    """Note how long each turn of the event loop takes."""
    run = asyncio.Handle._run

    def timed(handle: asyncio.Handle) -> None:
        began = time.thread_time()
        run(handle)
        cost.held = max(cost.held, time.thread_time() - began)

    asyncio.Handle._run = timed  # type: ignore[method-assign,assignment]
    try:
        yield
    finally:
        asyncio.Handle._run = run  # type: ignore[method-assign]


async def measure(case: Case, url: str) -> Cost:
    """The case at its largest, with a real Redis: the best of five."""
    best = Cost(held=math.inf)
    for _ in range(5):
        async with real_world(url) as api:
            wanted, cost = await case.prepare(api, case.largest), Cost()
            with watched(cost):
                await asyncio.create_task(ask(api, case, wanted, cost))
            best = min(best, cost, key=lambda each: each.held)
    return best


@asynccontextmanager
async def real_world(url: str) -> AsyncIterator[World]:
    """An API on an empty Redis."""
    settings = Settings(redis_url=url, max_body=MIB, secret_key=SETTINGS.secret_key)
    redis, publisher = Redis.from_url(url), RecordingPublisher()
    await redis.flushall()
    async with Store.connect(settings) as store:
        await store.tools.publish(ToolSet.of(each.declaration for each in load_tools(())), ("tools",))
        app = create_app(settings, store, publisher, PROVIDERS, POLICIES)
        async with app.router.lifespan_context(app):
            yield World(app, None, store, redis, None, publisher)  # type: ignore[arg-type]
    await redis.aclose()


async def _exponent(case: Case) -> float:
    """How the calls grow from half of the largest size that is counted to the whole."""
    n = case.most_counted
    half, whole = [(await count(case, each)).calls for each in (n // 2, n)]
    return math.log2(whole / half)


async def main() -> None:
    """Print the table of docs/reference/limits.md."""
    print("| route | of what | at most | grows as | holds the loop |")
    print("|---|---|---|---|---|")
    with RedisServer() as server:
        for case in CASES:
            cost = await measure(case, server.url)
            grows = max(await _exponent(case), 0)
            what = f"| `{case.route}` | {case.what} | {case.largest:,} |"
            print(f"{what} n^{grows:.2f} | {cost.held * 1000:.0f} ms |")


if __name__ == "__main__":
    asyncio.run(main())
