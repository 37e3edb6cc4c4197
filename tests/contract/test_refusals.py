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
from features.stack.ports import free_port
from features.stack.redis_server import RedisServer
from palaver.config.settings import Settings
from palaver.errors import ErrorClass, classify
from palaver.store import Store
from palaver.store.fleet.fleet import WorkerReport
from palaver.store.server.preflight import Preflight
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
        await store.fleet.report(WorkerReport("w-1", ("model",), 0, 1, draining=False, providers=("fake",)))
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


async def no_memory(redis: Redis) -> None:
    """Let it use more than it may."""
    await redis.config_set("maxmemory", 1)


async def a_replica(redis: Redis) -> None:
    """Let it follow another one, that is not there."""
    await redis.execute_command("REPLICAOF", "127.0.0.1", free_port())


async def no_replica(redis: Redis) -> None:
    """Ask for a replica that is not there."""
    await redis.config_set("min-replicas-to-write", 1)


@pytest.mark.parametrize(
    ("refuse", "why", "word", "code"),
    [
        (
            no_disk,
            "The store takes no writes: Redis cannot write to its disk.",
            "MISCONF make room on its disk",
            "disk",
        ),
        (no_replica, "The store takes no writes: Redis has too few replicas.", "NOREPLICAS connect its", "replicas"),
        (no_memory, "The store takes no writes: Redis is out of memory.", "OOM raise its maxmemory", "memory"),
        (a_replica, "The store takes no writes: this Redis is a replica.", "READONLY name the primary", "replica"),
    ],
    ids=["no disk", "no replica", "no memory", "a replica"],
)
async def test_one_that_takes_no_writes_is_not_ready_and_the_cause_is_named(
    refuse: Callable[[Redis], Awaitable[None]], why: str, word: str, code: str
) -> None:
    with RedisServer() as server:
        async with refused_by(server) as client, Redis.from_url(server.url) as redis:
            assert (await client.get("/readyz")).status_code == 200
            run = (await client.post("/v1/runs", json=BODY)).json()
            assert (await client.get(f"/v1/runs/{run['id']}")).json()["waiting"] == run["waiting"] is None
            if refuse is no_disk:
                shutil.rmtree(server.data_dir)
            await refuse(redis)
            try:
                unready = assert_problem(await client.get("/readyz"), 503, "not_ready")
                assert unready["detail"] == why
                refused = (await client.post("/v1/conversations", json={})).json()
                # Whether its memory is full is looked at once a second, before it is asked.
                full = refuse is no_memory and refused["code"] == "store_nearly_full"
                assert full or (refused["status"], refused["code"], refused["detail"]) == (503, "unavailable", why)
                found = await asyncio.to_thread(Preflight(Settings(redis_url=server.url), "api").look)
                wrong = {finding.check: finding for finding in found if finding.level == "error"}
                refusal, advice = word.split(" ", 1)
                assert refusal in wrong["writes"].found
                assert advice in wrong["writes"].advice

                async def says_so() -> bool:
                    listed = (await client.get("/v1/runs")).json()["data"][0]["waiting"]
                    read = (await client.get(f"/v1/runs/{run['id']}")).json()["waiting"]
                    return bool(listed == read and read and (read["reason"], read["code"]) == ("store", code))

                await aeventually(says_so)
                # No user's rights are to blame.
                assert not wrong.keys() & {"rights", "commands", "login"}
            finally:
                server.kill()


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
