"""Queues and health, and what clients hear when Redis is away or something breaks that nobody foresaw."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
from datetime import UTC, datetime

import pytest

from api.app.application import closing_on_signals, create_app
from palaver.config.providers import Provider
from palaver.config.settings import Settings
from palaver.errors import ConfigurationError
from palaver.schemas.models import Submission
from palaver.schemas.tenants import CapsChange
from palaver.store import Store
from palaver.store.fleet.fleet import WorkerReport
from palaver.store.redis import keys
from palaver.store.redis.pools import client_of
from palaver.store.redis.reach import Reach, within
from palaver.vocabulary.step_kinds import WINDOW
from tests.unit.api_world import (
    BODY,
    CONVERSATION_ID,
    RUN_ID,
    SETTINGS,
    LiveRequest,
    RecordingPublisher,
    assert_problem,
    world,
)
from tests.waiting import PATIENCE

BODIES = {
    ("POST", "/v1/runs"): BODY,
    ("POST", f"/v1/runs/{RUN_ID}/input"): {"items": [{"type": "pause"}]},
    ("POST", "/v1/runs/actions"): {"action": "cancel", "all": True},
}


async def test_queues_show_whose_steps_wait_for_their_turn() -> None:
    async with world() as api:
        acme = await api.store.tenants.create("acme")
        await api.store.caps.change(acme.tag, CapsChange(weight=3, max_in_flight=1))
        with within(Reach(acme.tag)):
            for _ in range(2):
                await api.store.runs.submit(Submission.model_validate(BODY))
        for _ in range(WINDOW + 1):
            await api.submit()
        model, tools = (await api.client.get("/v1/queues")).json()["data"]
        assert tools["tenants"] == []
        assert all(0 <= each.pop("first_waits_seconds") < 60 for each in model["tenants"])
        one = {"waiting": 1, "in_flight": 1, "max_in_flight": 1, "at_cap": True, "weight": 3}
        own = {"waiting": 2, "in_flight": WINDOW - 1, "max_in_flight": None, "at_cap": False, "weight": 1}
        assert model["tenants"] == [{"tenant": "default", **own}, {"tenant": "acme", **one}]


async def test_queues_show_what_waits_and_who_works() -> None:
    async with world() as api:
        run = await api.submit()
        await api.submit()
        await api.claim(run)
        await api.store.fleet.report(WorkerReport("w-1", ("model",), in_flight=3, capacity=50, draining=False))
        await api.store.fleet.report(WorkerReport("w-2", ("model",), in_flight=1, capacity=50, draining=True))
        model, tools = (await api.client.get("/v1/queues")).json()["data"]
        assert (model["name"], model["ready"], model["running"]) == ("model", 1, 4)
        assert model["oldest_ready_seconds"] >= 0
        assert {worker["id"]: worker["draining"] for worker in model["workers"]} == {
            "w-1": False,
            "w-2": True,
        }
        assert tools == {
            "name": "tools",
            "ready": 0,
            "oldest_ready_seconds": 0.0,
            "running": 0,
            "workers": [],
            "refused": [],
            "tenants": [],
        }
        assert (await api.client.get("/v1/queues?format=keda&queue=model")).json() == {"value": 5}
        assert (await api.client.get("/v1/queues?format=keda")).json() == {"value": 5}
        assert [each["name"] for each in (await api.client.get("/v1/queues?queue=tools")).json()["data"]] == ["tools"]


async def test_providers_show_what_holds_their_runs_up() -> None:
    providers = {
        "free": Provider(base_url="http://127.0.0.1:1/v1"),
        "limited": Provider(base_url="http://127.0.0.1:1/v1", max_in_flight=1, tokens_per_minute=1000),
    }
    async with world(providers=providers) as api:
        await api.store.providers.cool_down("free", 30)
        for call in ("1", "2"):
            await api.store.providers.admit("limited", call, providers["limited"].limits, 50)
        free, limited = (await api.client.get("/v1/queues?queue=model")).json()["providers"]
        await api.store.providers.cool_down("limited/large", 30)
        (cooling,) = (await api.client.get("/v1/queues?queue=model")).json()["providers"][1]["cooling"]
        assert (cooling["model"], cooling["waiting"]) == ("large", 0)
        until = free.pop("cooling_until")
        assert datetime.fromisoformat(until) > datetime.now(UTC)
        assert free == {
            "name": "free",
            "cooling": [{"model": None, "until": until, "waiting": 0}],
            "waiting": 0,
            "outages": [],
            "in_flight": None,
            "max_in_flight": None,
            "requests_last_minute": None,
            "requests_per_minute": None,
            "tokens_last_minute": None,
            "tokens_per_minute": None,
        }
        assert limited == {
            "name": "limited",
            "cooling_until": None,
            "cooling": [],
            "waiting": 1,
            "outages": [],
            "in_flight": 1,
            "max_in_flight": 1,
            "requests_last_minute": 1,
            "requests_per_minute": None,
            "tokens_last_minute": 50,
            "tokens_per_minute": 1000,
        }


async def test_a_worker_that_is_refused_is_no_worker() -> None:
    async with world() as api:
        well = WorkerReport("w-1", ("model",), in_flight=3, capacity=50, draining=False)
        refused = WorkerReport("w-2", ("model",), in_flight=1, capacity=50, draining=False, refused=("blmpop", "eval"))
        for each in (well, refused):
            await api.store.fleet.report(each)
        model, tools = (await api.client.get("/v1/queues")).json()["data"]
        there = [{"id": "w-2", "refused": ["blmpop", "eval"]}]
        assert [worker["id"] for worker in model["workers"]] == ["w-1"]
        assert (model["refused"], tools["refused"], model["running"]) == (there, [], 4)
        assert (await api.client.get("/readyz")).json()["refused_workers"] == there
        metrics = (await api.client.get("/metrics")).text
    assert 'palaver_workers{queue="model",state="working"} 1' in metrics
    assert 'palaver_workers{queue="model",state="refused"} 1' in metrics
    assert 'palaver_queue_capacity{queue="model"} 50' in metrics


async def test_a_queue_that_nobody_knows_has_nothing() -> None:
    async with world() as api:
        assert (await api.client.get("/v1/queues?format=keda&queue=gpu")).json() == {"value": 0}
        assert (await api.client.get("/v1/queues?queue=gpu")).json()["data"] == []
        await api.store.queues.publish(("gpu",))
        await api.store.fleet.report(WorkerReport("w-1", ("gpu", "tools"), in_flight=3, capacity=4, draining=False))
        assert (await api.client.get("/v1/queues?format=keda&queue=gpu")).json() == {"value": 3}
        states = (await api.client.get("/v1/queues")).json()["data"]
        assert {each["name"]: len(each["workers"]) for each in states} == {"model": 0, "tools": 1, "gpu": 1}


async def test_a_worker_of_both_kinds_counts_for_each_queue_what_is_of_it() -> None:
    async with world() as api:
        both = WorkerReport("w-1", ("model", "tools"), in_flight=5, capacity=50, draining=False, by_queue=(3, 2))
        older = WorkerReport("w-2", ("model", "tools"), in_flight=1, capacity=50, draining=False)
        for each in (both, older):
            await api.store.fleet.report(each)
        states = (await api.client.get("/v1/queues")).json()["data"]
        assert {state["name"]: state["running"] for state in states} == {"model": 4, "tools": 3}
        in_flight = {state["name"]: {each["id"]: each["in_flight"] for each in state["workers"]} for state in states}
        assert in_flight == {"model": {"w-1": 3, "w-2": 1}, "tools": {"w-1": 2, "w-2": 1}}
        metrics = (await api.client.get("/metrics")).text
    assert 'palaver_queue_running{queue="model"} 4' in metrics
    assert 'palaver_queue_running{queue="tools"} 3' in metrics


@pytest.mark.parametrize("query", ["queue=No_queue", "format=xml"])
async def test_a_scaler_must_say_what_it_wants(query: str) -> None:
    async with world() as api:
        assert_problem(await api.client.get(f"/v1/queues?{query}"), 422, "validation_error")


async def test_health() -> None:
    async with world() as api:
        alive, ready = [await api.client.get(path) for path in ("/healthz", "/readyz")]
        assert (alive.status_code, alive.json()) == (200, {"status": "ok"})
        assert ready.status_code == 200
        assert ready.json() == {"status": "ok", "store_rewound": None, "no_worker": [], "refused_workers": []}


async def test_a_process_that_was_told_to_end_is_not_ready() -> None:
    async with world() as api:
        api.app.state.backend.closing.set()
        ended = assert_problem(await api.client.get("/readyz"), 503, "not_ready")
        assert ended["detail"] == "The process was told to end."
        assert (await api.client.get("/healthz")).status_code == 200


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("GET", "/v1/runs"),
        ("POST", "/v1/runs"),
        ("GET", f"/v1/runs/{RUN_ID}"),
        ("GET", f"/v1/runs/{RUN_ID}/events"),
        ("POST", f"/v1/runs/{RUN_ID}/cancel"),
        ("POST", f"/v1/runs/{RUN_ID}/input"),
        ("POST", f"/v1/runs/{RUN_ID}/retry"),
        ("POST", "/v1/runs/actions"),
        ("DELETE", f"/v1/runs/{RUN_ID}"),
        ("DELETE", f"/v1/conversations/{CONVERSATION_ID}"),
        ("POST", "/v1/conversations"),
        ("GET", "/v1/queues"),
        ("GET", "/readyz"),
    ],
)
async def test_without_redis_clients_are_asked_to_come_again(
    method: str, path: str, caplog: pytest.LogCaptureFixture
) -> None:
    async with world() as api:
        api.server.connected = False
        body = BODIES.get((method, path))
        answer = await api.client.request(method, path, json=body)
        assert_problem(answer, 503, "not_ready" if path == "/readyz" else "unavailable")
        assert int(answer.headers["retry-after"]) > 0
        assert (await api.client.get("/healthz")).status_code == 200
        assert "Traceback" not in caplog.text
        api.server.connected = True
        assert (await api.client.get("/readyz")).status_code == 200


async def test_a_redis_that_does_not_answer_is_away_too(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("palaver.operations.backend._DEADLINE", 0.1)

    async def silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await reader.read()
        finally:
            writer.close()

    server = await asyncio.start_server(silent, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    # Its own patience is longer than that of a request, and short: a start waits for it.
    redis = client_of(f"redis://127.0.0.1:{port}/0", seconds=2)
    store = Store(redis, SETTINGS)
    app = create_app(SETTINGS, store, RecordingPublisher(), {})
    async with server, app.router.lifespan_context(app):
        live = LiveRequest(app, "GET", "/v1/runs")
        await asyncio.wait_for(live.task, PATIENCE)
        assert live.status == 503
        assert "the store does not answer: it took too long" in caplog.text
        await store.close()


async def test_what_nobody_foresaw_is_logged_and_not_told(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async with world() as api:

        async def broken(*_: object, **__: object) -> None:
            raise ZeroDivisionError("sk-CANARY")

        monkeypatch.setattr(api.store.runs, "list", broken)
        with caplog.at_level(logging.ERROR, logger="palaver.api"):
            answer = await api.client.get("/v1/runs")
        problem = assert_problem(answer, 500, "internal")
        assert "CANARY" not in answer.text
        assert problem["request_id"] in caplog.text
        assert "ZeroDivisionError" in caplog.text


def test_importing_the_application_needs_no_configuration(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PALAVER_REDIS_URL", raising=False)
    assert create_app().openapi()["info"]["title"] == "Palaver"


async def test_starting_without_redis_configured_says_which_variable() -> None:
    app = create_app(Settings(redis_url=None))
    with pytest.raises(ConfigurationError, match="PALAVER_REDIS_URL"):
        async with app.router.lifespan_context(app):
            pass


async def test_a_signal_to_end_is_told_to_who_waits_and_then_to_the_server() -> None:
    told: list[int] = []
    before = signal.signal(signal.SIGTERM, lambda number, frame: told.append(number))
    try:
        server = signal.getsignal(signal.SIGTERM)
        closing = asyncio.Event()
        with closing_on_signals(closing):
            os.kill(os.getpid(), signal.SIGTERM)
            await asyncio.wait_for(closing.wait(), PATIENCE)
        assert told == [signal.SIGTERM]
        assert signal.getsignal(signal.SIGTERM) is server
    finally:
        signal.signal(signal.SIGTERM, before)


async def test_a_server_in_another_thread_gets_no_signals() -> None:
    def enter() -> object:
        with closing_on_signals(asyncio.Event()):
            return signal.getsignal(signal.SIGTERM)

    assert await asyncio.to_thread(enter) is signal.getsignal(signal.SIGTERM)


async def test_a_store_that_lost_something_is_no_green_light() -> None:
    """It stays 200, as no other process has more; only who has a key is told what is gone."""
    async with world() as api:
        await api.submit()
        await api.store.rewinds.look()
        await api.redis.flushall()
        await api.store.rewinds.look()
        ready = await api.client.get("/readyz")
        assert (ready.status_code, ready.json()["status"]) == (200, "store_rewound")
        assert ready.json()["store_rewound"] == {
            "at": ready.json()["store_rewound"]["at"],
            "runs": 1,
            "steps": 0,
            "replaced": True,
        }


TAMPERED = ("status", "agent", "created_at", "metadata", "tags", "seq", "events")
"""Fields of a run's hash."""


@pytest.mark.parametrize("field", TAMPERED)
async def test_a_tampered_record_is_an_error_of_its_class(field: str, caplog: pytest.LogCaptureFixture) -> None:
    """Of its own run only; the log has one line, and no traceback."""
    async with world() as api:
        run, other = await api.submit(), await api.submit()
        await api.redis.hset(keys.run(run["id"]), field, "\x00garbage{")
        problem = assert_problem(await api.client.get(f"/v1/runs/{run['id']}"), 500, "corrupt_record")
        assert run["id"] in problem["detail"]
        assert (await api.client.get(f"/v1/runs/{other['id']}")).status_code == 200
        assert f"what the store has of the run {run['id']} cannot be read" in caplog.text
        assert "Traceback" not in caplog.text


async def test_a_tampered_conversation_is_one_too() -> None:
    async with world() as api:
        run = await api.submit()
        await api.redis.hset(keys.conversation(run["conversation_id"]), "created_at", "never")
        answer = await api.client.get(f"/v1/conversations/{run['conversation_id']}")
        assert_problem(answer, 500, "corrupt_record")
