"""Many runs at once: what a filter admits is cancelled, retried or deleted, and counted."""

from __future__ import annotations

import asyncio
from datetime import datetime, timedelta
from typing import Any

import httpx
import pytest

from palaver.config.settings import Settings
from palaver.errors import ErrorClass
from palaver.store.redis import keys
from palaver.store.scripting.scripts import VERSION
from palaver.vocabulary.limits import limit_of
from tests.unit.api_world import AGENT, World, assert_problem, in_one_world, world


async def _act(api: World, action: str, **body: Any) -> dict[str, Any]:
    answer = await api.client.post("/v1/runs/actions", json={"action": action, **body})
    assert answer.status_code == 200, answer.text
    found: dict[str, Any] = answer.json()
    return found


async def _statuses(api: World, *runs: dict[str, Any]) -> list[str]:
    return [(await api.read(run))["status"] for run in runs]


async def test_runs_with_a_tag_are_cancelled_and_the_others_are_not() -> None:
    async with world(Settings(redis_url="redis://fake/0", api_keys="ops=key-of-the-operators")) as api:
        api.client.headers["Authorization"] = "Bearer key-of-the-operators"
        tagged = [await api.submit(tags=["night"]) for _ in range(3)]
        other = await api.submit(tags=["day"])
        await api.claim(tagged[0])
        await api.finish(tagged[1])
        counted = await _act(api, "cancel", filter={"tag": "night"}, mode="graceful", reason="budget cut")
        assert counted == {
            "matched": 3,
            "done": 2,
            "skipped": {"run_ended": 1},
            "dry_run": False,
            "next_cursor": None,
            "run_ids": counted["run_ids"],
            "retried_as": {},
        }
        assert sorted(counted["run_ids"]) == sorted([tagged[0]["id"], tagged[2]["id"]])
        assert await _statuses(api, *tagged, other) == ["cancelling", "completed", "cancelled", "queued"]
        cancel = (await api.read(tagged[2]))["cancel"]
        assert (cancel["by"], cancel["mode"], cancel["reason"]) == ("ops", "graceful", "budget cut")


async def test_a_dry_run_counts_and_does_nothing() -> None:
    async with world() as api:
        runs = [await api.submit() for _ in range(3)]
        await api.finish(runs[0])
        for action, skipped in (("cancel", {"run_ended": 1}), ("delete", {"run_active": 2})):
            counted = await _act(api, action, all=True, dry_run=True)
            assert (counted["matched"], counted["done"], counted["skipped"]) == (3, 0, skipped)
            assert len(counted["run_ids"]) == 3 - sum(skipped.values())
        retried = await _act(api, "retry", all=True, dry_run=True)
        assert (retried["skipped"], retried["run_ids"]) == ({"run_active": 2, "nothing_to_retry": 1}, [])
        assert await _statuses(api, *runs) == ["completed", "queued", "queued"]


async def test_failed_runs_are_retried_once() -> None:
    async with world() as api:
        failed = [await api.submit(tags=["a"]) for _ in range(3)]
        for run in failed:
            await api.fail(run, ErrorClass.PROVIDER_ERROR)
        await api.submit(agent=None, conversation_id=failed[0]["conversation_id"])
        await api.fail(await api.submit(), ErrorClass.AUTHENTICATION)
        api.publisher.deliveries.clear()
        wanted: dict[str, Any] = {"status": ["failed"], "error_class": "provider_error"}
        counted = await _act(api, "retry", filter=wanted)
        assert (counted["matched"], counted["done"]) == (3, 2)
        assert counted["skipped"] == {"conversation_moved_on": 1}
        listed = (await api.client.get("/v1/runs?status=queued&tag=a")).json()["data"]
        new = {run["id"]: run["retried_from"] for run in listed}
        assert counted["retried_as"] == {old: run_id for run_id, old in new.items()}
        assert sorted(new.values()) == sorted(counted["run_ids"]) == sorted(run["id"] for run in failed[1:])
        assert {each.run_id for each in api.publisher.deliveries} == set(new)
        again = await _act(api, "retry", filter=wanted)
        assert (again["done"], again["skipped"]) == (0, {"conversation_moved_on": 3})


