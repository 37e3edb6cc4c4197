"""The set of features of an installation: a run that a feature is to see is touched by no process that lacks it."""

from __future__ import annotations

import logging
from importlib.metadata import EntryPoint
from typing import Any

import orjson
import pytest

from palaver.config.settings import Settings
from palaver.errors import ConfigurationError, NewerVersion, StaleLease
from palaver.feature import GROUP, Feature, seeing
from palaver.store import Store
from palaver.store.fleet import feature_set
from palaver.store.fleet.feature_set import KeptFeature
from palaver.store.redis import fleet_keys, keys
from palaver.store.scripting import shared_names
from palaver.vocabulary.lifecycle import RunStatus
from tests.contract.store_driver import StoreDriver


@pytest.fixture
def whole(redis: Any, settings: Settings, monkeypatch: pytest.MonkeyPatch) -> StoreDriver:
    """Processes with the feature ``notes``."""
    with monkeypatch.context() as patch:
        patch.setattr(shared_names, "seeing", lambda: seeing() | {"notes"})
        return StoreDriver(Store(redis, settings), redis)


async def wanted(redis: Any, run_id: str) -> None:
    """The feature is to see what becomes of the run, as its part of the script says that takes it."""
    await redis.hset(keys.run(run_id), "features", "notes")


async def test_a_worker_leaves_a_step_to_one_that_has_the_feature(
    driver: StoreDriver, whole: StoreDriver, redis: Any
) -> None:
    submitted = await whole.submit()
    await wanted(redis, submitted.run_id)
    (delivery,) = submitted.deliveries
    with pytest.raises(NewerVersion) as left:
        await driver.try_claim(delivery)
    assert left.value.feature == "notes"
    await whole.finish(await whole.claim(delivery))
    assert (await whole.get(submitted.run_id)).status is RunStatus.COMPLETED


async def test_nothing_else_is_done_without_it(driver: StoreDriver, whole: StoreDriver, redis: Any) -> None:
    run_id, lease = await driver.begin()
    await wanted(redis, run_id)
    await redis.zadd(keys.due("00"), {f"{run_id}/1": 1})
    before = await redis.hgetall(keys.run(run_id))
    assert await driver.sweep(run_id, "1") == []
    for write in (driver.finish(lease), driver.hand_back(lease), driver.store.runs.cancel(run_id)):
        with pytest.raises(StaleLease):
            await write
    assert await redis.hgetall(keys.run(run_id)) == before
    await whole.store.runs.cancel(run_id)
    await whole.lose(lease)


async def test_what_is_dropped_holds_up_no_run(driver: StoreDriver, whole: StoreDriver, redis: Any) -> None:
    runs = [await whole.submit() for _ in range(3)]
    for each in runs:
        await wanted(redis, each.run_id)
    await redis.hset(fleet_keys.FEATURES, "notes", orjson.dumps(KeptFeature("1.0", True)))
    with pytest.raises(ConfigurationError, match=r"has the feature notes \(1.0\)"):
        await driver.store.feature_set.require()
    assert await driver.store.feature_set.drop("notes") == 3
    await driver.store.feature_set.require()
    for each in runs:
        await driver.finish(await driver.claim(each.deliveries[0]))


async def test_a_process_keeps_its_own_and_says_what_it_lacks(
    driver: StoreDriver, redis: Any, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def has(*names: str) -> None:
        monkeypatch.setattr(feature_set, "switched_on", lambda: frozenset(names))
        monkeypatch.setattr(feature_set, "entries", lambda: {name: EntryPoint(name, "x:y", GROUP) for name in names})

    has("one", "two")
    assert await driver.store.feature_set.lacking() == {}
    assert await driver.store.feature_set.kept() == {"one": KeptFeature("", False), "two": KeptFeature("", False)}
    has("one")
    caplog.set_level(logging.WARNING, "palaver.features")
    for _ in range(2):
        assert set(await driver.store.feature_set.lacking()) == {"two"}
    (said,) = [record.getMessage() for record in caplog.records]
    assert "take it out of PALAVER_FEATURES, or, once no process has it, `palaver features drop two`" in said
    with pytest.raises(ConfigurationError, match="PALAVER_FEATURES=-one"):
        await driver.store.feature_set.drop("one")


async def test_a_feature_that_is_off_here_is_lacked(
    driver: StoreDriver, redis: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is installed, and a variable that others have is not set."""
    found = {"notes": Feature("notes", hooks={"run_ended": "note"}, switch="ANY_NOTES_URL_OF_OTHERS")}
    monkeypatch.setattr("palaver.feature.features", lambda: found)
    monkeypatch.setattr(feature_set, "features", lambda: found)
    await redis.hset(fleet_keys.FEATURES, "notes", orjson.dumps(KeptFeature("1.0", True)))
    with pytest.raises(ConfigurationError, match="set ANY_NOTES_URL_OF_OTHERS, or"):
        await driver.store.feature_set.require()
    assert await driver.store.feature_set.kept() == {"notes": KeptFeature("1.0", True)}
