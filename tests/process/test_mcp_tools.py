"""Tools of MCP servers as steps, one over HTTP and one that is a process of a worker: what they have beside the cases
of every source (test_every_source.py). Each server counts its calls: none is made twice."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from features.mcp_client.tests.unit import mcp_process
from features.stack.ports import free_port
from tests.pages import ROOT
from tests.process.checks import check
from tests.process.cluster import Cluster
from tests.process.test_tools import answers, told
from tests.waiting import eventually

pytestmark = pytest.mark.process

UNKNOWN = "it may or may not have taken effect"


class Web:
    """The server over HTTP, as a process."""

    def __init__(self, folder: Path) -> None:
        self.port = free_port()
        self.journal = folder / "web.journal"
        self.journal.touch()
        self.process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start it; it serves when this returns."""
        command = [sys.executable, "-m", "tests.process.mcp_web", str(self.port), str(self.journal)]
        self.process = subprocess.Popen(command, cwd=ROOT)
        eventually(self._serves)

    def _serves(self) -> bool:
        with socket.create_connection(("127.0.0.1", self.port), timeout=1):
            return True

    def kill(self) -> None:
        """SIGKILL."""
        if self.process is not None:
            self.process.kill()
            self.process.wait()


class Mcp:
    """A stack whose workers have the tools of both servers."""

    def __init__(self, cluster: Cluster, web: Web, journal: Path) -> None:
        self.cluster = cluster
        self.web = web
        self._journals = {"web": web.journal, "proc": journal}

    def lines(self, server: str) -> list[str]:
        """All that came to a server."""
        path = self._journals[server]
        return path.read_text().splitlines() if path.exists() else []

    def calls(self, server: str, tool: str) -> int:
        """The calls that it has had of a tool."""
        line = tool if server == "web" else f"tools/call {tool}"
        return self.lines(server).count(line)

    def lives(self) -> list[int]:
        """The process ids of the server that is a process."""
        return [int(line.split()[1]) for line in self.lines("proc") if line.startswith("life ")]

    def submit(self, server: str, tool: str, **arguments: object) -> str:
        """A run whose model calls a tool of a server once."""
        text = f"[[args {json.dumps(arguments)}]]"
        return self.cluster.submit("tool-1", text, tools=[f"{server}__{tool}"])

    def in_flight(self, server: str, tool: str) -> str:
        """The same, once the call has come to the server and does not end."""
        before = self.calls(server, tool)
        run_id = self.submit(server, tool)
        eventually(lambda: self.calls(server, tool) == before + 1)
        return run_id


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Mcp]:
    """The stack, and its servers."""
    folder = tmp_path_factory.mktemp("mcp")
    web, journal = Web(folder), folder / "proc.journal"
    command = [sys.executable, "-S", mcp_process.__file__, "modern", str(journal)]
    (folder / "tools.toml").write_text(
        f"""
        [mcp.web]
        url = "http://127.0.0.1:{web.port}/mcp"
        risky = false
        timeout = 60

        [mcp.proc]
        command = {json.dumps(command)}
        timeout = 60
        tools.echo.risky = false
        tools.fail.risky = false
        tools.wait.risky = false
        """
    )
    environment = {
        "PALAVER_TOOL_SOURCES": str(folder / "tools.toml"),
        "PALAVER_TOOL_LISTS": str(folder / "lists"),
    }
    web.start()
    try:
        with Cluster(folder, environment=environment) as cluster:
            yield Mcp(cluster, web, journal)
    finally:
        web.kill()


@pytest.fixture
def mcp(stack: Mcp) -> Iterator[Mcp]:
    """It, with all that must be true after each test."""
    stack.cluster.mark()
    yield stack
    check(stack.cluster)
    stack.cluster.heal()


def _said(mcp: Mcp, run_id: str) -> str:
    (finished,) = answers(mcp.cluster, run_id)
    return str(finished.data["message"]["content"])


def test_calls_are_answered_and_a_process_stays_for_the_next_one(mcp: Mcp) -> None:
    for text in ("one", "two"):
        run = mcp.cluster.ended(mcp.submit("web", "echo", text=text))
        assert (run.status, _said(mcp, run.id)) == ("completed", text)
    begun = len(mcp.lives())
    for number in range(3):
        run = mcp.cluster.ended(mcp.submit("proc", "echo", n=number))
        assert (run.status, json.loads(_said(mcp, run.id))) == ("completed", {"n": number})
    assert mcp.calls("web", "echo") == 2
    assert mcp.calls("proc", "echo") == 3
    assert len(mcp.lives()) - begun <= len(mcp.cluster.children_of("tools"))
    assert "ended" not in mcp.cluster.new_log("tools")


