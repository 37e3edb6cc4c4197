"""What rests is archived, let go and brought back: the scripts on a real server, the database a file."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from features.archive import archive_keys
from features.archive.archiver import Archiver
from features.archive.backlog import Backlog
from features.archive.database import Database
from features.archive.errors import SLOW, ArchiveAway, ArchiveOvertaken
from features.archive.tests.turns import RETENTION, evict, one_turn
from features.archive.verifying import Verification
from palaver.config.settings import Settings
from palaver.errors import UnknownConversation, UnknownRecord, UnknownRun
from palaver.schemas.conversation import ConversationPatch, NewConversation
from palaver.schemas.models import Retry
from palaver.store import Store
from palaver.store.reading.recall import Memories
from palaver.store.redis import keys
from palaver.store.scripting.shared_names import HELD
from tests.contract.store_driver import StoreDriver


async def lacks(redis: Any) -> list[str]:
    return [member.decode() for member in await redis.zrange(archive_keys.unarchived("00"), 0, -1)]


async def snapshot(redis: Any, conversation: str, run: str) -> tuple[Any, ...]:
    """What the store has of a conversation and a run of it, byte for byte."""
    hashes = [await redis.hgetall(key) for key in (keys.conversation(conversation), keys.run(run))]
    own = (b"archived", b"in_archive", b"recalled")
    return (
        *({name: value for name, value in fields.items() if name not in own} for fields in hashes),
        await redis.xrange(keys.log(conversation), "-", "+"),
        [await redis.zscore(keys.conversations("00", index), conversation) for index in ("", ":updated")],
        [await redis.zscore(keys.runs("00", status), run) for status in (None, "completed")],
    )


async def test_what_ended_is_let_go_once_it_is_archived(
    driver: StoreDriver, redis: Any, archiver: Archiver, database: Database
) -> None:
    conversation, run = await one_turn(driver)
    assert await lacks(redis) == [conversation]
    for key in (keys.conversation(conversation), keys.log(conversation), keys.run(run)):
        assert HELD - 60 <= await redis.ttl(key) <= HELD
    assert await archiver.look() == 1
    assert await lacks(redis) == []
    for key in (keys.conversation(conversation), keys.log(conversation), keys.run(run)):
        assert RETENTION - 60 <= await redis.ttl(key) <= RETENTION
    assert await database.conversation_of(run) == conversation
    entries = await database.entries(conversation, 0, 1000)
    found = await redis.xrange(keys.log(conversation), "-", "+")
    assert [(f"{entry.position}-0", {**entry.fields}) for entry in entries] == [
        (entry_id.decode(), {name.decode(): value.decode() for name, value in fields.items()})
        for entry_id, fields in found
    ]


async def test_what_is_gone_comes_back_as_it_was(
    driver: StoreDriver, store: Store, redis: Any, archiver: Archiver
) -> None:
    conversation, run = await one_turn(driver)
    await archiver.look()
    before = await snapshot(redis, conversation, run)
    shown = await store.runs.get(run), await store.runs.conversation(conversation)
    await evict(redis, conversation, run)
    back = await store.runs.get(run), await store.runs.conversation(conversation)
    assert back == tuple(each.model_copy(update={"archived": True}) for each in shown)
    assert await snapshot(redis, conversation, run) == before
    assert await lacks(redis) == []


async def marks(store: Store, conversation: str, *runs: str) -> list[bool]:
    """What says that it has come from the archive, by lists and by its id, of the conversation and of these runs."""
    listed = (await store.conversations.list({}, limit=10)).conversations
    there = {run.id: run.archived for run in (await store.runs.list({}, limit=10)).runs}
    alone = [(await store.runs.conversation(conversation)).archived]
    alone += [(await store.runs.get(run)).archived for run in runs]
    assert [*(each.archived for each in listed), *(there[run] for run in runs)] == alone
    return alone


async def test_what_has_come_from_the_archive_says_so_until_it_goes_on(
    driver: StoreDriver, store: Store, redis: Any, archiver: Archiver, database: Database
) -> None:
    conversation, run = await one_turn(driver)
    assert await marks(store, conversation, run) == [False, False]
    await archiver.look()
    assert await marks(store, conversation, run) == [False, False]
    await evict(redis, conversation, run)
    # By lists first, where they do not come back, and then by their ids.
    assert await marks(store, conversation, run) == [True, True]
    assert await marks(store, conversation, run) == [True, True]
    again, lease = await driver.begin(conversation_id=conversation)
    assert await marks(store, conversation, run, again) == [False, True, False]
    await driver.finish(lease)
    await archiver.look()
    assert await marks(store, conversation, run, again) == [False, True, False]
    # Nor is it a part of what is archived.
    await store.part(Backlog).archive_anew([conversation])
    await archiver.look()
    archived = [await database.record(conversation), *[each.fields for each in await database.runs([run, again])]]
    assert not any("recalled" in fields for fields in archived if fields is not None)
    assert [fault async for fault in Verification(store.part(Backlog), database).faults()] == []


@pytest.mark.parametrize("change", ["title", "retry"])
async def test_what_is_changed_has_not_come_from_there_any_more(
    driver: StoreDriver, store: Store, redis: Any, archiver: Archiver, change: str
) -> None:
    run, lease = await driver.begin()
    await driver.give_up(lease)
    conversation = lease.conversation_id
    await archiver.look()
    await evict(redis, conversation, run)
    assert await marks(store, conversation, run) == [True, True]
    if change == "title":
        await store.conversations.change(conversation, ConversationPatch(title="another"))
        assert await marks(store, conversation, run) == [False, True]
    else:
        await store.control.retry(run, Retry())
        assert await marks(store, conversation, run) == [False, False]


async def test_a_conversation_goes_on_after_it_came_back(
    driver: StoreDriver, store: Store, redis: Any, archiver: Archiver, database: Database
) -> None:
    conversation, run = await one_turn(driver)
    await archiver.look()
    await evict(redis, conversation, run)
    again, lease = await driver.begin(conversation_id=conversation)
    assert driver.said(lease) == ["hello", "bye", "hello"]
    await driver.finish(lease, text="again")
    await archiver.look()
    await evict(redis, conversation, run, again)
    assert [entry.type for entry in await driver.log(again)].count("message.created") == 4
    assert await database.conversation_of(again) == conversation


async def test_nothing_comes_back_that_nothing_has(store: Store, database: Database) -> None:
    with pytest.raises(UnknownConversation):
        await store.runs.conversation(store.runs.new_conversation())
    with pytest.raises(UnknownRun):
        await store.runs.get("run_00" + 26 * "0")


async def test_what_happens_while_it_is_written_is_not_acknowledged(
    driver: StoreDriver,
    store: Store,
    redis: Any,
    archiver: Archiver,
    database: Database,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    conversation, _ = await one_turn(driver)
    write = database.write

    async def slowly(archived: Any, since: Any = None) -> None:
        await write(archived, since)
        await store.conversations.change(conversation, ConversationPatch(title="meanwhile"))

    monkeypatch.setattr(database, "write", slowly)
    await archiver.look()
    assert await lacks(redis) == [conversation]
    assert await redis.ttl(keys.conversation(conversation)) > RETENTION
    monkeypatch.setattr(database, "write", write)
    await archiver.look()
    assert await lacks(redis) == []
    fields = await database.record(conversation)
    assert fields is not None
    assert fields["title"] == "meanwhile"


async def test_what_is_deleted_is_forgotten(
    driver: StoreDriver, store: Store, redis: Any, archiver: Archiver, database: Database
) -> None:
    conversation, run = await one_turn(driver)
    await archiver.look()
    await store.control.delete_conversation(conversation)
    for missing in (store.runs.conversation(conversation), store.runs.get(run)):
        with pytest.raises(UnknownRecord):
            await missing
    assert await archiver.look() == 1
    assert await lacks(redis) == []
    assert await database.record(conversation) is None
    assert await database.conversation_of(run) is None
    assert await database.entries(conversation, 0, 10) == []


async def test_a_deleted_run_is_forgotten_and_the_others_stay(
    driver: StoreDriver, store: Store, redis: Any, archiver: Archiver, database: Database
) -> None:
    conversation, first = await one_turn(driver)
    second, lease = await driver.begin(conversation_id=conversation)
    await driver.finish(lease)
    await archiver.look()
    await store.control.delete_run(first)
    await archiver.look()
    assert await database.conversation_of(first) is None
    assert {entry.fields["run"] for entry in await database.entries(conversation, 0, 100)} == {second}


async def test_a_conversation_that_is_busy_waits_for_its_end(
    driver: StoreDriver, redis: Any, archiver: Archiver, database: Database
) -> None:
    conversation, _ = await one_turn(driver)
    _, lease = await driver.begin(conversation_id=conversation)
    await archiver.look()
    assert await database.record(conversation) is None
    assert await lacks(redis) == []
    await driver.finish(lease)
    await archiver.look()
    assert await database.record(conversation) is not None


async def test_two_workers_share_what_there_is(
    driver: StoreDriver, store: Store, redis: Any, archiver: Archiver
) -> None:
    for _ in range(3):
        await one_turn(driver)
    backlog = store.part(Backlog)
    assert len(await backlog.take()) == 3
    assert await backlog.take() == []
    assert len(await lacks(redis)) == 3


async def test_a_store_that_is_lost_is_no_loss_of_what_ended(
    driver: StoreDriver, store: Store, redis: Any, archiver: Archiver
) -> None:
    conversation, run = await one_turn(driver)
    shown = await store.runs.get(run)
    await archiver.look()
    await redis.flushall()
    assert await store.runs.get(run) == shown.model_copy(update={"archived": True})
    _, lease = await driver.begin(conversation_id=conversation)
    assert driver.said(lease) == ["hello", "bye", "hello"]
    # What was counted of these runs is lost with the store.
    await redis.flushall()


async def test_what_was_archived_before_is_archived_anew(
    driver: StoreDriver, store: Store, redis: Any, archiver: Archiver, database: Database
) -> None:
    conversation, run = await one_turn(driver)
    await archiver.look()
    await database.forget_conversations([conversation])
    assert await store.part(Backlog).note_all() == 1
    assert await archiver.look() == 1
    assert await database.conversation_of(run) == conversation
    assert len(await database.entries(conversation, 0, 100)) == await redis.xlen(keys.log(conversation))


async def test_a_worker_that_stalled_does_not_forget_what_has_the_id_now(
    driver: StoreDriver, store: Store, redis: Any, archiver: Archiver, database: Database
) -> None:
    conversation, _ = await one_turn(driver)
    await archiver.look()
    since = await database.versions([conversation])
    await store.control.delete_conversation(conversation)
    await archiver.look()
    await store.conversations.begin(NewConversation(title="anew"), conversation)
    await archiver.look()
    with pytest.raises(ArchiveOvertaken):
        await database.forget_conversations([conversation], since)
    fields = await database.record(conversation)
    assert fields is not None
    assert fields["title"] == "anew"


async def test_a_change_of_what_is_archived_is_held_until_it_is_archived_too(
    driver: StoreDriver, store: Store, redis: Any, archiver: Archiver, database: Database
) -> None:
    conversation, _ = await one_turn(driver)
    await archiver.look()
    await redis.expire(keys.conversation(conversation), 5)
    await store.conversations.change(conversation, ConversationPatch(title="anew"))
    assert await redis.ttl(keys.conversation(conversation)) > RETENTION
    await archiver.look()
    assert await redis.ttl(keys.conversation(conversation)) <= RETENTION
    fields = await database.record(conversation)
    assert fields is not None
    assert fields["title"] == "anew"


async def test_an_acknowledgement_of_another_conversation_of_that_id_is_none(
    driver: StoreDriver, store: Store, redis: Any, archiver: Archiver
) -> None:
    conversation, _ = await one_turn(driver)
    backlog = store.part(Backlog)
    read = await backlog.read(conversation)
    assert read is not None
    await store.control.delete_conversation(conversation)
    await store.conversations.begin(NewConversation(title="anew"), conversation)
    await backlog.acknowledge([read])
    assert conversation in await lacks(redis)
    assert await redis.ttl(keys.conversation(conversation)) > RETENTION
    await store.part(Backlog).forgotten(await backlog.deleted([conversation]))


async def test_a_database_that_has_lost_it_gets_all_of_it_again(
    driver: StoreDriver, redis: Any, archiver: Archiver, database: Database
) -> None:
    conversation, first = await one_turn(driver)
    await archiver.look()
    await database.forget_conversations([conversation])
    _, lease = await driver.begin(conversation_id=conversation)
    await driver.finish(lease)
    await archiver.look()
    assert await lacks(redis) == [conversation]
    await archiver.look()
    assert len(await database.entries(conversation, 0, 100)) == await redis.xlen(keys.log(conversation))
    assert await database.conversation_of(first) == conversation


async def test_nothing_is_written_over_another_conversation_of_that_id(
    driver: StoreDriver, store: Store, redis: Any, archiver: Archiver, database: Database
) -> None:
    """As when it was begun by a process without the archive."""
    conversation, run = await one_turn(driver)
    await archiver.look()
    before = await database.entries(conversation, 0, 100)
    await evict(redis, conversation, run)
    await store.conversations.begin(NewConversation(title="anew"), conversation)
    await archiver.look()
    assert await database.entries(conversation, 0, 100) == before
    assert await lacks(redis) == [conversation]


async def test_a_run_of_a_deleted_conversation_does_not_come_back_into_another_one_of_its_id(
    driver: StoreDriver, store: Store, redis: Any, archiver: Archiver
) -> None:
    conversation, run = await one_turn(driver)
    await archiver.look()
    await store.control.delete_conversation(conversation)
    await store.conversations.begin(NewConversation(title="anew"), conversation)
    with pytest.raises(UnknownRun):
        await store.runs.get(run)
    await store.part(Backlog).forgotten(await store.part(Backlog).deleted([conversation]))


async def test_another_conversation_of_a_deleted_id_comes_back_at_once(
    driver: StoreDriver, store: Store, redis: Any, archiver: Archiver
) -> None:
    """The deletion is of the one before."""
    conversation, run = await one_turn(driver)
    await archiver.look()
    await store.control.delete_conversation(conversation)
    await archiver.look()
    # It was some time ago.
    await redis.zincrby(archive_keys.forgotten("00"), -10, conversation)
    await store.conversations.begin(NewConversation(title="anew"), conversation)
    again, lease = await driver.begin(conversation_id=conversation)
    await driver.finish(lease)
    await archiver.look()
    await evict(redis, conversation, again)
    assert [each.title for each in (await store.conversations.list({}, limit=10)).conversations] == ["anew"]
    assert [each.id for each in (await store.runs.list({}, limit=10)).runs] == [again]
    assert (await store.runs.get(again)).conversation_id == conversation
    with pytest.raises(UnknownRun):
        await store.runs.get(run)


async def test_a_deletion_after_another_one_is_not_taken_for_that(
    driver: StoreDriver, store: Store, redis: Any, archiver: Archiver
) -> None:
    conversation, _ = await one_turn(driver)
    backlog = store.part(Backlog)
    await store.control.delete_conversation(conversation)
    noted = await backlog.deleted([conversation])
    await backlog.forgotten({conversation: noted[conversation] - 1})
    assert await lacks(redis) == [f"-{conversation}"]
    await backlog.forgotten(noted)
    assert await lacks(redis) == []


async def test_one_that_the_database_has_lost_keeps_no_other_from_it(
    driver: StoreDriver, redis: Any, archiver: Archiver, database: Database
) -> None:
    lost, other = (await one_turn(driver))[0], (await one_turn(driver))[0]
    await archiver.look()
    await database.forget_conversations([lost])
    for conversation in (lost, other):
        _, lease = await driver.begin(conversation_id=conversation)
        await driver.finish(lease)
    await archiver.look()
    assert await lacks(redis) == [lost]
    assert len(await database.entries(other, 0, 100)) == await redis.xlen(keys.log(other))


def amid_a_recall(monkeypatch: pytest.MonkeyPatch, happens: Callable[[], Awaitable[object]]) -> None:
    """Once a process has read the beginning of a log, something happens before it goes on."""
    entries = Database.entries

    async def meanwhile(self: Database, *values: Any) -> Any:
        monkeypatch.setattr(Database, "entries", entries)
        found = await entries(self, *values)
        await happens()
        return found

    monkeypatch.setattr(Database, "entries", meanwhile)


async def test_what_was_read_before_a_deletion_does_not_come_back(
    driver: StoreDriver,
    store: Store,
    settings: Settings,
    redis: Any,
    archiver: Archiver,
    database: Database,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A process reads it, stalls until it is deleted by another one and forgotten in the archive, and goes on."""
    conversation, run = await one_turn(driver)
    await archiver.look()
    await evict(redis, conversation, run)
    other = Store(redis, settings)

    async def deleted() -> None:
        await other.control.delete_conversation(conversation)
        await archiver.look()
        assert await database.record(conversation) is None

    amid_a_recall(monkeypatch, deleted)
    with pytest.raises(UnknownRun):
        await store.runs.get(run)
    assert not await redis.exists(keys.run(run), keys.conversation(conversation), keys.log(conversation))
    await other.memories.close()


