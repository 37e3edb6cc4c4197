"""Sentinels replace the primary again and again, in each of the ways in which one is lost, while runs go on."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Sequence
from http import HTTPStatus
from pathlib import Path
from random import Random
from typing import NamedTuple

import pytest

from tests.chaos.promises import Clients, check_all
from tests.chaos.report import record
from tests.chaos.seeds import scaled, seeded
from tests.process.cluster import Cluster
from tests.process.phases import wait
from tests.sentinels import SentinelGroup
from tests.waiting import eventually

pytestmark = [pytest.mark.process, pytest.mark.chaos]

ALL = ("kill", "pause", "order")


class Installation(NamedTuple):
    """A group of servers, and what its promises wait for."""

    replicas: int
    waited_for: int
    moves: Sequence[str]
    """The ways in which its primary is lost."""
    apart: bool = False
    """True if the broker is another database, so that scripts do not send the deliveries."""


@pytest.mark.parametrize(
    "here",
    [
        Installation(1, 1, ALL),
        Installation(2, 2, ALL, apart=True),
        # The replica that has more is promoted. That holds where nobody goes on with the old primary.
        Installation(2, 1, ["kill"]),
    ],
    ids=["one replica", "two replicas", "one of two replicas is waited for"],
)
def test_nothing_promised_is_lost_in_many_failovers(here: Installation, tmp_path: Path) -> None:
    seed, chance = seeded()
    failovers = scaled(17)
    counts: Counter[str] = Counter()
    took: list[float] = []
    with SentinelGroup(replicas=here.replicas).open() as group:
        environment = {"PALAVER_DURABILITY": f"replicas={here.waited_for}"}
        if here.apart:
            environment["PALAVER_BROKER_URL"] = group.url.removesuffix("/0") + "/1"
        with Cluster(tmp_path, redis_url=group.url, environment=environment) as cluster:
            cancelled: list[str] = []
            with Clients(cluster) as clients:
                for _ in range(failovers):
                    clients.some_more()
                    wait(chance.uniform(0.0, 0.5))
                    cancelled.append(cluster.submit("say-5000+rate-50"))
                    move = chance.choice(here.moves)
                    counts[move] += 1
                    took.append(_fail_over(group, move, chance))
                    _cancel(cluster, cancelled[-1])
                    clients.some_more()
            check_all(cluster, clients.promised)
            assert {cluster.ended(run_id).status for run_id in cancelled} == {"cancelled"}
            counts.update(failovers=failovers, promised=len(clients.promised), retried=clients.retried)
    print(dict(counts), f"the longest took {max(took):.1f} s")
    record("sentinel", seed=seed, counts=counts, seconds=took)


def _fail_over(group: SentinelGroup, move: str, chance: Random) -> float:
    """Lose the primary in this way, one Sentinel with it now and then. Return how long it took for all Sentinels to
    name another one; all are back when this returns."""
    before = group.primary
    away = chance.choice(group.sentinels[1:]) if chance.random() < 0.2 else None
    if away is not None:
        away.kill()
    begun = time.monotonic()
    match move:
        case "kill":
            before.kill()
        case "pause":
            before.pause()
        case _:
            group.fail_over()
    group.moved_from(before.port, within=120)
    seconds = time.monotonic() - begun
    if move == "kill":
        before.start()
    elif move == "pause":
        before.resume()
    if away is not None:
        away.start()
    group.settle(within=60)
    return seconds


def _cancel(cluster: Cluster, run_id: str) -> None:
    """Cancel it. What the last failover left of a request, a connection or a replica may refuse it for a moment."""
    seen: list[int] = []

    def taken() -> bool:
        seen.append(cluster.cancel(run_id))
        return seen[-1] in (HTTPStatus.OK, HTTPStatus.ACCEPTED)

    try:
        eventually(taken, within=30, every=0.2)
    except AssertionError:
        pytest.fail(f"{run_id} was not cancelled: {seen}, {cluster.run(run_id).status}")