def test_the_api_shows_them_and_who_is_not_trusted_needs_an_approval(mcp: Mcp) -> None:
    tools = {each["name"]: each for each in mcp.cluster.http.get("/v1/tools").json()["data"]}
    assert {"web__echo", "web__wait", "proc__echo", "proc__env"} <= tools.keys()
    assert (tools["web__echo"]["risky"], tools["proc__cwd"]["risky"]) == (False, True)
    run_id = mcp.submit("proc", "cwd")
    (action,) = mcp.cluster.pending(run_id)
    assert mcp.calls("proc", "cwd") == 0
    mcp.cluster.approve(run_id, action.id)
    assert mcp.cluster.ended(run_id).status == "completed"
    assert mcp.calls("proc", "cwd") == 1


def test_a_question_and_a_task_outlive_the_workers(mcp: Mcp) -> None:
    asked, task = mcp.submit("web", "asks"), mcp.submit("web", "long")
    (action,) = mcp.cluster.pending(asked)
    assert (action.type, action.question and action.question.asker) == ("question", "web")
    eventually(lambda: mcp.calls("web", "tasks/get") >= 1)
    # Nobody works on them, and nothing of them is in a process that could die: neither worker nor server.
    mcp.cluster.kill("tools")
    mcp.web.kill()
    mcp.web.start()
    mcp.cluster.heal()
    polls = mcp.calls("web", "tasks/get")
    eventually(lambda: mcp.calls("web", "tasks/get") > polls)
    with mcp.web.journal.open("a") as file:
        file.write("task is done\n")
    item = {"type": "answer", "action_id": action.id, "response": "accept", "content": {"name": "Ada"}}
    assert mcp.cluster.http.post(f"/v1/runs/{asked}/input", json={"items": [item]}).status_code == 202
    for run_id in (asked, task):
        assert mcp.cluster.ended(run_id).status == "completed"
    assert json.loads(_said(mcp, asked)) == [{"who": {"action": "accept", "content": {"name": "Ada"}}}, "s-1"]
    assert _said(mcp, task) == "at last"
    assert [mcp.calls("web", tool) for tool in ("asks", "answered", "long")] == [1, 1, 1]


def test_a_call_whose_server_is_killed_is_not_made_again(mcp: Mcp) -> None:
    in_web, in_proc = mcp.in_flight("web", "wait"), mcp.in_flight("proc", "wait")
    made = mcp.calls("web", "wait"), mcp.calls("proc", "wait")
    mcp.web.kill()
    for pid in mcp.lives():
        if Path(f"/proc/{pid}").exists():
            os.kill(pid, signal.SIGKILL)
    for run_id in (in_web, in_proc):
        assert mcp.cluster.ended(run_id).status == "completed"
        assert told(mcp.cluster, run_id) == ["connection"]
        assert _said(mcp, run_id).endswith(UNKNOWN)
    mcp.web.start()
    assert (mcp.calls("web", "wait"), mcp.calls("proc", "wait")) == made
    for server in ("web", "proc"):
        assert told(mcp.cluster, mcp.cluster.ended(mcp.submit(server, "echo", text="again")).id) == [""]


def test_a_server_that_is_down_holds_up_its_own_calls_alone(mcp: Mcp) -> None:
    mcp.web.kill()
    run_id = mcp.submit("web", "echo", text="late")
    beside = mcp.cluster.ended(mcp.submit("proc", "echo", n=1))
    assert told(mcp.cluster, beside.id) == [""]
    mcp.cluster.saw(run_id, "run.retrying", attempt=1)
    assert mcp.cluster.ended(run_id).status == "completed"
    assert _said(mcp, run_id).startswith("web was not reached: ")
    mcp.web.start()


def test_a_call_that_a_server_did_not_take_yet_is_made_when_it_says(mcp: Mcp) -> None:
    run = mcp.cluster.ended(mcp.submit("web", "busy"))
    assert run.status == "completed"
    assert _said(mcp, run.id) == "now"
    mcp.cluster.saw(run.id, "run.retrying", attempt=1)
    assert (mcp.calls("web", "busy"), mcp.calls("web", "taken")) == (2, 1)


def test_a_process_ends_with_its_worker_and_the_call_is_not_made_again(mcp: Mcp) -> None:
    run_id = mcp.in_flight("proc", "wait")
    made = mcp.calls("proc", "wait")
    mcp.cluster.kill("tools")
    mcp.cluster.start("tools")
    assert mcp.cluster.ended(run_id).status == "completed"
    assert told(mcp.cluster, run_id) == ["tool_interrupted"]
    assert mcp.calls("proc", "wait") == made
    gone = mcp.lives()
    eventually(lambda: not any(_alive(pid) for pid in gone), why="a server has outlived its worker")


def _alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False
