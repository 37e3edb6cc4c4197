"""No worker that lives is taken for dead (ADR 0016), whatever freezes it, slows it down, cuts its connections or
restarts Redis; and one that is killed after all of that is.

All the time other workers start, look at these at once (ADR 0016), and are killed as soon as they are ready: each of
them might take a neighbour for dead that is only away for a moment.

Leases of the workers are longer than the test, so whatever goes on elsewhere does because somebody took its worker for
dead. The one that watches has short leases, and judges again soon after it was cut off itself.
"""

from __future__ import annotations

import os
import random
import signal
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field

import pytest

from features.stack.child import ChildCommand
from palaver.store.redis import fleet_keys
from tests.chaos.faulty_proxy import FaultyProxy
from tests.chaos.report import record
from tests.chaos.seeds import scaled, seeded
from tests.process.cluster import Cluster
from tests.process.one_more import another, one_more
from tests.waiting import eventually

pytestmark = [pytest.mark.process, pytest.mark.chaos]

WORKERS = 3
HELD = 2
"""Runs in the hands of each of them, at least."""
ROUND = 50
"""Faults after which there are new runs."""


@dataclass
class Worker:
    """A worker with a way to Redis of its own, and the runs that it holds."""

    child: ChildCommand
    way: FaultyProxy
    runs: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class World:
    """What faults are made in."""

    cluster: Cluster
    workers: list[Worker]
    starting: ChildCommand
    """A worker that looks at them when it starts, again and again."""
    chance: random.Random

    @property
    def one(self) -> Worker:
        """Any of them."""
        return self.chance.choice(self.workers)

    def wait(self, least: float, most: float) -> None:
        """Let so many seconds pass."""
        until = time.monotonic() + self.chance.uniform(least, most)
        eventually(lambda: time.monotonic() >= until, every=0.01)

    def go_on_starting(self) -> bool:
        """Kill the worker that starts, if it is ready, and start it again. Returns whether one was ready."""
        ready = self.starting.running and self.starting.ready
        if ready:
            self.starting.kill(signal.SIGKILL)
        if not self.starting.running:
            self.starting.start()
        return ready

    def cut_listeners(self, share: float) -> None:
        """Cut this share of the connections on which processes listen."""
        with self.cluster.redis() as server:
            found: list[dict[str, str]] = server.client_list(_type="pubsub")
            for each in found:
                if each["psub"] == "0" and self.chance.random() < share:
                    server.client_kill_filter(_id=each["id"])


def some_hear_nothing(world: World) -> None:
    world.cut_listeners(0.4)


def all_hear_nothing(world: World) -> None:
    world.cut_listeners(1.0)


def one_is_frozen(world: World) -> None:
    """And what it listened on may be cut meanwhile."""
    child = world.one.child
    child.kill(signal.SIGSTOP)
    if world.chance.random() < 0.5:
        world.cut_listeners(0.7)
    world.wait(0.1, 4.0)
    child.kill(signal.SIGCONT)


def one_is_reset(world: World) -> None:
    """All its connections; it may connect again at once."""
    world.one.way.reset()


def one_is_far_away(world: World) -> None:
    way = world.one.way
    way.latency = world.chance.uniform(0.05, 0.5)
    world.wait(0.5, 2.0)
    way.heal()


def one_gets_nothing_for_a_while(world: World) -> None:
    way = world.one.way
    way.stalled = True
    world.wait(0.5, 4.0)
    way.stalled = False


def redis_is_frozen(world: World) -> None:
    (pid,) = world.cluster.stack.pids("redis")
    os.kill(pid, signal.SIGSTOP)
    world.wait(0.1, 3.0)
    os.kill(pid, signal.SIGCONT)


def redis_is_restarted(world: World) -> None:
    world.cluster.kill("redis")
    world.wait(0.0, 1.0)
    world.cluster.start("redis")


FAULTS: dict[Callable[[World], None], int] = {
    some_hear_nothing: 6,
    all_hear_nothing: 1,
    one_is_frozen: 3,
    one_is_reset: 5,
    one_is_far_away: 2,
    one_gets_nothing_for_a_while: 2,
    redis_is_frozen: 1,
    redis_is_restarted: 1,
}
"""With how often each is made."""


