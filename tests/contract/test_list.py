"""Lists of runs and log entries, page by page."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Unpack

import pytest

from palaver.errors import UnknownConversation, UnknownRun
from palaver.filters import RunFilter
from palaver.ids import new_id
from palaver.lifecycle import RunStatus
from palaver.settings import Settings
from palaver.store import Store, keys
from tests.contract.store_driver import StoreDriver


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
    runs = [(await driver.submit()).run_id for _ in range(250)]
    for i, run_id in enumerate(runs):
        await redis.zadd(keys.runs(run_id[4:6]), {run_id: 1_000_000 + (0 if i < 230 else i)})

    pages = await _pages(driver, 40)
    listed = [run_id for page in pages for run_id in page]
    assert listed[:20] == runs[:229:-1]
    assert listed[20:] == sorted(runs[:230], reverse=True)
    assert [len(page) for page in pages] == [40] * 6 + [10]


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
    assert set(await ids(conversation_id=lease.conversation_id)) == {red, green.run_id}
    assert await ids(conversation_id=new_id("conv", "00")) == []
    assert await ids(conversation_id="conv_x/../") == []


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
        await driver.store.runs.entries(new_id("conv", "00"))


async def test_no_such_run(driver: StoreDriver) -> None:
    for run_id in (new_id("run", "00"), "run_00", "*", "run_00" + "x\n" * 13):
        with pytest.raises(UnknownRun):
            await driver.store.runs.get(run_id)


async def test_shards_share_nothing(driver: StoreDriver, settings: Settings) -> None:
    first, lease = await driver.begin()
    runs = [(await driver.submit(idempotency_key=str(i))).run_id for i in range(20)]

    assert len({run_id[4:6] for run_id in runs}) == len(driver.store.due.shards)
    second = await driver.submit(conversation_id=lease.conversation_id)
    assert second.run_id[4:6] == lease.conversation_id[5:7] == first[4:6]
    held = [lease, *(replace(lease, run_id=run_id) for run_id in runs)]
    assert [int(answer) for answer in await driver.store.steps.renew(held)] == [1] + [0] * 20
