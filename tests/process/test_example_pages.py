"""The page in examples/ that needs no package, in a browser: it starts with one command, and shows the same after it
was reloaded, in whatever state. The pages of chat kits are in test_chat_pages.py."""

from __future__ import annotations

import base64
import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import httpx
import pytest

from features.stack.ports import VARIABLES, Ports, free_port
from palaver.store.redis import keys
from tests.browser import Page, browser, needs_chromium, page
from tests.pages import ROOT
from tests.process.cluster import Cluster
from tests.waiting import PATIENCE, eventually

pytestmark = [pytest.mark.process, pytest.mark.chaos, needs_chromium]

SENT = "document.querySelector('input').value = 'What is 1 + 1?', document.forms[0].requestSubmit(), true"
LOG = "document.querySelector('#log').innerText"
STOP = "!document.querySelector('#stop').disabled && (document.querySelector('#stop').click(), true)"
STATE = "document.querySelector('#state').textContent"
KEY: Final = "pages-0123456789abcdef"
PORT: Final = free_port()


def _press(name: str) -> str:
    return f"[...document.querySelectorAll('button')].find((each) => each.textContent === {name!r}).click(), true"


def test_a_chat_by_plain_fetch(tmp_path: Path) -> None:
    ports = Ports.free()
    environment = {
        **os.environ,
        **{VARIABLES[name]: str(port) for name, port in vars(ports).items()},
        "PALAVER_DATA_DIR": str(tmp_path / "data"),
        "PAGE_PORT": str(ports.free().api),
    }
    environment.pop("PALAVER_URL", None)
    log, ready = tmp_path / "served.log", f"http://127.0.0.1:{ports.api}/readyz"
    with log.open("w") as written:
        serving = subprocess.Popen(
            [sys.executable, "examples/serve.py", "plain-fetch"],
            cwd=ROOT,
            env=environment,
            stdout=written,
            stderr=written,
        )
    try:
        eventually(lambda: "open http" in log.read_text(), why="the page is served")
        url = next(line.split()[-1] for line in log.read_text().splitlines() if line.startswith("open "))
        with browser(tmp_path) as address, page(address) as chat:
            chat.open(url)
            chat.until("location.hash.startsWith('#conv_')")
            chat.evaluate(SENT)
            chat.until(_press("approve"))
            chat.until(f"{LOG}.includes('→ 2') && {LOG}.includes('done')")
            chat.reload()
            chat.until(f"{STATE} === 'completed' && {LOG}.includes('→ 2')")
            chat.evaluate(SENT)
            chat.until("document.querySelector('#log button') !== null")
            apis = re.findall(r"api-1 is ready \(process (\d+)\)", log.read_text())
            os.kill(int(apis[-1]), signal.SIGKILL)
            eventually(lambda: "api-1 has ended" in log.read_text(), why="its end is noticed")
            eventually(
                lambda: httpx.get(ready, trust_env=False, timeout=PATIENCE).is_success, why="the API is up again"
            )
            chat.evaluate(_press("deny"))
            chat.until(f"document.querySelector('#log button') === null && {LOG}.includes('deny')")
            for variable, more in (("PAGE_PORT", {}), ("PALAVER_API_PORT", {"PAGE_PORT": str(free_port())})):
                command = [sys.executable, "examples/serve.py", "plain-fetch"]
                again = subprocess.run(
                    command, cwd=ROOT, env=environment | more, capture_output=True, text=True, timeout=60
                )
                assert again.returncode == 1
                assert f"is in use: stop what listens there, or set {variable}" in again.stderr
            with page(address) as other:
                other.open(chat.evaluate("location.href"))
                assert other.until(f"{LOG}.includes('→ 2') && {LOG}") is not None
            assert chat.errors == []
    finally:
        serving.send_signal(signal.SIGINT)
        serving.wait(timeout=PATIENCE)


@pytest.fixture(scope="module")
def _cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    environment = {
        "PALAVER_API_KEYS": f"pages={KEY}",
        "PALAVER_SECRET_KEY": base64.b64encode(os.urandom(32)).decode(),
        "PALAVER_CORS_ORIGINS": f"http://127.0.0.1:{PORT}",
    }
    cluster = Cluster(tmp_path_factory.mktemp("pages"), environment=environment)
    cluster.http.headers["Authorization"] = f"Bearer {KEY}"
    with cluster:
        yield cluster


