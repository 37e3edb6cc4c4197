"""Runs that there is no room for: refused before anything is written, while everything else goes on."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from palaver.config.settings import Settings
from palaver.errors import ErrorClass
from palaver.store.redis import keys
from palaver.vocabulary.limits import exceeded, limit_of
from tests.unit.api_world import AGENT, BODY, SETTINGS, World, assert_problem, call, world

FEW = SETTINGS.model_copy(update={"max_runs": 2})
MIB = 1 << 20


def memory(api: World, monkeypatch: pytest.MonkeyPatch, used: int, limit: int, **more: int) -> list[str]:
    """Redis says that it uses so much; what it was asked."""
    asked: list[str] = []

    async def info(section: str) -> Mapping[str, Any]:
        asked.append(section)
        return {"used_memory": used, "maxmemory": limit, **more}

    monkeypatch.setattr(api.redis, "info", info)
    return asked


async def test_a_run_too_many_is_refused_and_leaves_nothing_behind() -> None:
    async with world(FEW) as api:
        first = await api.submit()
        await api.submit()
        before = {key: await api.redis.dump(key) for key in await api.redis.keys()}
        answer = await api.client.post("/v1/runs", json=BODY, headers={"Idempotency-Key": "later"})
        assert_problem(answer, 429, "too_many_runs")
        assert int(answer.headers["retry-after"]) > 0
        assert {key: await api.redis.dump(key) for key in await api.redis.keys()} == before
        assert len(api.publisher.deliveries) == 2

        assert (await api.client.post(f"/v1/runs/{first['id']}/cancel")).status_code == 200
        answer = await api.client.post("/v1/runs", json=BODY, headers={"Idempotency-Key": "later"})
        assert answer.status_code == 202
        assert "idempotency-replayed" not in answer.headers


async def test_what_adds_no_run_goes_on() -> None:
    async with world(FEW) as api:
        keyed = {"Idempotency-Key": "mine"}
        run = (await api.client.post("/v1/runs", json=BODY, headers=keyed)).json()
        await api.claim(run)
        answer = await api.client.post("/v1/runs", json=BODY, headers=keyed)
        assert (answer.status_code, answer.headers["idempotency-replayed"]) == (202, "true")
        steer = {"conversation_id": run["conversation_id"], "input": "and", "on_conflict": "steer"}
        answer = await api.client.post("/v1/runs", json=steer)
        assert (answer.status_code, answer.headers["palaver-steered"]) == (202, "true")
        pause = {"items": [{"type": "pause"}]}
        assert (await api.client.post(f"/v1/runs/{run['id']}/input", json=pause)).status_code == 202
        queue = {"conversation_id": run["conversation_id"], "input": "and"}
        assert_problem(await api.client.post("/v1/runs", json=queue), 429, "too_many_runs")
        assert_problem(
            await api.client.post("/v1/runs", json={**queue, "on_conflict": "interrupt"}), 429, "too_many_runs"
        )
        assert (await api.read(run))["status"] == "running"


async def test_a_retry_is_a_new_run_alone_and_among_many() -> None:
    async with world(FEW) as api:
        failed = await api.submit()
        await api.fail(failed)
        await api.submit()
        await api.submit()
        assert_problem(await api.client.post(f"/v1/runs/{failed['id']}/retry"), 429, "too_many_runs")
        assert_problem(
            await api.client.post(f"/v1/runs/{failed['id']}/retry", json={"from_step": 1}), 429, "too_many_runs"
        )
        many = {"action": "retry", "filter": {"error_class": ErrorClass.AUTHENTICATION}}
        answer = (await api.client.post("/v1/runs/actions", json=many)).json()
        assert (answer["done"], answer["skipped"]) == (0, {"too_many_runs": 1})


@pytest.mark.slow
async def test_a_shard_has_its_part_of_the_limit() -> None:
    async with world(SETTINGS.model_copy(update={"max_runs": 5, "shards": 2})) as api:
        answers = [await api.client.post("/v1/runs", json=BODY) for _ in range(100)]
        taken = [answer.json()["id"][4:6] for answer in answers if answer.status_code == 202]
        assert sorted(taken) == ["00"] * 3 + ["01"] * 3
        assert (await api.client.get("/v1/queues")).json()["room"]["runs"] == 6


async def test_no_run_is_taken_on_when_redis_is_nearly_full(monkeypatch: pytest.MonkeyPatch) -> None:
    keyed = {"Idempotency-Key": "mine"}
    async with world() as api:
        run = (await api.client.post("/v1/runs", json=BODY, headers=keyed)).json()
        forks, forked = f"/v1/conversations/{run['conversation_id']}/fork", {"Idempotency-Key": "fork"}
        fork = (await api.client.post(forks, headers=forked)).json()
        api.store.capacity._looked_at = None
        memory(api, monkeypatch, 86 * MIB, 100 * MIB)
        answer = await api.client.post("/v1/runs", json=BODY)
        assert_problem(answer, 503, "store_nearly_full")
        assert int(answer.headers["retry-after"]) > 0
        answer = await api.client.post("/v1/runs", json=BODY, headers=keyed)
        assert (answer.status_code, answer.headers["idempotency-replayed"]) == (202, "true")
        assert_problem(await api.client.post(forks), 503, "store_nearly_full")
        answer = await api.client.post(forks, headers=forked)
        assert (answer.status_code, answer.json()["id"]) == (200, fork["id"])
        await api.finish(run)
        assert (await api.read(run))["status"] == "completed"


@pytest.mark.slow
async def test_nothing_that_grows_is_taken_in_when_redis_is_nearly_full(monkeypatch: pytest.MonkeyPatch) -> None:
    async with world() as api:
        run, failed, waiting = await api.submit(), await api.submit(), await api.submit()
        await api.claim(run)
        await api.fail(failed)
        acting = await api.ask(waiting, call("c1", "client_tool"), call("c2", "approval"))
        api.store.capacity._looked_at = None
        memory(api, monkeypatch, 86 * MIB, 100 * MIB)
        before = exceeded["memory"]
        inputs = f"/v1/runs/{run['id']}/input"
        words = {"items": [{"type": "pause"}, {"type": "message", "content": "and"}]}
        grows: list[tuple[str, Any]] = [
            ("/v1/runs", BODY),
            ("/v1/runs", {"conversation_id": run["conversation_id"], "input": "and", "on_conflict": "steer"}),
            ("/v1/conversations", {}),
            (inputs, words),
            (f"/v1/runs/{failed['id']}/retry", {}),
            (f"/v1/runs/{failed['id']}/retry", {"from_step": 1}),
        ]
        for path, body in grows:
            assert_problem(await api.client.post(path, json=body), 503, "store_nearly_full")
        assert exceeded["memory"] >= before + 3
        many = {"action": "retry", "filter": {"status": ["failed"]}}
        assert (await api.client.post("/v1/runs/actions", json=many)).json()["skipped"] == {"store_nearly_full": 1}

        assert (await api.read(run))["pausing"] is False
        decided = {"type": "approval", "action_id": acting["pending_actions"][1]["id"], "decision": "deny"}
        for body in (
            {"items": [{"type": "tool_output", "call_id": "c1", "output": "x" * 1000}, decided]},
            {"items": [{"type": "pause"}]},
            {"items": [{"type": "resume"}]},
        ):
            answer = await api.client.post(f"/v1/runs/{waiting['id']}/input", json=body)
            assert answer.status_code == 202, answer.text
        for path in (f"/v1/runs/{run['id']}/cancel", f"/v1/runs/{waiting['id']}/cancel"):
            assert (await api.client.post(path)).status_code in {200, 202}
        assert (await api.client.delete(f"/v1/runs/{failed['id']}")).status_code == 204


@pytest.mark.slow
async def test_a_conversation_without_a_run_is_kept_as_long_as_one_whose_runs_have_ended() -> None:
    async with world(SETTINGS.model_copy(update={"retention": 3600.0})) as api:
        made = (await api.client.post("/v1/conversations")).json()
        name = keys.conversation(made["id"])
        assert 3000 < await api.redis.ttl(name) <= 3600
        await api.submit(conversation_id=made["id"])
        assert await api.redis.ttl(name) == -1


@pytest.mark.slow
async def test_a_page_of_long_runs_is_short() -> None:
    agent = {**AGENT, "instructions": "é" * limit_of("instructions")}
    async with world(SETTINGS.model_copy(update={"max_body": 1 << 20})) as api:
        made = [(await api.submit(agent=agent))["id"] for _ in range(24)]
        told, cursor, pages = [], "", 0
        while True:
            answer = await api.client.get(f"/v1/runs?limit=200{cursor}")
            assert len(answer.content) < limit_of("answer_bytes") + 500_000
            page = answer.json()
            told += [run["id"] for run in page["data"]]
            pages, cursor = pages + 1, f"&cursor={page['next_cursor']}"
            if not page["has_more"]:
                break
        assert (told, pages) == (made[::-1], 3)


@pytest.mark.slow
async def test_a_page_of_long_messages_is_short() -> None:
    long = "x" * 390_000
    async with world(SETTINGS.model_copy(update={"max_body": 1 << 20})) as api:
        run = await api.submit(input=long)
        for _ in range(14):
            await api.finish(run)
            run = await api.submit(input=long, conversation_id=run["conversation_id"])
        await api.claim(run)
        path, after, told, pages = f"/v1/conversations/{run['conversation_id']}/messages", 0, 0, 0
        while True:
            answer = await api.client.get(f"{path}?after={after}")
            assert len(answer.content) < limit_of("answer_bytes") + 500_000
            page = answer.json()
            pages, after, told = pages + 1, page["next_after"], told + len(page["data"])
            if not page["has_more"]:
                break
        assert (told, pages) == (29, 2)


@pytest.mark.parametrize(
    ("used", "limit", "more"),
    [(84, 100, {}), (86, 0, {}), (90, 100, {"mem_not_counted_for_evict": 10 * MIB})],
    ids=["room", "no maxmemory", "buffers of replicas"],
)
async def test_there_is_room(monkeypatch: pytest.MonkeyPatch, used: int, limit: int, more: dict[str, int]) -> None:
    async with world() as api:
        memory(api, monkeypatch, used * MIB, limit * MIB, **more)
        assert (await api.client.post("/v1/runs", json=BODY)).status_code == 202


@pytest.mark.slow
async def test_redis_is_asked_for_its_memory_once_a_second(monkeypatch: pytest.MonkeyPatch) -> None:
    async with world() as api:
        now = 100.0
        monkeypatch.setattr(api.store.capacity, "_clock", lambda: now)
        asked = memory(api, monkeypatch, 1, 0)
        for _ in range(20):
            await api.submit()
        assert asked == ["memory"]
        now += 1.0
        await api.submit()
        assert asked == ["memory", "memory"]


@pytest.mark.slow
async def test_a_rush_is_counted_before_redis_is_asked_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """By what this process has taken in since the reading, in all ways in which it does."""
    async with world() as api:
        now, long = 100.0, "x" * 50_000
        monkeypatch.setattr(api.store.capacity, "_clock", lambda: now)
        path = f"/v1/conversations/{(await api.client.post('/v1/conversations')).json()['id']}/messages"
        requests: list[tuple[str, Any]] = [("/v1/runs", {**BODY, "input": long}), (path, {"input": long})]
        # A server that does not know a script yet is sent all of it once more.
        for where, body in requests:
            assert (await api.client.post(where, json=body)).is_success
        asked = memory(api, monkeypatch, 85 * MIB - 12 * len(long) - 30_000, 100 * MIB)
        now += 1.0
        answers = [await api.client.post(where, json=body) for where, body in requests * 8]
        assert [answer.is_success for answer in answers] == [True] * 13 + [False] * 3
        assert_problem(answers[-1], 503, "store_nearly_full")
        assert asked == ["memory"]
        now += 1.0
        assert (await api.client.post("/v1/runs", json=BODY)).status_code == 202


async def test_queues_show_the_room_there_is(monkeypatch: pytest.MonkeyPatch) -> None:
    async with world(Settings(redis_url="redis://fake/0", max_runs=10, max_memory_percent=50)) as api:
        memory(api, monkeypatch, 30 * MIB, 100 * MIB)
        await api.submit(agent=AGENT)
        assert (await api.client.get("/v1/queues")).json()["room"] == {
            "runs": 1,
            "max_runs": 10,
            "memory_bytes": 30 * MIB,
            "max_memory_bytes": 50 * MIB,
        }
