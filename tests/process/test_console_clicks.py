"""Six questions to the console by somebody who never saw it: from its first page on, by what links and buttons say, in
three clicks at most."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import pytest

from tests.browser import needs_chromium
from tests.process.cluster import Cluster
from tests.process.consoles import Console, serving, tab_at
from tests.process.webhook_receivers import Receivers
from tests.unit.api_world import SECRET_KEY
from tests.waiting import eventually

pytestmark = [pytest.mark.process, pytest.mark.long, needs_chromium]

MOST: Final = 3
KEYED: Final = """
[providers.keyed]
base_url = "http://127.0.0.1:1/v1"
api_key_env = "KEY_THAT_NO_WORKER_HAS"
"""


class Visitor:
    """Somebody at the first page, whose clicks are counted."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._clicks = 0
        console.open("")
        console.sees("Runs")

    def click(self, words: str) -> None:
        """Press what says this, wherever it is."""
        self._clicks += 1
        self._console.click(words)

    def knows(self, *words: str) -> None:
        """All of this is on the screen, after few enough clicks."""
        self._console.sees(*words)
        assert self._clicks <= MOST
        self._console.holds()

    def reads(self, where: str) -> str:
        """What the first such part of the page says."""
        return str(self._console.tab.evaluate(f"document.querySelector('main {where}').innerText"))


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory, heard: Receivers) -> Iterator[Cluster]:
    hosts = f"127.0.0.1:{heard.port}"
    more = {"PALAVER_SECRET_KEY": SECRET_KEY, "PALAVER_WEBHOOK_HOSTS": hosts}
    with serving(tmp_path_factory.mktemp("clicks"), KEYED, **more) as cluster:
        yield cluster


@pytest.fixture
def visitor(cluster: Cluster, chromium: str) -> Iterator[Visitor]:
    cluster.mark()
    with tab_at(cluster.stack.url, chromium) as console:
        yield Visitor(console)


def _tail(run_id: str) -> str:
    """The part of an id that a list shows."""
    return f"run_…{run_id[-8:]}"


def test_why_a_run_does_not_move(cluster: Cluster, visitor: Visitor) -> None:
    run = cluster.submit("limited/429-1-120+echo", "Where is my order?")
    eventually(lambda: cluster.run(run).waiting)
    visitor.click(_tail(run))
    visitor.knows("Waits after a failure (rate_limited) until", "it tries again by itself")


def test_what_failed_in_the_last_hour_and_why(cluster: Cluster, visitor: Visitor) -> None:
    failed = cluster.ended(cluster.submit("401", "What cannot work"))
    cluster.ended(cluster.submit("echo", "What works"))
    assert failed.error
    visitor.click("Failed in the last hour")
    visitor.knows(_tail(failed.id), "authentication", failed.error["message"][:40], "1 in all")


def test_a_refund_is_approved(cluster: Cluster, visitor: Visitor) -> None:
    run = cluster.submit("tool-1", '[[args {"amount": 25}]]', tools=["refund"])
    cluster.pending(run)
    visitor.click("Actions")
    visitor.knows("refund", "wants to run", "25")
    visitor.click("Approve")
    visitor.knows("Nothing waits for anybody.")
    assert cluster.ended(run).status == "completed"
    assert len(cluster.tool_starts(run)) == 1


def test_the_most_expensive_run_of_today(cluster: Cluster, visitor: Visitor) -> None:
    dearest = cluster.submit("dear/echo", "word " * 400)
    for model in ("dear/echo", "priced/echo", "echo"):
        cluster.ended(cluster.submit(model, "a word"))
    cost = cluster.ended(dearest).usage.cost_usd
    assert cost
    visitor.click("Dearest of today")
    visitor.knows(_tail(dearest), "in all")
    # What it has to know stands in the order from before, too.
    eventually(lambda: _tail(dearest) in visitor.reads("tbody tr"))


def test_the_sick_worker(cluster: Cluster, visitor: Visitor) -> None:
    visitor.click("Queues and workers")
    visitor.knows("lacks something", "key:KEY_THAT_NO_WORKER_HAS")
    assert str(cluster.stack.pids("worker")[0]) in visitor.reads("[aria-label=Workers] tr.fault")


def test_a_webhook_is_replayed(cluster: Cluster, visitor: Visitor, heard: Receivers) -> None:
    url = heard.url("ok")
    made = cluster.http.post("/v1/webhooks", json={"url": url, "types": ["run.succeeded"]})
    assert made.status_code == 201, made.text
    cluster.ended(cluster.submit("echo", "for the webhook"))
    eventually(lambda: len(heard.events("ok")) == 1)
    visitor.click("Webhooks")
    visitor.click(url)
    visitor.click("again")
    eventually(lambda: len(heard.events("ok")) == 2)
    visitor.knows("delivered")
