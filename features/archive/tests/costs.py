"""What makes scripts of the archive dear."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, Final

from features.archive import archive_keys
from features.archive.contract import (
    Acknowledge,
    ArchiveAnew,
    BringBack,
    BringRunBack,
    ExpectLog,
    NoteOld,
    ReadResting,
    SettleDeletion,
    StoredField,
    TakeUnarchived,
)
from palaver.schemas.conversation import NewConversation
from palaver.store.redis import keys
from palaver.store.scripting.contracts.declaration import Script
from palaver.vocabulary.ids import new_conversation_id, new_run_id
from tests.contract.store_driver import StoreDriver
from tests.cost.case import Act, Case

_UNARCHIVED: Final = archive_keys.unarchived("00")


async def _take(driver: StoreDriver, n: int) -> Act:
    await driver.redis.zadd(_UNARCHIVED, {new_conversation_id(1): 0 for _ in range(2 * n)})
    take = TakeUnarchived(unarchived=_UNARCHIVED, limit=n, lease=30.0)
    return lambda: driver.store.scripts.run(take)


def _of_one(make: Callable[[str, int], Script[Any]]) -> Callable[[StoreDriver, int], Awaitable[Act]]:
    """A script about a conversation whose hash is of that size."""

    async def prepare(driver: StoreDriver, n: int) -> Act:
        begun, _ = await driver.store.conversations.begin(
            NewConversation(metadata={f"name-{i}": "x" for i in range(16)})
        )
        await driver.redis.hset(keys.conversation(begun.id), mapping={f"field-{i}": "x" * 100 for i in range(n)})
        script = make(begun.id, n)
        return lambda: driver.store.scripts.run(script)

    return prepare


def _read(conversation: str, n: int) -> Script[Any]:
    return ReadResting(conversation=keys.conversation(conversation), log=keys.log(conversation), unarchived=_UNARCHIVED)


def _old(conversation: str, n: int) -> Script[Any]:
    return NoteOld(conversation=keys.conversation(conversation), log=keys.log(conversation))


def _anew(conversation: str, n: int) -> Script[Any]:
    return ArchiveAnew(conversation=keys.conversation(conversation), log=keys.log(conversation))


async def _acknowledge(driver: StoreDriver, n: int) -> Act:
    run_id, lease = await driver.begin()
    await driver.finish(lease)
    of = lease.conversation_id
    script = Acknowledge(
        conversation=keys.conversation(of),
        log=keys.log(of),
        unarchived=_UNARCHIVED,
        changes="0",
        position=1,
        runs=(run_id,) * n,
    )
    return lambda: driver.store.scripts.run(script)


def _fields(n: int) -> tuple[StoredField, ...]:
    times = (StoredField("created_at", "1"), StoredField("updated_at", "1"), StoredField("status", "completed"))
    return (*times, *(StoredField(f"field-{i}", "x" * 100) for i in range(n)))


async def _bring(driver: StoreDriver, n: int) -> Act:
    of = new_conversation_id(1)
    copied = keys.copied("00", "case")
    for position in range(1, n + 1):
        await driver.redis.xadd(copied, {"type": "x", "data": "{}"}, id=f"{position}-0")
    script = BringBack(
        conversation=keys.conversation(of),
        log=keys.log(of),
        copied=copied,
        position=n,
        created_at=0,
        too_late=2**42,
        stays=600,
        stored_fields=_fields(n),
    )
    return lambda: driver.store.scripts.run(script)


def _expect(conversation: str, n: int) -> Script[Any]:
    return ExpectLog(
        conversation=keys.conversation(conversation),
        log=keys.log(conversation),
        copied=keys.copied("00", "case"),
        lasts=600,
    )


async def _bring_run(driver: StoreDriver, n: int) -> Act:
    of, run_id = new_conversation_id(1), new_run_id("00")
    script = BringRunBack(
        conversation=keys.conversation(of),
        log=keys.log(of),
        run=keys.run(run_id),
        run_id=run_id,
        created_at=1,
        too_late=2**42,
        stays=600,
        stored_fields=_fields(n),
    )
    return lambda: driver.store.scripts.run(script)


async def _settle(driver: StoreDriver, n: int) -> Act:
    marks = [f"-{new_conversation_id(1)}" for _ in range(n)]
    await driver.redis.zadd(_UNARCHIVED, dict.fromkeys(marks, 1))
    settle = SettleDeletion(
        unarchived=_UNARCHIVED, forgotten=archive_keys.forgotten("00"), mark=marks[0], since=1, lasts=600
    )
    return lambda: driver.store.scripts.run(settle)


SCRIPTS: Final = (
    Case("settle_deletion", "ids that are noted", _settle),
    Case("take_unarchived", "ids", _take, most=50),
    Case("read_resting", "fields of a conversation", _of_one(_read)),
    Case("note_old", "fields of a conversation", _of_one(_old)),
    Case("archive_anew", "fields of a conversation", _of_one(_anew)),
    Case("acknowledge", "runs", _acknowledge),
    Case("expect_log", "fields of a conversation", _of_one(_expect)),
    Case("bring_back", "fields, and entries of a log", _bring),
    Case("bring_run_back", "fields", _bring_run),
)