async def test_what_has_ended_is_deleted() -> None:
    async with world() as api:
        done = [await api.submit(agent={**AGENT, "name": "demo"}) for _ in range(2)]
        for run in done:
            await api.finish(run)
        going = await api.submit(agent={**AGENT, "name": "demo"})
        kept = await api.submit()
        await api.finish(kept)
        counted = await _act(api, "delete", filter={"agent": "demo"})
        assert (counted["matched"], counted["done"], counted["skipped"]) == (3, 2, {"run_active": 1})
        left = (await api.client.get("/v1/runs")).json()["data"]
        assert {run["id"] for run in left} == {going["id"], kept["id"]}


async def test_cancelling_a_whole_conversation_starts_none_of_it() -> None:
    async with world() as api:
        first = await api.submit()
        follow = {"agent": None, "conversation_id": first["conversation_id"]}
        queued = [await api.submit(**follow) for _ in range(4)]
        api.publisher.deliveries.clear()
        counted = await _act(api, "cancel", filter={"conversation_id": first["conversation_id"]})
        assert counted["done"] == 5
        assert set(await _statuses(api, first, *queued)) == {"cancelled"}
        assert api.publisher.deliveries == []


async def test_pages_go_on_where_the_one_before_ended() -> None:
    async with world() as api:
        runs = [await api.submit(tags=["a"]) for _ in range(7)]
        cursor, seen, requests = None, [], 0
        while requests == 0 or cursor:
            counted = await _act(api, "cancel", filter={"tag": "a"}, limit=3, cursor=cursor)
            assert counted["matched"] <= 3
            seen += counted["run_ids"]
            cursor, requests = counted["next_cursor"], requests + 1
        assert sorted(seen) == sorted(run["id"] for run in runs)
        assert set(await _statuses(api, *runs)) == {"cancelled"}


@pytest.mark.slow
async def test_many_runs_are_done_in_one_request_and_a_hundred_are_named() -> None:
    async with world() as api:
        for _ in range(130):
            await api.submit()
        counted = await _act(api, "cancel", all=True)
        assert (counted["matched"], counted["done"], len(set(counted["run_ids"]))) == (130, 130, 100)
        assert (await api.client.get("/v1/runs?status=queued")).json()["data"] == []


@pytest.mark.slow
async def test_a_request_that_takes_long_says_where_to_go_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("palaver.operations.bulk._TIME", 0.0)
    monkeypatch.setattr("palaver.operations.bulk._AT_ONCE", 20)
    async with world() as api:
        for _ in range(30):
            await api.submit()
        first = await _act(api, "cancel", all=True)
        assert first["matched"] == 20
        rest = await _act(api, "cancel", all=True, cursor=first["next_cursor"])
        assert (rest["done"], rest["next_cursor"]) == (10, None)


async def test_the_limit_counts_what_the_filter_admits() -> None:
    async with world() as api:
        for number in range(12):
            await api.submit(tags=["a"] if number < 4 else [])
        counted = await _act(api, "cancel", filter={"tag": "a"}, limit=3)
        assert (counted["matched"], counted["done"]) == (3, 3)


async def test_a_request_that_takes_long_ends_though_the_filter_admits_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("palaver.operations.bulk._TIME", 0.0)
    monkeypatch.setattr(
        "palaver.store.reading.finding.limit_of", lambda name: {"list_looked": 5}.get(name) or limit_of(name)
    )
    monkeypatch.setattr("palaver.store.reading.finding._AT_ONCE", 5)
    async with world() as api:
        for _ in range(8):
            await api.submit()
        first = await _act(api, "cancel", filter={"tag": "nobody"})
        assert first["matched"] == 0
        rest = await _act(api, "cancel", filter={"tag": "nobody"}, cursor=first["next_cursor"])
        assert (rest["matched"], rest["next_cursor"]) == (0, None)


@pytest.mark.slow
async def test_a_process_that_is_told_to_end_says_where_to_go_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("palaver.operations.bulk._AT_ONCE", 20)
    async with world() as api:
        for _ in range(30):
            await api.submit()
        api.app.state.backend.closing.set()
        counted = await _act(api, "cancel", all=True)
        assert counted["done"] == 20
        assert counted["next_cursor"]


