"""Webhooks: each event of a run is pending once at each webhook that hears of it, whoever is killed in between; one
attempt is made at a time; and who has none leaves no trace."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from features.batches import batch_keys
from features.batches.batches import BatchOrder
from features.batches.bodies import BatchHead
from features.batches.tests.cases import end_batch
from features.webhooks import webhook_keys
from features.webhooks.bodies import WebhookChange
from features.webhooks.contract import AttemptOutcome, ForgetEvents
from features.webhooks.deliveries import Deliveries, DeliveryLease
from features.webhooks.delivery_records import DeliveryRecord, RecordedAttempt
from features.webhooks.webhook_secrets import signing_key
from features.webhooks.webhooks import Webhooks
from palaver.config.settings import Settings
from palaver.errors import Refused, StaleLease, StateConflict
from palaver.schemas.bearers import Bearer
from palaver.schemas.webhooks import WebhookDelivery
from palaver.store import Store
from palaver.store.redis import keys
from palaver.store.redis.reach import Reach, within
from palaver.store.scripting.scripts import _sources
from palaver.store.scripting.shared_names import shared_names
from palaver.vocabulary.lifecycle import StopReason
from palaver.vocabulary.limits import limit_of
from tests.contract.store_driver import StoreDriver, approve
from tests.unit.api_world import SETTINGS

OK = RecordedAttempt(1, 3, 204, None, "")
BAD = RecordedAttempt(1, 3, 500, None, "oops")
URL = "https://example.org/hook"


@pytest.fixture(scope="session")
def settings() -> Settings:
    """With a key for secrets."""
    return Settings(redis_url="redis://127.0.0.1:1/0", shards=1, secret_key=SETTINGS.secret_key)


async def listed(store: Store, webhook_id: str) -> Sequence[WebhookDelivery]:
    """All of a webhook's deliveries, the oldest first."""
    page = await store.part(Deliveries).page(webhook_id, state=None, limit=200, cursor=None)
    return page.data[::-1]


async def claimed(store: Store, webhook_id: str) -> DeliveryLease:
    """The lease on the next one."""
    lease = await store.part(Deliveries).claim(webhook_id)
    assert lease is not None
    return lease


async def ended_run(driver: StoreDriver, **more: Any) -> str:
    """A run that has ended."""
    run_id, lease = await driver.begin(**more)
    await driver.finish(lease)
    return run_id


async def told(driver: StoreDriver, store: Store) -> DeliveryLease:
    """The lease on the delivery of the end of a run, to a new webhook."""
    made = await store.part(Webhooks).create("", URL)
    await ended_run(driver)
    await store.part(Deliveries).take_events("00")
    return await claimed(store, made.webhook.id)


async def test_without_webhooks_nothing_is_written(driver: StoreDriver, store: Store, redis: Any) -> None:
    run_id, _ = await driver.turn("c1", approval=("c1",))
    await driver.store.runs.cancel(run_id)
    await ended_run(driver)
    names = {name.decode() for name in await redis.keys("*")}
    assert not [name for name in names if "webhook" in name or "outbox" in name]
    assert not await redis.hexists(keys.run(run_id), "webhooks")
    assert not await store.part(Deliveries).are_wanted()


async def test_each_end_and_each_action_is_an_event(driver: StoreDriver, store: Store) -> None:
    hook = (await store.part(Webhooks).create("", URL)).webhook.id
    run_id, _ = await driver.turn("c1", approval=("c1",))
    (deny_me,) = (await driver.get(run_id)).pending_actions
    await driver.act(run_id, approve(deny_me.id))
    await driver.store.runs.cancel(run_id)
    failed, lease = await driver.begin()
    await driver.give_up(lease)
    short, lease = await driver.begin()
    await driver.finish(lease, StopReason.MAX_TOKENS)
    await store.part(Deliveries).take_events("00")
    found = {(each.run_id, each.type): each for each in await listed(store, hook)}
    assert found.keys() == {
        (run_id, "run.action_required"),
        (run_id, "run.cancelled"),
        (failed, "run.failed"),
        (short, "run.incomplete"),
    }
    action = found[run_id, "run.action_required"]
    assert action.data["action"] | {"expires_at": ""} == {
        "id": deny_me.id, "type": "approval", "tool": "calculator", "call_id": "c1", "expires_at": "",
    }  # fmt: skip
    assert action.data["sequence"] < found[run_id, "run.cancelled"].data["sequence"]
    assert found[failed, "run.failed"].data["error"] == {"class": "internal", "code": "internal"}
    assert all(len(repr(each.data)) < 1000 for each in found.values())


