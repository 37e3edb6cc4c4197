"""Threads of AG-UI's own client, in Node.js, at a real stack: through kills of workers and of the API.

``make check-clients`` runs this: the packages come from a package index.
"""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from typing import Any, Final
from uuid import uuid4

import pytest

from tests.pages import ROOT
from tests.process.cluster import Cluster
from tests.process.node import installed
from tests.process.node_pages import NodePages, Shown, has_word, node_process
from tests.waiting import eventually

pytestmark = [pytest.mark.process, pytest.mark.chaos]

EXAMPLE: Final = ROOT / "examples" / "ag-ui"
SOURCES: Final = (
    ROOT / "tests" / "clients" / "ag_ui" / "pages.mjs", EXAMPLE / "package.json", EXAMPLE / "package-lock.json"
)  # fmt: skip
"""The packages are those of the example."""
WORDS: Final = " ".join(f"w{number}" for number in range(1, 61))
PICK: Final = {"name": "pick_colour", "description": "Ask the person for a colour.", "parameters": {"type": "object"}}


class Pages(NodePages):
    """Pages of AG-UI."""

    def begin(self, model: str, **agent: Any) -> None:
        """Keep an agent on the server, for a new thread."""
        self.thread = f"thread-{uuid4().hex}"
        self._url = f"{self.cluster.stack.url}/ag-ui/agents/{self.keep(model, **agent)}"

    def open(self, page: str, *, tools: Any = ()) -> None:
        """Open the thread on another page, which has nothing of it yet."""
        self.act("open", page, url=self._url, thread=self.thread, messages=[], tools=[*tools])

    def rests(self, page: str) -> Shown:
        """What a page shows once no stream of it is open."""
        return self.shows(page, lambda shown: not shown["running"])

    def active(self) -> str:
        """The run that goes on."""
        listed = self.cluster.http.get("/v1/runs").json()["data"]
        (run_id,) = [str(each["id"]) for each in listed if each["stop_reason"] is None]
        self.cluster.submitted.append(run_id)
        return run_id

    def run_of(self, shown: Shown) -> str:
        """The run that the last stream was about."""
        run_id: str = shown["events"][-1]["result"]["runId"]
        self.cluster.submitted.append(run_id)
        return run_id


@pytest.fixture(scope="module")
def process(tmp_path_factory: pytest.TempPathFactory) -> Iterator[subprocess.Popen[str]]:
    """A process of Node.js with pages."""
    with node_process(installed(SOURCES, tmp_path_factory.mktemp("ag_ui"), "AG-UI'S CLIENT")) as process:
        yield process


@pytest.fixture
def pages(cluster: Cluster, process: subprocess.Popen[str]) -> Pages:
    """Pages at the stack."""
    return Pages(cluster, process)


def said(shown: Shown) -> list[tuple[str, str | None]]:
    """Who says what on a page."""
    return [(each["role"], each.get("content")) for each in shown["messages"]]


def kinds(shown: Shown) -> list[str]:
    """The types of the events that a page has had."""
    return [event["type"] for event in shown["events"]]


def test_an_answer_whose_worker_is_killed_is_whole_on_all_pages(pages: Pages) -> None:
    cluster = pages.cluster
    pages.begin("say-60+rate-15+reasoning")
    pages.open("first")
    pages.act("send", "first", runId="run-1", content="hello")
    pages.shows("first", has_word("w3"))
    run_id = pages.active()
    cluster.kill("worker", cluster.holder(run_id))
    cluster.start("worker")
    pages.open("second")
    pages.act("run", "second", runId="run-of-the-second")
    first, second = pages.rests("first"), pages.rests("second")
    assert (first["errors"], second["errors"]) == ([], [])
    assert kinds(first).count("MESSAGES_SNAPSHOT") == 1, "the text of the lost attempt is taken back"
    for shown in (first, second):
        assert [each for each in said(shown) if each[0] != "reasoning"] == [("user", "hello"), ("assistant", WORDS)]
    assert cluster.ended(run_id).output == WORDS


def test_the_same_request_goes_on_over_a_kill_of_the_api_and_over_its_end(pages: Pages) -> None:
    cluster = pages.cluster
    for signal_name in ("kill", "terminate"):
        pages.begin("say-60+rate-15")
        page = f"over a {signal_name}"
        pages.open(page)
        pages.act("send", page, runId="run-1", content="hello")
        pages.shows(page, has_word("w3"))
        run_id = pages.active()
        if signal_name == "kill":
            cluster.kill("api")
        else:
            cluster.terminate("api")
            eventually(lambda: not cluster.stack.pids("api"))
        broken = pages.shows(page, lambda shown: not shown["running"] and shown["errors"])
        assert "RUN_FINISHED" not in kinds(broken)
        cluster.start("api")
        pages.act("run", page, runId="run-1")
        shown = pages.rests(page)
        assert said(shown) == [("user", "hello"), ("assistant", WORDS)]
        assert cluster.ended(run_id).output == WORDS


def test_a_denied_call_and_tools_of_the_page(pages: Pages) -> None:
    pages.begin("tool-1", tools=["send"])
    pages.open("denies")
    pages.act("send", "denies", runId="run-1", content='[[args {"seconds": 0}]]')
    (interrupt,) = pages.rests("denies")["interrupts"]
    refusal = {"approved": False, "reason": "Not on a Sunday."}
    pages.act("run", "denies", runId="run-2", resume=[
        {"interruptId": interrupt["id"], "status": "resolved", "payload": refusal}
    ])  # fmt: skip
    shown = pages.rests("denies")
    assert "Not on a Sunday." in str(said(shown)[-2])
    assert pages.cluster.tool_starts(pages.run_of(shown)) == []
    pages.begin("parallel-2-2")
    pages.open("answers", tools=[PICK])
    pages.act("send", "answers", runId="run-1", content="hello")
    for number in (2, 3):
        shown = pages.rests("answers")
        assert (len(shown["pending"]), shown["outcomes"][-1]) == (2, "success")
        pages.act("answer", "answers", runId=f"run-{number}", content='{"colour": "red"}')
    shown = pages.rests("answers")
    assert (shown["pending"], shown["errors"]) == ([], [])
    assert said(shown).count(("tool", '{"colour": "red"}')) == 4, "each is shown once"
    assert said(shown)[-1] == ("assistant", 'done: 4 tool results, the last one: {"colour": "red"}')
    pages.run_of(shown)


def test_a_stop_and_an_error(pages: Pages) -> None:
    pages.begin("say-400+rate-20")
    pages.open("stops")
    pages.act("send", "stops", runId="run-1", content="hello")
    pages.shows("stops", has_word("w3"))
    stopped = pages.cluster.http.post(f"/ag-ui/threads/{pages.thread}/cancel", json={}).json()
    shown = pages.rests("stops")
    assert (shown["outcomes"], shown["errors"]) == (["cancelled"], [])
    assert stopped == {"stopped": True, "runId": pages.run_of(shown)}
    pages.begin("401")
    pages.open("fails")
    pages.act("send", "fails", runId="run-1", content="hello")
    (error,) = pages.rests("fails")["errors"]
    assert error.startswith("The provider does not accept the key.")
