"""Lists of runs and log entries, page by page."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from datetime import timedelta
from typing import Any, Unpack

import pytest

from palaver.config.settings import Settings
from palaver.errors import ErrorClass, Failure, StateConflict, UnknownConversation, UnknownRun
from palaver.schemas.filters import RunFilter
from palaver.schemas.models import Retry
from palaver.store import Store
from palaver.store.reading.finding import Part, Place, Search, ShardLists, look
from palaver.store.redis import keys
from palaver.store.runs.runs import Submitted
from palaver.vocabulary.ids import all_shards, new_conversation_id, new_run_id
from palaver.vocabulary.lifecycle import RunStatus
from palaver.vocabulary.limits import exceeded, limit_of
from tests.contract.store_driver import AGENT, StoreDriver
from tests.contract.witness import WitnessedRedis


@pytest.fixture(params=[1, 3], ids=["one shard", "three shards"])
def driver(request: pytest.FixtureRequest, redis: Any, settings: Settings) -> StoreDriver:
    return StoreDriver(Store(redis, settings.model_copy(update={"shards": request.param})), redis)


async def _pages(driver: StoreDriver, limit: int, admitted: RunFilter | None = None) -> list[list[str]]:
    pages, cursor = [], None
    while True:
        page = await driver.store.runs.list(admitted or RunFilter(), limit=limit, cursor=cursor)
        pages.append([run.id for run in page.runs])
        if page.next_cursor is None:
            return pages
        cursor = page.next_cursor


async def test_every_run_is_on_exactly_one_page_even_of_the_same_millisecond(driver: StoreDriver, redis: Any) -> None:
    # On the fake each run takes ten milliseconds.
    size = 40 if isinstance(redis, WitnessedRedis) else 8
    later, rest = size // 2, size // 4
    runs = [(await driver.submit()).run_id for _ in range(6 * size + rest)]
    same = len(runs) - later
    for i, run_id in enumerate(runs):
        await _created(redis, run_id, "queued", 1_000_000 + (0 if i < same else i))

    pages = await _pages(driver, size)
    assert await _pages(driver, size, {"status": "queued"}) == pages
    listed = [run_id for page in pages for run_id in page]
    assert listed[:later] == runs[: same - 1 : -1]
    assert listed[later:] == sorted(runs[:same], reverse=True)
    assert [len(page) for page in pages] == [size] * 6 + [rest]


async def _created(redis: Any, run_id: str, status: str, at: int) -> None:
    """The run was submitted at that time (ms)."""
    for listed in (None, status):
        await redis.zadd(keys.runs(run_id[4:6], listed), {run_id: at})


async def test_what_is_counted_between_two_times_is_what_the_list_has(driver: StoreDriver, redis: Any) -> None:
    for _ in range(3):
        await driver.submit()
    run_id, lease = await driver.begin()
    await driver.finish(lease)
    made = (await driver.get(run_id)).times.created_at
    for after, before in (
        (None, None),
        (made, None),
        (None, made),
        (made - timedelta(hours=1), made + timedelta(0, 1)),
    ):
        for sooner in (timedelta(0), timedelta(microseconds=1), timedelta(microseconds=-1)):
            between = [None if each is None else each + sooner for each in (after, before)]
            listed = await driver.store.runs.list(
                RunFilter(created_after=between[0], created_before=between[1]), limit=100
            )
            found = [run.status for run in listed.runs]
            counted = await driver.store.runs.counts(*between)
            assert counted.statuses == {status: found.count(status) for status in RunStatus}
    assert (await driver.store.runs.counts()).statuses[RunStatus.COMPLETED] == 1


async def test_several_lists_are_as_one(driver: StoreDriver, redis: Any) -> None:
    """In the order of their submission, whatever has become of them."""
    runs = []
    for i in range(30):
        submitted = await driver.submit(tags=("odd",) if i % 2 else ())
        if i % 3 == 1:
            await driver.store.runs.cancel(submitted.run_id)
        elif i % 3 == 2:
            await driver.claim(await driver.first_of(submitted.run_id))
        await _created(redis, submitted.run_id, ("queued", "cancelled", "running")[i % 3], 2_000_000_000_000 + i // 2)
        runs.append((2_000_000_000_000 + i // 2, submitted.run_id, i))
    runs.sort(reverse=True)

    async def listed(limit: int, **admitted: Unpack[RunFilter]) -> list[str]:
        return [run_id for page in await _pages(driver, limit, admitted) for run_id in page]

    for limit in (1, 4, 100):
        assert await listed(limit) == [run_id for _, run_id, _ in runs]
        some = [run_id for _, run_id, i in runs if i % 3]
        assert await listed(limit, status="cancelled,running") == some
        odd = [run_id for _, run_id, i in runs if i % 3 and i % 2]
        assert await listed(limit, status="running,cancelled", tag="odd") == odd


@pytest.mark.parametrize(("limited", "much"), [("list_looked", 8), ("list_bytes", 16)])
async def test_a_page_looks_at_so_much_and_says_where_to_go_on(
    driver: StoreDriver, monkeypatch: pytest.MonkeyPatch, limited: str, much: int
) -> None:
    monkeypatch.setattr("palaver.store.reading.finding._AT_ONCE", 4)
    monkeypatch.setattr(
        "palaver.store.reading.finding.limit_of", lambda name: {limited: much}.get(name) or limit_of(name)
    )
    (first, *_) = [(await driver.submit(tags=("rare",) if i == 0 else ())).run_id for i in range(20)]
    beyond = exceeded[limited]
    pages = await _pages(driver, 10, {"tag": "rare"})
    assert [run_id for page in pages for run_id in page] == [first]
    assert 1 < len(pages) < 20
    assert exceeded[limited] > beyond
    assert await _pages(driver, 10, {"status": "failed"}) == [[]]


async def test_searches_take_turns_and_leave_redis_to_others(
    driver: StoreDriver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("palaver.store.reading.finding._AT_ONCE", 4)
    for _ in range(20):
        await driver.submit()
    under_way, at_once, rests = 0, list[int](), list[float]()

    async def counted(*about: Any) -> Part:
        nonlocal under_way
        under_way += 1
        at_once.append(under_way)
        try:
            return await look(*about)
        finally:
            under_way -= 1

    async def resting(seconds: float) -> None:
        rests.append(seconds)

    monkeypatch.setattr("palaver.store.reading.finding.look", counted)
    monkeypatch.setattr("palaver.store.reading.finding.asyncio.sleep", resting)
    pages = await asyncio.gather(*(driver.store.runs.list({"tag": "nobody"}, limit=10) for _ in range(8)))
    assert [page.runs for page in pages] == [[]] * 8
    assert max(at_once) == 1
    assert len(at_once) >= 8 * 2
    assert sum(each > 0 for each in rests) == len(rests) - 8, "each look but the first of a search follows a rest"


async def test_a_page_that_waits_too_long_ends_where_it_is(
    driver: StoreDriver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("palaver.store.reading.finding._AT_ONCE", 4)
    monkeypatch.setattr("palaver.store.reading.finding._PATIENCE", 0.0)
    (first, *_) = [(await driver.submit(tags=("rare",) if i == 0 else ())).run_id for i in range(20)]
    pages = await _pages(driver, 10, {"tag": "rare"})
    assert len(pages) > 1
    assert [run_id for page in pages for run_id in page] == [first]


async def test_filters(driver: StoreDriver) -> None:
    _, lease = await driver.begin(tags=("blue",))
    await driver.finish(lease)
    red, lease = await driver.begin(tags=("red", "blue"))
    await driver.give_up(lease)
    green = await driver.submit(conversation_id=lease.conversation_id, tags=("green",))

    async def ids(**admitted: Unpack[RunFilter]) -> list[str]:
        return [run_id for page in await _pages(driver, 2, admitted) for run_id in page]

    assert await ids(status=[RunStatus.FAILED]) == [red]
    assert await ids(status="paused,queued") == [green.run_id]
    assert await ids(error_class="internal") == [red]
    assert len(await ids(tag="blue")) == 2
    created = (await driver.get(red)).times.created_at
    assert red in await ids(created_before=created + timedelta(milliseconds=1))
    for earlier in (0, 1, 2):
        assert red not in await ids(created_before=created - timedelta(milliseconds=earlier))
    assert set(await ids(conversation_id=lease.conversation_id)) == {red, green.run_id}
    assert await ids(conversation_id=new_conversation_id(1)) == []
    assert await ids(conversation_id="conv_x/../") == []
    assert await ids(status="done") == []


async def test_filters_of_what_ran(driver: StoreDriver) -> None:
    """Each by itself, among runs that it does not fit; texts as they may come, too."""
    odd = 'a "b" \\ \u00e9 \u2028 \x7f /'
    agent = AGENT.model_copy(update={"name": 'a"b"\\\u00e9/', "model": "other/m:1", "tools": ("find_order",)})
    _, lease = await driver.begin()
    await driver.finish(lease)
    before = (await driver.get(lease.run_id)).times
    failed, lease = await driver.begin(agent=agent, metadata={"customer": odd, "k": "1,2=3"}, tags=('"x"/\u00e9',))
    await driver.give_up(lease, Failure.of(ErrorClass.PROVIDER_ERROR))
    after = await driver.submit(metadata={"customer": "other", "k": "1"})

    async def ids(**admitted: Unpack[RunFilter]) -> list[str]:
        return [run_id for page in await _pages(driver, 2, admitted) for run_id in page]

    run = await driver.get(failed)
    assert run.error is not None
    fits: tuple[RunFilter, ...] = (
        {"metadata": {"customer": odd}},
        {"metadata": {"k": "1,2=3", "customer": odd}},
        {"tag": '"x"/\u00e9'},
        {"agent": agent.name},
        {"model": "other/m:1"},
        {"provider": "other"},
        {"tool": "find_order"},
        {"stop_reason": "error"},
        {"error_class": "provider_error"},
        {"error_code": run.error["code"]},
        {"error_code": run.error["code"], "retried": False, "status": "failed,queued"},
        {"created_after": before.created_at, "status": "failed"},
        {"ended_after": before.ended_at, "ended_before": run.times.ended_at and run.times.ended_at + timedelta(1)},
    )
    for each in fits:
        assert await ids(**each) == [failed], each
    for none in ({"metadata": {"customer": "42"}}, {"error_code": 'no "such'}, {"tool": "find"}, {"provider": "oth"}):
        assert await ids(**none) == [], none
    retried = await driver.store.control.retry(failed, Retry())
    assert (await driver.get(failed)).retried_as == retried.run_id
    assert await ids(retried=True) == [failed]
    assert failed not in await ids(retried=False)
    for run_id in (after.run_id, retried.run_id):
        await driver.store.runs.cancel(run_id)


async def test_many_are_cancelled_in_order(driver: StoreDriver) -> None:
    """None of a conversation gets its turn because that before it ends; each is done, or says why not."""
    _, lease = await driver.begin()
    queued = [(await driver.submit(conversation_id=lease.conversation_id)).run_id for _ in range(3)]
    other = await driver.submit()
    _, done = await driver.begin()
    await driver.finish(done)
    runs = [await driver.get(run_id) for run_id in (done.run_id, other.run_id, *queued[::-1], lease.run_id)]
    outcomes = await driver.store.bulk.cancel(runs, reason="enough")
    assert [getattr(each, "code", None) or getattr(each, "status", None) for each in outcomes] == [
        "run_ended", "cancelled", "cancelled", "cancelled", "cancelled", "cancelling",
    ]  # fmt: skip
    assert [getattr(each, "next_run", None) for each in outcomes] == [None] * 6
    await driver.finish(lease)
    await driver.store.control.delete_run(other.run_id)
    (gone,) = await driver.store.bulk.cancel([runs[1]])
    assert isinstance(gone, UnknownRun)


async def test_many_are_retried(driver: StoreDriver) -> None:
    failed = []
    for _ in range(3):
        run_id, lease = await driver.begin()
        await driver.give_up(lease)
        failed.append(run_id)
    moved_on = await driver.submit(conversation_id=lease.conversation_id)
    runs = [await driver.get(run_id) for run_id in failed]
    *made, refused = await driver.store.bulk.retry([(run, Retry()) for run in runs])
    assert [(await driver.get(each.run_id)).retried_from for each in made if isinstance(each, Submitted)] == failed[:2]
    assert [len(each.deliveries) for each in made if isinstance(each, Submitted)] == [1, 1]
    assert isinstance(refused, StateConflict)
    assert refused.code == "conversation_moved_on"
    for run_id in (moved_on.run_id, *(each.run_id for each in made if isinstance(each, Submitted))):
        await driver.store.runs.cancel(run_id)


@pytest.mark.parametrize("cursor", ["x", "W10", "WzEsMl0", "é", "WzEsInJ1bl8wMCJd", "bnVsbA", "MQ"])
async def test_a_foreign_cursor_is_refused(driver: StoreDriver, cursor: str) -> None:
    with pytest.raises(ValueError, match="cursor"):
        await driver.store.runs.list(RunFilter(), limit=10, cursor=cursor)


async def test_entries_by_page(driver: StoreDriver) -> None:
    run_id, lease = await driver.begin()
    await driver.finish(lease)

    entries = [*await driver.store.runs.entries(lease.conversation_id, limit=2)]
    entries += await driver.store.runs.entries(lease.conversation_id, after=entries[-1].position)
    assert [entry.position for entry in entries] == [1, 2, 3, 4, 5]
    assert {entry.run_id for entry in entries} == {run_id}
    with pytest.raises(UnknownConversation):
        await driver.store.runs.entries(new_conversation_id(1))


async def test_no_such_run(driver: StoreDriver) -> None:
    for run_id in (new_run_id("00"), "run_00", "*", "run_00" + "x\n" * 13):
        with pytest.raises(UnknownRun):
            await driver.store.runs.get(run_id)


async def test_shards_share_nothing(driver: StoreDriver, settings: Settings) -> None:
    first, lease = await driver.begin()
    runs = [(await driver.submit(idempotency_key=str(i))).run_id for i in range(20)]

    assert len({run_id[4:6] for run_id in runs}) == len(driver.store.due.shards)
    second = await driver.submit(conversation_id=lease.conversation_id)
    assert second.run_id[4:6] == lease.conversation_id[5:7] == first[4:6]
    held = [lease, *(replace(lease, run_id=run_id) for run_id in runs)]
    assert await driver.store.steps.renew(held) == [1] + [0] * 20


async def test_pages_are_whole_and_in_order_where_each_of_many_shards_is_asked_for_a_part(
    redis: Any, settings: Settings
) -> None:
    driver = StoreDriver(Store(redis, settings.model_copy(update={"shards": 20})), redis)
    # Of one conversation, and so of one shard, there are more than that shard is asked for.
    first = await driver.submit()
    conversation = (await driver.store.runs.get(first.run_id)).conversation_id
    mine = [first.run_id]
    for number in range(30):
        beside = {"conversation_id": conversation, "on_conflict": "enqueue"} if number < 12 else {}
        mine.append((await driver.submit(**beside)).run_id)
    for limit in (4, 13, 100):
        pages = await _pages(driver, limit)
        listed = [run_id for page in pages for run_id in page]
        assert sorted(listed) == sorted(mine)
        created = [(await driver.store.runs.get(run_id)).times.created_at for run_id in listed]
        assert created == sorted(created, reverse=True)
        assert {len(page) for page in pages[:-1]} <= {limit}


@pytest.mark.parametrize("ascending", [False, True])
@pytest.mark.parametrize("among", [1, 5, 64], ids=["one has all", "few have all", "all have some"])
async def test_little_more_than_a_page_is_looked_at_in_many_shards(
    redis: Any, settings: Settings, among: int, ascending: bool
) -> None:
    limit, shards = 50, all_shards(64)
    first = -1 if ascending else 1
    # Each shard has twenty; those that come first are of ``among`` shards, in turn.
    sought = [(first * (10_000 + i), f"run_{shards[i % among]}_{i:04}") for i in range(300)]
    others = [(first * (1_000 + i), f"run_{shards[i % 64]}_later{i:04}") for i in range(64 * 20)]
    for at, name in sought + others:
        await redis.zadd(keys.runs(name[4:6], None), {name: at})

    lists = [ShardLists(shard, keys.run_prefix(shard), [keys.runs(shard, None)]) for shard in shards]
    scripts, search = Store(redis, settings).scripts, Search(lists, (), ascending=ascending)
    found, place, looked = list[Place](), None, list[int]()
    while len(found) < 4 * limit:
        part = await look(scripts, search, place, limit)
        found += part.places
        looked.append(part.looked)
        place = part.end
    assert found[: 4 * limit] == sorted(sought, reverse=not ascending)[: 4 * limit]
    # Of each an even part of three pages, and one or two more; and once more of those that have so many.
    assert max(looked) <= 2 * (3 * limit + 2 * 64)
    assert len(looked) == 4
