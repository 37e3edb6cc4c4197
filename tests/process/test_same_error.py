"""A run that failed carries one error object, and every way to hear of it brings the same."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest

from palaver.client import AsyncPalaver, Palaver
from palaver.errors.failure import ErrorObject, ProviderObject
from palaver.events import Event, RunFinished
from tests.command_line import CommandResult
from tests.process.cluster import Cluster, stream

pytestmark = [pytest.mark.process, pytest.mark.long]

# These runs fail one after the other, which is an outage of their model: they do not wait for its end.
TWICE = {"retry": {"patience": 0, "rules": {"provider_error": {"attempts": 2, "first": 0.01}}}}
SAME = '[[args {"expression": "1 + 1"}]]'


def body(cluster: Cluster, model: str, text: str = "hello", **agent: Any) -> dict[str, Any]:
    return cluster.body(model, text, tools=agent.pop("tools", ()), agent=agent)


FAILURES: dict[str, dict[str, Any]] = {
    "authentication": {"model": "401"},
    "quota_exhausted": {"model": "quota"},
    "provider_error": {"model": "503", **TWICE},
    "connection": {"model": "say-9+cut", "retry": {"rules": {"connection": {"attempts": 1}}}},
    "context_window": {"model": "context", "condense": False},
    "stuck": {"model": "tool-50", "text": SAME, "tools": ["calculator"], "stuck": {"same_result": 2}},
}


@pytest.fixture(params=FAILURES)
def failing(request: pytest.FixtureRequest, cluster: Cluster) -> tuple[str, dict[str, Any]]:
    """An error class, and what to submit for it."""
    return request.param, body(cluster, **FAILURES[request.param])


def own(cluster: Cluster, run_id: str) -> Any:
    """The run's error, as reading the run gives it."""
    if run_id not in cluster.submitted:
        cluster.submitted.append(run_id)
    answer = cluster.http.get(f"/v1/runs/{run_id}").json()
    assert answer["status"] == "failed"
    return answer["error"]


def finished(events: list[Any]) -> Any:
    """The error of the last event."""
    assert events[-1]["type"] == "run.finished"
    return events[-1]["error"]


def told(cluster: Cluster, run_id: str) -> Iterator[tuple[str, Any]]:
    """Each way to read of a run that has ended, and the error that it brings."""
    path, http, url = f"/v1/runs/{run_id}", cluster.http, cluster.stack.url
    yield "long poll", http.get(path, params={"wait": 5}).json()["error"]
    listed = http.get("/v1/runs", params={"status": "failed", "limit": 200}).json()["data"]
    yield "list", next(run["error"] for run in listed if run["id"] == run_id)
    pages = http.get(f"{path}/events", headers={"Accept": "application/json"}, params={"limit": 1000}).json()
    yield "page of events", finished(pages["data"])
    *_, (_, last) = stream(http, f"{path}/events")
    yield "stream", last["data"]["error"]
    run = cluster.run(run_id)
    entries = cluster.ask(lambda store: store.runs.entries(run.conversation_id, limit=1000))
    yield "log", entries[-1].data["error"]
    with Palaver(url) as client:
        yield "SDK get", client.get(run_id).error
        yield "SDK wait", client.wait(run_id).error
        yield "SDK list", next(run.error for run in client.list(status="failed") if run.id == run_id)
        yield "SDK events", error_in(list(client.events(run_id))[-1])
    yield from asyncio.run(_told_on_a_loop(url, run_id))
    for command in (("show", run_id), ("list", "--limit", "200")):
        [document] = CommandResult(url, *command, "--json").documents
        found = document if isinstance(document, dict) else next(run for run in document if run["id"] == run_id)
        yield f"CLI {command[0]}", found["error"]
    yield "CLI watch", finished(CommandResult(url, "watch", run_id, "--json").documents)


def error_in(event: Event) -> ErrorObject | None:
    assert isinstance(event, RunFinished)
    return event.error


async def _told_on_a_loop(url: str, run_id: str) -> list[tuple[str, Any]]:
    async with AsyncPalaver(url) as client:
        listed = [run async for run in client.list(status="failed")]
        events = [event async for event in client.events(run_id)]
        return [
            ("async get", (await client.get(run_id)).error),
            ("async wait", (await client.wait(run_id)).error),
            ("async list", next(run.error for run in listed if run.id == run_id)),
            ("async events", error_in(events[-1])),
        ]


def test_every_way_to_read_of_it(cluster: Cluster, failing: tuple[str, dict[str, Any]]) -> None:
    error_class, what = failing
    answer = cluster.http.post("/v1/runs", json=what, headers={"Prefer": "wait=30"})
    assert answer.status_code == 200, answer.text
    run_id, error = answer.json()["id"], answer.json()["error"]
    assert own(cluster, run_id) == error
    assert error.keys() == ErrorObject.__annotations__.keys()
    assert (error["class"], error["recoverable"]) == (error_class, False)
    if error_class != "stuck":
        assert error["provider"].keys() == ProviderObject.__annotations__.keys()
    assert {way: said for way, said in told(cluster, run_id) if said != error} == {}


def test_a_run_that_a_limit_or_a_policy_stopped_has_none(cluster: Cluster) -> None:
    for what, stop_reason in (
        (body(cluster, "policy"), "content_filter"),
        (body(cluster, "filter"), "content_filter"),
        (body(cluster, "tool-9", tools=["calculator"], max_steps=1), "max_steps"),
        ({**body(cluster, "tool-9", tools=["calculator"]), "budget": {"tokens": 1}}, "budget"),
    ):
        run = cluster.http.post("/v1/runs", json=what, headers={"Prefer": "wait=30"}).json()
        cluster.submitted.append(run["id"])
        assert (run["status"], run["stop_reason"], run["error"]) == ("incomplete", stop_reason, None)
        finished, details = cluster.events(run["id"])[-1].data, run["incomplete_details"]
        assert finished.pop("incomplete_details", None) == details
        assert finished == {"status": "incomplete", "stop_reason": stop_reason, "error": None}
        assert (details is not None) == (stop_reason == "content_filter")


@pytest.mark.parametrize(
    ("model", "status", "words"),
    [
        ("fake/policy", 400, "Your request was rejected by the content management policy."),
        ("fake/say-9+filter", 200, None),
        ("claude/policy", 400, "Output blocked by content filtering policy"),
        ("claude/say-9+filter", 200, "This request was blocked under our usage policy"),
        ("responding/policy", 400, "Your request was rejected by the content management policy."),
        ("responding/say-9+filter", 200, None),
    ],
)
def test_what_the_provider_said_of_an_answer_that_it_withheld_is_on_the_run(
    cluster: Cluster, model: str, status: int, words: str | None
) -> None:
    provider, _, script = model.partition("/")
    run = cluster.ended(cluster.submit(model))
    assert (run.stop_reason, run.error) == ("content_filter", None)
    details = run.incomplete_details
    assert details is not None
    assert (details["class"], details["user_action"]) == ("content_filter", "fix_input")
    assert details["provider"] is not None
    assert (details["provider"]["name"], details["provider"]["model"]) == (provider, script)
    assert details["provider"]["http_status"] == status
    assert details["provider"]["request_id"] == f"req-{cluster.model_calls(run.id)[-1].n}"
    said = details["provider"].get("message")
    assert (said or "").startswith(words or "")
    assert (said is None) == (words is None)
    shown = CommandResult(cluster.stack.url, "show", run.id).out
    assert (f"\nprovider said {said}\n" in shown) == (said is not None)
    assert "\nwhy           content_filter: The provider's content policy withheld the answer." in shown
    assert "\nwhat to do    say it in other words" in shown
