"""Conversations longer than one reply of Redis may be, and runs with more deltas than a feed keeps."""

from __future__ import annotations

from typing import Any

import orjson
import pytest

from api.native.frames import frames
from palaver.config.settings import Settings
from palaver.operations.watching import Sent, with_gaps
from palaver.schemas.models import Message
from palaver.steps.leases import Delta
from palaver.store import Store
from palaver.store.redis import keys
from palaver.store.scripting.contracts.declaration import Script
from palaver.vocabulary.limits import limit_of
from tests.contract.store_driver import StoreDriver

CAP = 100
PAGE = limit_of("script_page")


@pytest.fixture
def driver(redis: Any, settings: Settings) -> StoreDriver:
    return StoreDriver(Store(redis, settings.model_copy(update={"feed_cap": CAP})), redis)


def _many(word: str, count: int = PAGE) -> tuple[Message, ...]:
    """So many messages of a user, an entry of the log each."""
    return tuple(Message(role="user", content=f"{word} {number}") for number in range(count))


def _words(messages: tuple[Message, ...]) -> list[str]:
    return [message.text for message in messages]


async def test_a_worker_that_knows_nothing_is_told_all_page_by_page(driver: StoreDriver) -> None:
    messages = _many("word", 2 * PAGE + 7)
    _, lease = await driver.begin(input=messages)
    assert driver.said(lease) == _words(messages)
    assert lease.log.position == (await driver.store.runs.conversation(lease.conversation_id)).entries
    assert lease.log.rebuilt
    again = await driver.anew(lease)
    assert (again.fence, driver.said(again)) == (lease.fence, driver.said(lease))
    await driver.finish(lease)


@pytest.mark.parametrize("known", [0, 1])
async def test_what_is_deleted_while_it_reads_on_is_not_told_in_part(
    driver: StoreDriver, redis: Any, known: int
) -> None:
    first, lease = await driver.begin(input=_many("one"))
    await driver.finish(lease)
    messages = _many("two")
    (delivery,) = (await driver.submit(messages, conversation_id=lease.conversation_id)).deliveries
    run = driver.store.scripts.run

    async def delete_then_read(script: Script[Any]) -> Any:
        if script.name == "read_log":
            driver.store.scripts.run = run  # type: ignore[method-assign]
            await driver.store.control.delete_run(first)
        return await run(script)

    driver.store.scripts.run = delete_then_read  # type: ignore[method-assign]
    lease = await driver.claim(delivery, known=known)
    assert driver.said(lease) == _words(messages)
    assert lease.log.rebuilt
    await driver.finish(lease)


async def test_the_events_of_a_run_are_found_where_they_are(driver: StoreDriver, redis: Any) -> None:
    """Reading the events of a short run does not look through the long one before it."""
    _, lease = await driver.begin(input=_many("word"))
    await driver.finish(lease)
    run_id, lease = await driver.begin(conversation_id=lease.conversation_id)
    await driver.finish(lease)
    shown = [event for event in await driver.events(run_id) if event.type != "step.started"]
    await redis.delete(keys.feed(run_id))
    xrange, read = redis.xrange, 0

    async def counted(*args: Any) -> Any:
        nonlocal read
        found = await xrange(*args)
        read += len(found)
        return found

    redis.xrange = counted
    assert [event for event in await driver.events(run_id) if event.type != "message.delta"] == shown
    assert read == len(shown)


async def test_a_run_with_very_many_deltas_keeps_few_and_says_what_is_gone(driver: StoreDriver, redis: Any) -> None:
    run_id, lease = await driver.begin()
    for _ in range(8):
        await driver.store.steps.write_deltas([Delta(lease, "word") for _ in range(100)])
    kept = await redis.xlen(keys.feed(run_id))
    assert kept <= 2 * CAP
    await driver.finish(lease)
    last = (await driver.get(run_id)).last_event_id
    assert last > 800

    covered: list[int] = []
    shown = 0
    stream = frames(with_gaps(driver.store.feeds.follow(run_id), Sent()))
    for frame in b"".join([piece async for piece in stream]).split(b"\n\n"):
        fields = dict(line.split(b": ", 1) for line in frame.splitlines())
        data = orjson.loads(fields.get(b"data", b"{}"))
        if fields.get(b"event") == b"stream.gap":
            covered += range(data["first"], data["last"] + 1)
        elif b"id" in fields:
            covered.append(int(fields[b"id"]))
            shown += 1
    assert covered == list(range(1, last + 1))
    assert shown == await redis.xlen(keys.feed(run_id)) + 3