@pytest.mark.slow
async def test_two_requests_at_once_do_everything_once() -> None:
    async with world() as api:
        for _ in range(15):
            await api.fail(await api.submit())
        both = await asyncio.gather(*(_act(api, "retry", filter={"status": ["failed"]}) for _ in range(2)))
        assert sum(counted["done"] for counted in both) == 15
        assert len((await api.client.get("/v1/runs?status=queued&limit=100")).json()["data"]) == 15


@pytest.mark.slow
async def test_age_is_a_filter() -> None:
    async with world() as api:
        run = await api.submit()
        at = datetime.fromisoformat(run["times"]["created_at"])
        later, earlier = (at + timedelta(seconds=5)).isoformat(), (at - timedelta(seconds=5)).isoformat()
        for admitted, matched in (
            ({"older_than": 3600}, 0),
            ({"older_than": 3600, "created_before": later}, 0),
            ({"older_than": 0.001}, 1),
            ({"created_before": earlier}, 0),
            ({"created_before": later}, 1),
            ({"created_after": later}, 0),
            ({"created_after": earlier, "created_before": later, "status": "queued,failed"}, 1),
        ):
            counted = await _act(api, "cancel", filter=admitted, dry_run=True)
            assert counted["matched"] == matched, admitted


@in_one_world(
    [
        ({"action": "cancel"}, None, "/filter", '"all": true'),
        ({"action": "delete", "filter": {}}, None, "/filter", "say which to delete"),
        ({"action": "cancel", "filter": {"tag": None}}, None, "/filter", '"all": true'),
        ({"action": "cancel", "filter": {"status": []}}, None, "/filter/status", "must name a status"),
        ({"action": "cancel", "filter": {"tag": "a"}, "all": True}, None, "/all", "leave the filter out"),
        ({"action": "delete", "all": True, "mode": "now"}, None, "/mode", "cancel only"),
        ({"action": "retry", "all": True, "reason": "CANARY"}, None, "/reason", "cancel only"),
        ({"filter": {"tag": "a"}}, None, "/action", "is required"),
        ({"action": "kill CANARY", "all": True}, None, "/action", "'cancel', 'retry' or 'delete'"),
        ({"action": "cancel", "filter": {"tags": "a"}}, None, "/filter/tags", "did you mean 'tag'?"),
        ({"action": "cancel", "filter": {"status": ["fail"]}}, None, "/filter/status", "did you mean 'failed'?"),
        ({"action": "cancel", "filter": {"status": [[]]}}, None, "/filter/status", "there are: queued"),
        ({"action": "cancel", "filter": {"status": 5}}, None, "/filter/status", "must be"),
        ({"action": "cancel", "filter": {"error_class": "CANARY"}}, None, "/filter/error_class", "must be"),
        ({"action": "cancel", "filter": {"conversation_id": "CANARY"}}, None, "/filter/conversation_id", "the id of"),
        ({"action": "cancel", "filter": {"older_than": 0}}, None, "/filter/older_than", "greater than 0"),
        ({"action": "cancel", "filter": {"older_than": "1h"}}, None, "/filter/older_than", "number"),
        ({"action": "cancel", "filter": {"created_before": "CANARY"}}, None, "/filter/created_before", "a time such"),
        ({"action": "cancel", "filter": {"created_before": 5}}, None, "/filter/created_before", "datetime"),
        (
            {"action": "cancel", "filter": {"created_before": "2026-01-01T00:00:00"}},
            None,
            "/filter/created_before",
            "needs a time zone",
        ),
        (
            {
                "action": "cancel",
                "filter": {"created_before": "2026-01-01T00:00:00Z", "created_after": "2026-01-02T00:00:00Z"},
            },
            None,
            "/filter",
            "must be before",
        ),
        ({"action": "cancel", "all": True, "limit": 1001}, None, "/limit", "less than or equal to 1000"),
        ({"action": "cancel", "all": True, "limit": 0}, None, "/limit", "greater than or equal to 1"),
        ({"action": "cancel", "all": True, "mode": "kill"}, None, "/mode", "'graceful'"),
        ({"action": "cancel", "all": True, "cursor": "CANARY"}, "invalid_cursor", None, ""),
    ]
)
async def test_what_does_not_fit_is_refused_and_does_nothing(
    api: World, body: dict[str, Any], code: str | None, place: str | None, says: str
) -> None:
    run = await api.submit(tags=["a"])
    answer: httpx.Response = await api.client.post("/v1/runs/actions", json=body)
    problem = assert_problem(answer, 400 if code else 422, code or "validation_error", *([place] if place else ()))
    assert says in str(problem["detail"])
    assert "CANARY" not in answer.text
    assert await _statuses(api, run) == ["queued"]


