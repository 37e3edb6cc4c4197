"""A server that is there and refuses, alone and inside a pipeline: the API says 503, and never that it is our bug."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import httpx
import pytest
from redis.asyncio import Redis
from redis.exceptions import ResponseError

from api.app import create_app
from palaver.config.settings import Settings
from palaver.errors import ErrorClass, classify
from palaver.stack.redis_server import RedisServer
from palaver.store import Store
from palaver.tools import ToolSet, load_tools
from tests.unit.api_world import BODY, PROVIDERS, RUN_ID, RecordingPublisher, assert_problem
from tests.waiting import aeventually

pytestmark = pytest.mark.process

WRITES = ("POST /v1/runs", "POST /v1/conversations")
READS = ("GET /v1/runs", f"GET /v1/runs/{RUN_ID}", "GET /v1/queues")


@asynccontextmanager
async def refused_by(server: RedisServer, *, durability: str = "server") -> AsyncIterator[httpx.AsyncClient]:
    """The API on that server."""
    settings = Settings(redis_url=server.url, durability=durability)
    async with Store.connect(settings) as store:
        await store.tools.publish(ToolSet.of(each.declaration for each in load_tools(())), ("tools",))
        app = create_app(settings, store, RecordingPublisher(), PROVIDERS, {})
        transport = httpx.ASGITransport(app, raise_app_exceptions=False)
        async with (
            app.router.lifespan_context(app),
            httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1") as client,
        ):
            yield client


async def busy(redis: Redis) -> None:
    """Let a script run that does not end."""
    await redis.config_set("busy-reply-threshold", 1)
    endless = asyncio.ensure_future(redis.eval("while true do end", 0))

    async def refuses() -> bool:
        try:
            return not await redis.ping()
        except ResponseError as error:
            return "BUSY" in str(error)

    await aeventually(refuses)
    endless.add_done_callback(lambda task: task.cancelled() or task.exception())


async def no_disk(redis: Redis) -> None:
    """Let a snapshot fail."""
    await redis.config_set("save", "3600 1")
    await redis.bgsave()

    async def failed() -> bool:
        return bool((await redis.info("persistence"))["rdb_last_bgsave_status"] == "err")

    await aeventually(failed)


async def no_replica(redis: Redis) -> None:
    """Ask for a replica that is not there."""
    await redis.config_set("min-replicas-to-write", 1)


@pytest.mark.parametrize(
    ("refuse", "routes", "code"),
    [
        (busy, (*WRITES, *READS), "store_busy"),
        (no_disk, WRITES, "store_read_only"),
        (no_replica, WRITES, "store_read_only"),
    ],
    ids=["busy", "no disk", "no replica"],
)
@pytest.mark.parametrize("durability", ["server", "replicas=1"])
async def test_a_server_that_refuses_is_unavailable(
    refuse: Callable[[Redis], Awaitable[None]], routes: tuple[str, ...], code: str, durability: str
) -> None:
    with RedisServer() as server:
        async with refused_by(server, durability=durability) as client, Redis.from_url(server.url) as redis:
            if refuse is no_disk:
                shutil.rmtree(server.data_dir)
            await refuse(redis)
            try:
                for route in routes:
                    method, path = route.split()
                    body = {} if path == "/v1/conversations" else BODY
                    answer = await client.request(method, path, json=body if method == "POST" else None)
                    assert_problem(answer, 503, "unavailable")
                for transaction in (False, True):
                    pipeline = redis.pipeline(transaction=transaction)
                    pipeline.set("a", 1)
                    pipeline.set("b", 2)
                    with pytest.raises(ResponseError) as found:
                        await pipeline.execute()
                    failure = classify(found.value)
                    assert (failure.error_class, failure.code) in {
                        (ErrorClass.STORAGE, code),
                        (ErrorClass.STORAGE, "store_transaction_refused"),
                    }
            finally:
                # Told to end, it would insist on a last snapshot.
                server.kill()
