"""The erasure of a tenant: nothing of it is found afterwards, nothing of anybody else is gone, and a receipt says what
it was, however often it broke off."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any, get_args

import pytest
from redis.exceptions import ConnectionError

from features.offboarding import erasure_keys, erasures, removal
from features.offboarding.belongings import counted_kinds
from features.offboarding.contract import EraseMembers, Over, Seen, SharedType
from features.offboarding.erasures import Erasures
from features.statistics import statistics_keys
from features.statistics.statistics import Statistics
from features.webhooks import webhook_keys
from palaver.config.settings import Settings
from palaver.errors import Refused, StateConflict, UnknownConversation, UnknownRun
from palaver.schemas.conversation import Fork, NewConversation
from palaver.schemas.erasures import ErasedCounts, Erasure
from palaver.schemas.models import AgentSpec, Retry
from palaver.schemas.tenants import CapsChange
from palaver.steps.leases import Stray
from palaver.store import Store
from palaver.store.access.api_keys import KeyGrant
from palaver.store.fleet.fleet import Interruption
from palaver.store.redis import access_keys, agent_keys, keys
from palaver.store.redis.reach import Reach, within
from palaver.store.sides import sides
from palaver.store.tenants.tenants import DEFAULT, Tenant
from palaver.vocabulary.ids import new_run_id
from tests.contract.belongings import (
    LINES,
    OF_ERASURE,
    OTHERS,
    content_of,
    endow,
    everything,
    found,
    kinds,
    pattern_of,
    shared_lists,
    without,
)
from tests.contract.store_driver import AGENT, OWN, StoreDriver
from tests.feature_cases import brought_to_tests
from tests.unit.api_world import SETTINGS
from tests.waiting import aeventually

NAMELESS = ("{p00}:copy:", "{p00}:idem:", "{palaver:keys}:used:")
HELD = 1
"""Runs that a worker has a step of."""


@pytest.fixture(scope="session")
def settings() -> Settings:
    """With a key for secrets."""
    return Settings(redis_url="redis://127.0.0.1:1/0", shards=1, secret_key=SETTINGS.secret_key)


@pytest.fixture(autouse=True)
def no_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    """The quiet time is over at once, but where a test says otherwise."""
    monkeypatch.setattr(erasures, "QUIET", 0.0)


@pytest.fixture
async def acme(store: Store, driver: StoreDriver) -> Tenant:
    """A tenant that has something of everything."""
    tenant = await store.tenants.create("acme")
    await endow(store, driver, tenant)
    return tenant


async def let_go(driver: StoreDriver, tenant: Tenant) -> None:
    """The workers hear that their runs are cancelled, and end their steps."""
    for run_id in await driver.redis.zrange(keys.runs("00", "cancelling", keys.owner(tenant.tag)), 0, -1):
        for step in await driver.redis.hkeys(keys.steps(run_id.decode())):
            await driver.sweep(run_id.decode(), step.decode(), worker="w1")


async def erase(driver: StoreDriver, tenant: Tenant, make: Callable[[], Store] | None = None) -> Erasure:
    """Ask until it is done, each time another process if there is a way to make one."""
    for _ in range(200):
        report = await (make() if make else driver.store).part(Erasures).erase(tenant.name, by="root")
        if report.done:
            return report
        if report.unfinished_runs:
            await let_go(driver, tenant)
    raise AssertionError(f"it never ends: {report}")


def counts_of(**numbers: int) -> ErasedCounts:
    """A receipt with these numbers, and nothing of the other kinds."""
    return ErasedCounts(**{**dict.fromkeys(counted_kinds(), 0), **numbers})


WHOLE = counts_of(
    conversations=12,
    runs=12,
    actions=2,
    secrets=1,
    agents=1,
    api_keys=1,
    idempotency_keys=1,
    usage_days=1,
    acts=1,
    **{str(sides()[name].kind): number for name, number in brought_to_tests("ENDOWED").items()},
)


async def left_of(redis: Any, tenant: Tenant) -> set[str]:
    """The places where something of the tenant is, but for those that say that it was erased."""
    stored = await everything(redis)
    told = {
        f"{access_keys.TENANTS} @{tenant.tag}", f"{keys.erased('00')} {tenant.tag}", erasure_keys.receipt(tenant.name),
        f"{agent_keys.agents_erasure(tenant.tag)} since", f"{agent_keys.agents_erasure(tenant.tag)} agents",
        *(f"{key} {what}" for one in sides().values() for key in one.marks(tenant.tag) for what in (one.kind, "since")),
    }  # fmt: skip
    acts = {place for place in found(stored, tenant.tag) if place.startswith(f"{access_keys.audit('')} ")}
    assert len(acts) == 1, "the operator's audit says it once"
    return found(stored, tenant.tag, f"words-of-{tenant.name}") - told - acts


@pytest.mark.slow
async def test_a_tenant_is_made_that_has_something_of_every_kind(driver: StoreDriver, redis: Any, acme: Tenant) -> None:
    """A new kind of key has to be made there, or be named among those that are nobody's: else erasing forgets it."""
    stored = await everything(redis)
    mine = {place.partition(" ")[0] for place in found(stored, acme.tag, "words-of-acme")}
    documented = kinds() - OTHERS - OF_ERASURE
    documented = {kind for kind in documented if not kind.startswith(LINES)}
    assert len(documented) > 25
    missing = {kind for kind in documented if not any(pattern_of(kind, acme.tag).fullmatch(name) for name in mine)}
    # Neither has the tag in it: the digest of a key and the name of a copy are found by what they are in.
    missing -= {"{p00}:copy:<name>", "{palaver:keys}:used:<id>"}
    # Who waits for a queue is in one of three lists; each of them is looked through below.
    missing -= {"{p00}:turns:<queue>", "{p00}:ahead:<queue>"}
    assert not missing
    assert any(name.startswith("{p00}:copy:") for name in stored)
    assert any(name.startswith("{palaver:keys}:used:") for name in stored)