@pytest.mark.slow
async def test_without_redis_on_the_way_it_is_to_be_repeated(monkeypatch: pytest.MonkeyPatch) -> None:
    async with world() as api:
        runs = [await api.submit() for _ in range(25)]
        cancel, asked = api.store.bulk.cancel, 0

        async def going(*given: Any, **more: Any) -> Any:
            nonlocal asked
            asked += 1
            if asked == 2:
                api.server.connected = False
            return await cancel(*given, **more)

        monkeypatch.setattr(api.store.bulk, "cancel", going)
        monkeypatch.setattr("palaver.operations.bulk._AT_ONCE", 10)
        assert_problem(
            await api.client.post("/v1/runs/actions", json={"action": "cancel", "all": True}), 503, "unavailable"
        )
        api.server.connected = True
        assert (await _act(api, "cancel", all=True))["matched"] == 25
        assert set(await _statuses(api, *runs)) == {"cancelled"}


@pytest.mark.slow
async def test_a_run_that_newer_code_works_on_is_left_to_it() -> None:
    async with world() as api:
        failed, done = [[await api.submit() for _ in range(3)] for _ in range(2)]
        for run in failed:
            await api.fail(run)
        for run in done:
            await api.finish(run)
        queued = [await api.submit() for _ in range(3)]
        for run in (failed[1], done[1], queued[1]):
            await api.redis.hset(keys.conversation(run["conversation_id"]), "version", VERSION + 1)
        api.publisher.deliveries.clear()
        for action, status in (("cancel", "queued"), ("retry", "failed"), ("delete", "completed")):
            counted = await _act(api, action, filter={"status": [status]})
            assert (counted["done"], counted["skipped"]) == (2, {"unavailable": 1}), action
        assert len(api.publisher.deliveries) == 2
        assert await _statuses(api, *queued) == ["cancelled", "queued", "cancelled"]


async def test_a_run_that_a_script_fails_with_hinders_no_other(caplog: pytest.LogCaptureFixture) -> None:
    async with world() as api:
        runs = [await api.submit() for _ in range(3)]
        await api.redis.delete(keys.feed(runs[1]["id"]))
        await api.redis.set(keys.feed(runs[1]["id"]), "CANARY")
        counted = await _act(api, "cancel", all=True)
        assert (counted["matched"], counted["done"], counted["skipped"]) == (3, 2, {"internal": 1})
        assert sorted(counted["run_ids"]) == sorted(run["id"] for run in (runs[0], runs[2]))
        assert runs[1]["id"] in caplog.text
        assert "CANARY" not in caplog.text


async def test_what_is_done_but_not_safely_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    """A fake server has no replica that could have it."""
    async with world() as api:
        failed = [await api.submit() for _ in range(2)]
        for run in failed:
            await api.fail(run)
        first = await api.submit(tags=["a"])
        follows = await api.submit(agent=None, conversation_id=first["conversation_id"])
        monkeypatch.setattr(api.store.scripts, "_wait", (("WAIT", 1, 100), 1))
        for action, admitted in (("retry", {"status": ["failed"]}), ("cancel", {"tag": "a"})):
            api.publisher.deliveries.clear()
            answer = await api.client.post("/v1/runs/actions", json={"action": action, "filter": admitted})
            assert_problem(answer, 503, "not_durable")
            if action == "retry":
                made = [(await api.read(run))["retried_as"] for run in failed]
                assert sorted(each.run_id for each in api.publisher.deliveries) == sorted(made)
        assert [each.run_id for each in api.publisher.deliveries] == [follows["id"]]
        assert await _statuses(api, first, follows) == ["cancelled", "queued"]