class Chat:
    """A chat of the page, in two tabs."""

    def __init__(self, cluster: Cluster, tab: Page, other: Page) -> None:
        self.cluster, self.tab, self.other = cluster, tab, other
        tab.open(f"http://127.0.0.1:{PORT}/")
        url = tab.until("location.hash.startsWith('#conv_') && location.href")
        self.conversation = url.partition("#")[2]
        other.open(url)

    def say(self, model: str, text: str = "hello", **agent: Any) -> str:
        """Send a message that this model answers; the id of its run."""
        path = f"/v1/conversations/{self.conversation}"
        changed = self.cluster.http.patch(path, json={"agent": {"model": f"fake/{model}", **agent}})
        assert changed.status_code == 200, changed.text
        before = len(self.runs())
        filled = f"document.querySelector('input').value = {json.dumps(text)}"
        self.tab.evaluate(f"{filled}, document.forms[0].requestSubmit(), true")
        eventually(lambda: len(self.runs()) > before, why="the message is taken")
        self.cluster.submitted.append(self.runs()[0])
        return self.runs()[0]

    def runs(self) -> list[str]:
        """The ids of its runs, the newest first."""
        found = self.cluster.http.get(f"/v1/runs?conversation_id={self.conversation}").json()["data"]
        return [run["id"] for run in found]

    def sees(self, expression: str) -> None:
        """Wait until both tabs see it."""
        for tab in (self.tab, self.other):
            tab.until(expression)

    def stays(self, state: str) -> str:
        """See that both tabs show the same in this state, and after a reload too; return it."""
        self.sees(f"{STATE}.startsWith({state!r})")
        shown = self.tab.evaluate(LOG)
        self.other.until(f"{LOG} === {shown!r}")
        self.tab.reload()
        self.tab.until(f"{STATE}.startsWith({state!r}) && {LOG} === {shown!r}")
        return str(shown)


def test_it_shows_the_same_after_a_reload_at_each_state(cluster: Cluster, chromium: str, tmp_path: Path) -> None:
    environment = {**os.environ, "PALAVER_URL": cluster.stack.url, "PALAVER_API_KEY": KEY, "PAGE_PORT": str(PORT)}
    log = tmp_path / "served.log"
    with log.open("w") as written:
        command = [sys.executable, "examples/serve.py", "plain-fetch"]
        serving = subprocess.Popen(command, cwd=ROOT, env=environment, stdout=written, stderr=written)
    try:
        eventually(lambda: "open http" in log.read_text(), why="the page is served")
        with page(chromium) as tab, page(chromium) as other:
            chat = Chat(cluster, tab, other)

            run_id = chat.say("say-40+rate-15")
            tab.until(f"/\\bw3\\b/.test({LOG})")
            tab.reload()
            tab.until(f"/\\bw3\\b/.test({LOG})")
            cluster.ended(run_id)
            assert chat.stays("completed").count("w40") == 1

            run_id = chat.say("tool-1", tools=["calculator"], approvals={"require": "always"})
            chat.sees(f"{LOG}.includes('may run?')")
            tab.reload()
            tab.until(_press("approve"))
            cluster.ended(run_id)
            assert chat.stays("completed").count("done: 1 tool results") == 1

            linger = {"tools": ["linger"], "approvals": {"require": "always"}}
            run_id = chat.say("tool-1", '[[args {"seconds": 60}]]', **linger)
            tab.until(_press("approve"))
            eventually(lambda: cluster.tool_starts(run_id), why="the tool is at work")
            assert chat.stays("running").count("approve") == 2
            tab.until(STOP)
            assert cluster.ended(run_id).status == "cancelled"
            chat.stays("cancelled")

            run_id = chat.say("tool-1", tools=["record"], approvals={"require": "always"})
            tab.until(_press("deny"))
            cluster.ended(run_id)
            assert chat.stays("completed").count("done: 1 tool results") == 2

            run_id = chat.say("tool-1", tools=["record"], approvals={"require": "always"})
            chat.sees(f"{LOG}.includes('may run?')")
            tab.until(STOP)
            assert cluster.ended(run_id).status == "cancelled"
            assert "may run?" not in chat.stays("cancelled"), "a decision is asked for, though it is too late"

            run_id = chat.say("hang", "are you there?")
            chat.sees(f"{LOG}.includes('are you there?')")
            chat.stays("running")
            tab.until(STOP)
            assert cluster.ended(run_id).status == "cancelled"
            chat.stays("cancelled")

            run_id = chat.say("say-400+rate-20")
            chat.sees(f"{LOG}.split('w3 ').length === 3")
            tab.until(STOP)
            assert cluster.ended(run_id).status == "cancelled"
            assert chat.stays("cancelled").count("w3 ") == 2, "what had come of it is kept"

            cluster.ended(chat.say("echo+401-9"))
            before = chat.stays("failed: ")

            run_id = chat.say("say-400+rate-20")
            chat.sees(f"{LOG}.split('w3 ').length === 4")
            cluster.http.post(f"/v1/runs/{run_id}/cancel", json={"mode": "rollback"})
            cluster.ended(run_id)
            assert chat.stays("cancelled") == before, "what was said is withdrawn"

            with cluster.redis() as redis:
                feeds = [keys.feed(run) for run in chat.runs()]
                for feed in feeds:
                    redis.rename(feed, f"{feed}:kept")
                assert chat.stays("cancelled") == before, "there is only the log"
                for feed in feeds:
                    redis.rename(f"{feed}:kept", feed)
            assert [*tab.errors, *other.errors] == []
    finally:
        serving.terminate()
        serving.wait(timeout=PATIENCE)
