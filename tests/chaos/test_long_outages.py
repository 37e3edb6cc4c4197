"""Outages of five minutes, on the real clock and with the default settings: everybody waits, hardly anybody asks, and
all are done soon after the return. `tests/process/test_provider_outages.py` has the same on a short clock."""

from __future__ import annotations

import statistics
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Final

import pytest

from features.stack.ports import free_port
from palaver.config.settings import Settings
from palaver.schemas.models import Run
from palaver.store.redis import provider_keys
from tests.chaos.report import record
from tests.process.checks import check
from tests.process.cluster import Cluster
from tests.process.failing_provider import FailingProvider
from tests.waiting import eventually

pytestmark = [pytest.mark.process, pytest.mark.chaos]

OUTAGE: Final = 300.0
FLAP: Final = 20.0
"""Seconds for which a provider that was just back is away again."""
CROWD: Final = 500
"""Runs of each provider; half of them have begun when it goes away."""
MODEL: Final = "tool-2"
INTERVAL: Final[float] = Settings.model_fields["probe_interval"].default
LEASE: Final[float] = Settings.model_fields["lease_seconds"].default
ON_THE_WIRE: Final = 5.0
"""Seconds after the outage was seen in which calls that had begun may still fail."""
NEIGHBOURS: Final = 20
RETURN: Final = 15.0
"""Seconds from the return of a provider to the end of the last run, beside what its runs take on this machine when all
begin at once: the next probe, and the ramp."""


class Provider:
    """One that goes away, and its crowd."""

    def __init__(self, cluster: Cluster, name: str) -> None:
        self.name = name
        self.server = FailingProvider(cluster.stack.model_url)
        self.port = free_port()
        self.gate = f"{name}/{MODEL}"
        """What is out while it is away."""
        self.runs: list[str] = []
        self._listening = ExitStack()

    def come(self) -> None:
        """It is there, for the first time."""
        self._listening.enter_context(self.server.listening(self.port))

    def leave(self) -> None:
        """It answers 503."""
        self.server.out = True

    def come_back(self) -> None:
        """It answers again."""
        self.server.out = False

    def close(self) -> None:
        """Nobody listens any more."""
        self._listening.close()


class Gone(Provider):
    """Connections to it are refused."""

    def __init__(self, cluster: Cluster, name: str) -> None:
        super().__init__(cluster, name)
        self.gate = name

    def leave(self) -> None:
        """Nobody listens."""
        self.close()

    def come_back(self) -> None:
        """Somebody does."""
        self.come()


class Half(Provider):
    """One of its models answers 503."""

    def leave(self) -> None:
        """The others go on."""
        self.server.models = {MODEL}

    def come_back(self) -> None:
        """All are well."""
        self.server.models = set()


def test_five_minutes_without_a_provider_cost_nobody_a_run(tmp_path: Path) -> None:
    cluster = Cluster(tmp_path, lease=LEASE)
    gone, down, half = providers = (Gone(cluster, "gone"), Provider(cluster, "down"), Half(cluster, "half"))
    with cluster.providers_path.open("a") as table:
        for each in providers:
            table.write(f'\n[providers.{each.name}]\nbase_url = "http://127.0.0.1:{each.port}/v1"\n')
    with cluster, failed_probes(cluster) as probes, ExitStack() as at_the_end:
        cluster.start("worker")
        at_once = crowd_at_once(cluster)
        quiet = neighbours(cluster, "fake/tool-2")
        for each in providers:
            at_the_end.callback(each.close)
            each.come()
            submit(cluster, each)
            eventually(partial(half_has_begun, each), within=120)
            each.leave()
            submit(cluster, each)
        begun = time.time()
        beside: list[float] = []
        while time.time() < begun + OUTAGE:
            beside += neighbours(cluster, "fake/tool-2") + neighbours(cluster, "half/tool-1")
            passes(10)
        assert {name for name, found in outages(cluster).items() if found} == {"gone", "down", "half"}
        took = {each.name: returns(cluster, each) for each in (gone, half)}
        flaps(cluster, down)
        took["down"] = returns(cluster, down)
        check(cluster)
    since, until = begun + ON_THE_WIRE, begun + OUTAGE
    calls = {each.name: calls_in_vain(each, probes, since, until) for each in providers}
    for name, seconds in took.items():
        print(f"{name}: {calls[name]} calls in {until - since:.0f} s, {seconds:.1f} s to the last end")
    print(f"a crowd that nothing holds up: {at_once:.1f} s")
    print(f"neighbours: {statistics.median(quiet):.2f} s before, {statistics.median(beside):.2f} s beside")
    counts = {"runs completed": CROWD * len(providers), "calls in vain": sum(calls.values())}
    record("long outages", seed=0, counts=counts, seconds=list(took.values()))
    assert max(calls.values()) <= (until - since) / INTERVAL + 1
    assert max(took.values()) <= RETURN + at_once


