"""The network as the enemy: between workers and the model server, and between everybody and Redis."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from urllib.parse import urlsplit

import pytest

from features.stack.redis_server import RedisServer
from palaver.schemas.models import Run
from tests.chaos.faulty_proxy import FaultyProxy
from tests.chaos.load import TOOLS, Load
from tests.chaos.report import record
from tests.chaos.seeds import scaled, seeded
from tests.process.checks import check
from tests.process.cluster import LEASE, Cluster
from tests.process.faults.row import words
from tests.waiting import eventually

pytestmark = pytest.mark.process

FOUND = 10.0
"""Seconds within which a connection that is dead without a word is given up."""
IDLE = LEASE + 1.0
"""Seconds that the provider `far` may be silent: longer than a lease, which has to be kept meanwhile."""
FAR = """
[providers.far]
base_url = "http://127.0.0.1:{port}/v1"
timeouts = {{ connect = 2.0, first_token = {idle}, idle = {idle} }}
"""
SOON = {"attempts": 5, "first": 0.2, "jitter": "none"}
RETRY = {"rules": {"connection": SOON, "timeout": SOON}}


@dataclass(frozen=True)
class Net:
    """A cluster whose ways can be made bad."""

    cluster: Cluster
    redis: FaultyProxy
    model: FaultyProxy


@pytest.fixture(scope="module")
def whole_net(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Net]:
    with ExitStack() as stack:
        server = stack.enter_context(RedisServer())
        redis = stack.enter_context(FaultyProxy(server.port).open())
        cluster = Cluster(tmp_path_factory.mktemp("net"), redis_url=redis.redis_url)
        port = urlsplit(cluster.stack.model_url).port
        assert port is not None
        model = stack.enter_context(FaultyProxy(port).open())
        with cluster.providers_path.open("a") as file:
            file.write(FAR.format(port=model.port, idle=IDLE))
        stack.enter_context(cluster)
        yield Net(cluster, redis, model)


@pytest.fixture
def net(whole_net: Net) -> Iterator[Net]:
    """Good ways, before the test and after it; what was submitted must have ended well."""
    cluster = whole_net.cluster
    cluster.submitted.clear()
    cluster.mark_logs()
    cluster.expect_traceback(
        "ConnectionError", "TimeoutError", "ConnectionResetError", "OperationalError", "BrokenPipeError"
    )
    yield whole_net
    whole_net.redis.heal()
    whole_net.model.heal()
    check(cluster)


# Between workers and the model server.


def far(net: Net, model: str) -> str:
    """A run whose model is far away."""
    return net.cluster.submit(f"far/{model}", agent={"retry": RETRY})


def retries(net: Net, run: Run) -> list[tuple[str, str]]:
    """Class and code of what each retry was for."""
    told = [event.data["error"] for event in net.cluster.events(run.id) if event.type == "run.retrying"]
    return [(error["class"], error["code"]) for error in told]


def completed(net: Net, run_id: str, words_said: int, calls: int) -> Run:
    """The run, which said everything after so many calls, and never lost its lease."""
    run = net.cluster.ended(run_id, within=40)
    assert (run.status, run.output) == ("completed", words(words_said))
    assert len(net.cluster.model_calls(run_id)) == calls
    assert not [event for event in net.cluster.events(run_id) if event.type == "step.lost"]
    return run


def test_a_slow_way_to_the_model_only_takes_time(net: Net) -> None:
    net.model.latency = 0.2
    run = completed(net, far(net, "say-20"), 20, calls=1)
    assert run.times.ended_at is not None
    assert (run.times.ended_at - run.times.created_at).total_seconds() > 0.4
    assert retries(net, run) == []


def swallow(proxy: FaultyProxy) -> None:
    proxy.blackhole = True


def stall(proxy: FaultyProxy) -> None:
    proxy.stalled = True


def close_early(proxy: FaultyProxy) -> None:
    proxy.close_after = 1


def reset(proxy: FaultyProxy) -> None:
    assert proxy.reset()


@pytest.mark.parametrize(
    ("fault", "error"),
    [
        (reset, ("connection", "stream_truncated")),
        (close_early, ("connection", "stream_truncated")),
        (swallow, ("timeout", "idle_timeout")),
        pytest.param(stall, ("timeout", "idle_timeout"), marks=pytest.mark.chaos),
    ],
    ids=["reset", "closed", "blackhole", "stall"],
)
def test_an_answer_that_breaks_off_is_asked_for_again(
    net: Net, fault: Callable[[FaultyProxy], None], error: tuple[str, str]
) -> None:
    runs = [far(net, "say-40+rate-20") for _ in range(3)]
    for run_id in runs:
        net.cluster.saw(run_id, "message.delta")
    fault(net.model)
    for run_id in runs:
        net.cluster.saw(run_id, "run.retrying", within=20)
    net.model.heal()
    for run_id in runs:
        assert retries(net, net.cluster.run(run_id))[0] == error
        assert net.cluster.ended(run_id, within=40).output == words(40)


def test_a_stall_that_is_short_enough_costs_nothing(net: Net) -> None:
    run_id = far(net, "say-40+rate-20")
    net.cluster.saw(run_id, "message.delta")
    net.model.stalled = True
    until = time.monotonic() + IDLE / 2
    eventually(lambda: time.monotonic() >= until)
    net.model.stalled = False
    assert retries(net, completed(net, run_id, 40, calls=1)) == []


# Between everybody and Redis.


@pytest.mark.chaos
def test_connections_to_redis_that_are_dead_are_given_up(net: Net) -> None:
    """No FIN, no RST: only silence says so. Model calls go on meanwhile, and so do watchers and cancels afterwards."""
    cluster = net.cluster
    streaming = [cluster.submit("say-400+rate-20") for _ in range(3)]
    for run_id in streaming:
        cluster.saw(run_id, "message.delta")
    net.redis.cut()
    cut = time.monotonic()
    fresh = eventually(lambda: cluster.submit("tool-2", tools=TOOLS), within=FOUND)
    cluster.saw(fresh, "run.started", within=2 * FOUND)
    found = time.monotonic() - cut
    assert cluster.ended(fresh, within=2 * FOUND).status == "completed"
    done = time.monotonic() - cut
    print(f"a run submitted after the cut began {found:.1f} s after it and was done after {done:.1f} s")
    # The machine may be busy with other things.
    assert found < 2 * FOUND
    for run_id in streaming:
        eventually(lambda run_id=run_id: cluster.cancel(run_id) in (200, 202), within=FOUND)  # type: ignore[misc]
        run = cluster.ended(run_id, within=FOUND)
        assert run.status == "cancelled"
        assert len(cluster.model_calls(run_id)) == 1
    record("Redis connections dead", seed=0, counts={"network cuts": 1}, seconds=[found, done])


def test_connections_to_redis_reset_again_and_again(net: Net) -> None:
    reset_redis(net, seconds=3)


@pytest.mark.chaos
def test_connections_to_redis_reset_for_minutes(net: Net) -> None:
    reset_redis(net, seconds=scaled(60))


def reset_redis(net: Net, seconds: float) -> None:
    """RST to everybody every second or so: nothing is lost, and nobody keeps what is broken."""
    seed, chance = seeded()
    cluster, load = net.cluster, Load(net.cluster, chance, under_way=20)
    load.go_on(1.0)
    before, rounds = {name: fds(cluster, name) for name in ("api", "worker", "tools")}, 0
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        net.redis.reset()
        rounds += 1
        load.go_on(chance.uniform(0.3, 2.0))
    for run_id in load.acknowledged:
        assert cluster.ended(run_id, within=60).status == "completed"
    # A pool may have grown towards its limit; what leaks grows with each round.
    grown = {name: fds(cluster, name) - count for name, count in before.items()}
    print(f"{rounds} rounds, {net.redis.resets} connections reset, file descriptors {before} grew by {grown}")
    assert max(grown.values()) < 64, grown
    record("Redis connections reset", seed=seed, counts={"rounds": rounds, "runs": len(load.acknowledged)})


def fds(cluster: Cluster, name: str) -> int:
    """Open file descriptors of a process."""
    return len(os.listdir(f"/proc/{cluster.stack.pids(name)[0]}/fd"))
