"""When a worker is stuck: deliveries wait, there is room, and nothing is taken."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from workers.broker.taking import Taking, WorkerActivity

IDLE = WorkerActivity(received=7, begun=7, held=0, active=0, places=4)
EVERY, PATIENCE = 5.0, 60.0


class Watched:
    """A worker that is looked at every five seconds."""

    def __init__(self, waiting: Callable[[], bool]) -> None:
        self.now, self.asked = 1000.0, 0
        self._ask = waiting
        self._taking = Taking(self._waiting, PATIENCE, clock=lambda: self.now)

    def _waiting(self) -> bool:
        self.asked += 1
        return self._ask()

    def stuck(self, *seen: WorkerActivity | None, seconds: float = 10 * PATIENCE) -> bool:
        """Whether it is at any look in so many seconds; what it has is taken in turn."""
        looks = int(seconds / EVERY)
        answers = []
        for number in range(looks):
            self.now += EVERY
            answers.append(self._taking.stuck(seen[number % len(seen)]))
        return any(answers)


def away() -> bool:
    raise ConnectionError


def test_a_worker_that_takes_nothing_though_messages_wait_is_stuck_until_it_does(
    caplog: pytest.LogCaptureFixture,
) -> None:
    worker = Watched(lambda: True)
    assert not worker.stuck(IDLE, seconds=PATIENCE)
    assert worker.stuck(IDLE, seconds=2 * EVERY)
    (line,) = [each.getMessage() for each in caplog.records]
    assert "nothing was taken for" in line
    assert "4 of 4 places are free" in line
    assert not worker.stuck(replace(IDLE, received=8, held=1), seconds=EVERY)


def test_one_whose_pool_begins_nothing_is_stuck_without_a_question_of_the_broker() -> None:
    worker = Watched(away)
    assert worker.stuck(replace(IDLE, received=11, held=4), seconds=PATIENCE + 2 * EVERY)
    assert worker.asked == 0


@pytest.mark.parametrize(
    ("waiting", "seen"),
    [
        (lambda: False, [IDLE]),
        (away, [IDLE]),
        (lambda: True, [None]),
        (lambda: True, [replace(IDLE, held=4, active=4)]),
        (lambda: True, [replace(IDLE, held=9, active=4)]),
        (lambda: True, [replace(IDLE, received=7 + n, begun=7 + n) for n in range(100)]),
        (lambda: True, [replace(IDLE, held=3, active=3), replace(IDLE, held=2, active=2)]),
    ],
    ids=["nothing waits", "the broker is away", "it stops", "no room", "more than it has room for", "busy", "they end"],
)
def test_these_are_not(waiting: Callable[[], bool], seen: list[WorkerActivity | None]) -> None:
    assert not Watched(waiting).stuck(*seen)


def test_neighbours_that_are_quicker_make_nobody_stuck() -> None:
    """Messages wait at most looks, and another worker has them by the next."""
    answers = iter([True, True, False] * 1000)
    assert not Watched(lambda: next(answers)).stuck(IDLE)


def test_an_idle_worker_asks_the_broker_seldom() -> None:
    worker = Watched(lambda: False)
    assert not worker.stuck(IDLE, seconds=600)
    assert worker.asked <= 600 / (PATIENCE / 2)
