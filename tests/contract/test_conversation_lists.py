"""Lists of conversations: each once, in the order that was asked for, and those that fit."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any, get_args

import pytest

from palaver.config.settings import Settings
from palaver.schemas.conversation import ConversationFilter, ConversationOrder, ConversationPatch, NewConversation
from palaver.store import Store
from palaver.store.redis import keys
from tests.contract.store_driver import StoreDriver

ORDERS = get_args(ConversationOrder)


@pytest.fixture(params=[1, 3], ids=["one shard", "three shards"])
def driver(request: pytest.FixtureRequest, redis: Any, settings: Settings) -> StoreDriver:
    return StoreDriver(Store(redis, settings.model_copy(update={"shards": request.param})), redis)


async def begin(driver: StoreDriver, **about: Any) -> str:
    """Its id."""
    found, _ = await driver.store.conversations.begin(NewConversation(**about))
    return found.id


async def set_times(driver: StoreDriver, conversation_id: str, *, created: int, updated: int) -> None:
    """When it was begun and last changed (ms)."""
    shard = conversation_id[5:7]
    await driver.redis.zadd(keys.conversations(shard), {conversation_id: created})
    await driver.redis.zadd(keys.conversations(shard, ":updated"), {conversation_id: updated})
    times = {"created_at": created, "updated_at": updated}
    await driver.redis.hset(keys.conversation(conversation_id), mapping=times)


async def pages(
    driver: StoreDriver, limit: int, order: ConversationOrder = "-updated", **admitted: Any
) -> list[list[str]]:
    """The ids on each page, and that as many are counted."""
    found, cursor, wanted = [], None, ConversationFilter(**admitted)  # type: ignore[typeddict-item]
    while True:
        page = await driver.store.conversations.list(wanted, limit=limit, cursor=cursor, order=order)
        found.append([each.id for each in page.conversations])
        cursor = page.next_cursor
        if cursor is None:
            count = await driver.store.conversations.count(wanted)
            assert (count.count, count.complete) == (sum(map(len, found)), True)
            return found


async def listed(driver: StoreDriver, order: ConversationOrder = "created", **admitted: Any) -> list[str]:
    """The ids of all pages."""
    return [each for page in await pages(driver, 7, order, **admitted) for each in page]


async def test_each_is_on_one_page_in_every_order_even_of_the_same_millisecond(driver: StoreDriver) -> None:
    rows = []
    for i in range(60):
        found = await begin(driver)
        created, updated = 1_000_000 + (0 if i < 40 else i), 2_000_000 - i // 2
        await set_times(driver, found, created=created, updated=updated)
        rows.append({"id": found, "created": created, "updated": updated})
    for order in ORDERS:
        field = order.removeprefix("-")
        expected = sorted(((row[field], row["id"]) for row in rows), reverse=order.startswith("-"))
        for limit in (1, 7, 200):
            found_pages = await pages(driver, limit, order)
            assert [each for page in found_pages for each in page] == [each for _, each in expected], (order, limit)


async def test_what_changes_comes_first(driver: StoreDriver) -> None:
    first, second = await begin(driver), await begin(driver)
    await set_times(driver, first, created=1, updated=1)
    await set_times(driver, second, created=2, updated=2)
    assert await listed(driver, "-updated") == [second, first]
    await driver.store.conversations.change(first, ConversationPatch(title="x"))
    assert await listed(driver, "-updated") == [first, second]
    assert await listed(driver, "-created") == [second, first]


async def test_ranges_of_time_have_their_ends(driver: StoreDriver) -> None:
    ids = [await begin(driver) for _ in range(6)]
    for i, each in enumerate(ids):
        await set_times(driver, each, created=1000 + i, updated=5000 - i)
    at = [datetime.fromtimestamp((1000 + i) / 1000, UTC) for i in range(6)]
    for order in ORDERS:
        wanted = {"created_after": at[1], "created_before": at[3]}
        assert sorted(await listed(driver, order, **wanted)) == sorted(ids[1:4]), order
        newer = {"updated_after": datetime.fromtimestamp(4.998, UTC)}
        assert sorted(await listed(driver, order, **newer)) == sorted(ids[:3]), order
        assert await listed(driver, order, **newer, created_after=at[2]) == [ids[2]], order
        assert await listed(driver, order, updated_before=datetime.fromtimestamp(4.995, UTC)) == [ids[5]], order


async def test_they_are_found_by_what_is_known_about_them(driver: StoreDriver) -> None:
    tags, keys_of = ("a", 'x"a', ",a,", "a,"), {"k": "v", 'q"k': 'w"', "b": ',"k":"u",'}
    titled = await begin(driver, title="Straßen von ÜRDINGEN")
    tagged = [await begin(driver, tags=(tag,)) for tag in tags]
    both = await begin(driver, tags=("a", "z"), metadata=keys_of)
    described = await begin(driver, metadata={"k": "u"})
    for text in ("strassen", "ürd", "VON", "Straßen von ürdingen"):
        assert await listed(driver, title=text) == [titled], text
    assert await listed(driver, title="%") == []
    assert sorted(await listed(driver, tag="a")) == sorted([tagged[0], both])
    for tag, found in zip(tags[1:], tagged[1:], strict=True):
        assert await listed(driver, tag=tag) == [found], tag
    assert await listed(driver, tag="z") == [both]
    for key, value in keys_of.items():
        assert await listed(driver, metadata={key: value}) == [both], key
    assert await listed(driver, metadata={"k": "u"}) == [described]
    assert await listed(driver, metadata=keys_of, tag="a") == [both]
    assert await listed(driver, metadata={"k": "v"}, tag="x") == []


async def test_a_conversation_has_the_status_of_its_run(driver: StoreDriver) -> None:
    idle, (_, running), queued = await begin(driver), await driver.begin(), await driver.submit()
    _, ended = await driver.begin()
    await driver.finish(ended)
    of = {
        "idle": idle,
        "running": running.conversation_id,
        "queued": (await driver.get(queued.run_id)).conversation_id,
        "completed": ended.conversation_id,
    }
    for status, found in of.items():
        assert await listed(driver, status=status) == [found], status
        assert (await driver.store.runs.conversation(found)).status == status
    assert sorted(await listed(driver, status="idle,completed")) == sorted([of["idle"], of["completed"]])
    assert sorted(await listed(driver, status=["running", "failed"])) == [of["running"]]


async def test_what_is_going_or_gone_is_not_listed(driver: StoreDriver) -> None:
    kept, going, gone, deleted = [await begin(driver, title="x") for _ in range(4)]
    await driver.redis.hset(keys.conversation(going), "deleting", 1)
    await driver.redis.delete(keys.conversation(gone))
    await driver.store.control.delete_conversation(deleted)
    assert await listed(driver) == [kept]
    assert await listed(driver, status="idle") == [kept]
    assert await listed(driver, title="x") == [kept]


async def test_a_cursor_that_no_list_gave(driver: StoreDriver) -> None:
    for wrong in ("x", "bm9uZQ", "eyJhIjoxfQ"):
        with pytest.raises(ValueError, match="cursor"):
            await driver.store.conversations.list({}, limit=1, cursor=wrong)


async def test_a_count_looks_at_so_many(driver: StoreDriver) -> None:
    for _ in range(5):
        await begin(driver)
    found = await driver.store.conversations.count({}, most_looked=3)
    assert (found.count >= 3, found.complete) == (True, False)