@pytest.mark.slow
async def test_nothing_is_found_of_a_tenant_that_is_erased(driver: StoreDriver, redis: Any, acme: Tenant) -> None:
    names = {name for name in await everything(redis) if name.startswith(("{p00}:copy:", "{palaver:keys}:used:"))}
    receipt = await erase(driver, acme)
    assert receipt.erased == WHOLE
    assert (receipt.tenant, receipt.tag, receipt.by, receipt.unfinished_runs) == ("acme", acme.tag, "root", 0)
    assert receipt.ended_at is not None
    assert receipt.began_at <= receipt.ended_at
    assert await left_of(redis, acme) == set()
    assert names.isdisjoint(await everything(redis))


def in_one_line(stored: dict[str, Any]) -> dict[str, Any]:
    """The store with the tenants that wait for a queue in one list. Erasing gives others a turn, and a tenant at its
    cap then goes from one of the three to another."""
    lined, waiting = {}, set()
    for name, content in stored.items():
        kind, _, queue = name.rpartition(":")
        if kind in ("{p00}:turns", "{p00}:ahead", "{p00}:capped"):
            waiting |= {(queue, owner) for owner in content}
        elif not name.endswith("capped_in"):
            lined[name] = content
    return {**lined, "waiting": waiting}


@pytest.mark.slow
async def test_nobody_else_loses_a_byte(store: Store, driver: StoreDriver, redis: Any, acme: Tenant) -> None:
    for other in (await store.tenants.create("globex"), DEFAULT):
        await endow(store, driver, other)
    await store.part(Statistics).fold()
    of_acme = (acme.tag, "words-of-acme", "acme")
    before = without(await everything(redis), *of_acme)
    await erase(driver, acme)
    after = without(await everything(redis), *of_acme, '"@"')
    assert after[access_keys.TENANTS].pop("@") == b"1"
    # The sum of all tenants has what became of its runs.
    assert before.pop(statistics_keys.statistics("00", keys.OTHER_TENANTS)) != after.pop(
        statistics_keys.statistics("00", keys.OTHER_TENANTS)
    )
    # What has no name of anybody in its own.
    gone = {name for name in before if name.startswith(NAMELESS) and name not in after}
    assert sorted(name.partition("}:")[2].partition(":")[0] for name in gone) == ["copy", "idem", "used"]
    assert in_one_line({name: content for name, content in before.items() if name not in gone}) == in_one_line(after)


