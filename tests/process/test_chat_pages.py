"""The pages of chat kits in examples/, in a browser, at a real stack: through kills of workers and of the API, reloads,
and in two tabs. What they are sent goes through the schemas of the kits' own packages.

``make check-clients`` runs this: the packages come from a package index.
"""

from __future__ import annotations

import base64
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any, Final
from uuid import uuid4

import pytest

from features.stack.ports import free_port
from palaver.store.redis import keys
from tests.browser import Page, needs_chromium, page
from tests.pages import ROOT
from tests.process.cluster import Cluster
from tests.waiting import PATIENCE, eventually

pytestmark = [pytest.mark.process, pytest.mark.chaos, needs_chromium]

KITS: Final = ("ai-sdk", "ag-ui")
KEY: Final = "pages-0123456789abcdef"
WORDS: Final = " ".join(f"w{number}" for number in range(1, 61))
PICK: Final = {"name": "pick_colour", "description": "Ask the person for a colour."}
ANSWERS: Final = "[...document.querySelectorAll('.assistant')].map((each) => each.textContent)"
IDLE: Final = "document.querySelector('#stop')?.disabled && document.querySelector('#state').textContent !== ''"
"""The page has looked at its chat, and nothing goes on there."""
LOST: Final = {"ai-sdk": (), "ag-ui": ("TypeError: network error",)}
"""What a kit's own package leaves uncaught where it has lost a connection: it cancels the body that broke off."""
PORTS: Final = {kit: free_port() for kit in KITS}


def has(*texts: str) -> str:
    """An expression: the page shows these."""
    return " && ".join(f"document.querySelector('#log').innerText.includes({json.dumps(text)})" for text in texts)


def press(name: str) -> str:
    """An expression that presses a button, once it is there and can be pressed."""
    found = f"[...document.querySelectorAll('button')].find((each) => each.textContent === {name!r} && !each.disabled)"
    return f"{found}.click(), true"


class Tabs:
    """A chat of a kit, in tabs of a browser."""

    def __init__(self, kit: str, cluster: Cluster, address: str, tabs: ExitStack) -> None:
        self.kit, self.cluster = kit, cluster
        self._address, self._tabs = address, tabs
        self._url = f"http://127.0.0.1:{PORTS[kit]}/"
        self.opened: list[Page] = []

    def begin(self, model: str, **agent: Any) -> Page:
        """Keep an agent on the server; a tab with a new chat with it."""
        name = f"agent-{uuid4().hex[:8]}"
        kept = self.cluster.http.put(f"/v1/agents/{name}", json={"model": f"fake/{model}", **agent})
        assert kept.status_code == 201, kept.text
        self._url = f"{self._url.partition('?')[0]}?agent={name}"
        tab = self.another()
        self._url = tab.until(f"{IDLE} && location.hash.startsWith('#conv_') && location.href")
        return tab

    def another(self) -> Page:
        """The same chat in one more tab."""
        tab = self._tabs.enter_context(page(self._address))
        tab.hear()
        tab.open(self._url)
        self.opened.append(tab)
        return tab

    def send(self, tab: Page, text: str) -> None:
        """Send a message, once the page takes one."""
        filled = f"document.querySelector('input').value = {json.dumps(text)}"
        tab.until(f"{IDLE} && ({filled}, document.forms[0].requestSubmit(), true)")

    def say(self, tab: Page, text: str) -> str:
        """Send a message; the id of its run."""
        self.send(tab, text)
        return self.answering()

    def answering(self) -> str:
        """The run that goes on in the chat, once there is one."""
        conversation = self._url.partition("#")[2]

        def active() -> str | None:
            found = self.cluster.http.get(f"/v1/conversations/{conversation}").json()["active_run"]
            return None if found is None else str(found)

        run_id = eventually(active, why="the message is taken")
        assert run_id is not None
        self.cluster.submitted.append(run_id)
        return run_id

    def ends(self, tab: Page, *answers: str) -> None:
        """The answer is there, and these are all that the page shows."""
        wanted = json.dumps([*answers])
        tab.until(f"{IDLE} && JSON.stringify({ANSWERS}) === JSON.stringify({wanted})")

    def heard(self) -> list[list[dict[str, Any]]]:
        """The events of each stream, in the order of the tabs."""
        return [stream for tab in self.opened for stream in tab.heard()]


@pytest.fixture(scope="module")
def _cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    environment = {
        "PALAVER_API_KEYS": f"pages={KEY}",
        "PALAVER_SECRET_KEY": base64.b64encode(os.urandom(32)).decode(),
        "PALAVER_CORS_ORIGINS": ",".join(f"http://127.0.0.1:{port}" for port in PORTS.values()),
    }
    cluster = Cluster(tmp_path_factory.mktemp("pages"), environment=environment)
    cluster.http.headers["Authorization"] = f"Bearer {KEY}"
    with cluster:
        yield cluster


