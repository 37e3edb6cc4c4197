"""Schedules over HTTP, and what becomes of their ticks."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest
from pydantic import SecretStr

from features.schedules import schedule_keys
from features.schedules.problems import UnknownSchedule
from features.schedules.scheduler import Scheduler
from features.schedules.tests.unit.schedule_world import next_attention
from features.schedules.ticks import Ticks
from palaver.config.settings import ApiKey
from palaver.errors import ErrorClass, Refused
from palaver.errors.classification import classify
from palaver.feature import features
from palaver.operations.bearers import caller_now
from palaver.schemas.bearers import Bearer
from palaver.store.access.api_keys import KeyGrant
from palaver.store.sides import sides
from palaver.vocabulary.scopes import SCOPES
from tests.contract.clock import Clock, TurnedDatabase, turned_clock
from tests.unit.api_world import AGENT, SETTINGS, World, assert_problem, world

NOON = datetime(2026, 11, 26, 12, tzinfo=UTC).timestamp()
RUN: dict[str, Any] = {"agent": AGENT, "input": "hello", "tags": ["mine"]}
HOURLY: dict[str, Any] = {"every": 3600, "run": RUN}
MORNING: dict[str, Any] = {"cron": "30 7 * * 1-5", "timezone": "Europe/Berlin", "run": RUN}


class Planned:
    """An API with schedules, a clock to turn, and a scheduler that looks when it is told to."""

    def __init__(self, api: World, clock: Clock) -> None:
        self.api = api
        self.clock = clock
        self.scheduler = Scheduler(api.app.state.backend)

    async def put(self, name: str = "nightly", **changes: Any) -> dict[str, Any]:
        answer = await self.api.client.put(f"/v1/schedules/{name}", json={**HOURLY, **changes})
        assert answer.status_code in (200, 201), answer.text
        kept: dict[str, Any] = answer.json()
        return kept

    async def read(self, name: str = "nightly") -> dict[str, Any]:
        found: dict[str, Any] = (await self.api.client.get(f"/v1/schedules/{name}")).json()
        return found

    async def pass_time(self, seconds: float = 0.0) -> dict[str, Any]:
        """Let the next tick come, and that many seconds pass. Returns the schedule."""
        at = await next_attention(self.api)
        self.clock.now = max(self.clock.now, at or 0) + seconds
        while await self.scheduler.look() == 0:
            pass
        return await self.read()

    async def end(self, run_id: str) -> None:
        """End a run."""
        assert (await self.api.client.post(f"/v1/runs/{run_id}/cancel")).json()["status"] == "cancelled"


@asynccontextmanager
async def planned(settings: Any = SETTINGS, **changes: Any) -> AsyncIterator[Planned]:
    with turned_clock(NOON) as clock:
        async with world(settings, **changes, server=TurnedDatabase()) as api:
            yield Planned(api, clock)


async def test_one_is_put_read_listed_paused_resumed_and_removed() -> None:
    async with planned() as plan:
        client = plan.api.client
        made = await client.put("/v1/schedules/nightly", json=MORNING)
        assert (made.status_code, made.headers["etag"]) == (201, '"1"')
        assert made.headers["location"] == "/v1/schedules/nightly"
        kept = made.json()
        assert (kept["next_at"], kept["paused"], kept["overlap"]) == ("2026-11-27T06:30:00Z", False, "skip")
        assert kept["next_times"][1] == "2026-11-30T06:30:00Z", "not at the weekend"
        again = await client.put("/v1/schedules/nightly", json=MORNING, headers={"If-Match": '"1"'})
        assert (again.status_code, again.json()) == (200, kept)
        assert_problem(
            await client.put("/v1/schedules/nightly", json=HOURLY, headers={"If-None-Match": "*"}),
            412,
            "schedule_changed",
        )
        await plan.put("billing")
        first = await client.get("/v1/schedules?limit=1")
        rest = await client.get(first.headers["link"].partition(">")[0][1:])
        assert [each["name"] for page in (first, rest) for each in page.json()["data"]] == ["billing", "nightly"]
        assert "run" not in first.json()["data"][0]
        paused = (await client.post("/v1/schedules/nightly/pause")).json()
        assert (paused["paused"], paused["next_at"], paused["next_times"]) == (True, None, [])
        assert (await client.post("/v1/schedules/nightly/pause")).json() == paused
        changed = await client.put("/v1/schedules/nightly", json=HOURLY)
        assert (changed.json()["paused"], changed.json()["next_at"]) == (True, None), "it stays paused"
        resumed = (await client.post("/v1/schedules/nightly/resume")).json()
        assert (resumed["paused"], resumed["next_at"]) == (False, "2026-11-26T13:00:00Z")
        assert (await client.delete("/v1/schedules/nightly")).status_code == 204
        for method, path in (
            ("GET", ""),
            ("DELETE", ""),
            ("POST", "/pause"),
            ("POST", "/resume"),
            ("POST", "/trigger"),
        ):
            answer = await client.request(method, f"/v1/schedules/nightly{path}")
            assert_problem(answer, 404, "schedule_not_found")


@pytest.mark.parametrize(
    ("body", "code", "pointer"),
    [
        ({"run": RUN}, "validation_error", "/cron"),
        ({"every": 9, "run": RUN}, "greater_than_equal", "/every"),
        ({**HOURLY, "timezone": "Mars/Olympus", "cron": "* * * * *", "every": None}, "validation_error", "/timezone"),
        ({**HOURLY, "run": {**RUN, "agent": {**AGENT, "tools": ["abacus"]}}}, "unknown_tool", "/run/agent/tools/0"),
        ({**HOURLY, "run": {**RUN, "agent": "nobody"}}, "unknown_agent", "/run/agent"),
        ({**HOURLY, "run": {**RUN, "input": ""}}, "empty_input", "/run/input"),
        ({**HOURLY, "run": {**RUN, "tags": [f"t{n}" for n in range(32)]}}, "too_long", "/run/tags"),
        ({**HOURLY, "run": {**RUN, "secrets": {"KEY": "x"}}}, "unknown_field", "/run/secrets"),
        ({**HOURLY, "run": {"input": "hello"}}, "no_agent", "/run/agent"),
    ],
)
async def test_what_is_wrong_is_said_when_it_is_put(body: dict[str, Any], code: str, pointer: str) -> None:
    async with planned() as plan:
        answer = await plan.api.client.put("/v1/schedules/nightly", json=body)
        assert answer.status_code == 422, answer.text
        assert (pointer, code) in [(each["pointer"], each["code"]) for each in answer.json()["errors"]], answer.text


async def test_each_tick_is_a_run_with_the_schedule_s_tag() -> None:
    async with planned() as plan:
        await plan.put()
        found = await plan.pass_time(3)
        (tick,) = found["ticks"]
        assert (tick["tick"], tick["outcome"], tick["missed_since"]) == ("2026-11-26T13:00:00Z", "started", None)
        assert (found["last_run_id"], found["next_at"]) == (tick["run_id"], "2026-11-26T14:00:00Z")
        run = (await plan.api.client.get(f"/v1/runs/{tick['run_id']}")).json()
        assert (run["tags"], run["input_preview"]) == (["mine", "schedule:nightly"], "hello")
        listed = (await plan.api.client.get("/v1/runs?tag=schedule:nightly")).json()["data"]
        assert [each["id"] for each in listed] == [run["id"]]
        measured = (await plan.api.client.get("/metrics")).text
        assert 'palaver_schedule_ticks_total{outcome="started"} 1' in measured


async def test_a_run_that_goes_on_has_the_next_tick_left_out() -> None:
    async with planned() as plan:
        await plan.put()
        first = (await plan.pass_time())["ticks"][0]["run_id"]
        tick = (await plan.pass_time())["ticks"][0]
        assert (tick["outcome"], tick["run_id"]) == ("skipped", first)
        await plan.end(first)
        assert (await plan.pass_time())["ticks"][0]["outcome"] == "started"


async def test_or_it_waits_for_its_end() -> None:
    async with planned() as plan:
        await plan.put(overlap="queue")
        first = (await plan.pass_time())["ticks"][0]["run_id"]
        for _ in range(3):
            waits = await plan.pass_time()
            assert (len(waits["ticks"]), waits["waiting_since"]) == (1, "2026-11-26T14:00:00Z")
        await plan.end(first)
        tick = (await plan.pass_time())["ticks"][0]
        assert (tick["tick"], tick["outcome"]) == ("2026-11-26T14:00:00Z", "started")
        assert tick["run_id"] != first


async def test_or_the_run_is_cancelled() -> None:
    async with planned() as plan:
        await plan.put(overlap="cancel")
        first = (await plan.pass_time())["ticks"][0]["run_id"]
        assert (await plan.pass_time())["ticks"][0]["outcome"] == "started"
        run = (await plan.api.client.get(f"/v1/runs/{first}")).json()
        assert (run["status"], run["cancel"]["reason"]) == ("cancelled", "the next tick of the schedule nightly")


async def test_of_ticks_that_nobody_was_there_for_the_newest_is_carried_out_or_none() -> None:
    async with planned() as plan:
        await plan.put()
        await plan.put("never", missed="never")
        found = await plan.pass_time(5 * 3600 + 120)
        (tick,) = found["ticks"]
        assert (tick["tick"], tick["outcome"]) == ("2026-11-26T18:00:00Z", "started")
        assert tick["missed_since"] == "2026-11-26T13:00:00Z"
        (tick,) = (await plan.read("never"))["ticks"]
        assert (tick["tick"], tick["outcome"], tick["run_id"]) == ("2026-11-26T18:00:00Z", "missed", None)
        await plan.pass_time(59)
        assert (await plan.read("never"))["ticks"][0]["outcome"] == "started", "a minute is not too late"


async def test_the_policy_is_asked_at_each_tick_and_its_refusal_is_shown() -> None:
    async with planned() as plan:
        await plan.api.client.put("/v1/agents/support", json=AGENT)
        await plan.put(run={**RUN, "agent": "support"})
        assert (await plan.pass_time())["ticks"][0]["outcome"] == "started"
        await plan.api.client.delete("/v1/agents/support")
        await plan.end((await plan.read())["last_run_id"])
        tick = (await plan.pass_time())["ticks"][0]
        assert (tick["outcome"], tick["code"]) == ("refused", "unknown_agent")
        assert "is not on the server" in tick["message"]
        assert (await plan.read())["next_at"] == "2026-11-26T15:00:00Z", "the next one is tried again"


async def test_no_room_is_waited_for() -> None:
    async with planned(SETTINGS.model_copy(update={"max_runs": 1})) as plan:
        await plan.put()
        other = await plan.api.submit()
        found = await plan.pass_time()
        assert (found["ticks"], found["waiting_since"]) == ([], "2026-11-26T13:00:00Z")
        await plan.end(other["id"])
        assert (await plan.pass_time())["ticks"][0]["outcome"] == "started"
        await plan.end((await plan.read())["last_run_id"])
        await plan.api.submit()
        for _ in range(3):
            await plan.pass_time(300)
        tick = (await plan.read())["ticks"][0]
        assert (tick["outcome"], tick["code"]) == ("refused", "too_many_runs")


async def test_a_run_has_the_rights_that_its_key_has_by_then() -> None:
    settings = SETTINGS.model_copy(update={"api_keys": (ApiKey(name="root", secret=SecretStr("root")),)})
    async with planned(settings) as plan:
        client, api_keys = plan.api.client, plan.api.store.api_keys
        grant = KeyGrant("cron", scopes=frozenset(SCOPES))
        key = await api_keys.create(grant)
        client.headers["authorization"] = f"Bearer {key.key}"
        await plan.put()
        client.headers["authorization"] = "Bearer root"
        first = (await plan.pass_time())["ticks"][0]
        run = (await client.get(f"/v1/runs/{first['run_id']}")).json()
        assert run["submitted_by"] == "cron"
        await plan.end(run["id"])
        # A new key of that name, for one agent alone: that is what the schedule may have from now on.
        await api_keys.revoke(key.record.id)
        narrow = await api_keys.create(KeyGrant("cron", scopes=frozenset(SCOPES), agents=frozenset({"support"})))
        tick = (await plan.pass_time())["ticks"][0]
        assert (tick["outcome"], tick["code"]) == ("refused", "agent_not_allowed")
        await api_keys.revoke(narrow.record.id)
        tick = (await plan.pass_time())["ticks"][0]
        assert (tick["outcome"], tick["code"]) == ("refused", "invalid_token")
        assert "No key of the name cron is valid any more" in tick["message"]
        reading = await api_keys.create(KeyGrant("cron", scopes=frozenset({"runs:read"})))
        tick = (await plan.pass_time())["ticks"][0]
        assert (tick["outcome"], tick["code"]) == ("refused", "invalid_token")
        await api_keys.revoke(reading.record.id)
        held = await api_keys.create(KeyGrant("held", scopes=frozenset(SCOPES), conversation="conv_00" + "0" * 26))
        client.headers["authorization"] = f"Bearer {held.key}"
        assert_problem(await client.put("/v1/schedules/x", json=HOURLY), 403, "insufficient_scope")


async def test_who_needed_no_key_needs_one_since_the_api_wants_them() -> None:
    nobody = Bearer(name=None, scopes=None, agents=None, kind="none", operator=False)
    async with planned() as plan:
        backend = plan.api.app.state.backend

        def keyed(name: str | None) -> Any:
            listed = (ApiKey(name=name, secret=SecretStr("root")),)
            return replace(backend, settings=SETTINGS.model_copy(update={"api_keys": listed}))

        for permitting in (backend, keyed(None)):
            assert (await caller_now(permitting, "", nobody)).trusted
        with pytest.raises(Refused, match="No key without a name is valid any more"):
            await caller_now(keyed("root"), "", nobody)


async def test_it_can_be_carried_out_now_which_is_no_tick() -> None:
    async with planned() as plan:
        await plan.put()
        client = plan.api.client
        await client.post("/v1/schedules/nightly/pause")
        asked = [
            await client.post("/v1/schedules/nightly/trigger", headers={"Idempotency-Key": "once"}) for _ in range(2)
        ]
        assert [answer.status_code for answer in asked] == [202, 202]
        assert asked[0].json()["id"] == asked[1].json()["id"]
        assert asked[1].headers["idempotency-replayed"] == "true"
        assert asked[0].json()["tags"] == ["mine", "schedule:nightly"]
        found = await plan.read()
        assert (found["ticks"], found["last_run_id"], found["paused"]) == ([], None, True)


async def test_when_nobody_knows_any_more_what_became_of_a_tick_it_is_not_carried_out_again() -> None:
    async with planned(SETTINGS.model_copy(update={"retention": 3600.0})) as plan:
        await plan.put(every=86400)
        plan.clock.now = datetime(2026, 11, 27, tzinfo=UTC).timestamp()
        (due,), _ = await plan.api.store.part(Ticks).due()
        claimed = await plan.scheduler._claim(due)
        assert claimed is not None, "and then the process dies"
        tick = (await plan.pass_time(1801))["ticks"][0]
        assert (tick["outcome"], tick["code"]) == ("missed", "unknown_outcome")


async def test_a_run_that_was_submitted_is_known_though_it_would_be_refused_now() -> None:
    async with planned() as plan:
        await plan.api.client.put("/v1/agents/support", json=AGENT)
        await plan.put(run={**RUN, "agent": "support"})
        plan.clock.now = await next_attention(plan.api) or 0
        (due,), _ = await plan.api.store.part(Ticks).due()
        claimed = await plan.scheduler._claim(due)
        assert claimed is not None
        entry = await plan.scheduler._outcome(claimed)
        assert entry is not None, "and then the process dies"
        await plan.api.client.delete("/v1/agents/support")
        tick = (await plan.pass_time())["ticks"][0]
        assert (tick["outcome"], tick["run_id"]) == ("started", entry.run_id)


async def test_where_something_unforeseen_is_wrong_others_go_on(caplog: pytest.LogCaptureFixture) -> None:
    async with planned() as plan:
        await plan.put()
        await plan.put("broken")
        redis: Any = plan.api.redis
        await redis.hset(schedule_keys.schedule("", "broken"), "order", "no JSON")
        assert (await plan.pass_time())["ticks"][0]["outcome"] == "started"
        assert "a tick of a schedule is not carried out" in caplog.text
        assert await plan.scheduler.look() > 0.5, "it is left alone for a while"


def test_a_schedule_that_is_not_there_is_state_that_was_lost() -> None:
    failure = classify(UnknownSchedule("x"))
    assert (failure.error_class, failure.code) == (ErrorClass.INTERNAL, "state_lost")
    assert features()["schedules"].due == schedule_keys.SCHEDULES_DUE
    assert sides()["schedules"].section == 6
