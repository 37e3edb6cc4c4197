"""The pool wakes its loop once for several tasks, and begins each of them."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import pytest
from celery import Celery
from kombu.asynchronous import Hub, get_event_loop, set_event_loop

from tests.waiting import eventually
from workers.broker.pool import TaskPool
from workers.broker.tracer import Outcome

PLACES = 20


@pytest.fixture
def begun() -> list[int]:
    """What has begun, in that order."""
    return []


@pytest.fixture
def pool(begun: list[int]) -> Iterator[TaskPool]:
    app = Celery(set_as_current=False)

    async def begin(number: int) -> None:
        begun.append(number)

    app.task(begin, name="begin", shared=False)
    app.finalize()
    before, hub = get_event_loop(), Hub()
    set_event_loop(hub)
    pool = TaskPool(PLACES, app=app)
    pool.on_start()
    try:
        yield pool
    finally:
        pool._leave_loop()
        # A worker's process ends with them.
        pool._wakeup.close()
        pool._waker.close()
        hub.close()
        set_event_loop(before)


def hand_over(pool: TaskPool, numbers: range, ended: list[Outcome]) -> None:
    """As Celery does, in the thread of its hub."""
    for number in numbers:
        request: dict[str, Any] = {"id": str(number), "args": [number], "kwargs": {}}
        args = ("begin", str(number), request, b"", "application/json", "utf-8")
        pool.on_apply(lambda *_: (0, None, 0.0), args, {}, ended.append, lambda *_: None)


def all_end(pool: TaskPool, count: int, ended: list[Outcome]) -> None:
    def told() -> bool:
        pool._deliver()
        return len(ended) == count

    eventually(told)
    assert not any(failed for failed, *_ in ended)


def test_all_that_come_while_the_loop_is_busy_begin_in_their_order(pool: TaskPool, begun: list[int]) -> None:
    ended: list[Outcome] = []
    free = threading.Event()
    pool.call_soon(free.wait)
    hand_over(pool, range(3 * PLACES), ended)
    assert not begun
    free.set()
    all_end(pool, 3 * PLACES, ended)
    assert begun == [*range(3 * PLACES)]


def test_what_comes_while_others_begin_begins_too(pool: TaskPool, begun: list[int]) -> None:
    """Two threads at one queue: none of hundreds is left in it."""
    ended: list[Outcome] = []
    for number in range(500):
        hand_over(pool, range(number, number + 1), ended)
        if number % 7 == 0:
            pool._deliver()
    all_end(pool, 500, ended)
    assert sorted(begun) == [*range(500)]
