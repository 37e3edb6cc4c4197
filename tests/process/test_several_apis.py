"""Three API processes of one installation: a client may talk to any of them, and go on with another."""

from __future__ import annotations

import signal
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from itertools import cycle
from typing import Any

import httpx
import pytest

from features.stack.child import ChildCommand
from features.stack.plan import COMMANDS
from features.stack.ports import free_port
from features.stack.readiness import answers_ok
from tests.process.cluster import Cluster
from tests.process.inputs import decision
from tests.waiting import eventually

pytestmark = pytest.mark.process

AGENT: dict[str, Any] = {"model": "fake/tool-1", "tools": ["calculator"]}


class Apis:
    """A cluster with two more API processes, and a client of each of the three."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.more = [self._another(number) for number in (2, 3)]
        self.clients = [
            cluster.http,
            *(
                httpx.Client(
                    base_url=f"http://127.0.0.1:{each.environment['PALAVER_API_PORT']}", timeout=40.0, trust_env=False
                )
                for each in self.more
            ),
        ]

    def _another(self, number: int) -> ChildCommand:
        port = free_port()
        return ChildCommand(
            f"api-{number}",
            COMMANDS["api"],
            environment={**self.cluster.children("api")[0].environment, "PALAVER_API_PORT": str(port)},
            log_path=self.cluster.stack.data_dir / "logs" / f"api-{number}.log",
            ready=lambda _: answers_ok(f"http://127.0.0.1:{port}/readyz"),
        )

    def start(self) -> None:
        """Start those of the two that do not run."""
        starting = [each for each in self.more if not each.running]
        for each in starting:
            each.start()
        for each in starting:
            each.wait_until_ready(time.monotonic() + 30)

    def stop(self) -> None:
        """End the two."""
        for client in self.clients[1:]:
            client.close()
        for each in self.more:
            each.terminate()
        for each in self.more:
            each.reap(time.monotonic() + 10)

    def all_at_once(self, requests: list[tuple[str, str, dict[str, Any]]]) -> list[httpx.Response]:
        """Send each to the next process in turn, all of them at one moment."""
        with ThreadPoolExecutor(len(requests)) as threads:
            asked = [
                threads.submit(client.request, method, path, **more)
                for client, (method, path, more) in zip(cycle(self.clients), requests, strict=False)
            ]
            return [each.result() for each in asked]


@pytest.fixture(scope="module")
def three(_cluster: Cluster) -> Iterator[Apis]:
    apis = Apis(_cluster)
    yield apis
    apis.stop()


@pytest.fixture
def apis(three: Apis, cluster: Cluster) -> Apis:
    three.start()
    return three


def test_an_idempotency_key_is_one_run_whichever_process_hears_it(apis: Apis) -> None:
    body = apis.cluster.body("tool-1", tools=["calculator"])
    keys = [f"order-{n}" for n in range(20) for _ in range(3)]
    answers = apis.all_at_once(
        [("POST", "/v1/runs", {"json": body, "headers": {"Idempotency-Key": key}}) for key in keys]
    )
    assert {answer.status_code for answer in answers} <= {200, 202}, [answer.text for answer in answers]
    runs = {(key, answer.json()["id"]) for key, answer in zip(keys, answers, strict=True)}
    assert len(runs) == 20
    apis.cluster.submitted += [run_id for _, run_id in runs]
    for run_id in apis.cluster.submitted:
        assert apis.cluster.ended(run_id).status == "completed"


def test_a_decision_and_a_cancel_at_once_end_a_run_once(apis: Apis) -> None:
    cluster = apis.cluster
    runs = [
        cluster.submit("tool-1", tools=["calculator"], agent={"approvals": {"require": "always"}}) for _ in range(15)
    ]
    for run_id in runs:
        cluster.reached(run_id, "requires_action")
    decide = {"json": {"items": [decision("all")]}}
    requests: list[tuple[tuple[str, str, dict[str, Any]], ...]] = [
        (("POST", f"/v1/runs/{run_id}/input", decide), ("POST", f"/v1/runs/{run_id}/cancel", {})) for run_id in runs
    ]
    answers = apis.all_at_once([each for both in requests for each in both])
    assert {answer.status_code for answer in answers} <= {200, 202, 409}, Counter(a.status_code for a in answers)
    for run_id, cancelled in zip(runs, answers[1::2], strict=True):
        run = cluster.ended(run_id)
        assert run.status == ("cancelled" if cancelled.status_code != 409 else "completed")


def events_of(client: httpx.Client, run_id: str, after: int = 0) -> Iterator[tuple[int, str]]:
    """Number and kind of each event of a run, as the stream of this process brings them."""
    number = 0
    path = f"/v1/runs/{run_id}/events"
    with client.stream("GET", path, headers={"Last-Event-ID": str(after), "Accept": "text/event-stream"}) as stream:
        for line in stream.iter_lines():
            name, _, value = line.partition(": ")
            if name == "id":
                number = int(value)
            elif name == "event":
                yield number, value


def test_a_stream_goes_on_at_another_process_when_its_own_is_killed(apis: Apis) -> None:
    run_id = apis.cluster.submit("say-200+rate-100")
    seen: list[tuple[int, str]] = []
    with suppress(httpx.TransportError):
        for event in events_of(apis.clients[1], run_id):
            seen.append(event)
            if len(seen) == 20:
                apis.more[0].kill(signal.SIGKILL)
    assert seen[-1][1] != "run.finished"
    seen += events_of(apis.clients[2], run_id, after=seen[-1][0])
    assert [number for number, _ in seen] == [*range(1, len(seen) + 1)]
    assert seen[-1][1] == "run.finished"
    assert apis.cluster.ended(run_id).status == "completed"


def test_a_schedule_ticks_once_and_a_batch_begins_each_run_once(apis: Apis) -> None:
    first, second, third = apis.clients
    body = {"every": 10, "run": {"agent": AGENT, "input": "hello"}}
    assert first.put("/v1/schedules/shared", json=body).status_code == 201
    items = [{"input": f"question {n}"} for n in range(30)]
    made = second.post("/v1/batches", json={"agents": [AGENT], "items": items, "window": 6}).json()
    eventually(lambda: third.get(f"/v1/batches/{made['id']}").json()["state"] == "done")
    (tick, *_) = eventually(lambda: third.get("/v1/schedules/shared").json()["ticks"])
    assert third.post("/v1/schedules/shared/pause").status_code == 200
    assert tick["outcome"] == "started"
    begun: list[dict[str, Any]] = []

    def each_tick_has_its_run() -> bool:
        ticks = second.get("/v1/schedules/shared").json()["ticks"]
        begun[:] = first.get("/v1/runs?tag=schedule:shared&limit=200").json()["data"]
        started = [tick["run_id"] for tick in ticks if tick["outcome"] == "started"]
        return sorted(started) == sorted(run["id"] for run in begun)

    # A tick that was claimed before the pause may still begin its run, and says so after that.
    eventually(each_tick_has_its_run, why="a tick has not begun one run")
    cells = first.get(f"/v1/runs?tag=batch:{made['id']}&limit=200").json()["data"]
    assert len(cells) == 30
    apis.cluster.submitted += [run["id"] for run in (*begun, *cells)]
    assert second.delete("/v1/schedules/shared").status_code == 204
