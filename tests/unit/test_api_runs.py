"""Submitting, reading, waiting for, listing and cancelling runs."""

from __future__ import annotations

import asyncio
import json
from datetime import datetime, timedelta, timezone
from typing import Any
from urllib.parse import urlencode

import pytest

from api.native.links import Run, RunList
from palaver.errors import ErrorClass, Failure
from palaver.steps.verdicts import GiveUp
from palaver.vocabulary.lifecycle import StopReason
from tests.contract.rewinding import rewind, snapshot
from tests.unit.api_world import AGENT, BODY, RUN_ID, World, assert_problem, events_of, in_one_world, world
from tests.waiting import PATIENCE, aeventually


async def test_a_submitted_run_is_durable_and_its_first_step_is_published() -> None:
    async with world() as api:
        answer = await api.client.post("/v1/runs", json={**BODY, "tags": ["a"], "metadata": {"user": "7"}})
        assert answer.status_code == 202
        run = answer.json()
        assert answer.headers["location"] == f"/v1/runs/{run['id']}" == run["links"]["self"]
        assert answer.headers["retry-after"] == "1"
        assert "idempotency-replayed" not in answer.headers
        assert (run["status"], run["tags"], run["metadata"]) == ("queued", ["a"], {"user": "7"})
        assert run["agent"]["tools"] == ["calculator"]
        [delivery] = api.publisher.deliveries
        assert (delivery.queue, delivery.run_id, delivery.step) == ("model", run["id"], "1")
        assert await api.read(run) == run


async def test_a_submitted_run_is_not_read_again_to_be_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    async with world() as api:
        monkeypatch.setattr(api.store.runs, "get", None)
        shown = (await api.client.post("/v1/runs", json=BODY)).json()
        monkeypatch.undo()
        assert await api.read(shown) == shown


async def test_the_same_key_and_body_again_give_the_same_run() -> None:
    async with world() as api:
        headers = {"Idempotency-Key": "order 66"}
        first = await api.client.post("/v1/runs", json=BODY, headers=headers)
        again = await api.client.post("/v1/runs", json=BODY, headers=headers)
        assert (first.status_code, again.status_code) == (202, 202)
        assert again.headers["idempotency-replayed"] == "true"
        assert again.headers["location"] == first.headers["location"]
        await api.finish(first.json())
        late = await api.client.post("/v1/runs", json=BODY, headers={**headers, "Prefer": "wait=5"})
        assert (late.status_code, late.json()["status"]) == (200, "completed")


async def test_the_same_key_with_another_body_is_refused() -> None:
    async with world() as api:
        headers = {"Idempotency-Key": "order 66"}
        await api.client.post("/v1/runs", json=BODY, headers=headers)
        other = await api.client.post("/v1/runs", json={**BODY, "input": "other"}, headers=headers)
        assert_problem(other, 422, "idempotency_key_reused")


@in_one_world(["", "k" * 256, "schlüssel".encode(), b"a\x07", " "])
async def test_a_key_that_cannot_be_kept_is_refused(api: World, key: str | bytes) -> None:
    answer = await api.client.post("/v1/runs", json=BODY, headers=[(b"Idempotency-Key", _bytes(key))])
    assert_problem(answer, 400, "invalid_idempotency_key")


async def test_two_keys_are_refused() -> None:
    async with world() as api:
        twice = [("Idempotency-Key", "a"), ("Idempotency-Key", "b")]
        assert_problem(await api.client.post("/v1/runs", json=BODY, headers=twice), 400, "invalid_idempotency_key")


async def test_prefer_wait_answers_with_the_finished_run() -> None:
    async with world() as api:
        waiting = asyncio.create_task(
            api.client.post("/v1/runs", json=BODY, headers={"Prefer": "respond-async, wait=10"})
        )
        await aeventually(api.watched)
        run = (await api.client.get("/v1/runs")).json()["data"][0]
        await api.finish(run, "42")
        answer = await waiting
        assert answer.status_code == 200
        assert answer.headers["preference-applied"] == "wait=10"
        assert (answer.json()["status"], answer.json()["output"]) == ("completed", "42")
        assert "retry-after" not in answer.headers


