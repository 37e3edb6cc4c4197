"""Outages of a provider are waited out: nobody fails, hardly anybody asks, and nobody else is held up."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any

import pytest

from palaver.schemas.models import Run
from palaver.store.redis import provider_keys
from tests.chaos.report import record
from tests.chaos.seeds import scaled, seeded
from tests.process.cluster import Cluster
from tests.process.failing_provider import FailingProvider
from tests.waiting import PATIENCE, eventually

pytestmark = [pytest.mark.process, pytest.mark.long]

INTERVAL = 1.0
"""Seconds between two probes."""
CROWD = 50
HASTY = {"retry": {"rules": {"provider_error": {"attempts": 5, "first": 0.1}}}}


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """Probes follow each other closely."""
    folder = tmp_path_factory.mktemp("outages")
    with Cluster(folder, lease=5.0, environment={"PALAVER_PROBE_INTERVAL": str(INTERVAL)}) as cluster:
        yield cluster


@pytest.fixture
def provider(cluster: Cluster) -> Iterator[FailingProvider]:
    """`busy`, which fails when it is told to."""
    cluster.forget_cool_downs()
    provider = FailingProvider(cluster.stack.model_url)
    with provider.listening(cluster.busy_port):
        yield provider


def outages(cluster: Cluster) -> Any:
    """Of `busy`, as everybody can see them."""
    providers = cluster.http.get("/v1/queues").json()["providers"]
    return next(each for each in providers if each["name"] == "busy")["outages"]


def seen(cluster: Cluster) -> Any:
    """The outage, once it is known."""
    (outage,) = eventually(partial(outages, cluster))
    return outage


def lasts(seconds: float) -> None:
    """Outages take their time, and there is nothing else to wait for."""
    until = time.monotonic() + seconds
    eventually(lambda: time.monotonic() >= until, within=seconds + 5)


def waiting(cluster: Cluster, run_id: str) -> bool:
    waits = cluster.run(run_id).waiting
    return waits is not None and (waits.reason, waits.code) == ("provider_cooldown", "outage")


def all_completed(cluster: Cluster, runs: Sequence[str], within: float = PATIENCE) -> list[Run]:
    ended = [cluster.ended(run_id, within=within) for run_id in runs]
    assert {run.status for run in ended} == {"completed"}, [run.error for run in ended if run.error][:3]
    return ended


def settled(cluster: Cluster, runs: Sequence[str]) -> float:
    """When each of the runs has ended or waits: from then on, in an outage, a call is a probe."""

    def settles(run_id: str) -> bool:
        run = cluster.run(run_id)
        return run.status.terminal or run.waiting is not None

    for run_id in runs:
        eventually(partial(settles, run_id))
    return time.monotonic()


def hardly_anybody_asked(provider: FailingProvider, since: float, until: float) -> None:
    """One an interval in the whole fleet, and one that was on its way when the first of them came."""
    probes = [at for at, _ in provider.failed if since < at < until]
    assert len(probes) <= (until - since) / INTERVAL + 2, f"{len(probes)} calls"


@pytest.mark.parametrize("status", [503, *(pytest.param(other, marks=pytest.mark.chaos) for other in (500, None))])
def test_a_crowd_waits_until_its_provider_is_back(
    cluster: Cluster, provider: FailingProvider, status: int | None
) -> None:
    cluster.start("worker")
    provider.status = status
    runs = [cluster.submit("busy/tool-2", tools=["calculator"]) for _ in range(CROWD // 2)]
    eventually(lambda: len(provider.passed) > CROWD / 4)
    provider.out = True
    runs += [cluster.submit("busy/tool-2", tools=["calculator"]) for _ in range(CROWD - len(runs))]
    outage = seen(cluster)
    begun = settled(cluster, runs)
    others = [cluster.submit("fake/tool-1", tools=["calculator"]) for _ in range(20)]
    all_completed(cluster, others)
    lasts(5)
    assert outages(cluster), "the other provider's runs did not wait for the end of the outage"
    # Of the same model: another one's first call would be made, if only that one is out.
    late = cluster.submit("busy/tool-2", tools=["calculator"])
    if status is None:
        eventually(partial(waiting, cluster, late))
        assert outage["model"] is None
        assert outage["error_class"] == "connection"
    else:
        assert outage["model"] == "tool-2"
        assert outage["code"] == "busy.down"
    until = time.monotonic()
    provider.out = False
    ended = all_completed(cluster, [*runs, late])
    hardly_anybody_asked(provider, begun, until)
    assert outages(cluster) == []
    for run in ended:
        # Those who opened it have lost an attempt each. It cost nobody a second one.
        assert max((int(e.data["attempt"]) for e in cluster.events(run.id) if e.type == "step.started"), default=1) <= 2


def test_a_provider_that_flaps_is_not_overrun(cluster: Cluster, provider: FailingProvider) -> None:
    provider.goes_out_after = 20
    # 180 calls.
    runs = [cluster.submit("busy/tool-2", tools=["calculator"]) for _ in range(60)]
    for left in (20, 20, None):
        seen(cluster)
        begun = settled(cluster, runs)
        lasts(3)
        hardly_anybody_asked(provider, begun, time.monotonic())
        provider.goes_out_after, provider.out = left, False
        eventually(lambda: not outages(cluster) or provider.out)
    all_completed(cluster, runs)


def test_one_run_alone_waits_out_a_restart(cluster: Cluster) -> None:
    # Nobody listens at first.
    run_id = cluster.submit("busy/echo")
    eventually(partial(waiting, cluster, run_id))
    waits = cluster.run(run_id).waiting
    assert waits is None or waits.error_class == "connection"
    event = cluster.saw(run_id, "run.waiting", code="outage")
    assert event.data["error"]["code"] == "connect_refused"
    with FailingProvider(cluster.stack.model_url).listening(cluster.busy_port):
        all_completed(cluster, [run_id])


def test_patience_has_an_end_and_says_so(cluster: Cluster, provider: FailingProvider) -> None:
    provider.out = True
    hurried = cluster.submit("busy/echo", agent={"retry": {"patience": 3}})
    others = [cluster.submit("busy/echo") for _ in range(5)]
    run = cluster.ended(hurried)
    assert run.status == "failed"
    assert run.error is not None
    assert (run.error["class"], run.error["code"], run.error["user_action"]) == ("provider_error", "busy.down", "wait")
    assert "for the outage to end, the policy allows 3 s." in run.error["message"]
    assert all(cluster.run(run_id).status == "running" for run_id in others)
    provider.out = False
    all_completed(cluster, others)


def test_another_model_takes_over_after_a_part_of_the_patience(cluster: Cluster, provider: FailingProvider) -> None:
    provider.out = True
    others = [cluster.submit("busy/echo") for _ in range(5)]
    seen(cluster)
    rule = {"attempts": 5, "then": "fallback_model"}
    agent = {"fallbacks": ["fake/echo"], "retry": {"patience": 20, "rules": {"provider_error": rule}}}
    run_id = cluster.submit("busy/echo", agent=agent)
    (run,) = all_completed(cluster, [run_id])
    assert run.model == "fake/echo"
    (retry,) = [event.data for event in cluster.events(run_id) if event.type == "run.retrying"]
    assert retry["fallback"]
    assert "the policy allows 2 s" in retry["error"]["message"]
    assert outages(cluster)
    provider.out = False
    all_completed(cluster, others)


def test_a_probe_whose_worker_is_killed_is_made_by_another(cluster: Cluster, provider: FailingProvider) -> None:
    cluster.start("worker")
    provider.out = True
    runs = [cluster.submit("busy/hang-1+echo") for _ in range(8)]
    seen(cluster)
    # It is back, and the first probe hangs.
    provider.out = False
    gate = provider_keys.of_gate("busy/hang-1+echo")
    with cluster.redis() as server:
        call = eventually(lambda: server.hget(gate.outage, "prober") if provider.passed else None)
        assert isinstance(call, bytes)
        prober = call.decode().split("/")[1]
    cluster.kill("worker", cluster.holder(prober))
    cluster.start("worker")
    eventually(lambda: len(provider.passed) > 1, why="another one probes")
    for run_id in runs:
        cluster.cancel(run_id)


@pytest.mark.chaos
@pytest.mark.parametrize("status", [503, None])
def test_workers_that_are_killed_in_an_outage_lose_no_run_and_ask_no_oftener(
    cluster: Cluster, provider: FailingProvider, status: int | None
) -> None:
    seed, chance = seeded()
    provider.status, provider.out, kills = status, True, scaled(8)
    for _ in range(2):
        cluster.start("worker")
    runs = [cluster.submit("busy/tool-1", tools=["calculator"]) for _ in range(100)]
    seen(cluster)
    begun = settled(cluster, runs)
    for _ in range(kills):
        cluster.kill("worker", chance.randrange(len(cluster.stack.pids("worker"))))
        cluster.start("worker")
    until = time.monotonic()
    assert outages(cluster)
    provider.out = False
    all_completed(cluster, runs)
    hardly_anybody_asked(provider, begun, until)
    assert outages(cluster) == []
    record("kills in an outage", seed=seed, counts={"kills in an outage": kills, "runs completed": len(runs)})


def test_a_restart_of_redis_in_an_outage_changes_nothing(cluster: Cluster, provider: FailingProvider) -> None:
    provider.out = True
    runs = [cluster.submit("busy/echo") for _ in range(30)]
    seen(cluster)
    cluster.kill("redis")
    cluster.start("redis")
    eventually(lambda: cluster.http.get("/v1/queues").status_code == 200)
    eventually(partial(outages, cluster))
    begun = settled(cluster, runs)
    lasts(3)
    hardly_anybody_asked(provider, begun, time.monotonic())
    provider.out = False
    all_completed(cluster, runs)
