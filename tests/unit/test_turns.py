"""What very many want at the same moment is done a few at a time, in order, with others in between."""

from __future__ import annotations

import asyncio
from collections import Counter
from functools import partial
from itertools import pairwise

import pytest

from palaver.processes.turns import Turns
from tests.waiting import PATIENCE, aeventually


async def test_so_many_go_on_in_a_turn_of_the_loop() -> None:
    turns, went, now = Turns(3), list[tuple[int, int]](), 0

    async def one(number: int) -> None:
        await turns.take()
        went.append((now, number))

    tasks = [asyncio.create_task(one(number)) for number in range(20)]
    while len(went) < len(tasks):
        await asyncio.sleep(0)
        now += 1
    assert [number for _, number in went] == list(range(20))
    assert max(Counter(turn for turn, _ in went).values()) <= 3


async def test_the_turns_between_them_belong_to_others() -> None:
    turns, went, now = Turns(1, rest=2), list[int](), 0

    async def one() -> None:
        await turns.take()
        went.append(now)

    tasks = [asyncio.create_task(one()) for _ in range(10)]
    while len(went) < len(tasks):
        await asyncio.sleep(0)
        now += 1
    assert min(after - before for before, after in pairwise(went)) >= 3


async def test_what_needs_no_task_has_its_turn_too() -> None:
    turns, went = Turns(1), list[str]()

    def act(name: str, *, used: bool = True) -> bool:
        went.append(name)
        return used

    assert turns.call(partial(act, "first"))
    assert not turns.call(partial(act, "gone", used=False))
    assert not turns.call(partial(act, "second"))
    assert went == ["first"]
    third = asyncio.create_task(turns.take())
    await asyncio.sleep(0)
    # Who has nothing to do any more has no turn.
    assert went == ["first", "gone", "second"]
    await asyncio.wait_for(third, PATIENCE)


async def test_an_error_ends_no_turns() -> None:
    turns, went, errors = Turns(1), list[str](), list[object]()
    asyncio.get_running_loop().set_exception_handler(lambda _, about: errors.append(about["exception"]))

    def fails() -> bool:
        raise ValueError

    def after() -> bool:
        went.append("after")
        return True

    await turns.take()
    turns.call(fails)
    turns.call(after)
    await aeventually(lambda: went)
    assert [type(error) for error in errors] == [ValueError]


async def test_who_is_alone_waits_for_nothing() -> None:
    with pytest.raises(StopIteration):
        Turns(1).take().send(None)


async def test_who_went_away_takes_nobodys_turn() -> None:
    turns = Turns(1)
    first, gone, other = (asyncio.create_task(turns.take()) for _ in range(3))
    await first
    gone.cancel()
    await asyncio.wait_for(other, PATIENCE)
    assert gone.cancelled()