@pytest.mark.parametrize("prefer", ["wait=0", "wait=soon", "respond-async", "handling=strict"])
async def test_other_preferences_answer_at_once(prefer: str) -> None:
    async with world() as api:
        answer = await api.client.post("/v1/runs", json=BODY, headers={"Prefer": prefer})
        assert answer.status_code == 202
        assert "preference-applied" not in answer.headers


async def test_submitting_can_answer_with_the_events() -> None:
    async with world() as api:
        await api.meet_worker()
        answer = asyncio.create_task(api.client.post("/v1/runs", json=BODY, headers={"Accept": "text/event-stream"}))
        await aeventually(api.watched)
        run = (await api.client.get("/v1/runs")).json()["data"][0]
        await api.finish(run)
        stream = await answer
        assert stream.status_code == 200
        assert stream.headers["location"] == run["links"]["self"]
        assert [name for _, name, _ in events_of(stream.text)][0::5] == ["run.created", "run.finished"]


async def test_a_conversation_that_is_not_there_is_a_fault_of_the_body() -> None:
    async with world() as api:
        for conversation_id in ("conv_00" + "1" * 26, "nonsense", "../../etc/passwd"):
            answer = await api.client.post("/v1/runs", json={**BODY, "conversation_id": conversation_id})
            assert_problem(answer, 422, "unknown_conversation", "/conversation_id")


async def test_a_conversation_without_an_agent_needs_one() -> None:
    async with world() as api:
        conversation = (await api.client.post("/v1/conversations")).json()
        body = {"conversation_id": conversation["id"], "input": "hello"}
        assert_problem(await api.client.post("/v1/runs", json=body), 422, "no_agent", "/agent")
        assert_problem(await api.client.post("/v1/runs", json={"input": "hello"}), 422, "no_agent", "/agent")
        assert (await api.client.post("/v1/runs", json={**body, "agent": AGENT})).status_code == 202


async def test_a_run_that_fails_shows_its_error() -> None:
    async with world() as api:
        run = await api.submit()
        failure = Failure.of(ErrorClass.AUTHENTICATION)
        await api.store.steps.settle(await api.claim(run), GiveUp(failure, StopReason.ERROR))
        failed = await api.read(run)
        assert (failed["status"], failed["stop_reason"]) == ("failed", "error")
        assert failed["error"]["class"] == "authentication"
        listed = await api.client.get("/v1/runs?error_class=authentication&status=failed,expired")
        assert [each["id"] for each in listed.json()["data"]] == [run["id"]]


async def test_a_wait_for_a_run_whose_end_the_store_has_lost_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    """In a failover: the end is heard of, and gone when the run is read. That was a 404."""
    async with world() as api:
        run = await api.submit()
        lease, runs = await api.claim(run), api.app.state.backend.store.runs
        kept, read = [await snapshot(api.redis)], type(runs).get
        waiting = asyncio.create_task(api.client.get(f"{run['links']['self']}?wait=10&until=terminal"))
        await aeventually(api.watched)

        async def read_too_late(self: Any, run_id: str) -> Any:
            if kept:
                await rewind(api.redis, kept.pop())
            return await read(self, run_id)

        monkeypatch.setattr(type(runs), "get", read_too_late)
        await api.finish(run, lease=lease)
        await aeventually(lambda: not kept)
        await api.finish(run, "again", lease=lease)
        answer = await waiting
        assert (answer.status_code, answer.json()["output"]) == (200, "again")


@pytest.mark.parametrize("until", ["terminal", "action"])
async def test_reading_can_wait_for_the_end(until: str) -> None:
    async with world() as api:
        run = await api.submit()
        waiting = asyncio.create_task(api.client.get(f"{run['links']['self']}?wait=10&until={until}"))
        await aeventually(api.watched)
        lease = await api.claim(run)
        await api.say(lease, "one", "two")
        assert not waiting.done()
        await api.finish(run, lease=lease)
        assert (await waiting).json()["status"] == "completed"
        await aeventually(api.unwatched)


async def test_reading_can_wait_for_any_move() -> None:
    async with world() as api:
        run = await api.submit()
        waiting = asyncio.create_task(api.client.get(f"{run['links']['self']}?wait=10&until=change"))
        await aeventually(api.watched)
        await api.claim(run)
        assert (await waiting).json()["status"] == "running"