async def test_a_webhook_hears_what_it_asked_for_and_what_came_since(driver: StoreDriver, store: Store) -> None:
    before = await ended_run(driver)
    some = (await store.part(Webhooks).create("", URL, types=["run.failed"])).webhook.id
    run_id = await ended_run(driver)
    late = (await store.part(Webhooks).create("", URL)).webhook.id
    await store.part(Deliveries).take_events("00")
    assert not await listed(store, some)
    assert {each.run_id for each in await listed(store, late)} <= {run_id} - {before}
    openai = (await store.part(Webhooks).create("", URL, format="openai")).webhook.id
    await driver.turn("c1", approval=("c1",))
    await store.part(Deliveries).take_events("00")
    assert not await listed(store, openai), "there is no such event there"


async def test_an_event_of_a_feature_is_pending_once(store: Store, redis: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    acme = await store.tenants.create("acme")
    mine = (await store.part(Webhooks).create(acme.tag, URL, types=["batch.ended"])).webhook.id
    others = [
        (await store.part(Webhooks).create(acme.tag, URL, types=["run.failed"])).webhook.id,
        (await store.part(Webhooks).create(acme.tag, URL, format="openai")).webhook.id,
        (await store.part(Webhooks).create("", URL)).webhook.id,
    ]
    batch_id, order = f"batch_{'0' * 24}", BatchOrder(BatchHead(agents=("support",)), Bearer("ann"))
    await end_batch(store, acme.tag, batch_id, order)
    run = store.scripts.run

    async def dying(script: Any) -> Any:
        if isinstance(script, ForgetEvents):
            raise ConnectionError
        return await run(script)

    with monkeypatch.context() as patch:
        patch.setattr(store.scripts, "run", dying)
        with pytest.raises(ConnectionError):
            await store.part(Deliveries).take_told()
    assert [await store.part(Deliveries).take_told() for _ in range(2)] == [1, 0]
    (delivery,) = await listed(store, mine)
    assert (delivery.type, delivery.run_id) == ("batch.ended", None)
    assert delivery.data == {"batch_id": batch_id, "state": "done", "links": {"batch": f"/v1/batches/{batch_id}"}}
    assert not [each for hook in others for each in await listed(store, hook)]
    assert not await redis.exists(batch_keys.BATCHES_TOLD)


async def test_events_are_those_of_the_tenant(driver: StoreDriver, store: Store) -> None:
    acme = await store.tenants.create("acme")
    mine = (await store.part(Webhooks).create(acme.tag, URL)).webhook.id
    other = (await store.part(Webhooks).create("", URL)).webhook.id
    with within(Reach(acme.tag)):
        run_id = await ended_run(driver)
    of_default = await ended_run(driver)
    await store.part(Deliveries).take_events("00")
    assert [each.run_id for each in await listed(store, mine)] == [run_id]
    assert [each.run_id for each in await listed(store, other)] == [of_default]
    with within(Reach(acme.tag)), pytest.raises(Refused, match="webhook_not_found"):
        await store.part(Webhooks).get(other)
    with within(Reach("")), pytest.raises(Refused, match="webhook_not_found"):
        await store.part(Webhooks).remove(mine)


async def test_one_attempt_is_made_at_a_time(driver: StoreDriver, store: Store, redis: Any) -> None:
    first = await told(driver, store)
    hook = first.webhook.id
    await ended_run(driver)
    await store.part(Deliveries).take_events("00")
    assert await store.part(Deliveries).claim(hook) is None
    assert hook not in await store.part(Deliveries).due(10)
    await store.part(Deliveries).settle(first, AttemptOutcome.DELIVERED, OK)
    second = await claimed(store, hook)
    assert second.record.id != first.record.id
    # Its worker died: another one goes on, and what the dead one would say counts no more.
    await redis.hset(webhook_keys.of_webhook(hook).hook, "leased_until", 1)
    third = await claimed(store, hook)
    assert third.record.id == second.record.id
    with pytest.raises(StaleLease):
        await store.part(Deliveries).settle(second, AttemptOutcome.DELIVERED, OK)
    await store.part(Deliveries).settle(third, AttemptOutcome.DELIVERED, OK)
    with pytest.raises(StaleLease):
        await store.part(Deliveries).settle(third, AttemptOutcome.DELIVERED, OK)
    shown = await store.part(Webhooks).get(hook)
    assert (shown.delivered, shown.pending, shown.failed) == (2, 0, 0)


async def test_a_delivery_that_failed_is_made_again_later(driver: StoreDriver, store: Store, redis: Any) -> None:
    lease = await told(driver, store)
    hook = lease.webhook.id
    await store.part(Deliveries).settle(lease, AttemptOutcome.AGAIN, BAD, again_in=300.0)
    assert await store.part(Deliveries).claim(hook) is None
    (delivery,) = await listed(store, hook)
    assert delivery.state == "pending"
    assert delivery.next_attempt_at is not None
    assert delivery.next_attempt_at.timestamp() * 1000 - await store.part(Deliveries).now() > 240_000
    await redis.zadd(webhook_keys.of_webhook(hook).waiting, {lease.record.id: 1})
    again = await claimed(store, hook)
    assert (again.record.tries, [attempt.answer for attempt in again.record.attempts]) == (1, ["oops"])
    await store.part(Deliveries).settle(again, AttemptOutcome.FAILED, BAD)
    (delivery,) = await listed(store, hook)
    assert (delivery.state, len(delivery.attempts), delivery.next_attempt_at) == ("failed", 2, None)
    assert (await store.part(Deliveries).replay(hook, [delivery.id, "msg_nothing"])).replayed == 1
    assert (await store.part(Deliveries).replay(hook, [delivery.id])).replayed == 0, "it is pending"
    replayed = await claimed(store, hook)
    assert (replayed.record.id, replayed.record.tries) == (delivery.id, 0)
    await store.part(Deliveries).settle(replayed, AttemptOutcome.DELIVERED, OK)


async def test_an_event_that_is_taken_again_is_not_delivered_again(driver: StoreDriver, store: Store) -> None:
    """Whoever took it was killed before it left the outbox, and what was delivered meanwhile stays so."""
    lease = await told(driver, store)
    await store.part(Deliveries).settle(lease, AttemptOutcome.DELIVERED, OK)
    assert await store.part(Deliveries).queue(lease.webhook.id, [lease.record]) == 0
    assert await store.part(Deliveries).claim(lease.webhook.id) is None
    (delivery,) = await listed(store, lease.webhook.id)
    assert delivery.state == "delivered"


async def test_deliveries_of_a_time_are_made_again(driver: StoreDriver, store: Store) -> None:
    lease = await told(driver, store)
    hook, begin = lease.webhook.id, datetime.fromtimestamp(lease.record.at / 1000, UTC)
    await store.part(Deliveries).settle(lease, AttemptOutcome.DELIVERED, OK)
    replay = store.part(Deliveries).replay_range
    assert (await replay(hook, begin, None, "failed")).replayed == 0
    assert (await replay(hook, begin + timedelta(days=1), None, None)).replayed == 0
    assert (await replay(hook, begin, begin - timedelta(days=1), None)).replayed == 0
    assert (await replay(hook, begin, None, "delivered")).replayed == 1
    assert (await replay(hook, begin, None, None)).replayed == 0, "it is pending"


async def test_a_range_is_made_again_though_an_older_event_came_behind_a_newer_one(
    driver: StoreDriver, store: Store
) -> None:
    """As after an outage of all who deliver, where the outboxes of shards are of different lengths."""
    hook = (await store.part(Webhooks).create("", URL)).webhook.id
    now = await store.part(Deliveries).now()
    for number, age in enumerate((0, 7_200_000)):
        record = DeliveryRecord(f"msg_{number}", "run.failed", now - age, "pending", 0, {"run_id": "run_1"}, ())
        await store.part(Deliveries).queue(hook, [record])
        await store.part(Deliveries).settle(await claimed(store, hook), AttemptOutcome.FAILED, BAD)
    since = datetime.fromtimestamp(now / 1000, UTC) - timedelta(hours=1)
    assert (await store.part(Deliveries).replay_range(hook, since, None, "failed")).replayed == 1
    assert [each.id for each in await listed(store, hook) if each.state == "pending"] == ["msg_0"]
    assert (await store.part(Deliveries).replay_range(hook, since - timedelta(hours=2), None, "failed")).replayed == 1


async def test_who_fails_again_and_again_is_left_alone(driver: StoreDriver, store: Store, redis: Any) -> None:
    """Until something is delivered; what waits meanwhile loses no attempt."""
    lease = await told(driver, store)
    hook = lease.webhook.id
    of = webhook_keys.of_webhook(hook)
    for _ in range(4):
        await store.part(Deliveries).settle(lease, AttemptOutcome.AGAIN, BAD)
        lease = await claimed(store, hook)
    await store.part(Deliveries).settle(lease, AttemptOutcome.AGAIN, BAD)
    assert await store.part(Deliveries).claim(hook) is None, "the circuit is open"
    await redis.hset(of.hook, "opens_at", 1)
    await store.part(Deliveries).settle(await claimed(store, hook), AttemptOutcome.DELIVERED, OK)
    assert not await redis.hexists(of.hook, "opens_at")
    await ended_run(driver)
    await store.part(Deliveries).take_events("00")
    await store.part(Deliveries).settle(await claimed(store, hook), AttemptOutcome.AGAIN, BAD, rests=60.0)
    assert await store.part(Deliveries).claim(hook) is None, "it asked for that"


async def test_what_turns_a_webhook_off(driver: StoreDriver, store: Store, redis: Any) -> None:
    lease = await told(driver, store)
    hook = lease.webhook.id
    assert await store.part(Deliveries).settle(lease, AttemptOutcome.GONE, BAD) == "gone"
    await ended_run(driver)
    await store.part(Deliveries).take_events("00")
    shown = await store.part(Webhooks).get(hook)
    assert (shown.enabled, shown.off_because, shown.pending, shown.failed) == (False, "gone", 0, 1)
    await store.part(Webhooks).change(hook, WebhookChange(enabled=True))
    await ended_run(driver)
    await store.part(Deliveries).take_events("00")
    assert await store.part(Deliveries).settle(await claimed(store, hook), AttemptOutcome.AGAIN, BAD) is None
    await redis.hset(
        webhook_keys.of_webhook(hook).hook, "failing_since", (await store.part(Deliveries).now()) - 5 * 86_400_000
    )
    lease = await claimed(store, hook)
    assert await store.part(Deliveries).settle(lease, AttemptOutcome.AGAIN, BAD) == "failing"
    shown = await store.part(Webhooks).get(hook)
    assert (shown.off_because, shown.pending) == ("failing", 1)
    assert await store.part(Deliveries).claim(hook) is None
    await store.part(Webhooks).change(hook, WebhookChange(enabled=True))
    assert await store.part(Deliveries).claim(hook) is not None
    changed = await store.part(Webhooks).change(hook, WebhookChange(enabled=False, types=("run.failed",)))
    assert (changed.off_because, changed.types, changed.url) == ("disabled", ("run.failed",), URL)


async def test_a_new_secret_signs_beside_the_old_one(store: Store, redis: Any) -> None:
    made = await store.part(Webhooks).create("", URL)
    (config,) = await store.part(Webhooks).configs("")
    now = await store.part(Deliveries).now()
    (only,) = store.part(Webhooks).opened(config, now)
    rotated = await store.part(Webhooks).rotate(made.webhook.id)
    (config,) = await store.part(Webhooks).configs("")
    new = signing_key(rotated.secret)
    assert store.part(Webhooks).opened(config, now) == [new, only]
    assert only == signing_key(made.secret) != new
    assert [secret.expires_at is None for secret in rotated.webhook.secrets] == [False, True]
    assert store.part(Webhooks).opened(config, now + 90_000_000) == [new]
    for number in range(2, 6):
        shown = (await store.part(Webhooks).rotate(made.webhook.id, overlap=3600)).webhook
        assert len(shown.secrets) == min(4, number + 1), "those of before sign, too"
        (config,) = await store.part(Webhooks).configs("")
        assert len(store.part(Webhooks).opened(config, now)) == len(shown.secrets)
        assert len(store.part(Webhooks).opened(config, now + 7_200_000)) == 1, "none for longer than it was said last"
    third = await store.part(Webhooks).rotate(made.webhook.id, overlap=0)
    assert len(third.webhook.secrets) == 1
    text = (await redis.hget(webhook_keys.of_webhook(made.webhook.id).hook, "config")).decode()
    assert made.secret[6:] not in text
    assert third.secret[6:] not in text


async def test_changes_at_once_lose_no_secret(store: Store) -> None:
    hook = (await store.part(Webhooks).create("", URL)).webhook.id
    _, rotated, _ = await asyncio.gather(
        store.part(Webhooks).change(hook, WebhookChange(description="a")),
        store.part(Webhooks).rotate(hook),
        store.part(Webhooks).change(hook, WebhookChange(types=("run.failed",))),
    )
    shown = await store.part(Webhooks).get(hook)
    assert (shown.description, shown.types) == ("a", ("run.failed",))
    assert len(shown.secrets) == 2
    (config,) = await store.part(Webhooks).configs("")
    assert signing_key(rotated.secret) in store.part(Webhooks).opened(config, await store.part(Deliveries).now())


async def test_an_attempt_that_cannot_be_made_is_left_to_others(driver: StoreDriver, store: Store, redis: Any) -> None:
    lease = await told(driver, store)
    hook = lease.webhook.id
    await store.part(Deliveries).let_go(lease, 60.0)
    assert await store.part(Deliveries).claim(hook) is None
    await redis.hset(webhook_keys.of_webhook(hook).hook, "opens_at", 1)
    again = await claimed(store, hook)
    assert (again.record, again.fence) == (lease.record, lease.fence + 1)


async def test_answers_of_the_last_attempts_are_kept(driver: StoreDriver, store: Store, redis: Any) -> None:
    lease = await told(driver, store)
    of = webhook_keys.of_webhook(lease.webhook.id)
    for number in range(25):
        await store.part(Deliveries).settle(lease, AttemptOutcome.AGAIN, replace(BAD, answer=f"oops {number}"))
        await redis.hset(of.hook, "opens_at", 1)
        lease = await claimed(store, lease.webhook.id)
    answers = [attempt.answer for attempt in lease.record.attempts]
    assert answers == [*[""] * 17, "oops 22", "oops 23", "oops 24"], "the last twenty attempts"
    assert lease.record.tries == 25


async def test_without_a_key_for_secrets_there_are_none(redis: Any) -> None:
    bare = Store(redis, Settings(redis_url="redis://127.0.0.1:1/0", shards=1))
    with pytest.raises(Refused, match="no_secret_key"):
        await bare.part(Webhooks).create("", URL)


@pytest.mark.slow
async def test_what_there_may_be_at_most(
    driver: StoreDriver, store: Store, redis: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    for _ in range(limit_of("webhooks")):
        last = await store.part(Webhooks).create("", URL)
    with pytest.raises(StateConflict, match="as many webhooks"):
        await store.part(Webhooks).create("", URL)
    hook = last.webhook.id
    for webhook in await store.part(Webhooks).list(""):
        if webhook.id != hook:
            await store.part(Webhooks).remove(webhook.id)
    small = small_store(redis, monkeypatch, webhook_waiting=2, webhook_kept=3, webhook_outbox=1)
    for _ in range(2):
        await ended_run(StoreDriver(small, redis))
    assert await small.part(Deliveries).take_events("00") == 1, "the second is lost, and counted"
    assert int(await redis.hget(keys.counts("00"), "webhook_events_lost")) == 1
    for _ in range(3):
        await ended_run(StoreDriver(small, redis))
        await small.part(Deliveries).take_events("00")
    shown = await small.part(Webhooks).get(hook)
    assert (shown.pending, shown.dropped) == (2, 2)
    assert sorted(each.state for each in await listed(small, hook)) == ["failed", "failed", "pending", "pending"]
    for _ in range(2):
        await small.part(Deliveries).settle(await claimed(small, hook), AttemptOutcome.DELIVERED, OK)
    assert len(await listed(small, hook)) == 3, "the oldest of those that have ended is forgotten"


def small_store(redis: Any, monkeypatch: pytest.MonkeyPatch, **limits: int) -> Store:
    """A store whose scripts have other limits."""

    def smaller(*args: Any) -> Any:
        found = {**shared_names(*args)}
        return found | {"Limit": {**found["Limit"], **{name.upper(): most for name, most in limits.items()}}}

    monkeypatch.setattr("palaver.store.scripting.scripts.shared_names", smaller)
    _sources.cache_clear()
    store = Store(redis, Settings(redis_url="redis://127.0.0.1:1/0", shards=1, secret_key=SETTINGS.secret_key))
    _sources.cache_clear()
    return store


async def test_what_is_old_is_forgotten(driver: StoreDriver, store: Store, redis: Any) -> None:
    lease = await told(driver, store)
    hook, of = lease.webhook.id, webhook_keys.of_webhook(lease.webhook.id)
    await store.part(Deliveries).settle(lease, AttemptOutcome.DELIVERED, OK)
    assert hook not in await store.part(Deliveries).due(10)
    await redis.zadd(of.listed, {lease.record.id: 1})
    await redis.zadd(of.due, {hook: 1})
    assert hook in await store.part(Deliveries).due(10)
    assert await store.part(Deliveries).claim(hook) is None
    assert not await listed(store, hook)
    assert hook not in await store.part(Deliveries).due(10)


async def test_a_webhook_that_is_removed_leaves_nothing(driver: StoreDriver, store: Store, redis: Any) -> None:
    lease = await told(driver, store)
    hook = lease.webhook.id
    run_id, last = await driver.begin()
    await store.part(Webhooks).remove(hook)
    await driver.finish(last)
    with pytest.raises(StaleLease):
        await store.part(Deliveries).settle(lease, AttemptOutcome.DELIVERED, OK)
    await store.part(Deliveries).take_events("00")
    assert not [name for name in await redis.keys("*") if b"webhook" in name]
    assert not await redis.hgetall(keys.caps("00"))
    assert await redis.hexists(keys.run(run_id), "webhooks")
    assert not await redis.xlen(webhook_keys.outbox("00"))
    assert not await redis.exists(webhook_keys.outboxes("00"))


async def test_marks_are_those_of_tenants_with_webhooks(store: Store, redis: Any) -> None:
    """Whoever made one and died before the mark has it written by somebody else; a mark of nobody goes."""
    made = await store.part(Webhooks).create("", URL)
    await redis.delete(keys.caps("00"))
    await store.part(Webhooks).see_to_marks()
    assert await redis.hexists(keys.caps("00"), "webhooks")
    await store.part(Webhooks).unmark("00", "")
    assert await redis.hexists(keys.caps("00"), "webhooks"), "it has webhooks"
    other = await store.part(Webhooks).create("", URL)
    await store.part(Webhooks).remove(made.webhook.id)
    assert await redis.hexists(keys.caps("00"), "webhooks")
    await store.part(Webhooks).remove(other.webhook.id)
    await redis.hset(keys.caps("00"), "webhooks", 7)
    await store.part(Webhooks).unmark("00", "")
    assert not await redis.exists(keys.caps("00"))


class Killed(BaseException):
    """The process ends between two scripts."""


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(3))
async def test_whoever_is_killed_loses_and_invents_nothing(
    driver: StoreDriver, store: Store, redis: Any, settings: Settings, seed: int
) -> None:
    """Two workers take events and make attempts, and die between any two scripts; runs end meanwhile."""
    chance = random.Random(seed)
    hooks = [(await store.part(Webhooks).create("", URL)).webhook.id for _ in range(2)]
    received: dict[str, list[tuple[str, int]]] = {hook: [] for hook in hooks}
    expected: set[tuple[str, str]] = set()
    run = store.scripts.run

    async def run_or_die(script: Any) -> Any:
        if chance.random() < 0.15:
            raise Killed
        reply = await run(script)
        if chance.random() < 0.15:
            raise Killed
        return reply

    mine = Store(redis, settings)
    mine.scripts.run = run_or_die  # type: ignore[method-assign]

    async def work() -> None:
        try:
            await mine.part(Deliveries).take_events("00")
            for hook in hooks:
                lease = await mine.part(Deliveries).claim(hook)
                if lease is not None:
                    received[hook].append((lease.record.id, lease.record.data["sequence"]))
                    outcome = chance.choice((AttemptOutcome.DELIVERED, AttemptOutcome.AGAIN))
                    await mine.part(Deliveries).settle(lease, outcome, OK)
        except Killed:
            for hook in hooks:
                await redis.hset(webhook_keys.of_webhook(hook).hook, "leased_until", 1)

    async def pass_time() -> None:
        for hook in hooks:
            await redis.hdel(webhook_keys.of_webhook(hook).hook, "opens_at")

    for _ in range(25):
        run_id, lease = await driver.begin()
        if chance.random() < 0.3:
            await driver.store.runs.cancel(run_id)
            await driver.sweep(run_id, "1", worker="w1")
            expected.add((run_id, "run.cancelled"))
        else:
            await driver.finish(lease)
            expected.add((run_id, "run.succeeded"))
        # Alone, nobody else does what it leaves undone.
        await asyncio.gather(*(work() for _ in range(chance.choice((1, 2)))))
        await pass_time()
    for _ in range(400):
        await work()
        await pass_time()
        if not any([(await store.part(Webhooks).get(hook)).pending for hook in hooks]) and not await redis.exists(
            webhook_keys.outboxes("00")
        ):
            break
    for hook in hooks:
        deliveries = await listed(store, hook)
        assert {(each.run_id, each.type) for each in deliveries} == expected
        assert {each.state for each in deliveries} == {"delivered"}
        assert {delivery_id for delivery_id, _ in received[hook]} == {each.id for each in deliveries}


async def test_what_cannot_be_read_holds_up_nobody_else(driver: StoreDriver, store: Store, redis: Any) -> None:
    """Neither an event, nor a delivery, nor a webhook."""
    broken, other = [(await store.part(Webhooks).create("", URL)).webhook.id for _ in range(2)]
    outbox = webhook_keys.outbox("00", "")
    await ended_run(driver)
    await redis.xadd(outbox, {"about": "{", "run": "run_1", "sequence": 1, "conversation": "c", "at": 1})
    await ended_run(driver)
    config = await redis.hget(webhook_keys.of_webhook(broken).hook, "config")
    await redis.hset(webhook_keys.of_webhook(broken).hook, "config", "{")
    assert await store.part(Deliveries).take_events("00") == 3
    first, second = [each.decode() for each in await redis.zrange(webhook_keys.of_webhook(other).waiting, 0, -1)]
    await redis.hset(webhook_keys.of_webhook(other).records, first, "{")
    assert await store.part(Deliveries).claim(other) is None
    lease = await claimed(store, other)
    assert lease.record.id == second
    await store.part(Deliveries).settle(lease, AttemptOutcome.DELIVERED, OK)
    assert [each.id for each in await listed(store, other)] == [second]
    # The webhook itself: it is left alone, and its deliveries are there once it can be read.
    await redis.hset(webhook_keys.of_webhook(broken).hook, "config", config)
    await ended_run(driver)
    await store.part(Deliveries).take_events("00")
    await redis.hset(webhook_keys.of_webhook(broken).hook, "config", "{")
    assert await store.part(Deliveries).claim(broken) is None
    assert await store.part(Deliveries).due(10) == [other]
    await redis.hset(webhook_keys.of_webhook(broken).hook, "config", config)
    assert len(await listed(store, broken)) == 1
    for webhook_id in (broken, other):
        await store.part(Webhooks).remove(webhook_id)
