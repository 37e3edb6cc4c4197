"""SIGKILL at each named point of the product, in each kind of run: nothing is lost, doubled or started twice.

One process of each kind is armed and dies at its n-th pass of the point; another one is not, and goes on with what the
dead one held. tests/process/checks.py looks at every run afterwards; and between Palaver and the providers, which speak
each of the protocols, tests/chaos/wiretap.py compares what is asked before and after a death, byte for byte.
"""

from __future__ import annotations

import random
import signal
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any

import httpx
import pytest

from features.stack.ports import HOST
from features.stack.redis_server import RedisServer
from palaver.processes.failpoints import POINTS
from tests.chaos.report import record
from tests.chaos.seeds import scaled, seeded
from tests.chaos.traffic import Traffic
from tests.chaos.wiretap import Wiretap
from tests.chaos.zygote import Forked, Zygote, zygotes_of
from tests.process.capped import capped
from tests.process.checks import check
from tests.process.cluster import Cluster

pytestmark = pytest.mark.process

UNDER_WAY = 8
"""Runs at once."""
PROVIDERS: Mapping[str, Sequence[str]] = {
    "busy": ("deepseek", "gemini", "openrouter"),
    "busy-claude": ("reasoning-3",),
    "busy-responding": ("reasoning-3",),
}
"""Of each protocol one, and how its models think: what they think comes back to them, in each one's way."""
SURE = 20.0
A_KILL = 10.0
"""Seconds that the kills of an aim may take, and how many more for each of them."""


ON_LOOP = ("loop", "loop-parallel")


@dataclass(frozen=True)
class Aim:
    """Where a process is to die, and what runs do then: stream an answer, call one tool, or several at once, or inline
    ones, behind whose step a worker goes on in place; or one or several on the loop of a worker of models and tools."""

    point: str
    mode: str

    def __str__(self) -> str:
        return f"{self.point}-{self.mode}"

    @property
    def lines(self) -> Sequence[str]:
        """The processes that pass the point, as roles."""
        kind = self.point.partition(".")[0]
        if self.mode in ON_LOOP:
            return ("both",)
        if kind in ("step", "cancel"):
            return ("worker",) if self.mode in ("stream", "inline") else ("worker", "tools")
        return ({"run": "api", "tool": "tools"}.get(kind, "worker"),)

    @property
    def ends(self) -> int:
        """In how many ways its processes die: of a tools worker the child alone, or all of it; where it has several
        calls, the child alone."""
        return 2 if "tools" in self.lines and self.mode != "parallel" else 1

    @property
    def latest(self) -> int:
        """The last pass at which a process dies: an answer has many deltas."""
        return 30 if self.point == "model.delta" else 3

    def body(self, cluster: Cluster, chance: random.Random, provider: str) -> dict[str, Any]:
        """A run that passes the point, at a model that thinks before it says anything."""
        thinking = chance.choice(PROVIDERS[provider])

        def asked(script: str, text: str = "hello", **more: Any) -> dict[str, Any]:
            return cluster.body(f"{provider}/{script}+{thinking}", text, **more)

        more: dict[str, Any] = {}
        slow = self.point in ("cancel.heard", "run.cancelled") or (self.point, self.mode) == ("run.acted", "stream")
        if self.point.startswith("sweep"):
            soon = datetime.now(UTC) + timedelta(seconds=chance.uniform(0.02, 0.3))
            more["start_after"] = soon.isoformat()
        if self.mode == "stream":
            return asked("say-30+rate-60" if slow else "say-16+rate-100", **more)
        if self.mode == "inline":
            return asked("tool-4+rate-400", tools=["calculator"], **more)
        # Written as nobody writes it who reads numbers and prints them again.
        text = f'[[args {{"seconds": {"3e-1" if slow else "1e-2"}}}]]'
        model = "parallel-2-2" if self.mode in ("parallel", "loop-parallel") else "tool-2"
        if self.mode in ON_LOOP:
            return asked(f"{model}+rate-200", text, tools=["record_async"], **more)
        if self.point == "run.acted":
            return asked(f"{model}+rate-400", text, tools=["send"], **more)
        return asked(f"{model}+use-each+rate-100", text, tools=["record", "record_idempotent"], **more)

    def act(self, traffic: Traffic) -> None:
        """What clients do to their runs; those of the aim before may still wait for an approval."""
        if self.point in ("cancel.heard", "run.cancelled"):
            traffic.cancel_one()
        elif (self.point, self.mode) == ("run.acted", "stream"):
            traffic.steer_one()
        traffic.approve_all()