async def test_a_pause_that_is_asked_for_is_a_move() -> None:
    async with world() as api:
        run = await api.submit()
        await api.claim(run)
        waiting = asyncio.create_task(api.client.get(f"{run['links']['self']}?wait=10&until=change"))
        await aeventually(api.watched)
        await api.client.post(f"{run['links']['self']}/input", json={"items": [{"type": "pause"}]})
        seen = (await waiting).json()
        assert (seen["status"], seen["pausing"]) == ("running", True)


async def test_waiting_ends_when_the_time_is_up() -> None:
    async with world() as api:
        run = await api.submit()
        answer = await api.client.get(f"{run['links']['self']}?wait=1")
        assert (answer.status_code, answer.json()["status"]) == (200, "queued")
        await aeventually(api.unwatched)


async def test_waiting_ends_when_the_process_is_told_to() -> None:
    async with world() as api:
        run = await api.submit()
        waiting = asyncio.create_task(api.client.get(f"{run['links']['self']}?wait=60"))
        await aeventually(api.watched)
        api.app.state.backend.closing.set()
        assert (await asyncio.wait_for(waiting, PATIENCE)).json()["status"] == "queued"


@pytest.mark.parametrize(
    "run_id",
    [
        RUN_ID, RUN_ID.upper(), RUN_ID + "0", RUN_ID.replace("run", "conv"), "run_zz" + "0" * 26,
        "run_*", "..%2f..%2fetc%2fpasswd", "run_%0a", "%00", "%ff", "%F0%9F%A6%8A", "run_0%0d%0aSET%20a",
        "a" * 5000,
    ],
)  # fmt: skip
@pytest.mark.parametrize("tail", ["", "/events", "/cancel"])
async def test_an_id_that_names_no_run_is_not_found(run_id: str, tail: str) -> None:
    async with world() as api:
        method = "POST" if tail == "/cancel" else "GET"
        problem = assert_problem(
            await api.client.request(method, f"/v1/runs/{run_id}{tail}"),
            404,
            "not_found" if "%2f" in run_id else "run_not_found",
        )
        assert "passwd" not in str({**problem, "instance": None})


async def test_pages_of_a_list_show_every_run_once_newest_first() -> None:
    async with world() as api:
        runs = [await api.submit() for _ in range(7)]
        path, seen = "/v1/runs?limit=3", []
        while path:
            answer = await api.client.get(path)
            page = answer.json()
            seen += [run["id"] for run in page["data"]]
            assert page["has_more"] == (page["next_cursor"] is not None)
            path = f"/v1/runs?limit=3&cursor={page['next_cursor']}" if page["has_more"] else ""
            assert answer.links.get("next", {}).get("url", "") == path
        assert seen == [run["id"] for run in sorted(runs, key=_newest_first, reverse=True)]


async def test_a_list_filters() -> None:
    async with world() as api:
        tagged = await api.submit(tags=["blue"])
        done = await api.submit()
        await api.finish(done)

        async def listed(query: str) -> list[str]:
            answer = await api.client.get(f"/v1/runs?{query}")
            assert answer.status_code == 200, answer.text
            return sorted(run["id"] for run in answer.json()["data"])

        assert await listed("tag=blue") == [tagged["id"]]
        assert await listed("status=completed") == [done["id"]]
        assert await listed("status=completed,queued") == sorted([tagged["id"], done["id"]])
        assert await listed("status=completed&status=queued") == sorted([tagged["id"], done["id"]])
        assert await listed(f"conversation_id={done['conversation_id']}") == [done["id"]]
        assert await listed("status=queued&tag=red") == []
        answer = await api.client.get("/v1/runs?status=queued,completed&tag=blue&limit=1")
        assert "status=queued%2Ccompleted" in answer.links["next"]["url"]
        assert "tag=blue" in answer.links["next"]["url"]


