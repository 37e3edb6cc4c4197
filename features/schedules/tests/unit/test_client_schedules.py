"""What the clients and ``palaver schedules`` do about schedules."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from palaver.client import Conflict, NotFound
from palaver.schemas.models import AgentSpec
from palaver.schemas.schedules import NewSchedule, ScheduledRun
from tests.both_clients import Call, async_client
from tests.command_line import CommandResult
from tests.scripted_api import Reply, ScriptedAPI, answer, problem, run_object

SCHEDULE = "/v1/schedules/nightly"


def listed(**changes: Any) -> dict[str, Any]:
    """A schedule as lists of the API have it."""
    fields = {
        "name": "nightly", "version": 2, "cron": "30 2 * * *", "timezone": "Europe/Berlin", "every": None, "jitter": 0,
        "overlap": "skip", "missed": "once", "paused": False, "next_at": "2026-11-27T01:30:00Z", "waiting_since": None,
        "last_run_id": "run_1", "created_at": "2026-11-01T00:00:00Z", "created_by": "ann",
        "updated_at": "2026-11-01T00:00:00Z", "updated_by": "ann",
    }  # fmt: skip
    return {**fields, **changes}


def kept(**changes: Any) -> dict[str, Any]:
    """A schedule as the API answers it."""
    tick = {"tick": "2026-11-26T01:30:00Z", "at": "2026-11-26T01:30:01Z", "outcome": "refused", "code": "unknown_agent"}
    run = {"agent": {"model": "fake/tool-1", "tools": ["send"]}, "input": "hello"}
    times = ["2026-11-27T01:30:00Z", "2026-11-28T01:30:00Z"]
    return {**listed(), "run": run, "next_times": times, "ticks": [{**tick, "message": "is not there"}], **changes}


@pytest.fixture
def api() -> Iterator[ScriptedAPI]:
    with ScriptedAPI() as server:
        page = {"next_cursor": None, "has_more": False}
        server.on("PUT", SCHEDULE, answer(kept(), 201))
        server.on("GET", SCHEDULE, answer(kept()))
        server.on("DELETE", SCHEDULE, Reply(204))
        server.on("GET", "/v1/schedules", answer({"data": [listed()], **page}))
        for verb in ("pause", "resume"):
            paused = verb == "pause"
            server.on("POST", f"{SCHEDULE}/{verb}", answer(kept(paused=paused)))
        server.on("POST", f"{SCHEDULE}/trigger", answer(run_object("queued"), 202))
        yield server


@async_client
def test_one_is_put_read_listed_and_removed(api: ScriptedAPI, call: Call) -> None:
    run = ScheduledRun(agent=AgentSpec(model="fake/tool-1"), input="hello")
    made = call(api.url, "put_schedule", "nightly", NewSchedule(every=60, run=run), version=1)
    assert (made.name, made.version, made.run.agent.tools) == ("nightly", 2, ("send",))
    assert api.seen[0].body == {"every": 60, "run": {"agent": {"model": "fake/tool-1"}, "input": "hello"}}
    assert api.seen[0].headers["if-match"] == '"1"'
    found = call(api.url, "schedule", "nightly")
    assert [tick.outcome for tick in found.ticks] == ["refused"]
    assert [each.name for each in call(api.url, "schedules")] == ["nightly"]
    call(api.url, "delete_schedule", "nightly")
    api.on("GET", SCHEDULE, problem(404, "schedule_not_found"))
    with pytest.raises(NotFound):
        call(api.url, "schedule", "nightly")
    api.on("PUT", SCHEDULE, problem(412, "schedule_changed", "its version is 3"))
    with pytest.raises(Conflict):
        call(api.url, "put_schedule", "nightly", {"every": 60}, version=2)


@async_client
def test_it_is_paused_resumed_and_carried_out_now(api: ScriptedAPI, call: Call) -> None:
    assert call(api.url, "pause_schedule", "nightly").paused
    assert not call(api.url, "resume_schedule", "nightly").paused
    assert call(api.url, "trigger_schedule", "nightly", idempotency_key="once").id == run_object("queued")["id"]
    assert api.seen[-1].headers["idempotency-key"] == "once"


def test_the_command_puts_one(api: ScriptedAPI) -> None:
    words = ("schedules", "put", "nightly", "hello", "--agent", "support", "--every", "15m", "--overlap", "queue")
    said = CommandResult(api, *words)
    assert said.code == 0, said.err
    assert said.out.startswith("nightly: next at 2026-11-27")
    run = {"agent": "support", "input": "hello"}
    assert api.seen[0].body == {"every": 900, "overlap": "queue", "run": run}
    assert CommandResult(api, *words, "--missed", "twice").code == 2


def test_the_command_lists_and_shows(api: ScriptedAPI) -> None:
    lines = CommandResult(api, "schedules", "list").out.splitlines()
    assert lines[0].split() == ["SCHEDULE", "TIMES", "NEXT", "LAST", "RUN"]
    assert "30 2 * * * Europe/Berlin" in lines[1]
    shown = CommandResult(api, "schedules", "show", "nightly").out
    assert all(words in shown for words in ("version 2", '"input": "hello"', "refused", "is not there"))
    assert json.loads(CommandResult(api, "schedules", "show", "nightly", "--json").out)["name"] == "nightly"
    api.on("GET", "/v1/schedules", answer({"data": [], "next_cursor": None, "has_more": False}))
    assert CommandResult(api, "schedules", "list").err == "No schedules.\n"


def test_the_command_pauses_resumes_triggers_and_deletes(api: ScriptedAPI) -> None:
    assert CommandResult(api, "schedules", "pause", "nightly").out == "nightly is paused\n"
    assert CommandResult(api, "schedules", "resume", "nightly").out.startswith("nightly: next at ")
    assert CommandResult(api, "schedules", "trigger", "nightly").out.startswith("run_")
    assert CommandResult(api, "schedules", "delete", "nightly", "-y").out == "deleted nightly\n"