AIMS = [
    Aim(point, mode)
    for point in sorted(POINTS)
    for mode in ("stream", "tool", "parallel")
    # What only streams calls no tool, and has no second step to go on with. Where the broker is the store, the store
    # publishes.
    if point not in ("step.followed", "step.published") and not (mode == "stream" and point.startswith("tool."))
]
AIMS += [Aim(f"step.{passed}", "inline") for passed in ("claimed", "followed", "settling", "settled")]
AIMS += [
    Aim(point, mode)
    for point in ("step.claimed", "step.followed", "step.settling", "step.settled", "tool.starting", "tool.done")
    for mode in ON_LOOP
]
AIMS.append(Aim("cancel.heard", "loop"))
APART = [
    *(Aim(point, mode) for point in ("step.settled", "step.published") for mode in ("tool", "parallel")),
    Aim("run.submitted", "tool"),
    Aim("sweep.settled", "tool"),
]
"""Where the broker is another server than the store, and may not hear of what that says."""


class Range:
    """Where processes are armed, one of each kind; others are not, and go on with what the dead held."""

    def __init__(self, cluster: Cluster, zygotes: Mapping[str, Zygote]) -> None:
        self._cluster = cluster
        self._zygotes = zygotes
        self._armed: dict[str, Forked] = {line: zygote.child() for line, zygote in zygotes.items()}
        self._armed["both"] = zygotes["worker"].child("", "--tools")
        self._door_port = zygotes["api"].environment["PALAVER_API_PORT"]

    @contextmanager
    def open(self) -> Iterator[httpx.Client]:
        """A way to the API that may be armed. The cluster's own workers, with their long leases, stand back."""
        for line in ("worker", "tools"):
            self._cluster.kill(line)
        try:
            for line in ("worker", "tools"):
                self._zygotes[line].child().start()
            with httpx.Client(base_url=f"http://{HOST}:{self._door_port}", trust_env=False) as door:
                yield door
        finally:
            for zygote in self._zygotes.values():
                zygote.kill_children()

    def fire(self, aim: Aim, kills: int, chance: random.Random, traffic: Traffic, providers: Sequence[str]) -> int:
        """Let processes die at the point until so many have, while runs ask one provider after the other; how many
        did."""
        deadline = time.monotonic() + SURE + A_KILL * kills
        before = self._deaths(aim)
        while (deaths := self._deaths(aim) - before) < kills:
            assert time.monotonic() < deadline, f"{aim}: {deaths} of {kills} deaths"
            # At first children of a tools worker alone, then all of it.
            action = "kill" if 3 * (deaths + 1) < 2 * (kills + 1) else "kill-group"
            for line in aim.lines:
                self._arm(self._armed[line], aim, action if line == "tools" else "kill", chance)
            # While one starts, runs would only pass it by.
            if all(self._armed[line].ready for line in aim.lines):
                provider = providers[deaths % len(providers)]
                traffic.top_up(UNDER_WAY, partial(aim.body, self._cluster, chance, provider))
                aim.act(traffic)
            time.sleep(0.01)
        for line in aim.lines:
            self._armed[line].kill(signal.SIGKILL)
        return self._deaths(aim) - before

    def _arm(self, child: Forked, aim: Aim, action: str, chance: random.Random) -> None:
        wanted = f"{aim.point}={action}"
        if child.running and child.armed.partition("@")[0] == wanted:
            return
        child.kill(signal.SIGKILL)
        child.armed = f"{wanted}@{chance.randint(1, aim.latest)}"
        child.start()

    def _deaths(self, aim: Aim) -> int:
        ledger = self._zygotes["worker"].ledger
        return ledger.read_text().count(f"{aim.point} kill") if ledger.exists() else 0