@pytest.mark.slow
async def test_it_goes_on_where_it_broke_off(redis: Any, settings: Settings, driver: StoreDriver, acme: Tenant) -> None:
    """Each slice is of another process, and each of them dies after so many scripts."""
    died = 0

    class Dying(Store):
        """A process that ends in the midst of a slice."""

        def __init__(self, after: int) -> None:
            super().__init__(redis, settings)
            run, self.left = self.scripts.run, after

            async def mortal(script: Any) -> Any:
                if not self.left:
                    raise ConnectionError("killed")
                self.left -= 1
                return await run(script)

            self.scripts.run = mortal  # type: ignore[method-assign]

    for after in range(1, 60):
        for _ in range(2):
            try:
                report = await Dying(after).part(Erasures).erase("acme", by=f"root{after}")
            except ConnectionError:
                died += 1
                continue
            if report.unfinished_runs:
                await let_go(driver, acme)
            if report.done:
                break
    assert died > 10
    assert report.done
    assert report.erased == WHOLE
    assert report.by == "root1", "who asked first"
    assert await left_of(redis, acme) == set()
    assert await driver.store.part(Erasures).erase("acme") == report


@pytest.mark.slow
async def test_many_who_erase_together_count_nothing_twice(driver: StoreDriver, redis: Any, acme: Tenant) -> None:
    async def one() -> Erasure:
        return await erase(driver, acme)

    receipts = await asyncio.gather(*(one() for _ in range(4)))
    assert all(receipt == receipts[0] for receipt in receipts)
    assert receipts[0].erased == WHOLE
    assert await left_of(redis, acme) == set()


@pytest.mark.slow
async def test_who_is_slower_than_others_leaves_nothing_behind(driver: StoreDriver, redis: Any, acme: Tenant) -> None:
    """Its slice goes on when all is erased, and then it dies."""
    slow = EraseMembers(
        erasure=erasure_keys.erasure("00", acme.tag), shared=keys.due("00"), shared_type="zset", tag=acme.tag
    )
    receipt = await erase(driver, acme)
    assert await driver.store.scripts.run(slow) == Over()
    assert await left_of(redis, acme) == set()
    # Another one died before the name was free.
    await redis.hset(access_keys.TENANTS, "acme", f'{{"tag": "{acme.tag}"}}')
    assert await erase(driver, acme) == receipt
    assert await driver.store.tenants.list() == [DEFAULT]
    assert await left_of(redis, acme) == set()


@pytest.mark.slow
async def test_nothing_is_begun_for_a_tenant_that_is_being_erased(
    store: Store, driver: StoreDriver, redis: Any, acme: Tenant
) -> None:
    await store.caps.change(acme.tag, CapsChange(max_in_flight=None))
    await store.due.fill()
    with within(Reach(acme.tag)):
        run_id, lease = await driver.begin()
        await driver.finish(lease)
        other, _ = await store.conversations.begin(NewConversation())
        key = await store.api_keys.create(KeyGrant("late", acme.tag, acme.name))
    assert not (await store.part(Erasures).erase("acme")).done
    before = set(await everything(redis))
    for reach in (Reach(acme.tag), Reach("", all_tenants=True)):
        with within(reach):
            tries = [
                driver.submit(conversation_id=other.id),
                driver.submit(conversation_id=lease.conversation_id, idempotency_key="k"),
                store.control.retry(run_id, Retry(from_step=1)),
                store.history.fork(lease.conversation_id, Fork()),
                store.agents.keep(acme.tag, "support", AgentSpec(model="fake/echo")),
                store.agents.keep(acme.tag, "new", AgentSpec(model="fake/echo")),
                store.api_keys.create(KeyGrant("new", acme.tag, acme.name)),
            ]
            if not reach.all_tenants:
                tries += [driver.submit(), store.conversations.begin(NewConversation())]
            for each in tries:
                with pytest.raises(StateConflict, match="the tenant is being erased, or was") as refusal:
                    await each
                assert refusal.value.code == "tenant_erased"
    with pytest.raises(Refused):
        await store.api_keys.rotate(key.record.id, overlap=0)
    await store.audit.add(acme.tag, "cancel", facts={})
    new = {name for name in await everything(redis) if name not in before}
    assert all(name.startswith(("{p00}:copy:", "{p00}:copied:")) for name in new)
    assert await store.tenants.get("acme") is None
    assert await store.tenants.by_tag(acme.tag) == acme, "the operator's rules are still those of its name"
    assert await store.tenants.list() == [DEFAULT, acme._replace(erasing=True)]
    with pytest.raises(StateConflict, match="there is a tenant acme already"):
        await store.tenants.create("acme")
    await erase(driver, acme)
    assert await left_of(redis, acme) == set()


