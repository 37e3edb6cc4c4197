"""What was done with keys is archived: each act once, and none of a tenant that is erased."""

from __future__ import annotations

from typing import Any

import pytest

from features.archive.acts import Acts
from features.archive.archiver import Archiver
from features.archive.backlog import Backlog
from features.archive.database import Database
from palaver.store import Store
from palaver.store.redis import access_keys


@pytest.fixture
def archiver(store: Store, database: Database) -> Archiver:
    return Archiver(store.part(Backlog), database, acts=store.part(Acts))


async def done(store: Store, tag: str, *operations: str) -> None:
    for operation in operations:
        await store.audit.add(tag, operation, key="ci", status=200, facts={"run": "run_1"})


async def acts_of(database: Database) -> list[tuple[Any, ...]]:
    async with database._connections.reading() as connection:
        query = "SELECT tenant, operation, key, status, operator, facts FROM acts ORDER BY at, length(id), id"
        return [tuple(row) for row in await connection.exec_driver_sql(query)]


async def test_each_act_is_archived_once(store: Store, archiver: Archiver, database: Database) -> None:
    acme = await store.tenants.create("acme")
    await done(store, "", *(f"act {number}" for number in range(12)))
    await done(store, acme.tag or "", "theirs")
    assert await archiver.archive_acts() == 13
    assert await archiver.archive_acts() == 0
    await done(store, "", "later")
    assert await archiver.archive_acts() == 1
    found = await acts_of(database)
    assert sorted(row[1] for row in found) == sorted([*(f"act {number}" for number in range(12)), "later", "theirs"])
    assert {row[0]: row[1] for row in found}[acme.tag or ""] == "theirs"
    assert found[0][2:] == ("ci", 200, 0, '{"run": "run_1"}')


async def test_acts_of_one_millisecond_are_all_archived(
    store: Store, redis: Any, archiver: Archiver, database: Database
) -> None:
    for number in range(8, 12):
        await redis.xadd(access_keys.audit(""), {"act": f'{{"operation": "{number}"}}'}, id=f"1764500000000-{number}")
        assert await archiver.archive_acts() == 1
    assert [row[1] for row in await acts_of(database)] == ["8", "9", "10", "11"]
    await redis.delete(access_keys.audit(""))


async def test_nothing_of_an_erased_tenant_is_written_behind_its_erasure(
    store: Store, redis: Any, archiver: Archiver, database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    acme = await store.tenants.create("acme")
    tag = acme.tag or ""
    await done(store, tag, "one")
    await archiver.archive_acts()
    await done(store, tag, "two")
    behind = Acts.behind

    async def slowly(self: Acts, *values: Any) -> Any:
        found = await behind(self, *values)
        if values[0] == tag:
            while any((await database.forget_tenant(tag, 1)).values()):
                pass
        return found

    monkeypatch.setattr(Acts, "behind", slowly)
    assert await archiver.archive_acts() == 0
    assert await acts_of(database) == []
    monkeypatch.setattr(Acts, "behind", behind)
    await redis.hset(access_keys.TENANTS, "-acme", 1)
    assert await archiver.archive_acts() == 0
    assert await acts_of(database) == []
