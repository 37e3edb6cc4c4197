"""What very many want at the same moment is done a few at a time, in order, with others in between."""

from __future__ import annotations

import asyncio
from collections import Counter
from itertools import pairwise

import pytest

from palaver.processes.turns import Turns
from tests.waiting import PATIENCE


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
