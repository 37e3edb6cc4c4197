"""Reads that are shared: by whom, how many at once, and what those hear whose read failed."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from functools import partial
from types import SimpleNamespace

import pytest

from palaver.store.redis import single_flight
from palaver.store.redis.reach import Reach, within
from palaver.store.redis.single_flight import Fresh, SingleFlight, yielding
from tests.waiting import aeventually


class Source:
    """Answers how often it was read, when it is let."""

    def __init__(self) -> None:
        self.begun = 0
        self.at_once = 0
        self.go = asyncio.Semaphore(0)

    async def read(self) -> int:
        self.begun += 1
        number = self.begun
        self.at_once += 1
        await self.go.acquire()
        self.at_once -= 1
        return number


@pytest.fixture
async def sharing() -> AsyncIterator[SingleFlight]:
    sharing = SingleFlight(3)
    yield sharing
    await sharing.close()


async def test_who_asks_meanwhile_shares_the_next_read(sharing: SingleFlight) -> None:
    source = Source()
    first = asyncio.create_task(sharing.read("key", source.read))
    await aeventually(lambda: source.begun == 1)
    others = [asyncio.create_task(sharing.read("key", source.read)) for _ in range(100)]
    source.go.release()
    assert await first == 1
    source.go.release()
    # The second began after they had asked.
    assert set(await asyncio.gather(*others)) == {2}
    assert source.begun == 2


async def test_nobody_shares_with_those_of_another_reach(sharing: SingleFlight) -> None:
    source = Source()
    asking = []
    for tenant in ("aaaaaa", "bbbbbb", ""):
        with within(Reach(tenant)):
            asking += [asyncio.create_task(each("key", source.read)) for each in (sharing.read_now, sharing.read)]
    await aeventually(lambda: source.begun == 3)
    for _ in asking:
        source.go.release()
    assert sorted(await asyncio.gather(*asking)) == [1, 2, 3, 4, 5, 6]


def _at_once(sources: list[Source], number: int) -> bool:
    return sum(each.at_once for each in sources) == number


def _ended(sources: list[Source], number: int) -> bool:
    return sum(each.begun - each.at_once for each in sources) == number


async def test_so_many_are_under_way_and_of_one_thing_only_one(sharing: SingleFlight) -> None:
    sources = [Source() for _ in range(10)]
    asking = [asyncio.create_task(sharing.read(n % 10, sources[n % 10].read)) for n in range(50)]
    for left in range(10, 0, -1):
        await aeventually(partial(_at_once, sources, min(3, left)))
        assert max(each.at_once for each in sources) == 1
        next(each for each in sources if each.at_once).go.release()
        await aeventually(partial(_ended, sources, 11 - left))
    assert await asyncio.gather(*asking) == [1] * 50


async def test_all_hear_of_a_failure_and_the_next_read_is_made_anew(sharing: SingleFlight) -> None:
    async def fail() -> int:
        raise ConnectionError("away")

    failed = await asyncio.gather(*(sharing.read("key", fail) for _ in range(40)), return_exceptions=True)
    assert [type(each) for each in failed] == [ConnectionError] * 40
    source = Source()
    source.go.release()
    assert await sharing.read("key", source.read) == 1


async def test_a_read_goes_on_for_the_others_when_one_who_asked_has_gone(sharing: SingleFlight) -> None:
    source = Source()
    gone, there = (asyncio.create_task(sharing.read("key", source.read)) for _ in range(2))
    await aeventually(lambda: source.begun == 1)
    gone.cancel()
    source.go.release()
    assert await there == 1
    with pytest.raises(asyncio.CancelledError):
        await gone


async def test_who_finds_nobody_else_reads_alone(sharing: SingleFlight) -> None:
    source = Source()
    first, gone, there = (asyncio.create_task(sharing.read_now("key", source.read)) for _ in range(3))
    await aeventually(lambda: source.begun == 1)
    source.go.release()
    assert await first == 1
    await aeventually(lambda: source.begun == 2)
    gone.cancel()
    source.go.release()
    # The two others shared the next, and one of them has gone.
    assert await there == 2
    others = [asyncio.create_task(sharing.read_now(n, source.read)) for n in range(10)]
    await aeventually(lambda: source.at_once == 3)
    for _ in others:
        source.go.release()
    assert sorted(await asyncio.gather(*others)) == list(range(3, 13))
    assert not sharing._under_way, "nothing is kept of what was read"


async def test_who_reads_alone_and_goes_away_leaves_the_others_a_read(sharing: SingleFlight) -> None:
    source = Source()
    gone, there = (asyncio.create_task(sharing.read_now("key", source.read)) for _ in range(2))
    await aeventually(lambda: source.begun == 1)
    gone.cancel()
    await aeventually(lambda: source.begun == 2)
    source.go.release()
    assert await there == 2
    with pytest.raises(asyncio.CancelledError):
        await gone


async def test_who_is_not_alone_waits_no_longer_than_its_patience(sharing: SingleFlight) -> None:
    source = Source()
    first = asyncio.create_task(sharing.read_now("key", source.read, patience=0))
    await aeventually(lambda: source.begun == 1)
    with pytest.raises(TimeoutError):
        await sharing.read_now("key", source.read, patience=0)
    source.go.release()
    assert await first == 1


async def test_who_reads_alone_at_the_end_is_cancelled(sharing: SingleFlight) -> None:
    source = Source()
    reading = asyncio.create_task(sharing.read_now("key", source.read))
    await aeventually(lambda: source.begun == 1)
    await sharing.close()
    assert reading.cancelled()


async def test_whoever_waits_at_the_end_is_cancelled() -> None:
    sharing, source = SingleFlight(1), Source()
    asking = [asyncio.create_task(sharing.read(n, source.read)) for n in range(3)]
    await aeventually(lambda: source.begun == 1)
    await sharing.close()
    heard = await asyncio.gather(*asking, return_exceptions=True)
    assert [type(each) for each in heard] == [asyncio.CancelledError] * 3


async def test_of_several_reads_few_waiters_go_on_in_one_turn() -> None:
    """Each of them has something to do then."""
    sharing, went, now = SingleFlight(8), list[int](), 0

    async def make() -> int:
        return 1

    async def one(key: int) -> None:
        await sharing.read(key, make)
        went.append(now)

    asking = [asyncio.create_task(one(number % 8)) for number in range(160)]
    while len(went) < len(asking):
        await asyncio.sleep(0)
        now += 1
    assert max(Counter(went).values()) <= 4


async def test_others_have_the_loop_in_between() -> None:
    between: list[int] = []
    done = 0

    async def other() -> None:
        while done < 100:
            between.append(done)
            await asyncio.sleep(0)

    task = asyncio.create_task(other())
    async for _ in yielding(range(100)):
        done += 1
    await task
    assert len(between) >= 100 // 16


async def test_what_does_not_fit_is_read_again_soon_but_not_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    now, values = [100.0], iter([{"a"}, {"a", "b"}, {"a", "b", "c"}])
    monkeypatch.setattr(single_flight, "time", SimpleNamespace(monotonic=lambda: now[0]))

    async def read() -> set[str]:
        return next(values)

    sharing = SingleFlight(1)
    fresh = Fresh(sharing, read, 2.0)
    assert await fresh.get(lambda value: "b" in value) == {"a"}
    assert await fresh.get(lambda value: "b" in value) == {"a"}
    now[0] += 0.3
    assert await fresh.get() == {"a"}
    assert await fresh.get(lambda value: "b" in value) == {"a", "b"}
    now[0] += 1.9
    assert await fresh.get(lambda value: "b" in value) == {"a", "b"}
    now[0] += 0.2
    assert await fresh.get(lambda value: "b" in value) == {"a", "b", "c"}
    await sharing.close()
