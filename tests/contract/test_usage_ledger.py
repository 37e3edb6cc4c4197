"""The ledger of usage: what each step used is in it once, by day, agent, model and key."""

from __future__ import annotations

from collections import Counter
from datetime import timedelta
from typing import Any

import pytest

from palaver.config.settings import Settings
from palaver.schemas.models import Message, Submission, Usage
from palaver.steps.leases import Lease
from palaver.steps.verdicts import Finish, HandBack
from palaver.store import Store
from palaver.store.reading.usage_ledger import Spender, today
from palaver.store.redis import keys
from palaver.store.redis.reach import Reach, within
from palaver.vocabulary.lifecycle import StopReason
from palaver.vocabulary.limits import limit_of
from tests.contract.store_driver import AGENT, StoreDriver

TAGS = ("acme00", "0ther0")
USED = Usage(input_tokens=100, cached_tokens=60, output_tokens=7, model_calls=1, cost_usd=0.25)


async def ledger(store: Store) -> dict[Spender, Counter[str]]:
    """What was used yesterday and today: a test may run at midnight."""
    found: dict[Spender, Counter[str]] = {}
    async for _, used in store.usage.read(today() - timedelta(days=1), today(), ["", *TAGS]):
        for spender, numbers in used.items():
            found.setdefault(spender, Counter()).update(numbers)
    return found


async def finish(driver: StoreDriver, usage: Usage, *, by: str | None = None, **agent: Any) -> str:
    submission = Submission(agent=AGENT.model_copy(update=agent), input="hello")
    submitted = await driver.store.runs.submit(submission, by=by)
    lease = await driver.claim(submitted.deliveries[0])
    verdict = Finish(Message(role="assistant", content="bye"), StopReason.END_TURN, usage=usage)
    await driver.store.steps.settle(lease, verdict)
    return submitted.run_id


async def test_it_says_who_used_what(driver: StoreDriver) -> None:
    await finish(driver, USED, by="ci", name="support")
    await finish(driver, USED, by="ci", name="support")
    await finish(driver, USED.model_copy(update={"cost_usd": None}), model="fake/other")
    assert await ledger(driver.store) == {
        Spender("", "support", "fake/echo", "ci"): Counter(
            model_calls=2, input_tokens=200, cached_tokens=120, output_tokens=14, cost=500_000_000
        ),
        Spender("", None, "fake/other", None): Counter(
            model_calls=1, input_tokens=100, cached_tokens=60, output_tokens=7, unpriced_calls=1
        ),
    }


async def test_what_is_used_for_subjects_of_tokens_is_used_by_their_key(driver: StoreDriver) -> None:
    for by in ("desk", "desk/user:17", "desk/a/b", "oidc:auth0|5/7"):
        await finish(driver, USED, by=by)
    used = {spender.key: numbers["model_calls"] for spender, numbers in (await ledger(driver.store)).items()}
    assert used == {"desk": 3, "oidc:auth0|5/7": 1}


async def test_a_verdict_that_is_settled_twice_is_in_it_once(driver: StoreDriver) -> None:
    with driver.answers_get_lost():
        await finish(driver, USED)
    assert [used["model_calls"] for used in (await ledger(driver.store)).values()] == [1]


async def test_what_is_handed_back_was_used_all_the_same(driver: StoreDriver) -> None:
    _, lease = await driver.begin()
    await driver.store.steps.settle(lease, HandBack(True, USED))
    assert [used["input_tokens"] for used in (await ledger(driver.store)).values()] == [100]


async def test_calls_of_tools_are_not_in_it(driver: StoreDriver) -> None:
    _, deliveries = await driver.turn("a")
    before = await ledger(driver.store)
    lease = await driver.claim(deliveries[0])
    assert isinstance(lease, Lease)
    await driver.answer(lease)
    assert await ledger(driver.store) == before


async def test_it_has_no_more_rows_than_a_day_may_have(redis: Any, driver: StoreDriver) -> None:
    await finish(driver, USED, name="first")
    (key,) = [name async for name in redis.scan_iter(match="{p00}:usage:*")]
    await redis.hset(key, "rows", limit_of("usage_rows"))
    await finish(driver, USED, name="second")
    await finish(driver, USED, name="third")
    await finish(driver, USED, name="first")
    found = await ledger(driver.store)
    assert {spender.agent: used["model_calls"] for spender, used in found.items()} == {"first": 2, "other": 2}
    assert set(found) == {Spender("", "first", "fake/echo", None), Spender("", "other", "other", "other")}


@pytest.mark.parametrize("days", [1, 400])
async def test_it_stays_as_long_as_it_is_to(redis: Any, settings: Settings, days: int) -> None:
    store = Store(redis, settings.model_copy(update={"usage_retention": days * 86400.0}))
    await finish(StoreDriver(store, redis), USED)
    (key,) = [name async for name in redis.scan_iter(match="{p00}:usage:*")]
    assert days * 86400 - 60 <= await redis.ttl(key) <= days * 86400
    assert key.decode() in {keys.usage("00", (today() - timedelta(days=back)).toordinal() - 719163) for back in (0, 1)}


async def test_a_tenant_has_ledgers_of_its_own_and_sees_no_others(driver: StoreDriver) -> None:
    await finish(driver, USED)
    for tag in TAGS:
        with within(Reach(tag)):
            await finish(driver, USED, name=f"agent-of-{tag}")
    for tag in TAGS:
        with within(Reach(tag)):
            assert set(await ledger(driver.store)) == {Spender(tag, f"agent-of-{tag}", "fake/echo", None)}
    with within(Reach("")):
        assert set(await ledger(driver.store)) == {Spender("", None, "fake/echo", None)}
    assert {spender.tenant for spender in await ledger(driver.store)} == {"", *TAGS}