def fire_at(
    aims: Mapping[Aim, int],
    cluster: Cluster,
    zygotes: Mapping[str, Zygote],
    name: str,
    providers: Sequence[str] = tuple(PROVIDERS),
) -> Counter[str]:
    """So many kills for each aim, one aim after the other, and providers in turn; in the end every run is as it should
    be. What was compared of what providers were asked."""
    seed, chance = seeded()
    # The second is of a child that starts as its worker dies.
    cluster.expect_traceback("WorkerLostError", "BrokenPipeError")
    counts: Counter[str] = Counter()
    targets, tap = Range(cluster, zygotes), Wiretap(cluster.stack.model_url)
    with tap.listening(cluster.busy_port), targets.open() as door, capped(cluster):
        traffic = Traffic(cluster, chance, door, aimed=True)
        for aim, kills in aims.items():
            aimed, turn = random.Random(f"{seed} {aim}"), counts.total() % len(providers)
            in_turn = [*providers[turn:], *providers[:turn]]
            counts[f"kills at {aim.point}"] += targets.fire(aim, kills, aimed, traffic, in_turn)
        traffic.conclude(name, seed=seed, made=counts)
    compared = tap.check(traffic.steered)
    record(f"{name}, bytes", seed=seed, counts=compared)
    print(f"compared: {dict(compared)}")
    return compared


def test_a_kill_at_any_point_loses_nothing(cluster: Cluster, zygotes: Mapping[str, Zygote]) -> None:
    """In each kind of run once in each way; over its kinds, every point is passed with each provider."""
    compared = fire_at({aim: aim.ends for aim in AIMS}, cluster, zygotes, "aimed kills")
    paths = {key.partition(" ")[0] for key in compared}
    assert len(paths) == len(PROVIDERS)
    assert compared.keys() == {f"{path} {what}" for path in paths for what in ("asked again", "asked on", "sent back")}


@pytest.fixture(scope="module")
def apart(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Cluster, Mapping[str, Zygote]]]:
    """A cluster with a broker of its own, and what its processes are forked from."""
    with RedisServer() as broker:
        folder, environment = tmp_path_factory.mktemp("apart"), {"PALAVER_BROKER_URL": broker.url}
        with (
            Cluster(folder, users=False, rabbitmq=False, environment=environment) as cluster,
            zygotes_of(cluster) as zygotes,
        ):
            yield cluster, zygotes


def test_a_kill_between_store_and_broker_loses_nothing(apart: tuple[Cluster, Mapping[str, Zygote]]) -> None:
    cluster, zygotes = apart
    cluster.mark()
    fire_at({aim: aim.ends for aim in APART}, cluster, zygotes, "aimed kills, broker apart")
    check(cluster)


@pytest.mark.chaos
@pytest.mark.parametrize("provider", PROVIDERS)
@pytest.mark.parametrize("aim", APART, ids=str)
def test_many_kills_between_store_and_broker_lose_nothing(
    apart: tuple[Cluster, Mapping[str, Zygote]], aim: Aim, provider: str
) -> None:
    cluster, zygotes = apart
    cluster.heal()
    cluster.mark()
    fire_at({aim: scaled(8)}, cluster, zygotes, f"aimed kills, broker apart: {aim}", [provider])
    check(cluster)


@pytest.mark.chaos
@pytest.mark.parametrize("provider", PROVIDERS)
@pytest.mark.parametrize("aim", AIMS, ids=str)
def test_many_kills_at_any_point_lose_nothing(
    cluster: Cluster, zygotes: Mapping[str, Zygote], aim: Aim, provider: str
) -> None:
    fire_at({aim: scaled(8)}, cluster, zygotes, f"aimed kills: {aim}", [provider])
