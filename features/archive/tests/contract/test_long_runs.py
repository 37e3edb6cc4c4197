"""A run that goes on for long is archived meanwhile, a part at a time; it stays in the store, and rests there as any
other one. Where the store is lost with it, it has ended."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import Any, Final

import pytest

from features.archive import archive_keys
from features.archive.archiver import Archiver
from features.archive.backlog import Backlog
from features.archive.database import Database
from features.archive.tests.contract.test_verifying import faults_of
from features.archive.tests.turns import RETENTION, one_turn
from palaver.errors import UnknownRun
from palaver.schemas.conversation import ConversationPatch
from palaver.schemas.models import Message, Retry, ToolCall
from palaver.steps.leases import Lease
from palaver.steps.verdicts import Continue, ToolOutcome
from palaver.store import Store
from palaver.store.redis import keys
from palaver.vocabulary.lifecycle import RunStatus
from tests.contract.store_driver import StoreDriver

EVERY: Final = 500
"""Entries of a log that goes on, of which it is archived."""
CALLS: Final = 60
"""Calls of a turn."""


async def turn(driver: StoreDriver, lease: Lease, number: int, calls: int = CALLS) -> Lease:
    """One more turn of a run: the model asks for tools that its worker has, and they answer."""
    asked = [ToolCall(id=f"call_{number}_{each}", name="calculator", arguments="{}") for each in range(calls)]
    answers = [Message(role="tool", call_id=call.id, name=call.name, content="42") for call in asked]
    turned = Continue(Message(role="assistant", content="", tool_calls=tuple(asked)), tuple(map(ToolOutcome, answers)))
    (following,) = (await driver.store.steps.settle(lease, turned)).deliveries
    return await driver.claim(following)


async def goes_past(driver: StoreDriver, lease: Lease, entries: int) -> Lease:
    """A run goes on until its conversation has more entries than so many."""
    number = 0
    while await length(driver, lease) <= entries:
        lease, number = await turn(driver, lease, entries * 100 + number), number + 1
    return lease


async def length(driver: StoreDriver, lease: Lease) -> int:
    return int(await driver.redis.hget(keys.conversation(lease.conversation_id), "entries"))


async def lacks(redis: Any) -> list[str]:
    return [member.decode() for member in await redis.zrange(archive_keys.unarchived("00"), 0, -1)]


async def logged(redis: Any, conversation: str) -> list[tuple[int, dict[str, str]]]:
    """The log as Redis has it."""
    return [
        (int(entry_id.split(b"-")[0]), {name.decode(): value.decode() for name, value in fields.items()})
        for entry_id, fields in await redis.xrange(keys.log(conversation), "-", "+")
    ]


async def saved(redis: Any) -> dict[bytes, tuple[bytes, int]]:
    """All that Redis has."""
    every_key = [key async for key in redis.scan_iter("*")]
    return {key: (await redis.dump(key), max(0, await redis.pttl(key))) for key in every_key}


async def rewind(redis: Any, before: dict[bytes, tuple[bytes, int]]) -> None:
    """Redis has lost what came behind that."""
    await redis.flushall()
    for key, (value, ttl) in before.items():
        await redis.restore(key, ttl, value)


async def archived(database: Database, conversation: str) -> list[tuple[int, dict[str, str]]]:
    """The log as the archive has it."""
    return [(entry.position, {**entry.fields}) for entry in await database.entries(conversation, 0, 10_000)]


async def test_a_run_is_archived_while_it_goes_on_and_stays(
    driver: StoreDriver, store: Store, redis: Any, archiver: Archiver, database: Database
) -> None:
    run, lease = await driver.begin()
    lease = await goes_past(driver, lease, 400)
    assert await lacks(redis) == []
    lease = await goes_past(driver, lease, EVERY)
    of = lease.conversation_id
    assert await lacks(redis) == [of]
    assert await archiver.look() == 1
    assert await lacks(redis) == []
    assert await archived(database, of) == await logged(redis, of)
    (unfinished,) = await database.unfinished_runs(of)
    assert (unfinished.id, unfinished.fields["status"]) == (run, "running")
    for key in (keys.conversation(of), keys.log(of), keys.run(run)):
        assert await redis.ttl(key) == -1
    await driver.finish(lease)
    await archiver.look()
    assert await archived(database, of) == await logged(redis, of)
    assert await database.unfinished_runs(of) == []
    assert 0 < await redis.ttl(keys.run(run)) <= RETENTION
    assert await faults_of(store, database) == []


async def test_it_is_listed_and_counted_once(driver: StoreDriver, store: Store, redis: Any, archiver: Archiver) -> None:
    run, lease = await driver.begin()
    lease = await goes_past(driver, lease, EVERY)
    await archiver.look()

    async def shown() -> tuple[list[str], list[str], int, int]:
        runs = [each.id for each in (await store.runs.list({}, limit=50)).runs]
        conversations = [each.id for each in (await store.conversations.list({}, limit=50)).conversations]
        counts = (await store.runs.counts()).statuses
        return runs, conversations, counts[RunStatus.RUNNING], counts[RunStatus.COMPLETED]

    assert await shown() == ([run], [lease.conversation_id], 1, 0)
    await driver.finish(lease)
    assert await shown() == ([run], [lease.conversation_id], 0, 1)
    assert (await store.conversations.count({}, most_looked=1000)).count == 1


async def test_what_happens_while_a_part_is_written_is_not_acknowledged_with_it(
    driver: StoreDriver, store: Store, redis: Any, archiver: Archiver, database: Database
) -> None:
    """The run ends: it is not let go as one that had not."""
    run, lease = await driver.begin()
    lease = await goes_past(driver, lease, EVERY)
    backlog = store.part(Backlog)
    read = await backlog.read(lease.conversation_id)
    assert read is not None
    await database.write([read])
    await driver.finish(lease)
    await backlog.acknowledge([read])
    assert await redis.ttl(keys.run(run)) > RETENTION
    assert await redis.ttl(keys.conversation(lease.conversation_id)) > RETENTION
    await archiver.look()
    assert await archived(database, lease.conversation_id) == await logged(redis, lease.conversation_id)
    assert await faults_of(store, database) == []


async def test_a_part_has_no_run_that_ended_behind_it(
    driver: StoreDriver, store: Store, archiver: Archiver, database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its log is read, then it ends, and the next one begins, then its record is read: that is of another moment."""
    _, lease = await driver.begin()
    second = await driver.submit(conversation_id=lease.conversation_id)
    lease = await goes_past(driver, lease, EVERY)
    backlog = store.part(Backlog)
    read = Backlog._runs

    async def later(*values: Any, **named: Any) -> Any:
        monkeypatch.setattr(Backlog, "_runs", read)
        await driver.finish(lease)
        return await read(*values, **named)

    monkeypatch.setattr(Backlog, "_runs", later)
    assert await backlog.read(lease.conversation_id) is None
    part = await backlog.read(lease.conversation_id)
    assert part is not None
    assert {run.fields["status"] for run in part.runs} == {"completed", "queued"}
    (entered,) = await driver.sweep(second.run_id, "start")
    await driver.finish(await driver.claim(entered.deliveries[0]))
    await archiver.look()
    assert await faults_of(store, database) == []


