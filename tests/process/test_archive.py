"""The archive on a whole stack: what ended outlives its retention, and goes on."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from functools import partial
from pathlib import Path
from random import Random
from shutil import rmtree
from typing import Any
from uuid import uuid4

import httpx
import pytest
from redis import Redis

from features.stack.ports import Ports
from palaver.store.redis import keys
from palaver.vocabulary.ids import uuid_of
from tests.postgres import PostgresServer, running_postgres
from tests.process.cluster import Cluster
from tests.process.talkers import TALKERS
from tests.process.talking import Talker
from tests.process.test_dialects_under_kills import compare
from tests.process.test_up import on, running
from tests.waiting import eventually

pytestmark = pytest.mark.process

RETENTION = 2


@pytest.fixture(scope="module")
def archived(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """A Palaver that keeps what has ended for two seconds, and has an archive."""
    folder = tmp_path_factory.mktemp("archived")
    environment = {
        "PALAVER_RETENTION": str(RETENTION),
        "PALAVER_FEED_RETENTION": str(RETENTION),
        "PALAVER_ARCHIVE_URL": f"sqlite:///{folder}/archive.db",
    }
    with Cluster(folder, environment=environment) as cluster:
        yield cluster


def archive(cluster: Cluster, *arguments: str) -> subprocess.CompletedProcess[str]:
    """``palaver archive …`` where the worker runs."""
    (worker,) = cluster.children("worker")
    command = [sys.executable, "-m", "features.archive.program", *arguments]
    return subprocess.run(command, env=dict(worker.environment), capture_output=True, text=True, timeout=60)


def gone(cluster: Cluster, *run_ids: str) -> None:
    """Wait until the store has nothing of these any more."""
    conversations = {cluster.run(run_id).conversation_id for run_id in run_ids}
    with cluster.redis() as redis:
        for key in (*map(keys.run, run_ids), *map(keys.conversation, conversations), *map(keys.log, conversations)):
            eventually(partial(_is_gone, redis, key), why=f"{key} is there after its retention")


def _is_gone(redis: Any, key: str) -> bool:
    return not redis.exists(key)


def shown(cluster: Cluster, run_id: str, conversation: str) -> list[Any]:
    """What the API says of a run, its conversation, and what was said."""
    paths = (f"runs/{run_id}", f"conversations/{conversation}", f"conversations/{conversation}/messages")
    return [cluster.http.get(f"/v1/{path}").raise_for_status().json() for path in paths]


def test_what_ended_is_read_after_its_retention_as_it_was(archived: Cluster) -> None:
    run = archived.ended(archived.submit("tool-2", "[[args {}]] look", tools=["record_idempotent"]))
    before = shown(archived, run.id, run.conversation_id)
    gone(archived, run.id)
    *what, said = shown(archived, run.id, run.conversation_id)
    assert [each.pop("archived") for each in what] == [True, True]
    assert [*what, said] == before


def test_a_conversation_goes_on_after_its_retention_with_the_same_words(archived: Cluster) -> None:
    first = archived.ended(archived.submit("tool-1", "[[args {}]] look", tools=["record_idempotent"]))
    conversation = first.conversation_id
    stays = archived.ended(archived.post(archived.body("echo", "and now?", conversation_id=conversation)))
    gone(archived, first.id, stays.id)
    again = archived.ended(archived.post(archived.body("echo", "and then?", conversation_id=conversation)))
    assert (again.status, again.output) == ("completed", "echo: and then?")
    messages = [call.messages for run in (first, stays, again) for call in archived.model_calls(run.id)]
    assert messages == [1, 3, 5, 7]


@pytest.mark.parametrize("wire", ["fake", "claude", "responding"])
def test_the_next_request_to_the_model_is_the_one_of_a_conversation_that_never_left(
    archived: Cluster, wire: str
) -> None:
    """By bytes: a copy goes on before the conversation has left, and the conversation itself when it has."""
    model = f"{wire}/steps-1-2+use-each"
    tools = ["calculator", "record_idempotent"]
    first = archived.ended(archived.submit(model, "add, ü \u2028 \U0001f600", tools=tools))
    conversation = {"conversation_id": first.conversation_id}
    image = {"type": "image", "url": "data:image/png;base64,iVBORw0KGgo="}
    seen = [{"role": "user", "content": [{"type": "text", "text": "and this?"}, image]}]
    more = archived.ended(archived.post({**archived.body(model, tools=tools, **conversation), "input": seen}))
    failed = archived.ended(archived.submit(f"{wire}/400", "not so", **conversation))
    assert [run.status for run in (first, more, failed)] == ["completed", "completed", "failed"]
    copy = archived.http.post(f"/v1/conversations/{first.conversation_id}/fork", json={}).raise_for_status().json()
    runs = [archived.post(archived.body(model, "and then?", tools=tools, conversation_id=copy["id"]))]
    gone(archived, first.id, more.id, failed.id)
    runs.append(archived.post(archived.body(model, "and then?", tools=tools, **conversation)))
    assert [archived.ended(run).status for run in runs] == ["completed"] * 2
    never_left, came_back = (archived.finished_calls(run)[0].body for run in runs)
    assert never_left == came_back != ""


def test_a_run_is_asked_for_by_its_own_id_alone(archived: Cluster) -> None:
    run = archived.ended(archived.submit("echo", "hello"))
    events = archived.http.get(f"/v1/runs/{run.id}/events", headers={"Accept": "application/json"}).json()
    gone(archived, run.id)
    again = archived.http.get(f"/v1/runs/{run.id}/events", headers={"Accept": "application/json"}).json()
    kinds = [[event["type"] for event in each["data"]] for each in (events, again)]
    assert kinds[1][-1] == "run.finished"
    assert {*kinds[1]} <= {*kinds[0]}


def test_a_long_run_that_redis_was_lost_with_has_failed_and_its_conversation_goes_on(archived: Cluster) -> None:
    """It is archived while it goes on; its provider fails as Redis is emptied."""
    run_id = archived.submit("parallel-40-14+503-99@15", tools=["tell_inline"])
    conversation = archived.run(run_id).conversation_id
    with archived.redis() as redis:
        eventually(lambda: int(redis.hget(keys.conversation(conversation), "archived") or 0) >= 500)
        redis.flushall()
    lost = archived.run(run_id)
    assert lost.error is not None
    assert (lost.status, lost.error["code"]) == ("failed", "run_lost")
    again = archived.ended(archived.post(archived.body("echo", "and now?", conversation_id=conversation)))
    assert (again.status, again.output) == ("completed", "echo: and now?")
    # The judge of the model refuses a call without its result.
    (call,) = archived.model_calls(again.id)
    assert call.messages > 400
    eventually(lambda: "to be archived 0" in archive(archived, "status").stdout)
    assert archive(archived, "verify").stdout.strip().endswith(" 0 faults")


def test_what_was_deleted_does_not_come_back(archived: Cluster) -> None:
    run = archived.ended(archived.submit("echo", "hello"))
    gone(archived, run.id)
    assert archived.http.delete(f"/v1/conversations/{run.conversation_id}").status_code == 204
    assert archived.http.get(f"/v1/conversations/{run.conversation_id}").status_code == 404
    eventually(lambda: "to be archived 0" in archive(archived, "status").stdout)
    assert archived.http.get(f"/v1/runs/{run.id}").status_code == 404


@pytest.mark.parametrize("kind", TALKERS, ids=lambda kind: kind.wire)
def test_each_dialect_goes_on_with_what_has_left(archived: Cluster, kind: type[Talker]) -> None:
    agent = {"model": "fake/tool-2+use-each+say-20", "tools": ["record", "calculator", "record_idempotent"]}
    assert archived.http.put("/v1/agents/works", json=agent).status_code in (200, 201)
    talker = kind(archived.stack.url, "works", f"leaves-{uuid4().hex}", Random(1))

    def texts() -> Iterator[str]:
        yield "hello"
        gone(archived, talker.runs[-1])
        yield "and then?"

    talker.converse(texts())
    compare(archived, talker)


def test_openhands_has_its_events_after_they_have_left(archived: Cluster) -> None:
    run = archived.ended(archived.submit("tool-2", "[[args {}]] look", tools=["record_idempotent"]))
    place = f"/openhands/api/conversations/{uuid_of(run.conversation_id)}"

    def told() -> list[Any]:
        paths = (place, f"{place}/events/search?limit=100", f"{place}/events/count")
        return [archived.http.get(path).raise_for_status().json() for path in paths]

    before = told()
    assert len(before[1]["items"]) >= 4
    gone(archived, run.id)
    assert told() == before


@pytest.fixture(scope="module")
def postgres() -> Iterator[PostgresServer]:
    with running_postgres() as server:
        yield server


def test_all_is_as_it_was_through_kills_of_workers_and_of_postgresql(
    tmp_path_factory: pytest.TempPathFactory, postgres: PostgresServer
) -> None:
    environment = {"PALAVER_RETENTION": str(RETENTION), "PALAVER_ARCHIVE_URL": postgres.new_database()}
    with Cluster(tmp_path_factory.mktemp("killed"), environment=environment) as cluster:
        before = cluster.ended(cluster.submit("echo", "hello"))
        gone(cluster, before.id)
        runs = [cluster.submit("tool-2", "[[args {}]] look", tools=["record_idempotent"]) for _ in range(20)]
        for run_id in runs[::5]:
            cluster.saw(run_id, "run.started")
            cluster.kill("worker")
            cluster.start("worker")
            postgres.kill()
            if run_id != runs[15]:
                postgres.start()
        for run_id in runs:
            assert cluster.ended(run_id).status == "completed"
        # It is away: what ended stays, and what has left is not said to be unknown.
        assert cluster.http.get(f"/v1/runs/{before.id}").status_code == 503
        assert all(cluster.http.get(f"/v1/runs/{run_id}").status_code == 200 for run_id in runs)
        postgres.start()
        gone(cluster, *runs)
        checked = archive(cluster, "verify")
        assert checked.returncode == 0, checked.stdout + checked.stderr
        assert all(cluster.http.get(f"/v1/runs/{run_id}").json()["status"] == "completed" for run_id in runs)


def test_what_was_said_beside_up_is_there_without_its_redis(tmp_path: Path) -> None:
    ports = Ports.free()
    where = {**on(ports), "PALAVER_RETENTION": str(RETENTION)}
    body = {"agent": {"model": "fake/echo"}, "input": "hello"}
    with httpx.Client(base_url=f"http://127.0.0.1:{ports.api}/v1", timeout=60) as client:
        with running(tmp_path, **where) as up:
            up.read_until("Ctrl-C")
            run = client.post("/runs", json=body, headers={"Prefer": "wait=60"}).raise_for_status().json()
            assert run["status"] == "completed"
            with closing(Redis(port=ports.redis)) as redis:
                eventually(lambda: not redis.exists(keys.conversation(run["conversation_id"])))
        rmtree(up.data_dir / "redis")
        with running(tmp_path, **where) as up:
            up.read_until("Ctrl-C")
            assert [each["id"] for each in client.get("/runs").json()["data"]] == [run["id"]]
            again = client.post(
                "/runs", json={**body, "conversation_id": run["conversation_id"]}, headers={"Prefer": "wait=60"}
            ).json()
            assert again["status"] == "completed"
            said = client.get(f"/conversations/{run['conversation_id']}/messages").json()["data"]
            assert [each["role"] for each in said] == ["user", "assistant"] * 2
