"""Tenants: their registry, their ids, and lists that have nobody else's."""

from __future__ import annotations

import asyncio
import re
from typing import Any

import pytest

from palaver.errors import Refused, StateConflict, UnknownConversation, UnknownRun
from palaver.schemas.conversation import NewConversation
from palaver.schemas.models import Retry
from palaver.store import Store
from palaver.store.redis import access_keys, keys
from palaver.store.redis.reach import NOBODY, Reach, within
from palaver.store.tenants.tenants import DEFAULT
from palaver.vocabulary.ids import is_id, shard_of, tenant_of
from palaver.vocabulary.lifecycle import RunStatus
from palaver.vocabulary.limits import limit_of
from tests.contract.store_driver import StoreDriver

ONE, OTHER, NONE = Reach("0000m1"), Reach("0000m2"), Reach("")
EVERYBODY = Reach("", all_tenants=True)


async def test_a_tenant_is_made_once_and_found_by_its_name_and_by_its_tag(store: Store) -> None:
    assert await store.tenants.list() == [DEFAULT]
    made = [await store.tenants.create(name) for name in ("globex", "acme-2")]
    assert all(re.fullmatch(r"[0-9a-hjkmnp-tv-z]{6}", tenant.tag) for tenant in made)
    assert await store.tenants.list() == [DEFAULT, made[1], made[0]]
    for tenant in (*made, DEFAULT):
        assert await store.tenants.get(tenant.name) == await store.tenants.by_tag(tenant.tag) == tenant
    for name in ("globex", "default"):
        with pytest.raises(StateConflict, match=f"there is a tenant {name} already") as refusal:
            await store.tenants.create(name)
        assert refusal.value.code == "tenant_exists"
    assert await store.tenants.get("nobody") is await store.tenants.by_tag(NOBODY) is None


async def test_of_many_who_make_the_same_tenant_one_does(store: Store) -> None:
    ends = await asyncio.gather(*(store.tenants.create("acme") for _ in range(8)), return_exceptions=True)
    (made,) = [end for end in ends if not isinstance(end, Exception)]
    assert {type(end) for end in ends if end is not made} == {StateConflict}
    assert await store.tenants.list() == [DEFAULT, made]


@pytest.mark.parametrize("name", ["", "-a", "A", "a" * 64, "a b", "@a", "ä", "a_b", "a\n"])
async def test_not_every_text_is_a_name(store: Store, name: str) -> None:
    with pytest.raises(Refused, match="a tenant's name is"):
        await store.tenants.create(name)
    assert await store.tenants.get(name) is None
    assert await store.tenants.list() == [DEFAULT]