async def test_what_redis_lost_meanwhile_is_not_acknowledged(
    driver: StoreDriver, store: Store, redis: Any, archiver: Archiver, database: Database
) -> None:
    """A part is read; Redis loses its last entries, and others take their places before it is acknowledged."""
    _, lease = await driver.begin()
    lease = await goes_past(driver, lease, EVERY)
    of = lease.conversation_id
    before = await saved(redis)
    held = lease
    await turn(driver, lease, 8_000, 5)
    backlog = store.part(Backlog)
    read = await backlog.read(of)
    assert read is not None
    await database.write([read], await database.versions([of]))
    await rewind(redis, before)
    lease = await turn(driver, held, 9_000, 7)
    await backlog.acknowledge([read])
    await archiver.look()
    assert await archived(database, of) == await logged(redis, of)
    await driver.finish(lease)
    await archiver.look()
    assert await archived(database, of) == await logged(redis, of)
    assert await faults_of(store, database) == []


async def test_a_long_log_is_archived_a_part_at_a_time(
    driver: StoreDriver,
    store: Store,
    redis: Any,
    archiver: Archiver,
    database: Database,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    _, lease = await driver.begin()
    lease = await goes_past(driver, lease, 3 * EVERY)
    monkeypatch.setattr("features.archive.backlog._PART", 1)
    seen = [0]
    while lease.conversation_id in await lacks(redis):
        await archiver.look()
        seen.append(len(await archived(database, lease.conversation_id)))
        fields = await database.record(lease.conversation_id)
        assert fields is not None
        assert int(fields["entries"]) == seen[-1]
        assert await faults_of(store, database) == []
    assert len(seen) > 3
    assert seen == sorted({*seen})
    assert seen[-1] >= 3 * EVERY
    await driver.finish(lease)
    await archiver.look()
    assert await archived(database, lease.conversation_id) == await logged(redis, lease.conversation_id)


async def test_a_conversation_that_never_rests_lets_runs_go_that_have_ended(
    driver: StoreDriver, store: Store, redis: Any, archiver: Archiver, database: Database
) -> None:
    first, lease = await driver.begin()
    of = lease.conversation_id
    second = await driver.submit(conversation_id=of)
    lease = await goes_past(driver, lease, EVERY - 50)
    await driver.finish(lease)
    (entered,) = await driver.sweep(second.run_id, "start")
    lease = await goes_past(driver, await driver.claim(entered.deliveries[0]), EVERY)
    await archiver.look()
    assert 0 < await redis.ttl(keys.run(first)) <= RETENTION
    assert [await redis.ttl(key) for key in (keys.run(second.run_id), keys.conversation(of))] == [-1, -1]
    shown = await store.runs.get(first)
    await redis.delete(keys.run(first))
    assert await store.runs.get(first) == shown.model_copy(update={"archived": True})
    await driver.finish(lease)


async def test_words_that_are_withdrawn_later_are_withdrawn_in_the_archive(
    driver: StoreDriver, store: Store, redis: Any, archiver: Archiver, database: Database
) -> None:
    run, lease = await driver.begin()
    lease = await goes_past(driver, lease, EVERY)
    await archiver.look()
    await store.runs.cancel(run, mode="rollback")
    await driver.hand_back(lease)
    assert (await store.runs.get(run)).status is RunStatus.CANCELLED
    await archiver.look()
    of = lease.conversation_id
    assert await archived(database, of) == await logged(redis, of)
    assert await faults_of(store, database) == []
    fields = await database.record(of)
    assert fields is not None
    assert fields["withdrawn"]


async def test_a_run_that_is_deleted_beside_one_that_goes_on_is_forgotten(
    driver: StoreDriver, store: Store, redis: Any, archiver: Archiver, database: Database
) -> None:
    of, first = await one_turn(driver)
    _, lease = await driver.begin(conversation_id=of)
    lease = await goes_past(driver, lease, EVERY)
    await archiver.look()
    assert await database.conversation_of(first) == of
    await store.control.delete_run(first)
    await archiver.look()
    assert await database.conversation_of(first) is None
    assert await archived(database, of) == await logged(redis, of)
    lease = await goes_past(driver, lease, 2 * EVERY)
    await driver.finish(lease)
    await archiver.look()
    assert await archived(database, of) == await logged(redis, of)
    assert await faults_of(store, database) == []


async def test_what_is_deleted_behind_its_end_is_forgotten(
    driver: StoreDriver, store: Store, redis: Any, archiver: Archiver, database: Database
) -> None:
    run, lease = await driver.begin()
    lease = await goes_past(driver, lease, EVERY)
    await archiver.look()
    await driver.finish(lease)
    await store.control.delete_conversation(lease.conversation_id)
    with pytest.raises(UnknownRun):
        await store.runs.get(run)
    await archiver.end_lost()
    await archiver.look()
    assert await database.record(lease.conversation_id) is None
    assert await database.conversation_of(run) is None


async def lost(driver: StoreDriver, redis: Any, archiver: Archiver) -> tuple[str, str]:
    """A conversation with a turn, and a run that had four calls open as Redis was lost with it; another one waited."""
    of, _ = await one_turn(driver)
    run, lease = await driver.begin(conversation_id=of)
    await driver.submit(conversation_id=of, input="and then?")
    lease = await goes_past(driver, lease, EVERY)
    await driver.ask(lease, "open_1", "open_2", "open_3", "open_4", approval=["open_3", "open_4"])
    assert await lacks(redis) == [of]
    await archiver.look()
    await redis.flushall()
    return of, run


@pytest.mark.parametrize("by", ["a worker", "a reader"])
async def test_a_run_that_was_lost_with_redis_has_failed_and_its_conversation_goes_on(
    driver: StoreDriver, store: Store, redis: Any, archiver: Archiver, database: Database, by: str
) -> None:
    of, run = await lost(driver, redis, archiver)
    if by == "a worker":
        assert await archiver.end_lost() == 1
        assert await archiver.end_lost() == 0
    shown = await store.runs.get(run)
    assert (shown.status, shown.stop_reason) == ("failed", "error")
    assert shown.error is not None
    assert (shown.error["class"], shown.error["code"]) == ("storage", "run_lost")
    assert not shown.pending_actions
    listed = (await store.runs.list({}, limit=50)).runs
    assert [each.status for each in listed] == ["failed", "failed", "completed"]
    conversation = await store.runs.conversation(of)
    assert conversation.active_run is None
    assert conversation.queued_runs == ()
    assert results_of(await logged(redis, of)) == {f"open_{each}": 1 for each in range(1, 5)}
    assert await faults_of(store, database) == []
    _, lease = await driver.begin(conversation_id=of, input="and now?")
    assert driver.said(lease)[-1] == "and now?"
    await driver.finish(lease)
    await archiver.look()
    assert await archived(database, of) == await logged(redis, of)
    assert await faults_of(store, database) == []
    # What was counted of these runs is lost with the store.
    await redis.flushall()


def results_of(log: Sequence[tuple[int, dict[str, str]]]) -> dict[str, int]:
    """How many results each of the calls has that were open."""
    return {
        call: sum(fields["type"] == "tool.finished" and f'"{call}"' in fields["data"] for _, fields in log)
        for call in ("open_1", "open_2", "open_3", "open_4")
    }


async def test_one_that_cannot_be_read_keeps_no_other_from_its_end(
    driver: StoreDriver, redis: Any, archiver: Archiver, database: Database, tmp_path: Path
) -> None:
    for _ in range(2):
        _, lease = await driver.begin()
        await goes_past(driver, lease, EVERY)
    await archiver.look()
    await redis.flushall()
    broken, other = await database.unfinished("", 10)
    with closing(sqlite3.connect(tmp_path / "archive.db")) as file, file:
        file.execute("UPDATE entries SET data = 'hello' WHERE conversation_id = ? AND position = 3", [broken])
    assert await archiver.end_lost() == 1
    assert await database.unfinished("", 10) == [broken]
    assert await database.unfinished_runs(other) == []


async def test_a_run_that_was_lost_is_tried_again(
    driver: StoreDriver, store: Store, redis: Any, archiver: Archiver, database: Database
) -> None:
    run, lease = await driver.begin()
    await goes_past(driver, lease, EVERY)
    await archiver.look()
    await redis.flushall()
    assert (await store.runs.get(run)).status == "failed"
    again = await store.control.retry(run, Retry())
    await driver.finish(await driver.claim(again.deliveries[0]))
    assert (await store.runs.get(again.run_id)).retried_from == run
    await archiver.look()
    assert await faults_of(store, database) == []
    await redis.flushall()


async def test_nothing_that_the_store_has_is_ended_as_lost(
    driver: StoreDriver, store: Store, redis: Any, archiver: Archiver, database: Database
) -> None:
    run, lease = await driver.begin()
    lease = await goes_past(driver, lease, EVERY)
    await archiver.look()
    assert await archiver.end_lost() == 0
    (unfinished,) = await database.unfinished_runs(lease.conversation_id)
    assert unfinished.id == run
    await driver.finish(lease)


async def test_a_run_that_redis_lost_and_the_archive_has_does_not_come_back_as_one_that_goes_on(
    driver: StoreDriver, store: Store, redis: Any, archiver: Archiver, database: Database
) -> None:
    """Redis lost the last second: its conversation is there, as it was before."""
    of, _ = await one_turn(driver)
    await archiver.look()
    before = await saved(redis)
    run, lease = await driver.begin(conversation_id=of)
    await goes_past(driver, lease, EVERY)
    await archiver.look()
    await rewind(redis, before)
    with pytest.raises(UnknownRun):
        await store.runs.get(run)
    await store.conversations.change(of, ConversationPatch(title="anew"))
    await archiver.look()
    assert await database.conversation_of(run) is None
    assert await archived(database, of) == await logged(redis, of)
    assert await faults_of(store, database) == []
