"""Workers whose environment lacks what others have: what they lack goes to another one or waits, and nothing fails."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from aiohttp import web

from tests.process.cluster import Cluster
from tests.process.one_more import one_more
from tests.process.relay import Relay
from tests.waiting import eventually

pytestmark = [pytest.mark.process, pytest.mark.long]

MANY = 40
KEYED = """
[providers.keyed]
base_url = "{url}/v1"
api_key_env = "KEYED_KEY"
"""
LOCKED = """
[providers.locked]
base_url = "http://127.0.0.1:{port}/v1"
api_key_env = "KEYED_KEY"
"""


class Locked(Relay):
    """A provider that takes one key."""

    async def _answer(self, request: web.BaseRequest) -> web.StreamResponse:
        if request.headers.get("Authorization") != "Bearer secret":
            return web.json_response({"error": {"message": "no", "code": "invalid_api_key"}}, status=401)
        return await super()._answer(request)


@pytest.fixture(scope="module")
def _keyed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """A stack with a provider whose key its workers have."""
    cluster = Cluster(tmp_path_factory.mktemp("keyed"), environment={"KEYED_KEY": "secret"})
    with cluster.providers_path.open("a") as table:
        table.write(KEYED.format(url=cluster.stack.model_url))
        table.write(LOCKED.format(port=cluster.busy_port))
    with cluster:
        yield cluster


@pytest.fixture
def keyed(_keyed: Cluster) -> Cluster:
    """The same with one worker of each kind."""
    _keyed.heal()
    return _keyed


def _without_it(cluster: Cluster) -> str:
    """A table of providers as it was before that one was added."""
    path = cluster.folder / "older.toml"
    path.write_text(cluster.providers_path.read_text().partition("[providers.keyed]")[0])
    return str(path)


def _waits(cluster: Cluster, run_ids: list[str]) -> set[str]:
    """What the runs have waited for."""
    events = (event for run_id in run_ids for event in cluster.events(run_id))
    return {event.data["code"] for event in events if event.type == "run.waiting"}


def _lacked(cluster: Cluster) -> list[tuple[str, int, str]]:
    """What the API says that no worker has; the same in both places."""
    queues, ready = cluster.http.get("/v1/queues").json(), cluster.http.get("/readyz")
    assert ready.status_code == 200
    found = [(each["code"], each["steps"], each["run_id"]) for each in queues["no_worker"]]
    other = [(each["code"], each["steps"], each["run_id"]) for each in ready.json()["no_worker"]]
    return found if found == other else []


def _lacking(cluster: Cluster) -> list[list[str]]:
    """What each worker lacks that lacks anything; one that was killed a moment ago is among them for a while."""
    workers = [each for queue in cluster.http.get("/v1/queues").json()["data"] for each in queue["workers"]]
    return [each["lacks"] for each in workers if each["lacks"]]


def test_a_model_worker_without_a_key_fails_no_run(keyed: Cluster) -> None:
    with one_more(keyed, "worker", KEYED_KEY="") as poor:
        assert "KEYED_KEY is not set: this worker leaves the provider keyed to others" in poor.output
        eventually(lambda: _lacking(keyed) == [["key:KEYED_KEY"]])
        run_ids = [keyed.submit("keyed/echo", f"run {number}") for number in range(MANY)]
        runs = [keyed.ended(run_id) for run_id in run_ids]
        # What it can do it does.
        assert keyed.ended(keyed.submit("echo")).status == "completed"
    assert {run.status for run in runs} == {"completed"}
    assert _waits(keyed, run_ids) == {"key:KEYED_KEY"}, "the worker without the key took none of them"


def test_a_worker_whose_key_is_refused_fails_no_run_that_another_can_do(keyed: Cluster) -> None:
    locked = Locked(keyed.stack.model_url).listening(keyed.busy_port)
    with locked, one_more(keyed, "worker", KEYED_KEY="wrong"):
        run_ids = [keyed.submit("locked/echo", f"run {number}") for number in range(50)]
        assert {keyed.ended(run_id).status for run_id in run_ids} == {"completed"}
        eventually(lambda: _lacking(keyed) == [["refused_key:locked"]])
        assert _waits(keyed, run_ids) == {"refused_key:locked"}, "the worker with the wrong key took none of them"
        keyed.kill("worker")
        run = keyed.ended(keyed.submit("locked/echo"))
        assert run.status == "failed"
        assert run.error is not None
        assert run.error["class"] == "authentication"
        assert "called with the key in KEYED_KEY." in run.error["message"]


def test_a_tools_worker_without_a_tool_tells_no_model_so(keyed: Cluster) -> None:
    with one_more(keyed, "tools", PALAVER_TOOLS="", PALAVER_INLINE_TOOLS=""):
        run_ids = [keyed.submit("tool-1", tools=["record"]) for _ in range(MANY)]
        assert {keyed.ended(run_id).status for run_id in run_ids} == {"completed"}
    for run_id in run_ids:
        (finished,) = (event for event in keyed.events(run_id) if event.type == "tool.finished")
        assert finished.data.get("error") is None, finished.data
        assert len(keyed.tool_starts(run_id)) == 1
    assert _waits(keyed, run_ids) == {"tool:record"}, "the worker without the tool took none of them"


def test_a_deployment_that_adds_a_tool_rolls_without_a_failure(keyed: Cluster) -> None:
    """New workers of both queues come beside the old ones, the first runs want the new tool, the old ones go."""
    old = [child for line in ("worker", "tools") for child in keyed.children(line) if child.running]
    with (
        one_more(keyed, "worker", name="new", app="tests.process.remote_app"),
        one_more(keyed, "tools", name="new-tools", app="tests.process.remote_app"),
    ):
        asked = '[[args {"key": "a"}]]'
        run_ids = [keyed.submit("tool-3", asked, tools=["look_up"]) for _ in range(20)]
        for line in ("worker", "tools"):
            keyed.terminate(line)
        run_ids += [keyed.submit("tool-3", asked, tools=["look_up"]) for _ in range(20)]
        assert {keyed.ended(run_id).status for run_id in run_ids} == {"completed"}
        eventually(lambda: not any(child.running for child in old))
    for run_id in run_ids:
        events = keyed.events(run_id)
        assert not any(event.type == "tool.finished" and event.data.get("error") for event in events)
        assert not any(event.type == "run.retrying" for event in events)


@pytest.mark.parametrize(("lacked", "code"), [("key", "key:KEYED_KEY"), ("provider", "provider:keyed")])
def test_what_no_worker_has_is_waited_for_and_said(keyed: Cluster, lacked: str, code: str) -> None:
    environment = {"KEYED_KEY": ""} if lacked == "key" else {"PALAVER_PROVIDERS": _without_it(keyed)}
    keyed.kill("worker")
    with one_more(keyed, "worker", **environment):
        run_id = keyed.submit("keyed/echo")
        keyed.saw(run_id, "run.waiting", reason="no_worker", code=code)
        eventually(lambda: _lacked(keyed) == [(code, 1, run_id)], every=0.02)
        waiting = eventually(lambda: keyed.run(run_id).waiting, every=0.02)
        assert waiting is not None
        assert (waiting.reason, waiting.code) == ("no_worker", code)
        keyed.start("worker")
        assert keyed.ended(run_id).status == "completed"
    assert _lacked(keyed) == []
    assert not any(event.type == "run.retrying" for event in keyed.events(run_id))