def submit(cluster: Cluster, provider: Provider) -> None:
    """Half of its crowd."""
    model = f"{provider.name}/{MODEL}"
    provider.runs += [cluster.submit(model, tools=["calculator"]) for _ in range(CROWD // 2)]


def half_has_begun(provider: Provider) -> bool:
    return len(provider.server.passed) > CROWD / 4


def crowd_at_once(cluster: Cluster) -> float:
    """Seconds that a crowd takes whose provider was never away."""
    start = datetime.now(UTC) + timedelta(seconds=15)
    runs = [cluster.submit(f"fake/{MODEL}", tools=["calculator"], start_after=start.isoformat()) for _ in range(CROWD)]
    return max(ended_at(cluster.ended(run_id, within=120)) for run_id in runs) - start.timestamp()


def passes(seconds: float) -> None:
    """Outages take their time, and there is nothing else to wait for."""
    until = time.monotonic() + seconds
    eventually(lambda: time.monotonic() >= until, within=seconds + 5)


def neighbours(cluster: Cluster, model: str) -> list[float]:
    """Seconds that runs of a model take which is well."""
    runs = [cluster.submit(model, tools=["calculator"]) for _ in range(NEIGHBOURS)]
    ended = [cluster.ended(run_id, within=60) for run_id in runs]
    assert {run.status for run in ended} == {"completed"}
    return [ended_at(run) - run.times.created_at.timestamp() for run in ended]


def ended_at(run: Run) -> float:
    assert run.times.ended_at is not None
    return run.times.ended_at.timestamp()


def outages(cluster: Cluster) -> dict[str, list[object]]:
    """Of each provider, as everybody can see them."""
    return {each["name"]: each["outages"] for each in cluster.http.get("/v1/queues").json()["providers"]}


@contextmanager
def failed_probes(cluster: Cluster) -> Iterator[list[tuple[float, str]]]:
    """When which gate was said to be out, once a failed probe: who refuses connections cannot count them."""
    found: list[tuple[float, str]] = []
    over = threading.Event()

    def listen() -> None:
        with cluster.redis() as server, server.pubsub(ignore_subscribe_messages=True) as channel:
            channel.subscribe(provider_keys.PROVIDERS)
            while not over.is_set():
                if message := channel.get_message(timeout=0.2):
                    gate, _, failing = message["data"].decode().rsplit(" ", 2)
                    if failing:
                        found.append((time.time(), gate))

    thread = threading.Thread(target=listen)
    thread.start()
    try:
        yield found
    finally:
        over.set()
        thread.join()


def flaps(cluster: Cluster, provider: Provider) -> None:
    """It comes back, and goes away again before the crowd is through."""
    provider.server.goes_out_after = CROWD // 2
    provider.come_back()
    eventually(lambda: provider.server.out, within=60)
    eventually(lambda: outages(cluster)[provider.name], within=60)
    passes(FLAP)


def returns(cluster: Cluster, provider: Provider) -> float:
    """Seconds from its return to the end of the last run, all of which complete."""
    back_at = time.time()
    provider.come_back()
    ended = [cluster.ended(run_id, within=120) for run_id in provider.runs]
    assert Counter(run.status for run in ended) == {"completed": CROWD}, [run.error for run in ended if run.error][:3]
    for run_id in provider.runs:
        # Those who opened the circuit have lost an attempt each. It cost nobody a second one.
        starts = [event.data["attempt"] for event in cluster.events(run_id) if event.type == "step.started"]
        assert max(map(int, starts)) <= 2
    return max(map(ended_at, ended)) - back_at


def calls_in_vain(provider: Provider, probes: list[tuple[float, str]], since: float, until: float) -> int:
    """Of a provider that was away from ``since`` to ``until``."""
    offset = time.time() - time.monotonic()
    told = sum(gate == provider.gate and since < at < until for at, gate in probes)
    return max(told, sum(since < at + offset < until for at, _ in provider.server.failed))