async def test_what_another_process_brought_back_goes_on_as_it_does(
    driver: StoreDriver,
    store: Store,
    settings: Settings,
    redis: Any,
    archiver: Archiver,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    conversation, run = await one_turn(driver)
    await archiver.look()
    await evict(redis, conversation, run)
    other = Store(redis, settings)

    async def goes_on() -> None:
        _, lease = await StoreDriver(other, redis).begin(conversation_id=conversation)
        await StoreDriver(other, redis).finish(lease, text="again")

    amid_a_recall(monkeypatch, goes_on)
    assert (await store.runs.get(run)).status == "completed"
    _, lease = await driver.begin(conversation_id=conversation)
    assert driver.said(lease) == ["hello", "bye", "hello", "again", "hello"]
    await driver.finish(lease)
    await other.memories.close()


async def test_a_run_does_not_come_back_into_a_conversation_that_began_after_it(
    driver: StoreDriver, store: Store, redis: Any, archiver: Archiver
) -> None:
    """As when Redis was lost, and a client chose the id again that it had."""
    conversation, run = await one_turn(driver)
    await archiver.look()
    await evict(redis, conversation, run)
    await store.conversations.begin(NewConversation(title="anew"), conversation)
    with pytest.raises(UnknownRun):
        await store.runs.get(run)
    assert not await redis.exists(keys.run(run))


async def test_what_was_read_long_ago_is_not_put_back(
    driver: StoreDriver, store: Store, redis: Any, archiver: Archiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    conversation, run = await one_turn(driver)
    await archiver.look()
    await evict(redis, conversation, run)
    monkeypatch.setattr("features.archive.remembering.READ", -1)
    with pytest.raises(ArchiveAway):
        await store.runs.get(run)
    assert not await redis.exists(keys.conversation(conversation), keys.run(run))


async def test_a_run_is_deleted_with_what_its_archived_conversation_says_of_it(
    driver: StoreDriver, store: Store, redis: Any, archiver: Archiver, database: Database
) -> None:
    conversation, run = await one_turn(driver)
    await archiver.look()
    await redis.delete(keys.conversation(conversation), keys.log(conversation))
    await store.control.delete_run(run)
    await archiver.look()
    assert await database.conversation_of(run) is None
    assert await database.entries(conversation, 0, 100) == []
    fields = await database.record(conversation)
    assert fields is not None
    assert "last_outcome" not in fields


async def test_one_that_takes_too_long_keeps_no_other_waiting(
    driver: StoreDriver, redis: Any, archiver: Archiver, database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = [(await one_turn(driver))[0] for _ in range(5)]
    write = database.write

    async def too_slow(batch: Any, since: Any = None) -> None:
        if made[3] in [each.id for each in batch]:
            raise ArchiveAway(SLOW)
        await write(batch, since)

    monkeypatch.setattr(database, "write", too_slow)
    await archiver.look()
    assert await lacks(redis) == [made[3]]


async def test_a_database_that_answers_nothing_is_away(
    driver: StoreDriver, redis: Any, archiver: Archiver, database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = {(await one_turn(driver))[0] for _ in range(5)}
    asked = 0

    async def stalls(*_: Any) -> None:
        nonlocal asked
        asked += 1
        raise ArchiveAway(SLOW)

    monkeypatch.setattr(database, "write", stalls)
    with pytest.raises(ArchiveAway):
        await archiver.look()
    assert asked <= 5
    assert {*await lacks(redis)} == made


async def test_what_is_only_read_stays_for_an_hour(
    driver: StoreDriver, store: Store, redis: Any, archiver: Archiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    conversation, run = await one_turn(driver)
    await archiver.look()
    await evict(redis, conversation, run)
    monkeypatch.setattr("features.archive.remembering._STAYS", 60)
    await (memory := Memories(store._ground)).bring_back(run)
    await memory.close()
    for key in (keys.conversation(conversation), keys.log(conversation), keys.run(run)):
        assert 0 < await redis.ttl(key) <= 60


async def test_how_long_something_has_waited_is_counted_from_its_last_change(
    driver: StoreDriver, store: Store, redis: Any, archiver: Archiver
) -> None:
    backlog = store.part(Backlog)
    assert await backlog.oldest() == 0
    conversation, _ = await one_turn(driver)
    assert 0 <= await backlog.oldest() < 60
    seconds, _ = await redis.time()
    await redis.hset(keys.conversation(conversation), "changes", f"{seconds - 500}.7")
    await backlog.take()
    assert 499 <= await backlog.oldest() < 560
    await archiver.look()
    await store.control.delete_conversation(conversation)
    assert 0 <= await backlog.oldest() < 60
    await archiver.look()


async def test_what_is_old_is_kept_no_longer_unless_the_store_has_it(
    driver: StoreDriver, store: Store, redis: Any, archiver: Archiver, database: Database
) -> None:
    (here, _), (left, its), (new, last) = [await one_turn(driver) for _ in range(3)]
    for conversation in (here, left):
        await redis.hset(keys.conversation(conversation), "updated_at", 1_000)
        await redis.zadd(keys.conversations("00", ":updated"), {conversation: 1_000})
    await archiver.look()
    await evict(redis, left, its)
    await evict(redis, new, last)
    keeping = Archiver(store.part(Backlog), database, 86_400.0)
    assert await keeping.forget_old() == 1
    assert await lacks(redis) == [f"-{left}"]
    await keeping.look()
    assert await keeping.forget_old() == 0
    assert [await database.record(each) is not None for each in (here, left, new)] == [True, False, True]
    assert await archiver.forget_old() == 0


async def test_a_run_that_is_retried_stays_until_that_is_archived(
    driver: StoreDriver, store: Store, redis: Any, archiver: Archiver, database: Database
) -> None:
    first, lease = await driver.begin()
    await driver.give_up(lease)
    await archiver.look()
    await redis.expire(keys.run(first), 5)
    again = await store.control.retry(first, Retry())
    assert await redis.ttl(keys.run(first)) > RETENTION
    await driver.finish(await driver.claim(again.deliveries[0]))
    await archiver.look()
    assert await redis.ttl(keys.run(first)) <= RETENTION
    archived = await database.run(first)
    assert archived is not None
    assert archived.fields["retried_as"] == again.run_id
