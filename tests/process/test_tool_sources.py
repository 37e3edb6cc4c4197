"""A guest adds a tool source: one module, and a row in `SOURCES`. The API, the model and tool steps have its tools."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from palaver.config.roles import ROLES
from palaver.store.reading.events import StoredEvent
from tests.process.cluster import Cluster
from tests.process.one_more import of_app, one_more

pytestmark = pytest.mark.process


@pytest.fixture(scope="module")
def remote(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """A stack whose workers have the guest's source besides their own."""
    folder = tmp_path_factory.mktemp("remote")
    with Cluster(folder, commands={role: of_app(role, "tests.process.remote_app") for role in ROLES}) as cluster:
        yield cluster


def _answer(cluster: Cluster, run_id: str) -> StoredEvent:
    assert cluster.ended(run_id).status == "completed"
    (finished,) = (event for event in cluster.events(run_id) if event.type == "tool.finished")
    return finished


def _asked(cluster: Cluster, **arguments: object) -> StoredEvent:
    return _answer(cluster, cluster.submit("tool-1", f"[[args {json.dumps(arguments)}]]", tools=["look_up"]))


def test_a_call_of_a_guests_tool_is_a_tool_step(remote: Cluster) -> None:
    run_id = remote.submit("tool-1", '[[args {"key": "a", "x-count": 2}]]', tools=["look_up"])
    answer = _answer(remote, run_id)
    assert json.loads(answer.data["message"]["content"]) == {"name": "look_up", "key": "a", "x-count": 2}
    workers = [event.data["worker"] for event in remote.events(run_id) if event.type == "step.started"]
    assert [worker.partition("@")[0].partition(".")[0] for worker in workers] == ["model", "tools", "model"]


def test_the_api_shows_a_guests_tools_beside_the_others(remote: Cluster) -> None:
    tools = {each["name"]: each for each in remote.http.get("/v1/tools").json()["data"]}
    assert tools["look_up"]["parameters"]["required"] == ["key"]
    assert tools["look_up"]["idempotent"]
    assert {"remove", "calculator", "record"} <= tools.keys()


@pytest.mark.parametrize(
    ("key", "error_class", "said"),
    [
        ("gone", "tool_error", "the server no longer has it (410)"),
        ("slow", "tool_timeout", "look_up took longer than 0.5 s"),
    ],
)
def test_a_guests_own_failure_is_told_to_the_model(remote: Cluster, key: str, error_class: str, said: str) -> None:
    answer = _asked(remote, key=key)
    assert answer.data["error"]["class"] == error_class
    assert answer.data["message"]["content"] == said


def test_a_guests_failure_may_ask_for_another_try(remote: Cluster) -> None:
    run_id = remote.submit("tool-1", '[[args {"key": "full"}]]', tools=["look_up"])
    remote.saw(run_id, "run.retrying", attempt=1)
    assert remote.cancel(run_id) in (200, 202)
    assert remote.ended(run_id).status == "cancelled"


def test_a_step_looks_for_a_worker_that_has_its_tool(remote: Cluster) -> None:
    """As while a deployment rolls: some workers have the tool, some have not."""
    remote.kill("tools")
    with one_more(remote, "tools", app="workers.app"):
        run_id = remote.submit("tool-1", '[[args {"key": "a"}]]', tools=["look_up"])
        waits = remote.saw(run_id, "run.waiting", reason="no_worker", code="tool:look_up")
        assert waits.data["step"].startswith("1/")
        remote.start("tools")
        assert json.loads(_answer(remote, run_id).data["message"]["content"]) == {"name": "look_up", "key": "a"}
    assert not any(event.type == "run.retrying" for event in remote.events(run_id))


def test_a_model_worker_needs_nothing_of_a_source(remote: Cluster) -> None:
    """It has the declarations of the workers that call its tools."""
    remote.kill("worker")
    with one_more(remote, "worker", app="workers.app"):
        run_id = remote.submit("tool-1", '[[args {"key": "a"}]]', tools=["look_up"])
        assert json.loads(_answer(remote, run_id).data["message"]["content"]) == {"name": "look_up", "key": "a"}
    remote.start("worker")
    assert not any(event.type == "run.waiting" for event in remote.events(run_id))