@pytest.mark.slow
async def test_what_an_old_answer_asks_for_is_refused_for_ever(
    store: Store, driver: StoreDriver, redis: Any, acme: Tenant
) -> None:
    await erase(driver, acme)
    with within(Reach(acme.tag)):
        for each in (driver.submit(), store.conversations.begin(NewConversation())):
            with pytest.raises(StateConflict, match="the tenant is being erased, or was"):
                await each
    assert await left_of(redis, acme) == set()


async def test_workers_let_go_first(store: Store, driver: StoreDriver, redis: Any) -> None:
    acme = await store.tenants.create("acme")
    with within(Reach(acme.tag)):
        run_id, lease = await driver.begin()
        second = await driver.submit(conversation_id=lease.conversation_id)
    async with driver.hearing("w1") as heard:
        report = await store.part(Erasures).erase("acme", by="root")
        assert not report.done
        assert report.unfinished_runs == HELD
        await aeventually(lambda: _heard(heard))
    assert [each.run_id for each in heard] == [run_id]
    cancelled = await store.runs.get(second.run_id)
    assert cancelled.status == "cancelled"
    assert cancelled.cancel is not None
    assert cancelled.cancel.reason == "the tenant is being erased"
    assert cancelled.cancel.by == "root"
    await driver.finish(lease)
    assert (await erase(driver, acme)).erased == counts_of(conversations=1, runs=2, usage_days=0)
    with pytest.raises(UnknownRun):
        await store.runs.get(run_id)
    with pytest.raises(UnknownConversation):
        await store.runs.conversation(lease.conversation_id)
    assert isinstance(await driver.try_claim(second.deliveries[0]) if second.deliveries else Stray("unknown"), Stray)


async def _heard(interruptions: Sequence[Interruption]) -> bool:
    return bool(interruptions)


async def test_a_worker_that_is_dead_is_not_waited_for(store: Store, driver: StoreDriver, redis: Any) -> None:
    """Its lease ends, and the erasure itself sees that: there may be nobody else."""
    acme = await store.tenants.create("acme")
    with within(Reach(acme.tag)):
        run_id, lease = await driver.begin()
    assert (await store.part(Erasures).erase("acme")).unfinished_runs == HELD
    assert (await store.part(Erasures).erase("acme")).unfinished_runs == HELD
    await redis.zadd(keys.due("00"), {f"{run_id}/{lease.step}": 1})
    assert (await erase_alone(store)).erased == counts_of(conversations=1, runs=1)
    assert await left_of(redis, acme) == set()


async def erase_alone(store: Store) -> Erasure:
    """Ask until it is done, with nobody else there."""
    for _ in range(20):
        report = await store.part(Erasures).erase("acme")
        if report.done:
            return report
    raise AssertionError(report)


@pytest.mark.slow
async def test_the_mark_of_its_webhooks_that_a_worker_writes_again_goes(
    driver: StoreDriver, redis: Any, acme: Tenant, monkeypatch: pytest.MonkeyPatch
) -> None:
    counted = driver.store.part(Erasures)._counted

    async def slow_worker(tag: str) -> Any:
        await redis.hset(keys.caps("00"), keys.owner(tag) + webhook_keys.WEBHOOKS_MARK, 7)
        return await counted(tag)

    monkeypatch.setattr(driver.store.part(Erasures), "_counted", slow_worker)
    await erase(driver, acme)
    assert not await left_of(redis, acme)


