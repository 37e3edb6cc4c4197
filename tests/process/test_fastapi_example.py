"""The application of examples/fastapi with the API inside, as its users have it: uvicorn as it comes, a Redis, and
workers beside it."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import orjson
import pytest

from features.stack.child import ChildCommand
from features.stack.ports import free_port
from features.stack.readiness import answers_ok
from tests.browser import needs_chromium, page
from tests.pages import ROOT
from tests.process.cluster import Cluster
from tests.waiting import PATIENCE

pytestmark = pytest.mark.process

FOLDER = ROOT / "examples" / "fastapi"
AGENT = {"model": "fake/tool-1+rate-20", "tools": ["order_status"]}


@pytest.fixture(scope="module")
def _cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    environment = {"PALAVER_TOOLS": "shop_tools", "PYTHONPATH": str(FOLDER), "PALAVER_CONSOLE": "true"}
    with Cluster(tmp_path_factory.mktemp("shop"), environment=environment) as cluster:
        yield cluster


class Shop:
    """The application, in a process of its own."""

    def __init__(self, cluster: Cluster) -> None:
        port = free_port()
        self.url = f"http://127.0.0.1:{port}"
        self.child = ChildCommand(
            "shop-1",
            (sys.executable, "-m", "uvicorn", "shop:app", "--app-dir", str(FOLDER), "--port", str(port)),
            environment=cluster.children("api")[0].environment,
            log_path=cluster.folder / "shop.log",
            ready=lambda _: answers_ok(f"{self.url}/agents/readyz"),
        )

    def start(self) -> None:
        """Start it; it is ready when this returns."""
        self.child.start()
        self.child.wait_until_ready(time.monotonic() + PATIENCE)

    @contextmanager
    def user(self, name: str) -> Iterator[httpx.Client]:
        """A browser in which this user is logged in."""
        with httpx.Client(base_url=self.url, timeout=PATIENCE, trust_env=False) as client:
            assert client.post(f"/login/{name}").status_code == 204
            yield client


@pytest.fixture
def shop(cluster: Cluster) -> Iterator[Shop]:
    shop = Shop(cluster)
    shop.start()
    yield shop
    shop.child.terminate()
    shop.child.reap(time.monotonic() + PATIENCE)


@contextmanager
def listening(user: httpx.Client, conversation: str) -> Iterator[Iterator[tuple[str, Any]]]:
    """The events of a conversation, from its beginning, each with its type."""
    with user.stream(
        "GET", f"/agents/v1/conversations/{conversation}/events", headers={"accept": "text/event-stream"}
    ) as told:
        assert told.status_code == 200
        data = (line.removeprefix("data: ") for line in told.iter_lines() if line.startswith("data: "))
        yield ((event["type"], event) for event in map(orjson.loads, data))


def begin(user: httpx.Client, **agent: Any) -> str:
    made = user.post("/agents/v1/conversations", json={"agent": {**AGENT, **agent}})
    assert made.status_code == 201, made.text
    return str(made.json()["id"])


def say(user: httpx.Client, conversation: str, text: str) -> dict[str, Any]:
    taken = user.post("/agents/v1/runs", json={"conversation_id": conversation, "input": text})
    assert taken.status_code == 202, taken.text
    run: dict[str, Any] = taken.json()
    return run


def test_a_user_chats_stops_and_finds_all_of_it_again(shop: Shop) -> None:
    assert httpx.get(f"{shop.url}/agents/v1/runs", trust_env=False).status_code == 401
    assert "EventSource" in httpx.get(shop.url, trust_env=False).text
    with shop.user("ann") as ann, shop.user("bob") as bob, shop.user("eve") as eve:
        conversation = begin(ann)
        with listening(ann, conversation) as events:
            run = say(ann, conversation, "Where is my order?")
            first = []
            for type, event in events:
                first.append(type)
                if type == "tool.finished":
                    assert "has left the house" in event["message"]["content"]
                if type == "run.finished":
                    break
        assert {"run.created", "message.created", "message.delta", "tool.finished"} <= {*first}
        assert (run["submitted_by"], event["status"]) == ("user:ann", "completed")
        told = ann.get(run["links"]["self"]).json()
        assert bob.get(run["links"]["self"]).json() == told, "of the same company"
        assert eve.get(run["links"]["self"]).status_code == 404

        changed = {"agent": {**AGENT, "model": "fake/hang"}}
        assert ann.patch(f"/agents/v1/conversations/{conversation}", json=changed).status_code == 200
        stopped = say(ann, conversation, "Tell me all you know.")
        cancelled = ann.post(f"{stopped['links']['self']}/cancel", json={}).json()
        assert cancelled["status"] in ("cancelling", "cancelled")
        with listening(ann, conversation) as events:
            again = []
            for type, event in events:
                again.append(type)
                if type == "run.finished" and event["run_id"] == stopped["id"]:
                    break
        assert event["status"] == "cancelled"
        assert again.count("run.finished") == 2
        assert "tool.finished" in again
        ann.cookies.clear()
        assert ann.get(run["links"]["self"]).status_code == 401


def test_a_deployment_ends_streams_and_no_run(cluster: Cluster, shop: Shop) -> None:
    with shop.user("ann") as ann:
        conversation = begin(ann, model="fake/say-60+rate-20", tools=[])
        run = say(ann, conversation, "Take your time.")
        with listening(ann, conversation) as events:
            for type, _ in events:
                if type == "message.delta":
                    shop.child.terminate()
                    break
            rest = [type for type, _ in events]
        assert "run.finished" not in rest, "the stream ends before the run does"
        shop.child.reap(time.monotonic() + PATIENCE)
        assert "Application shutdown complete" in shop.child.output
        shop.start()
        with listening(ann, conversation) as events:
            ended = next(event for type, event in events if type == "run.finished")
        assert (ended["run_id"], ended["status"]) == (run["id"], "completed")


@pytest.mark.chaos
@needs_chromium
def test_its_page(shop: Shop, chromium: str, tmp_path: Path) -> None:
    log = "document.querySelector('#log').innerText"
    with page(chromium) as tab:
        tab.open(f"{shop.url}/")
        tab.until("document.querySelectorAll('#who button').length === 3")
        tab.evaluate("document.querySelector('#who button').click(), true")
        tab.until("document.querySelector('#who').textContent === 'user:ann of acme' && location.hash.length > 5")
        say_it = "document.forms[0].text.value = 'Where is it?', document.forms[0].requestSubmit(), true"
        tab.evaluate(say_it)
        tab.until(f"document.title === 'completed' && {log}.includes('has left the house')")
        tab.evaluate(say_it)
        tab.until("!document.querySelector('#stop').disabled && (document.querySelector('#stop').click(), true)")
        tab.until("document.title === 'cancelled'")
        shown = tab.evaluate(log)
        tab.reload()
        tab.until(f"document.title === 'cancelled' && {log} === {shown!r}")
        tab.open(f"{shop.url}/agents/console#/runs")
        tab.until("document.querySelector('main').innerText.includes('cancelled')")
        assert tab.errors == []
