"""``GET /metrics``: who may read it, how often the store is asked, and what is never in it."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families
from redis.asyncio import Redis

from palaver.config.settings import Settings
from palaver.errors import ErrorClass, Failure
from palaver.operations.measured import Measured
from palaver.schemas.models import Message, ToolCall, Usage
from palaver.steps.leases import Lease
from palaver.steps.verdicts import Continue, Finish, OpenCall, RetryAfter, ToolOutcome
from palaver.store import Store
from palaver.store.fleet.fleet import WorkerReport
from palaver.store.fleet.measuring import Measuring
from palaver.telemetry.exposition import Samples
from palaver.telemetry.metrics import all_metrics
from palaver.vocabulary.lifecycle import RunStatus, StopReason
from tests.unit.api_world import SETTINGS, World, assert_problem, world

CANARY = "CANARY-5f0c"
API_KEY, METRICS_KEY = "a-key-of-the-api-1", "a-key-of-metrics-1"
KEYS = Settings(redis_url="redis://fake/0", api_keys=f"ops={API_KEY}", metrics_keys=METRICS_KEY)


async def _scrape(api: World, **headers: str) -> dict[str, dict[tuple[str, ...], float]]:
    """The samples of each name, by the values of their labels."""
    answer = await api.client.get("/metrics", headers=headers)
    assert answer.status_code == 200, answer.text
    assert answer.headers["content-type"] == "text/plain; version=0.0.4; charset=utf-8"
    found: dict[str, dict[tuple[str, ...], float]] = {}
    for family in text_string_to_metric_families(answer.text):
        for sample in family.samples:
            found.setdefault(sample.name, {})[tuple(sample.labels.values())] = sample.value
    return found


async def test_what_happened_is_told() -> None:
    async with world() as api:
        await api.finish(await api.submit())
        await api.fail(await api.submit())
        working = await api.submit()
        await api.claim(working)
        await api.submit()
        await api.store.fleet.report(WorkerReport("w-1", ("model",), in_flight=1, capacity=50, draining=False))
        await api.store.fleet.report(WorkerReport("w-2", ("model",), in_flight=0, capacity=50, draining=True))
        await api.store.providers.cool_down("fake", 60)
        found = await _scrape(api)
    assert found["palaver_runs_submitted_total"] == {(): 4}
    ends = {labels: value for labels, value in found["palaver_runs_finished_total"].items() if value}
    assert ends == {("completed", "end_turn", ""): 1, ("failed", "error", "authentication"): 1}
    assert found["palaver_runs_finished_total"]["cancelled", "cancelled", ""] == 0
    runs = {status: value for (status,), value in found["palaver_runs"].items() if value}
    assert runs == {"completed": 1, "failed": 1, "running": 1, "queued": 1}
    assert found["palaver_runs"].keys() == {(status,) for status in RunStatus}
    assert found["palaver_steps_total"]["model", "done"] == found["palaver_steps_total"]["model", "failed"] == 1
    assert found["palaver_run_duration_seconds_count"]["completed",] == 1
    assert found["palaver_queue_ready"] == {("model",): 1, ("tools",): 0}
    assert found["palaver_workers"]["model", "working"] == found["palaver_workers"]["model", "draining"] == 1
    assert found["palaver_queue_running"]["model",] == 1
    assert found["palaver_queue_capacity"]["model",] == 50
    assert found["palaver_provider_cooling"] == found["palaver_provider_cooldowns_total"] == {("fake",): 1}
    assert found["palaver_runs_limit"] == {(): SETTINGS.max_runs}
    assert found["palaver_api_watchers"] == {(): 0}


async def test_every_metric_that_is_declared_is_there() -> None:
    """But for those that workers tell, and for what a server without a limit or a replica does not."""
    async with world() as api:
        names = {line.split()[2] for line in (await api.client.get("/metrics")).text.splitlines() if "# TYPE" in line}
    of_api = {each.name for each in all_metrics().values() if each.source != "worker"}
    limited = {"palaver_store_memory_ratio", "palaver_store_memory_limit_ratio"}
    assert names == of_api - limited - {"palaver_store_replication_lag_bytes"}


async def test_memory_is_told_as_far_as_it_is_known(monkeypatch: pytest.MonkeyPatch) -> None:
    told = {"used_memory": 300, "maxmemory": 1000, "mem_not_counted_for_evict": 50}

    async def info(self: Redis, section: str) -> dict[str, int]:
        return told

    monkeypatch.setattr(Redis, "info", info)
    async with world() as api:
        found = await _scrape(api)
        assert found["palaver_store_memory_bytes"] == {(): 250}
        assert found["palaver_store_memory_ratio"] == {(): 0.25}
        assert found["palaver_store_memory_limit_ratio"] == {(): 0.85}
    told["maxmemory"] = 0
    async with world() as api:
        found = await _scrape(api)
        assert found["palaver_store_memory_bytes"] == {(): 250}
        assert "palaver_store_memory_ratio" not in found


async def test_what_redis_is_like_is_told_as_far_as_it_is_known(monkeypatch: pytest.MonkeyPatch) -> None:
    told: dict[str, object] = {
        "aof_enabled": 1,
        "aof_last_write_status": "ok",
        "rdb_last_bgsave_status": "err",
        "maxmemory_policy": "volatile-lru",
        "evicted_keys": 7,
        "connected_slaves": 2,
        "master_repl_offset": 1000,
        "slave0": {"state": "online", "offset": 900},
        "slave1": {"state": "wait_bgsave", "offset": 0},
    }

    async def info(self: Redis, section: str) -> dict[str, object]:
        return told

    monkeypatch.setattr(Redis, "info", info)
    async with world() as api:
        found = await _scrape(api)
    del found["palaver_store_rewound_timestamp_seconds"]
    assert {name: value for name, value in found.items() if name.startswith("palaver_store_")} == {
        "palaver_store_append_only": {(): 1},
        "palaver_store_disk_good": {(): 0},
        "palaver_store_noeviction": {(): 0},
        "palaver_store_evicted_keys_total": {(): 7},
        "palaver_store_replicas": {(): 1},
        "palaver_store_replication_lag_bytes": {(): 100},
    }


async def test_a_key_of_its_own_opens_metrics_and_nothing_else() -> None:
    async with world(KEYS) as api:
        for key in (METRICS_KEY, API_KEY):
            await _scrape(api, Authorization=f"Bearer {key}")
        assert_problem(await api.client.get("/metrics"), 401, "unauthenticated")
        headers = {"Authorization": f"Bearer {METRICS_KEY}"}
        for path in ("/v1/runs", "/v1/queues", "/openapi.json", "/metrics/", "/nothing"):
            assert_problem(await api.client.get(path, headers=headers), 401, "unauthenticated")
        assert "no_worker" in (ready := (await api.client.get("/readyz", headers=headers)).json())
        assert ready["no_worker"] is None


async def test_a_key_for_queues_opens_these_and_nothing_else() -> None:
    key = "a-key-of-queues-01"
    async with world(KEYS.model_copy(update={"queues_keys": Settings(queues_keys=f"keda={key}").queues_keys})) as api:
        headers = {"Authorization": f"Bearer {key}"}
        for path in ("/v1/queues", "/v1/queues?format=keda&queue=model"):
            assert (await api.client.get(path, headers=headers)).status_code == 200
        for path in ("/v1/runs", "/metrics", "/v1/queues/", "/openapi.json", "/v1/tools"):
            assert_problem(await api.client.get(path, headers=headers), 401, "unauthenticated")
        wrong = {"Authorization": f"Bearer {METRICS_KEY}"}
        assert_problem(await api.client.get("/v1/queues", headers=wrong), 401, "unauthenticated")


async def test_without_a_key_of_its_own_one_of_the_api_is_needed() -> None:
    async with world(KEYS.model_copy(update={"metrics_keys": ()})) as api:
        assert_problem(await api.client.get("/metrics"), 401, "unauthenticated")
        wrong = {"Authorization": f"Bearer {METRICS_KEY}"}
        assert_problem(await api.client.get("/metrics", headers=wrong), 401, "unauthenticated")
        await _scrape(api, Authorization=f"Bearer {API_KEY}")


async def test_a_store_that_is_away_has_no_metrics() -> None:
    async with world() as api:
        api.server.connected = False
        assert_problem(await api.client.get("/metrics"), 503, "unavailable")
        api.server.connected = True
        await _scrape(api)


async def test_many_who_ask_are_one_question_to_the_store() -> None:
    class Counting(Measuring):
        reads = 0

        async def read(self, *args: Any) -> Samples:
            self.reads += 1
            return await super().read(*args)

    async with world() as api:
        store: Store = api.store
        store.measuring = counting = Counting(
            api.redis,  # type: ignore[arg-type]
            store.scripts,
            SETTINGS,
            store.fleet,
            store.providers,
            store.capacity,
            store.rewinds,
            store.queues,
            store.part,
        )
        measured = Measured(store, ())
        first, *others = await asyncio.gather(*(measured.samples() for _ in range(50)))
        await api.submit()
        assert all(each is first for each in (*others, await measured.samples()))
        assert counting.reads == 1
        await measured.close()


async def test_nothing_that_users_write_is_in_a_metric() -> None:
    secret = {"name": CANARY, "instructions": CANARY, "model": "fake/echo", "tools": ["calculator"]}
    async with world() as api:
        run = await api.submit(agent=secret, input=CANARY, metadata={CANARY: CANARY}, tags=[CANARY])
        lease = await api.claim(run)
        failure = Failure.of(ErrorClass.RATE_LIMITED, CANARY)
        await api.store.steps.settle(lease, RetryAfter(0.0, failure, attempts=5))
        lease = await api.claim(run)
        call = ToolCall(id=f"{CANARY}1", name="calculator", arguments=f'{{"x": "{CANARY}"}}')
        usage = Usage(input_tokens=10, output_tokens=3, model_calls=1)
        message = Message(role="assistant", content=CANARY, tool_calls=(call,))
        settled = await api.store.steps.settle(lease, Continue(message, calls=(OpenCall(call, True),), usage=usage))
        step = settled.deliveries[0].step
        tool = await api.store.steps.claim(
            run["id"], run["conversation_id"], step, queues=("tools",), worker="w-1", nonce="n", known=None
        )
        assert isinstance(tool, Lease), tool
        outcome = ToolOutcome.failed(call, Failure.of(ErrorClass.TOOL_ERROR, CANARY))
        await api.store.steps.settle(tool, Continue(outcomes=(outcome,)))
        await api.store.steps.settle(
            await api.claim(run), Finish(Message(role="assistant", content=CANARY), StopReason.END_TURN)
        )
        text = (await api.client.get("/metrics")).text
        found = await _scrape(api)
    assert "CANARY" not in text
    for trace in (run["id"], run["conversation_id"], "w-1"):
        assert trace not in text
    assert found["palaver_steps_total"]["tool", "failed"] == 1
    assert found["palaver_step_failures_total"]["tool", "tool_error"] == 1
    assert found["palaver_retries_total"]["rate_limited",] == 1
    assert found["palaver_tokens_total"] == {("fake", "echo", "input"): 10, ("fake", "echo", "output"): 3}