async def test_a_list_filters_by_metadata_and_by_what_was_retried() -> None:
    async with world() as api:
        failed = [await api.submit(metadata={"customer": "4,2", "plan": "pro"}) for _ in range(2)]
        for run in failed:
            await api.fail(run)
        await api.submit(metadata={"customer": "42"})
        retried = (await api.client.post(f"{failed[0]['links']['self']}/retry")).json()

        async def listed(**query: Any) -> list[str]:
            """All pages of one run each, by their links."""
            path, found = f"/v1/runs?{urlencode({**query, 'limit': 1}, doseq=True)}", []
            while path:
                answer = await api.client.get(path)
                assert answer.status_code == 200, answer.text
                found += [run["id"] for run in answer.json()["data"]]
                path = answer.links.get("next", {}).get("url", "")
            return found

        assert await listed(metadata="plan=pro", retried="false") == [retried["id"], failed[1]["id"]]
        assert await listed(metadata='{"customer": "4,2"}', retried="true") == [failed[0]["id"]]
        assert await listed(metadata=["plan=pro", "customer=42"]) == []
        for query, place in (("metadata=plan", "?metadata"), ("metadata=%7B", "?metadata"), ("retried=1", "?retried")):
            assert_problem(await api.client.get(f"/v1/runs?{query}"), 422, "validation_error", place)


async def test_a_list_filters_by_agent_and_time() -> None:
    async with world() as api:
        clerk = await api.submit(agent={**AGENT, "name": "clerk"})
        await api.submit()
        at = datetime.fromisoformat(clerk["times"]["created_at"])
        after, before = (at - timedelta(hours=1)).isoformat(), (at + timedelta(hours=1)).isoformat()

        async def listed(**query: str) -> tuple[list[str], str]:
            answer = await api.client.get("/v1/runs", params=query)
            assert answer.status_code == 200, answer.text
            next_page = answer.links.get("next", {}).get("url", "")
            return [run["id"] for run in answer.json()["data"]], next_page

        assert (await listed(agent="clerk"))[0] == [clerk["id"]]
        assert (await listed(agent="clerks"))[0] == []
        assert len((await listed(created_after=after, created_before=before))[0]) == 2
        assert (await listed(created_before=after))[0] == (await listed(created_after=before))[0] == []
        berlin = at.astimezone(timezone(timedelta(hours=2))) + timedelta(hours=1)
        first, path = await listed(created_before=berlin.isoformat(), limit="1")
        again = await api.client.get(path)
        assert [*first, *(run["id"] for run in again.json()["data"])] == (await listed())[0]


@in_one_world(["x", "%F0", "bnVsbA", "WzFlNDAwLCJydW4iXQ", "W10", "eyJhIjoxLCJiIjoyfQ", "e30", "a" * 2000, "%C3%A4"])
async def test_a_cursor_that_no_list_gave_is_refused(api: World, cursor: str) -> None:
    code = "malformed_request" if cursor == "%F0" else "invalid_cursor"
    assert_problem(await api.client.get(f"/v1/runs?cursor={cursor}"), 400, code)


def _bytes(text: str | bytes) -> bytes:
    return text if isinstance(text, bytes) else text.encode()


def _newest_first(run: dict[str, Any]) -> tuple[datetime, str]:
    # Not its text: a whole second has no fraction.
    return datetime.fromisoformat(run["times"]["created_at"]), run["id"]


async def test_a_run_on_the_wire_is_as_the_document_says() -> None:
    async with world() as api:
        run = await api.submit(tags=["a"], metadata={"k": "v"})
        paths = {name: f"/v1/runs/{run['id']}{rest}" for name, rest in (("self", ""), ("events", "/events"))}
        assert run["links"] == {**paths, "conversation": f"/v1/conversations/{run['conversation_id']}"}
        for path, model in ((f"/v1/runs/{run['id']}", Run), ("/v1/runs", RunList)):
            told = (await api.client.get(path)).text
            assert model.model_validate_json(told, extra="forbid").model_dump(mode="json") == json.loads(told)


async def test_a_run_has_a_priority() -> None:
    async with world() as api:
        for wrong in (-1, 10, 2.5, "urgent"):
            body = {"agent": {"model": "fake/echo"}, "input": "hello", "priority": wrong}
            assert_problem(await api.client.post("/v1/runs", json=body), 422, "validation_error", "/priority")
        for given, shown in (({}, 5), ({"priority": 0}, 0), ({"priority": 9}, 9)):
            body = {"agent": {"model": "fake/echo"}, "input": "hello", **given}
            answer = await api.client.post("/v1/runs", json=body)
            assert (answer.status_code, answer.json()["priority"]) == (202, shown)