async def test_two_tenants_never_have_one_tag(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    tags = iter([NOBODY, "aaaaaa", "aaaaaa", "bbbbbb"])
    monkeypatch.setattr("palaver.store.tenants.tenants.new_tag", lambda: next(tags))
    made = [await store.tenants.create(name) for name in ("acme", "globex")]
    assert [tenant.tag for tenant in made] == ["aaaaaa", "bbbbbb"]


async def test_there_are_only_so_many(store: Store, redis: Any) -> None:
    for begin in range(0, 2 * limit_of("tenants"), 1000):
        await redis.hset(access_keys.TENANTS, mapping={f"@{number}": "x" for number in range(begin, begin + 1000)})
    with pytest.raises(Refused, match="there are 10000 tenants, and may be no more"):
        await store.tenants.create("acme")


async def test_what_a_tenant_makes_carries_its_tag(store: Store, driver: StoreDriver) -> None:
    with within(ONE):
        submitted = await driver.submit(idempotency_key="k")
        (delivery,) = submitted.deliveries
        ids = [submitted.run_id, delivery.conversation_id]
        conversation, _ = await store.conversations.begin(NewConversation())
        ids.append(conversation.id)
        again = await driver.submit(conversation_id=delivery.conversation_id)
        ids.append(again.run_id)
    assert [tenant_of(each) for each in ids] == [ONE.tenant] * 4
    assert is_id("run", ids[0])
    assert is_id("conv", ids[1])
    with within(NONE):
        plain = await driver.submit()
    assert tenant_of(plain.run_id) == ""
    assert len(plain.run_id) == 32


async def test_what_is_made_of_a_run_is_its_tenants_whoever_asks(store: Store, driver: StoreDriver) -> None:
    with within(ONE):
        submitted = await driver.submit()
    await driver.finish(await driver.claim(submitted.deliveries[0]))
    with within(EVERYBODY):
        forked = await store.control.retry(submitted.run_id, Retry(from_step=1))
        run = await store.runs.get(forked.run_id)
    assert [tenant_of(each) for each in (run.id, run.conversation_id)] == [ONE.tenant] * 2
    assert shard_of(run.id) == shard_of(submitted.run_id)


async def test_nobody_finds_the_runs_and_conversations_of_others(store: Store, driver: StoreDriver) -> None:
    mine = {}
    for reach in (ONE, OTHER, NONE):
        with within(reach):
            submitted = await driver.submit()
            mine[reach] = (submitted.run_id, submitted.deliveries[0].conversation_id)
    for reach in mine:
        with within(reach):
            for owner, (run_id, conversation_id) in mine.items():
                if owner == reach:
                    assert (await store.runs.get(run_id)).conversation_id == conversation_id
                    continue
                with pytest.raises(UnknownRun, match=run_id):
                    await store.runs.get(run_id)
                with pytest.raises(UnknownRun, match=run_id):
                    await store.runs.cancel(run_id)
                with pytest.raises(UnknownRun, match=run_id):
                    await store.feeds.page(run_id)
                with pytest.raises(UnknownConversation, match=conversation_id):
                    await store.runs.conversation(conversation_id)
                with pytest.raises(UnknownConversation, match=conversation_id):
                    await driver.submit(conversation_id=conversation_id)
                with pytest.raises(UnknownConversation, match=conversation_id):
                    await store.control.delete_conversation(conversation_id)
    with within(EVERYBODY):
        assert {run.id for run in (await store.runs.list({}, limit=10)).runs} == {ids[0] for ids in mine.values()}
        assert [(await store.runs.get(ids[0])).status for ids in mine.values()] == [RunStatus.QUEUED] * 3


async def test_lists_have_what_is_ones_own(store: Store, driver: StoreDriver) -> None:
    mine: dict[Reach, list[str]] = {}
    for number in range(9):
        reach = (ONE, OTHER, NONE)[number % 3]
        with within(reach):
            submitted = await driver.submit()
            mine.setdefault(reach, []).append(submitted.run_id)
            if number < 6:
                await driver.finish(await driver.claim(submitted.deliveries[0]))
    for reach, ids in mine.items():
        with within(reach):
            listed = [run.id for run in (await store.runs.list({}, limit=50)).runs]
            assert sorted(listed) == sorted(ids)
            done = [run.id for run in (await store.runs.list({"status": (RunStatus.COMPLETED,)}, limit=50)).runs]
            assert sorted(done) == sorted(ids[:2])
            for order in ("created", "-created", "updated", "-updated"):
                page = await store.conversations.list({}, limit=50, order=order)
                assert [tenant_of(each.id) for each in page.conversations] == [reach.tenant] * 3
            assert (await store.conversations.count({})).count == 3
            first = await store.runs.list({}, limit=1)
            second = await store.runs.list({}, limit=5, cursor=first.next_cursor)
            assert sorted(run.id for run in (*first.runs, *second.runs)) == sorted(ids)
    with within(OTHER):
        theirs = await store.runs.list({}, limit=1)
    with within(ONE):
        strange = await store.runs.list({}, limit=50, cursor=theirs.next_cursor)
        assert {tenant_of(run.id) for run in strange.runs} <= {ONE.tenant}
    samples = await store.measuring.read(())
    assert samples["palaver_runs"][("completed",)] == 6
    assert samples["palaver_runs"][("queued",)] == 3


async def test_a_list_costs_what_it_has(store: Store, driver: StoreDriver, redis: Any) -> None:
    with within(ONE):
        await driver.submit()
    for _ in range(30):
        with within(OTHER):
            await driver.submit()
    assert [await redis.zcard(keys.runs("00", of=keys.owner(each.tenant))) for each in (ONE, OTHER, NONE)] == [1, 30, 0]
    assert await redis.zcard(keys.runs("00", of=keys.OTHER_TENANTS)) == 31


async def test_the_same_idempotency_key_of_two_tenants_is_two(store: Store, driver: StoreDriver) -> None:
    made = {}
    for reach in (ONE, OTHER, NONE):
        with within(reach):
            made[reach] = await driver.submit(idempotency_key="same")
            assert (await driver.submit(idempotency_key="same")).run_id == made[reach].run_id
    assert len({each.run_id for each in made.values()}) == 3
    assert not any(each.replayed for each in made.values())


async def test_what_has_expired_leaves_all_lists(store: Store, driver: StoreDriver, redis: Any) -> None:
    for reach in (ONE, NONE):
        with within(reach):
            submitted = await driver.submit()
        (delivery,) = submitted.deliveries
        await driver.finish(await driver.claim(delivery))
        # As Redis itself does once the retention is over.
        run, conversation = submitted.run_id, delivery.conversation_id
        await redis.delete(keys.run(run), keys.feed(run), keys.conversation(conversation), keys.log(conversation))
        await redis.zadd(keys.ended("00"), {run: 0})
        await redis.zadd(keys.expiring("00"), {conversation: 0})
    assert await store.due.forget_expired() == 2
    assert await store.due.forget_conversations() == 2
    assert await _lists(redis) == []


async def _lists(redis: Any) -> list[str]:
    """The names of all lists of runs and conversations."""
    return [name.decode() async for name in redis.scan_iter("*") if re.search(rb"}:(@\w*:)?(runs|convs|ended)", name)]


async def test_deleting_takes_out_of_all_lists(store: Store, driver: StoreDriver, redis: Any) -> None:
    for by_run in (True, False):
        with within(ONE):
            submitted = await driver.submit()
            conversation_id = submitted.deliveries[0].conversation_id
            await driver.finish(await driver.claim(submitted.deliveries[0]))
            if by_run:
                await store.control.delete_run(submitted.run_id)
                assert not (await store.runs.list({}, limit=5)).runs
            await store.control.delete_conversation(conversation_id)
    assert await _lists(redis) == []


async def test_what_is_of_nobody_is_never_written(store: Store, driver: StoreDriver, redis: Any) -> None:
    with within(ONE):
        run_id = (await driver.submit()).run_id
    before = {name async for name in redis.scan_iter("*")}
    with within(OTHER):
        with pytest.raises(UnknownRun):
            await store.control.act(run_id, (), idempotency_key="k")
        with pytest.raises(UnknownRun):
            await store.runs.cancel(run_id)
    assert {name async for name in redis.scan_iter("*")} == before
    assert not [name for name in before if f"{NOBODY}_".encode() in name]
