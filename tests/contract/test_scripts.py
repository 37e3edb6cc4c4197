"""Scripts run whether or not the server knows them."""

from __future__ import annotations

from typing import Any

import pytest

from palaver.errors import CorruptRecord
from palaver.store.redis import keys
from palaver.store.scripting.contracts.logs import ENTRY_FIELDS
from palaver.store.steps.due_items import DueItem
from palaver.vocabulary.lifecycle import RunStatus
from tests.contract.store_driver import StoreDriver


async def test_a_server_that_forgot_the_scripts(driver: StoreDriver, redis: Any) -> None:
    begun = [await driver.begin() for _ in range(3)]
    await redis.script_flush()
    assert await driver.store.steps.renew([lease for _, lease in begun]) == [1, 1, 1]

    await redis.script_flush()
    things = [DueItem(run_id, "1") for run_id, _ in begun]
    settled = await driver.store.due.sweep(things, worker="w1")
    assert [len(each.deliveries) for each in settled] == [1, 1, 1]

    for run_id, lease in begun:
        await redis.script_flush()
        lease = await driver.claim(
            (await driver.store.due.sweep([DueItem(run_id, "1")], unclaimed_after=0))[0].deliveries[0]
        )
        await redis.script_flush()
        await driver.finish(lease)
        assert (await driver.get(run_id)).status is RunStatus.COMPLETED


async def test_one_broken_script_of_many_is_told_and_the_others_have_run(
    driver: StoreDriver, redis: Any, caplog: pytest.LogCaptureFixture
) -> None:
    good, _ = await driver.begin()
    bad, _ = await driver.begin()
    was = await redis.dump(keys.steps(bad))
    await redis.delete(keys.steps(bad))
    await redis.set(keys.steps(bad), "no hash")

    swept = await driver.store.due.sweep([DueItem(bad, "1"), DueItem(good, "1")], worker="w1")
    assert [each.deliveries[0].run_id for each in swept] == [good]
    assert "CorruptRecord" in caplog.text
    assert bad in caplog.text
    with pytest.raises(CorruptRecord) as raised:
        await driver.store.due.sweep([DueItem(bad, "1")], worker="w1")
    assert "WRONGTYPE" in str(raised.value.__cause__)
    assert "step.lost" in await driver.kinds(good)
    await redis.restore(keys.steps(bad), 0, was, replace=True)


async def test_entries_have_their_fields_where_lua_looks_for_them(driver: StoreDriver, redis: Any) -> None:
    """Lua reads them by their places, which come from ``ENTRY_FIELDS``."""
    run_id, lease = await driver.begin()
    await driver.finish(lease)
    entries = await redis.xrange(keys.log((await driver.get(run_id)).conversation_id))
    assert len(entries) >= 3
    for _, fields in entries:
        assert tuple(map(bytes.decode, fields)) in (ENTRY_FIELDS, ENTRY_FIELDS[:-1])
