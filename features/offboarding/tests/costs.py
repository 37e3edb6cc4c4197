"""What makes scripts of offboarding dear."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Final

import orjson

from features.offboarding.belongings import LISTS_OF_RUNS, run_lists
from features.offboarding.contract import (
    BeginErasure,
    EndErasure,
    EraseConversations,
    EraseKeys,
    EraseMembers,
    EraseRuns,
    SharedType,
    WriteReceipt,
)
from features.offboarding.erasure_keys import erasure, receipt
from palaver.store.redis import access_keys, keys
from palaver.store.redis.reach import Reach, within
from palaver.store.scripting.contracts.declaration import Script
from palaver.store.sides import Erasable
from palaver.vocabulary.ids import new_run_id
from tests.contract.store_driver import StoreDriver
from tests.cost.case import Act, Case

_TAG: Final = "k7m2qx"
"""A tenant's."""


def _erase(
    make: Callable[[Mapping[str, Sequence[str]]], Script[Any]],
) -> Callable[[StoreDriver, int], Awaitable[Act]]:
    """Of a tenant with n runs that have ended, each with many actions, in n conversations with secrets."""

    async def prepare(driver: StoreDriver, n: int) -> Act:
        made: dict[str, list[str]] = {"runs": [], "conversations": []}
        with within(Reach(_TAG)):
            for number in range(n):
                run_id, lease = await driver.begin(idempotency_key=f"k{number}", secrets={"S": "x" * 64})
                await driver.finish(lease)
                decided = {f"act:act_{k:024x}": "approve" for k in range(64)}
                await driver.redis.hset(keys.run(run_id), mapping=decided)
                made["runs"].append(run_id)
                made["conversations"].append(lease.conversation_id)
        return lambda: driver.store.scripts.run(make(made))

    return prepare


def _erased_runs(made: Mapping[str, Sequence[str]]) -> Script[Any]:
    owned, shared = LISTS_OF_RUNS, run_lists("00")
    return EraseRuns(erasure=erasure("00", _TAG), broken=False, runs=tuple(made["runs"]), owned=owned, shared=shared)


def _erased_conversations(made: Mapping[str, Sequence[str]]) -> Script[Any]:
    return EraseConversations(
        erasure=erasure("00", _TAG), expiring=keys.expiring("00"), conversations=tuple(made["conversations"])
    )


def _erased_keys(made: Mapping[str, Sequence[str]]) -> Script[Any]:
    erased = tuple(Erasable(keys.log(each), "idempotency_keys", 1) for each in made["conversations"])
    return EraseKeys(erasure=erasure("00", _TAG), erased_keys=erased)


def _erased_members(kind: SharedType) -> Callable[[StoreDriver, int], Awaitable[Act]]:
    """Of n members of something shared, and as many of others."""

    async def prepare(driver: StoreDriver, n: int) -> Act:
        name = "{p00}:shared"
        for tag in (_TAG, ""):
            ids = [new_run_id("00", tag) for _ in range(8 * n)]
            if kind == "zset":
                await driver.redis.zadd(name, dict.fromkeys(ids, 1.0))
            elif kind == "hash":
                await driver.redis.hset(name, mapping=dict.fromkeys(ids, "x"))
            else:
                for each in ids[:n]:
                    await driver.redis.xadd(name, {"run": f"{each}\nx"})
        erase = EraseMembers(erasure=erasure("00", _TAG), shared=name, shared_type=kind, tag=_TAG)
        return lambda: driver.store.scripts.run(erase)

    return prepare


async def _begin_erasure(driver: StoreDriver, n: int) -> Act:
    for number in range(n):
        await driver.store.tenants.create(f"tenant-{number}")
    return lambda: driver.store.scripts.run(
        BeginErasure(tenants=access_keys.TENANTS, tenant="tenant-0", tag=None, begun="{}")
    )


async def _end_erasure(driver: StoreDriver, n: int) -> Act:
    tags = [(await driver.store.tenants.create(f"tenant-{number}")).tag for number in range(n)]
    return lambda: driver.store.scripts.run(EndErasure(tenants=access_keys.TENANTS, tenant="tenant-0", tag=tags[0]))


async def _write_receipt(driver: StoreDriver, n: int) -> Act:
    for _ in range(n):
        await driver.store.audit.add("", "x", facts={})
    text = orjson.dumps({"tag": _TAG})
    write = WriteReceipt(
        receipt=receipt("acme"), acts=access_keys.audit(""), tag=_TAG, text=text, act=text, retention=86_400
    )
    return lambda: driver.store.scripts.run(write)


SCRIPTS: Final = (
    Case("begin_erasure", "tenants that are there", _begin_erasure, most=10_000),
    Case("erase_runs", "runs with 64 actions each", _erase(_erased_runs), most=50),
    Case("erase_conversations", "conversations", _erase(_erased_conversations), most=50),
    Case("erase_keys", "keys", _erase(_erased_keys), most=200),
    Case("erase_members", "16 members of a list", _erased_members("zset"), most=62),
    Case("erase_members", "16 fields of a hash", _erased_members("hash"), most=125),
    Case("erase_members", "2 entries of a stream", _erased_members("stream"), most=50),
    Case("write_receipt", "acts that are there", _write_receipt, most=100_000),
    Case("end_erasure", "tenants that are there", _end_erasure, most=10_000),
)