@pytest.fixture
def world(cluster: Cluster) -> Iterator[tuple[World, int]]:
    # A worker that starts while Redis is away says so, with all errors of the chain: the first is the socket's.
    away = ("ConnectionRefusedError", "ConnectionError", "TimeoutError", "OperationalError", "BusyLoadingError")
    cluster.expect_traceback(*away)
    seed, chance = seeded()
    with ExitStack() as stack:
        workers = []
        for number in range(WORKERS):
            way = stack.enter_context(FaultyProxy(cluster.stack.ports.redis).open())
            here = {"PALAVER_REDIS_URL": way.redis_url, "PALAVER_LEASE_SECONDS": "3600"}
            child = stack.enter_context(one_more(cluster, "worker", name=f"living-{number}", **here))
            workers.append(Worker(child, way))
        starting = another(cluster, "worker", "starting")
        stack.callback(end, starting)
        yield World(cluster, workers, starting, chance), seed


def end(child: ChildCommand) -> None:
    if child.running:
        child.kill(signal.SIGKILL)


def test_no_worker_that_lives_is_taken_for_dead(world: tuple[World, int]) -> None:
    here, seed = world
    cluster, made = here.cluster, Counter[str]()
    faults = scaled(1000)
    hold_runs(here)
    for number in range(1, faults + 1):
        fault = here.chance.choices(list(FAULTS), list(FAULTS.values()))[0]
        fault(here)
        made[fault.__name__.replace("_", " ")] += 1
        made["workers started beside them"] += here.go_on_starting()
        here.wait(0.0, 1.5)
        if number % ROUND == 0 and number < faults:
            keep_all(here, made)
            let_go(here)
            hold_runs(here)
    keep_all(here, made)
    (dead, *_) = here.workers
    # Before that it is not judged, if Redis was restarted just now.
    eventually(lambda: spoke_to_this_server(cluster, cluster.tries(dead.runs[0])[-1]), within=60)
    dead.child.kill(signal.SIGKILL)
    for run_id in dead.runs:
        eventually(lambda run_id=run_id: len(cluster.tries(run_id)) == 2, within=60)  # type: ignore[misc]
    let_go(here)
    record("living workers", seed=seed, counts={**made, "workers taken for dead": 0})


def hold_runs(world: World) -> None:
    """Each worker has some long runs."""
    of_pid = {str(each.child.pid): each for each in world.workers}

    def submit() -> bool:
        run_id = world.cluster.submit("say-20000+rate-20")
        world.cluster.saw(run_id, "message.delta", within=60)
        holder = of_pid.get(world.cluster.tries(run_id)[-1].rpartition("/")[2])
        if holder is not None:
            holder.runs.append(run_id)
        return all(len(each.runs) >= HELD for each in world.workers)

    eventually(submit, within=120)


def keep_all(world: World, made: Counter[str]) -> None:
    """Each run is in the hands of the worker that had it first, and its call goes on."""
    for each in world.workers:
        for run_id in each.runs:
            assert len(world.cluster.tries(run_id)) == 1, (made, world.cluster.timeline(run_id)[-2000:])
            assert len(world.cluster.model_calls(run_id)) == 1


def spoke_to_this_server(cluster: Cluster, worker_id: str) -> bool:
    """Whether the worker has reported since the last restart."""
    with cluster.redis() as server:
        told, here = server.hget(fleet_keys.worker(worker_id), "server"), server.info("server")
        return told == here["run_id"].encode()  # type: ignore[no-any-return]


def let_go(world: World) -> None:
    """All runs end."""
    for run_id in world.cluster.submitted:
        eventually(lambda run_id=run_id: world.cluster.cancel(run_id) in (200, 202, 409), within=60)  # type: ignore[misc]
    for run_id in world.cluster.submitted:
        world.cluster.ended(run_id, within=60)
    for each in world.workers:
        each.runs.clear()