@pytest.fixture(scope="module")
def examples(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the examples, in which packages are installed."""
    if shutil.which("npm") is None:
        pytest.skip("NO KIT FOR CHATS IS CHECKED: there is no npm; install Node.js 20 or newer")
    folder = tmp_path_factory.mktemp("served") / "examples"
    shutil.copytree(ROOT / "examples", folder, ignore=shutil.ignore_patterns("node_modules", "dist"))
    for kit in KITS:
        shutil.copy(ROOT / "tests" / "clients" / "judge.mjs", folder / kit)
    return folder


@pytest.fixture(scope="module")
def _served(_cluster: Cluster, examples: Path) -> Iterator[Mapping[str, Path]]:
    """The pages of all kits are built side by side, and served; what their servers say, by kit."""
    environment = {**os.environ, "PALAVER_URL": _cluster.stack.url, "PALAVER_API_KEY": KEY}
    logs, servers = {kit: examples / f"{kit}.log" for kit in KITS}, {}
    for kit, log in logs.items():
        with log.open("w") as written:
            servers[kit] = subprocess.Popen(
                [sys.executable, "serve.py", kit],
                cwd=examples,
                env={**environment, "PAGE_PORT": str(PORTS[kit])},
                stdout=written,
                stderr=written,
            )
    try:
        for kit, serving in servers.items():
            eventually(partial(_over_or_open, serving, logs[kit]), why=f"{kit} is built")
        yield logs
    finally:
        for serving in servers.values():
            serving.terminate()
            serving.wait(timeout=PATIENCE)


def _over_or_open(serving: subprocess.Popen[bytes], log: Path) -> bool:
    return serving.poll() is not None or "open http" in log.read_text()


@pytest.fixture(params=KITS)
def kit(request: pytest.FixtureRequest, _served: Mapping[str, Path]) -> str:
    """A kit whose page is served."""
    name: str = request.param
    log = _served[name]
    if "npm error" in log.read_text():
        pytest.skip(f"{name} IS NOT CHECKED: its packages cannot be had: {log.read_text()[-300:]}")
    assert "open http" in log.read_text(), log.read_text()
    return name


@pytest.fixture
def tabs(kit: str, cluster: Cluster, examples: Path, chromium: str) -> Iterator[Tabs]:
    """Tabs of a kit. In the end, what they were sent is judged by its package, and none of them has shown an error."""
    with ExitStack() as opened:
        tabs = Tabs(kit, cluster, chromium, opened)
        yield tabs
        events = [event for stream in tabs.heard() for event in stream]
        assert [error for tab in tabs.opened for error in tab.errors if error not in LOST[kit]] == []
    lines = "\n".join(map(json.dumps, events))
    judge = subprocess.run(
        ["node", "judge.mjs", kit], cwd=examples / kit, input=lines, capture_output=True, text=True, timeout=PATIENCE
    )
    assert events
    assert (judge.returncode, judge.stdout) == (0, ""), judge.stderr


def kinds(stream: list[dict[str, Any]]) -> list[str]:
    """The types of events."""
    return [event["type"] for event in stream]


def test_an_answer_is_whole_though_its_worker_dies_and_its_page_is_reloaded(tabs: Tabs) -> None:
    cluster = tabs.cluster
    stays = tabs.begin("say-60+rate-15")
    run_id = tabs.say(stays, "hello")
    stays.until(has("w3"))
    cluster.kill("worker", cluster.holder(run_id))
    reloaded = tabs.another()
    cluster.start("worker")
    reloaded.until(has("w3"))
    reloaded.reload()
    for tab in (stays, reloaded):
        tabs.ends(tab, WORDS)
    assert cluster.ended(run_id).output == WORDS
    (stream,) = [each for each in stays.heard() if re.search(r"\bw3\b", json.dumps(each))]
    taken_back = "reset-step" if tabs.kit == "ai-sdk" else "MESSAGES_SNAPSHOT"
    assert kinds(stream).count(taken_back) == 1
    assert kinds(stream)[-1] in ("finish", "RUN_FINISHED")


def test_a_message_and_its_answer_outlast_the_api(tabs: Tabs) -> None:
    cluster = tabs.cluster
    tab = tabs.begin("say-60+rate-15")
    cluster.kill("api")
    tabs.send(tab, "hello")
    cluster.start("api")
    tab.until(has("w3"))
    run_id = tabs.answering()
    cluster.kill("api")
    cluster.start("api")
    tabs.ends(tab, WORDS)
    run = cluster.ended(run_id)
    assert run.output == WORDS
    said = cluster.http.get("/v1/runs", params={"conversation_id": run.conversation_id}).json()["data"]
    assert [each["id"] for each in said] == [run_id], "it was sent twice"


def test_a_reloaded_page_stops_the_answer(tabs: Tabs) -> None:
    tab = tabs.begin("say-400+rate-20")
    run_id = tabs.say(tab, "hello")
    tab.until(has("w3"))
    tab.reload()
    tab.until(has("w3"))
    assert not tabs.cluster.run(run_id).status.terminal, "a lost connection is no stop"
    tab.evaluate(press("Stop"))
    assert tabs.cluster.ended(run_id).status == "cancelled"
    tab.until(IDLE)
    tabs.ends(tabs.another(), *tab.evaluate(ANSWERS))


def test_a_call_is_approved_in_one_of_two_tabs_after_the_api_has_begun_anew(tabs: Tabs) -> None:
    cluster = tabs.cluster
    tab = tabs.begin("tool-1", tools=["send"])
    run_id = tabs.say(tab, '[[args {"seconds": 0}]]')
    tab.until(has("may run?"))
    cluster.kill("api")
    cluster.start("api")
    other = tabs.another()
    other.until(has("may run?"))
    other.until(press("approve"))
    other.until(f"{IDLE} && {has('→', 'done: 1 tool results, the last one: sent after 0 s')}")
    tab.to_front()
    tabs.ends(tab, *other.evaluate(ANSWERS))
    assert cluster.ended(run_id).status == "completed"
    assert len(cluster.tool_starts(run_id)) == 1


@pytest.mark.parametrize("model", ["say-10", "tool-1", "say-400+rate-20", "echo+401-9"])
def test_a_page_shows_the_same_after_a_reload(tabs: Tabs, model: str) -> None:
    """While a call waits for an approval; once it is completed, cancelled, failed; and once only the log is left."""
    cluster, needs = tabs.cluster, model.startswith("tool")
    tab = tabs.begin(model, **({"tools": ["calculator"], "approvals": {"require": "always"}} if needs else {}))
    tabs.send(tab, "hello")
    if needs:
        tab.until(has("may run?"))
        tab.reload()
        tab.until(press("approve"))
    elif "400" in model:
        tab.until(has("w3"))
        tab.evaluate(press("Stop"))
    of = {"conversation_id": tab.evaluate("location.hash.slice(1)")}
    (run,) = eventually(lambda: cluster.http.get("/v1/runs", params=of).json()["data"], why="the message is taken")
    cluster.submitted.append(run["id"])
    text = cluster.ended(run["id"]).output or ""
    tab.until(f"{IDLE} && {has('hello', text)}")
    shown = tab.evaluate(ANSWERS)
    assert "".join(shown).count(text) == 1 or not text
    tab.reload()
    tabs.ends(tab, *shown)
    tabs.ends(tabs.another(), *shown)
    with cluster.redis() as redis:
        feed = keys.feed(run["id"])
        redis.rename(feed, f"{feed}:kept")
        tabs.ends(tabs.another(), *shown)
        redis.rename(f"{feed}:kept", feed)


@pytest.mark.parametrize("at", ["before its first word", "while a tool works", "while a call waits"])
def test_a_page_is_reloaded_before_the_answer_and_the_run_is_cancelled(tabs: Tabs, at: str) -> None:
    cluster, waits = tabs.cluster, at == "while a call waits"
    calls = {"tools": ["linger"], "approvals": {"require": "always"}}
    tab = tabs.begin("hang") if at == "before its first word" else tabs.begin("tool-1", **calls)
    run_id = tabs.say(tab, 'hello [[args {"seconds": 60}]]')
    tab.until(has("hello"))
    if at == "while a tool works":
        tab.until(press("approve"))
        eventually(lambda: cluster.tool_starts(run_id), why="the tool is at work")
    elif waits:
        tab.until(has("may run?"))
    tab.reload()
    tab.until(has("hello", *(["may run?"] if waits else [])))
    assert not cluster.run(run_id).status.terminal
    if waits:
        cluster.http.post(f"/v1/runs/{run_id}/cancel").raise_for_status()
    else:
        tab.until(press("Stop"))
    assert cluster.ended(run_id).status == "cancelled"
    tab.until(IDLE)
    tab.reload()
    tab.until(f"{IDLE} && {has('hello')} && !{has('may run?')}")
    tabs.ends(tabs.another(), *tab.evaluate(ANSWERS))


def test_a_tool_of_the_page_is_answered_after_a_reload_and_a_call_is_denied(tabs: Tabs) -> None:
    # Pages of AG-UI bring their tools.
    more = {"client_tools": [PICK]} if tabs.kit == "ai-sdk" else {}
    tab = tabs.begin("tool-2+use-each", tools=["send"], **more)
    run_id = tabs.say(tab, '[[args {"seconds": 0}]]')
    tab.until(press("deny"))
    tab.until(has("pick_colour"))
    tab.reload()
    tab.until(press("green"))
    tab.until(f"{IDLE} && {has('done: 2 tool results, the last one:')}")
    results = "document.querySelector('#log').innerText.split('→').length - 1"
    assert tab.evaluate(results) == (1 if tabs.kit == "ai-sdk" else 2), "each is shown once"
    assert tabs.cluster.ended(run_id).status == "completed"
    assert tabs.cluster.tool_starts(run_id) == []
