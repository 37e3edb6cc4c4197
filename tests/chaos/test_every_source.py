"""Every source of tools while our workers die, at aimed points and at random: by a count on the other side nothing
is done twice that must not be, and each call is answered, or said to be in doubt."""

from __future__ import annotations

import random
import signal
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.chaos.report import record
from tests.chaos.seeds import scaled, seeded
from tests.process.every_source import SOURCES, Deed, EverySource, every_source
from tests.process.one_more import another

pytestmark = [pytest.mark.process, pytest.mark.chaos]

KILLS = 600
AT_ONCE = 24
"""Runs under way."""
POINTS = ("step.delivered", "step.claimed", "tool.starting", "tool.done", "step.settling", "step.settled")
CHANCE = 7
"""Percent, of dying at each of them."""
APART = 0.8
"""Seconds between two deaths of a whole worker, about."""
IN_DOUBT = "may or may not have taken effect"
NOT_DONE = ("nothing was done", "nothing was sent", "was not reached")


class Killed:
    """The stack, its tools workers armed."""

    def __init__(self, every: EverySource, chance: random.Random) -> None:
        self.every = every
        self.deeds: list[Deed] = []
        self.by_hand: Counter[str] = Counter()
        self._chance = chance
        self._ledger = every.cluster.folder / "deaths"
        armed = {
            "PALAVER_FAILPOINTS": " ".join(f"{point}=kill%{CHANCE}" for point in POINTS),
            "PALAVER_FAILPOINTS_LEDGER": str(self._ledger),
        }
        for line in ("tools", "loop"):
            every.cluster.kill(line)
        self._workers = {line: another(every.cluster, line, "armed", **armed) for line in ("tools", "loop")}
        self._next = time.monotonic()

    @property
    def kills(self) -> Counter[str]:
        """So far, by where."""
        lines = self._ledger.read_text().splitlines() if self._ledger.exists() else []
        return Counter(line.partition(" ")[0] for line in lines) + self.by_hand

    def tick(self) -> None:
        """Go on: who has died starts, runs that have ended are followed by others, and from time to time a worker is
        killed."""
        for worker in self._workers.values():
            if not worker.running:
                worker.start()
        under_way = [each for each in self.deeds[-2 * AT_ONCE :] if not self._over(each)]
        for _ in range(AT_ONCE - len(under_way)):
            source = self._chance.choice(tuple(SOURCES))
            kind = "" if source == "agent" else self._chance.choice(("", "", "_again"))
            self.deeds.append(self.every.ask(source, self._chance.choice(("answer", "nap")), kind))
        if time.monotonic() > self._next:
            self._next = time.monotonic() + self._chance.uniform(0.5 * APART, 1.5 * APART)
            self._kill(self._chance.choice(("tools", "tools", "loop", "worker")))

    def _over(self, deed: Deed) -> bool:
        return self.every.cluster.run(deed.run_id).status.terminal

    def _kill(self, line: str) -> None:
        self.by_hand[f"{line} as a whole"] += 1
        if line == "worker":
            self.every.cluster.kill("worker")
            self.every.cluster.start("worker")
            return
        self._workers[line].kill(signal.SIGKILL)

    def end(self) -> None:
        """Workers that do not die do the rest."""
        for worker in self._workers.values():
            worker.kill(signal.SIGKILL)
        self.every.heal()


@pytest.fixture
def every(tmp_path: Path) -> Iterator[EverySource]:
    """All sources."""
    with every_source(tmp_path) as every:
        yield every


def test_nothing_is_done_twice_and_each_call_is_answered_or_in_doubt(every: EverySource) -> None:
    every.cluster.expect_traceback("Error")
    seed, chance = seeded()
    killed = Killed(every, chance)
    while (made := killed.kills).total() < scaled(KILLS):
        killed.tick()
    killed.end()
    ends = Counter(_judged(every, each) for each in killed.deeds)
    doubled = sum(every.begun(each) > 1 for each in killed.deeds if not each.again)
    record("every source of tools", seed=seed, counts={**made, "calls": len(killed.deeds)}, ends=ends)
    by_source = Counter(each.source for each in killed.deeds)
    print(f"{made.total()} kills {dict(made)}, {len(killed.deeds)} calls {dict(by_source)}: {dict(ends)}")
    assert doubled == 0


def _judged(every: EverySource, deed: Deed) -> str:
    """How its call ended, which must be true."""
    told, lines = every.told(deed), every.lines()
    begun, ended = lines[f"begin {deed.key}"], lines[f"end {deed.key}"]
    assert begun <= 1 or deed.again, f"{deed} was done {begun} times: {told}"
    if deed.source == "agent":
        assert len(every.cluster.run(deed.run_id).children) == 1, deed
    if f"did {deed.key}" in told:
        assert ended, f"{deed} was not done: {told}"
        return "answered"
    if any(words in told for words in NOT_DONE):
        assert not begun, f"{deed} was done: {told}"
        return "not done"
    assert IN_DOUBT in told, f"{deed}: {told}"
    assert not deed.again, f"{deed} could have been done again: {told}"
    return "in doubt"
