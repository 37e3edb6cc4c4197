"""A tool's service that is busy, refuses connections, breaks off and comes back: waited for, and nothing sent twice."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from features.stack.ports import free_port
from tests.process.checks import check
from tests.process.cluster import Cluster
from tests.process.watching import celery_events
from tests.waiting import eventually

pytestmark = [pytest.mark.process, pytest.mark.long]


class Shop:
    """The service. It notes what it takes, by the key of the call."""

    def __init__(self) -> None:
        self.port = free_port()
        self.taken: Counter[str] = Counter()
        self.came: list[float] = []
        self.busy = 0
        """So many requests are answered with 503 and a wait of a second."""
        self._server: ThreadingHTTPServer | None = None

    def open(self) -> None:
        """It listens from here on."""
        shop = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                shop.came.append(time.monotonic())
                if shop.busy:
                    shop.busy -= 1
                    self._answer(503, {"Retry-After": "1"})
                    return
                shop.taken[self.headers["Idempotency-Key"]] += 1
                self._answer(200, {})

            def _answer(self, status: int, headers: dict[str, str]) -> None:
                self.send_response(status)
                for name, value in {**headers, "Content-Length": "7"}.items():
                    self.send_header(name, value)
                self.end_headers()
                self.wfile.write(b"ordered")

            def log_message(self, *_: Any) -> None:
                """Nowhere."""

        self._server = ThreadingHTTPServer(("127.0.0.1", self.port), Handler)
        threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True).start()

    def close(self) -> None:
        """Connections are refused from here on."""
        if self._server is not None:
            self._server.shutdown()
            self._server.server_close()
            self._server = None


@pytest.fixture(scope="module")
def service() -> Iterator[Shop]:
    shop = Shop()
    yield shop
    shop.close()


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory, service: Shop) -> Iterator[Cluster]:
    """A Palaver whose tools call it; probes follow each other closely."""
    environment = {
        "PALAVER_TOOLS": "tests.process.tools,tests.process.service_tools",
        "PALAVER_PROBE_INTERVAL": "0.5",
        "SHOP_URL": f"http://127.0.0.1:{service.port}/orders",
    }
    with Cluster(tmp_path_factory.mktemp("services"), environment=environment) as cluster:
        yield cluster


@pytest.fixture
def shop(stack: Cluster, service: Shop) -> Iterator[Shop]:
    """It, open and well."""
    service.taken.clear()
    service.came.clear()
    service.busy = 0
    service.open()
    yield service
    service.close()


@pytest.fixture
def cluster(stack: Cluster, shop: Shop) -> Iterator[Cluster]:
    """That Palaver, with all that must be true after each test."""
    stack.mark()
    stack.forget_cool_downs()
    yield stack
    check(stack)
    stack.heal()


def answer(cluster: Cluster, run_id: str) -> dict[str, Any]:
    (event,) = [each.data for each in cluster.events(run_id) if each.type == "tool.finished"]
    return dict(event)


def waits_for(cluster: Cluster, run_id: str) -> str | None:
    waiting = cluster.run(run_id).waiting
    return waiting.code if waiting and waiting.reason == "service_cooldown" else None


@pytest.mark.parametrize("name", ["order", "order_async"])
def test_a_service_that_is_busy_is_asked_again_when_it_says(cluster: Cluster, shop: Shop, name: str) -> None:
    shop.busy = 1
    with celery_events(cluster.broker.url, workers=2) as seen:
        run_id = cluster.submit("tool-1", tools=[name])
        assert cluster.ended(run_id).status == "completed"
        retried = eventually(lambda: [each for each in seen if each["type"] == "task-retried"])
    assert answer(cluster, run_id)["message"]["content"] == "ordered"
    assert list(shop.taken.values()) == [1]
    first, second = shop.came
    assert second - first >= 1
    (exception,) = (each["exception"] for each in retried)
    assert exception.startswith("provider_error: http_503: The tool's service failed to answer.; again in 1")
    (event,) = [each.data for each in cluster.events(run_id) if each.type == "run.retrying"]
    assert event["rule"] == "provider_error of SERVICE_CALL: not taken"


def test_a_service_that_is_away_is_waited_for_and_each_call_is_taken_once(cluster: Cluster, shop: Shop) -> None:
    cluster.start("tools")
    shop.close()
    runs = [cluster.submit("parallel-2", tools=["order"]) for _ in range(6)]
    eventually(lambda: any(waits_for(cluster, run_id) == "shop:outage" for run_id in runs))
    # Others go on meanwhile.
    other = cluster.submit("tool-1", tools=["record"])
    assert cluster.ended(other).status == "completed"
    shop.open()
    for run_id in runs:
        assert cluster.ended(run_id).status == "completed"
        results = [each.data for each in cluster.events(run_id) if each.type == "tool.finished"]
        assert [each["message"]["content"] for each in results] == ["ordered"] * 2
    assert list(shop.taken.values()) == [1] * 12
