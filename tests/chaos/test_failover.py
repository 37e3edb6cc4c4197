"""The primary dies, and a replica that lags behind takes over.

With `PALAVER_DURABILITY=replicas=1` nothing that was promised is lost and no tool begins twice. Without it runs may
go back; what is left is whole all the same.
"""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

import pytest

from palaver.config.settings import Settings
from palaver.errors import ErrorClass, UnknownRun, classify
from palaver.schemas.models import AgentSpec, Submission
from palaver.store import Store
from tests.chaos.failover import Pair
from tests.chaos.promises import Clients, check_all
from tests.chaos.report import record
from tests.chaos.seeds import scaled, seeded
from tests.process.cluster import Cluster
from tests.process.phases import wait
from tests.waiting import eventually

pytestmark = pytest.mark.process

BODY = Submission(agent=AgentSpec(model="fake/echo"), input="hello")


@pytest.mark.parametrize(("durability", "lag"), [("replicas=1", 0.02), ("server", 0.2)])
async def test_what_was_promised_survives_a_failover(durability: str, lag: float) -> None:
    """The second one is what the class is good for: a replica that lags forgets promises."""
    with Pair(lag).open() as pair:
        settings = Settings(redis_url=pair.url, durability=durability)
        promised: list[str] = []
        over = asyncio.Event()

        async def submit(store: Store) -> None:
            while not over.is_set():
                try:
                    promised.append((await store.runs.submit(BODY)).run_id)
                except Exception as error:
                    if classify(error).error_class is not ErrorClass.STORAGE:
                        raise
                    await asyncio.sleep(0.01)

        async with Store.connect(settings) as store:
            clients = [asyncio.create_task(submit(store)) for _ in range(8)]
            await asyncio.to_thread(eventually, lambda: len(promised) >= 100, within=30)
            before = len(promised)
            await asyncio.to_thread(pair.fail_over)
            over.set()
            await asyncio.gather(*clients)
            lost = [run_id for run_id in promised if not await _is_there(store, run_id)]
        print(f"{before} of {len(promised)} were promised before the failover; {len(lost)} are lost")
        if durability == "server":
            assert lost
        else:
            assert not lost


async def _is_there(store: Store, run_id: str) -> bool:
    try:
        await store.runs.get(run_id)
    except UnknownRun:
        return False
    return True


def test_runs_go_on_after_a_failover(tmp_path: Path) -> None:
    fail_over(tmp_path, failovers=1)


@pytest.mark.chaos
def test_nothing_promised_is_lost_in_many_failovers(tmp_path: Path) -> None:
    fail_over(tmp_path, failovers=scaled(10))


def fail_over(folder: Path, failovers: int) -> None:
    """So many failovers under load, at random moments."""
    seed, chance = seeded()
    promises = {"PALAVER_DURABILITY": "replicas=1"}
    with Pair(0.02).open() as pair, Cluster(folder, redis_url=pair.url, environment=promises) as cluster:
        took = []
        with Clients(cluster) as clients:
            for _ in range(failovers):
                clients.some_more(10)
                wait(chance.uniform(0.0, 0.5))
                begun = time.monotonic()
                pair.fail_over()
                took.append(time.monotonic() - begun)
        check_all(cluster, clients.promised)
        counts = {"failovers": failovers, "promised": len(clients.promised), "retried": clients.retried}
        print(counts)
        record("failover", seed=seed, counts=counts, seconds=took)