async def test_nothing_is_erased_before_old_requests_are_answered(
    store: Store, driver: StoreDriver, redis: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(erasures, "QUIET", 60.0)
    acme = await store.tenants.create("acme")
    with within(Reach(acme.tag)):
        _, lease = await driver.begin()
        await driver.finish(lease)
        key = await store.api_keys.create(KeyGrant("app", acme.tag, acme.name))
    version = await store.api_keys.version()
    for _ in range(3):
        report = await store.part(Erasures).erase("acme")
        assert not report.done
        assert report.erased == counts_of(api_keys=1)
    with pytest.raises(Refused):
        await store.api_keys.get(key.record.id)
    assert await store.api_keys.version() != version, "every process reads all keys again"
    # A request that was let in before makes a key yet.
    await redis.zadd(access_keys.api_keys(acme.tag), {"0" * 12: 1})
    await redis.set(access_keys.api_key("0" * 12), "{}")
    monkeypatch.setattr(erasures, "QUIET", 0.0)
    assert (await erase(driver, acme)).erased == counts_of(conversations=1, runs=1, api_keys=2)
    assert await redis.get(access_keys.api_key("0" * 12)) is None


@pytest.mark.slow
async def test_the_name_is_free_afterwards_and_the_tag_is_not(
    store: Store, driver: StoreDriver, redis: Any, monkeypatch: pytest.MonkeyPatch, acme: Tenant
) -> None:
    first = await erase(driver, acme)
    assert await store.tenants.list() == [DEFAULT]
    assert await store.tenants.by_tag(acme.tag) is None
    tags = iter([acme.tag, "bbbbbb"])
    monkeypatch.setattr("palaver.store.tenants.tenants.new_tag", lambda: next(tags))
    new = await store.tenants.create("acme")
    assert new.tag == "bbbbbb"
    await endow(store, driver, new)
    assert await store.part(Erasures).erase("acme", tag=acme.tag) == first, (
        "whoever repeats the first erases no other one"
    )
    assert await store.tenants.get("acme") == new
    with pytest.raises(Refused):
        await store.part(Erasures).erase("acme", tag="cccccc")
    second = await erase(driver, new)
    assert second.erased == first.erased == WHOLE
    assert (second.tag, first.tag) == ("bbbbbb", acme.tag)
    assert await store.part(Erasures).erase("acme") == second
    told = [act for act in await store.audit.read("", limit=10) if act.operation == "tenant_erased"]
    assert [act.facts["tag"] for act in told] == [acme.tag, "bbbbbb"]
    assert told[0].key == "root"
    assert told[0].operator
    assert told[0].facts["runs"] == WHOLE.runs
    assert 0 < await redis.ttl(erasure_keys.receipt("acme")) <= 30 * 86_400


async def test_who_is_not_there_is_not_erased(store: Store) -> None:
    for name in ("nobody", "", "@x", "A"):
        with pytest.raises(Refused) as refusal:
            await store.part(Erasures).erase(name)
        assert refusal.value.code == "tenant_not_found"
    with pytest.raises(Refused) as refusal:
        await store.part(Erasures).erase("default")
    assert refusal.value.code == "default_tenant"


async def test_what_was_left_behind_is_found_in_what_all_share(store: Store, driver: StoreDriver, redis: Any) -> None:
    """A run whose record was evicted is in lists still."""
    acme = await store.tenants.create("acme")
    with within(Reach(acme.tag)):
        run_id = (await driver.submit()).run_id
        ended, lease = await driver.begin()
        await driver.finish(lease)
    mine = await store.runs.get((await driver.submit()).run_id)
    for gone in (run_id, ended):
        await redis.delete(keys.run(gone), keys.conversation((await store.runs.get(gone)).conversation_id))
    assert (await erase(driver, acme)).erased == counts_of()
    assert await left_of(redis, acme) == set()
    assert await redis.zscore(keys.due("00"), f"{mine.id}/end") is not None


async def test_what_is_broken_goes_too(store: Store, driver: StoreDriver, redis: Any) -> None:
    acme = await store.tenants.create("acme")
    with within(Reach(acme.tag)):
        run_id = (await driver.submit(secrets={"TOKEN": "x"})).run_id
        conversation = (await store.runs.get(run_id)).conversation_id
    await redis.hset(keys.run(run_id), "waiting", "5")
    await redis.hset(keys.run(run_id), "actions", "5")
    await redis.hset(keys.conversation(conversation), "secrets", "5")
    assert (await erase(driver, acme)).erased == counts_of(conversations=1, runs=1)
    assert await left_of(redis, acme) == set()


async def test_each_list_that_all_share_is_looked_through(store: Store, driver: StoreDriver, redis: Any) -> None:
    acme = await store.tenants.create("acme")
    lists = shared_lists()
    assert len(lists) > 25
    await store.queues.publish((OWN,))
    strays = {tag: f"{new_run_id('00', tag)}/1" for tag in (acme.tag, "0000m2", "")}
    lookalike = f"run_00{'0' * 20}{acme.tag}"
    for key in lists:
        await redis.zadd(key, {**dict.fromkeys(strays.values(), 1.0), lookalike: 1.0})
    await erase(driver, acme)
    for key in lists:
        left = {member.decode() for member in await redis.zrange(key, 0, -1)}
        assert left == {strays["0000m2"], strays[""], lookalike}, key
        await redis.delete(key)


@pytest.mark.parametrize("shared_type", get_args(SharedType))
async def test_what_all_share_is_looked_through_a_page_at_a_time(
    store: Store, redis: Any, shared_type: SharedType
) -> None:
    tag, name, many = "k7m2qx", "{p00}:shared", 700
    erase = EraseMembers(erasure=erasure_keys.erasure("00", tag), shared=name, shared_type=shared_type, tag=tag)
    others = {new_run_id("00", other) for other in ("", "0000m2") for _ in range(many)}
    mine = {new_run_id("00", tag) for _ in range(many)} | {tag, f"@{tag}:weight"}
    everybodys = [*others, *mine]
    if shared_type == "stream":
        everybodys = [member for member in everybodys[::10] if member.startswith("run_")]
        for member in everybodys:
            await redis.xadd(name, {"run": f"{member}\nmore"})
    else:
        for begin in range(0, len(everybodys), many):
            some = everybodys[begin : begin + many]
            if shared_type == "hash":
                await redis.hset(name, mapping=dict.fromkeys(some, 1))
            else:
                await redis.zadd(name, {member: len(member) for member in some})
    pages = 1
    while (await store.scripts.run(erase)) != Seen(all=True):
        pages += 1
    assert pages > 1 or shared_type == "hash", "a hash of a few fields for each tenant"
    left = await content_of(redis, name)
    assert not found({name: left}, tag)
    assert len(left) == len(others.intersection(everybodys))
    await redis.delete(name)


@pytest.mark.slow
async def test_a_slice_is_bounded(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(removal, "_SCRIPTS", 2)
    acme = await store.tenants.create("acme")
    many = 220
    with within(Reach(acme.tag)):
        for _ in range(many):
            await store.conversations.begin(NewConversation())
    sent: list[str] = []
    run = store.scripts.run

    async def counted(script: Any) -> Any:
        sent.append(script.name)
        return await run(script)

    store.scripts.run = counted  # type: ignore[method-assign]
    slices = 0
    while True:
        sent.clear()
        report = await store.part(Erasures).erase("acme")
        slices += 1
        assert len(sent) <= 6, sent
        if report.done:
            break
    assert slices > 2
    assert report.erased == counts_of(conversations=many)


@pytest.mark.slow
async def test_the_default_tenant_pays_nothing(store: Store, driver: StoreDriver, redis: Any) -> None:
    await endow(store, driver, DEFAULT)
    assert not [name async for name in redis.scan_iter("*passing*")]
    assert AGENT.model == "fake/echo"
