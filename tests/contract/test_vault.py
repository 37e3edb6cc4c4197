"""Secrets of a conversation: sealed in its hash, with it as long as it is there, and no longer."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest
from pydantic import SecretStr
from redis.exceptions import ConnectionError

from palaver.config.settings import Settings
from palaver.errors import StateConflict, UnknownConversation
from palaver.schemas.conversation import Fork, NewConversation
from palaver.schemas.endpoints import Endpoint
from palaver.schemas.models import Retry
from palaver.secrets.sealing import KeyMissing, SealBroken
from palaver.store import Store
from palaver.store.conversations.vault import Sealed
from palaver.store.redis import keys
from palaver.store.steps.due_items import DueItem
from palaver.vocabulary.limits import limit_of
from tests.contract.store_driver import AGENT, StoreDriver
from tests.contract.test_bounds import Breaking, ended, many
from tests.contract.test_calls_in_place import begun

OLD, NEW = bytes(range(100, 132)).hex(), bytes(range(200, 232)).hex()
CANARY = "canary-of-a-secret"


def with_keys(settings: Settings, *keys_: str) -> Settings:
    return settings.model_copy(update={"secret_key": tuple(map(SecretStr, keys_))})


@pytest.fixture
async def driver(redis: Any, settings: Settings) -> AsyncIterator[StoreDriver]:
    store = Store(redis, with_keys(settings, NEW))
    yield StoreDriver(store, redis)
    await store.feeds.close()


def secrets(**values: str | None) -> dict[str, SecretStr | None]:
    return {name: None if value is None else SecretStr(value) for name, value in values.items()}


async def test_they_are_set_one_by_one_and_nobody_reads_them_in_redis(driver: StoreDriver) -> None:
    submitted = await driver.submit(secrets=secrets(TOKEN=CANARY, OTHER="two"))
    conversation_id, vault = submitted.deliveries[0].conversation_id, driver.store.vault
    await vault.keep(conversation_id, {"OTHER": None, "THIRD": "three"})
    assert await vault.names(conversation_id) == ("THIRD", "TOKEN")
    assert await vault.opened(conversation_id) == {"TOKEN": CANARY, "THIRD": "three"}
    kept = await driver.redis.hgetall(keys.conversation(conversation_id))
    assert CANARY.encode() not in b"".join(kept.values())


async def test_one_that_comes_with_the_words_is_in_no_title(driver: StoreDriver) -> None:
    submitted = await driver.submit(f"it is {CANARY}", secrets=secrets(TOKEN=CANARY))
    run = await driver.store.runs.get(submitted.run_id)
    title = (await driver.store.runs.conversation(run.conversation_id)).title
    assert run.input_preview == title == "it is [redacted]"


async def test_a_step_is_told_that_they_changed(driver: StoreDriver) -> None:
    _, lease = await driver.begin()
    assert not lease.secrets_at
    seen = []
    for value in ("one", "two"):
        later = await driver.submit(conversation_id=lease.conversation_id, secrets=secrets(TOKEN=value))
        assert await driver.store.vault.opened(lease.conversation_id) == {"TOKEN": value}
        settled = await driver.finish(lease)
        assert settled.next_run == later.run_id
        (started,) = await driver.store.due.sweep([DueItem(later.run_id, "start")])
        lease = await driver.claim(started.deliveries[0])
        seen.append(lease.secrets_at)
    assert len({*seen, ""}) == 3


async def test_a_call_that_begins_in_place_is_told_that_they_changed(driver: StoreDriver) -> None:
    _, model = await driver.begin()
    await driver.store.vault.keep(model.conversation_id, {"TOKEN": "new"})
    (call,) = await begun(driver, model, "a")
    assert (model.secrets_at == "", call.secrets_at == "") == (True, False)


async def test_a_steered_run_has_them_too(driver: StoreDriver) -> None:
    _, lease = await driver.begin()
    steered = await driver.submit(
        conversation_id=lease.conversation_id, on_conflict="steer", agent=None, secrets=secrets(TOKEN="new")
    )
    assert steered.steered
    assert await driver.store.vault.opened(lease.conversation_id) == {"TOKEN": "new"}


async def test_there_are_so_many_and_no_more(driver: StoreDriver) -> None:
    submitted = await driver.submit()
    conversation_id, vault = submitted.deliveries[0].conversation_id, driver.store.vault
    await vault.keep(conversation_id, {f"S{n}": "x" for n in range(limit_of("secrets"))})
    with pytest.raises(StateConflict) as full:
        await vault.keep(conversation_id, {"ONE_MORE": "x"})
    assert full.value.code == "secrets_full"
    await vault.keep(conversation_id, {"S0": None, "ONE_MORE": "x"})
    with pytest.raises(StateConflict):
        await driver.submit(conversation_id=conversation_id, secrets=secrets(TWO_MORE="x"))
    with pytest.raises(StateConflict):
        await vault.keep(conversation_id, {f"S{n}": "x" * limit_of("secret_value") for n in range(1, 10)})
    assert (await vault.opened(conversation_id))["S1"] == "x"
    await vault.keep(conversation_id, dict.fromkeys(await vault.names(conversation_id)))
    assert await vault.opened(conversation_id) == {}


async def test_a_fork_has_them_sealed_for_itself(driver: StoreDriver) -> None:
    run_id, lease = await driver.begin(secrets=secrets(TOKEN=CANARY))
    await driver.finish(lease)
    fork = await driver.store.control.retry(run_id, Retry(from_step=1, input="again"))
    other = fork.deliveries[0].conversation_id
    assert other != lease.conversation_id
    claimed = await driver.claim(fork.deliveries[0])
    assert claimed.secrets_at
    assert await driver.store.vault.opened(other) == {"TOKEN": CANARY}
    before, after = [
        await driver.redis.hget(keys.conversation(each), "secrets") for each in (lease.conversation_id, other)
    ]
    assert before != after


async def test_a_fork_has_no_more_than_others(driver: StoreDriver) -> None:
    _, lease = await driver.begin(secrets=secrets(**{f"S{n}": "x" for n in range(limit_of("secrets") - 1)}))
    fork = driver.store.history.fork
    await fork(lease.conversation_id, Fork(secrets=secrets(MORE="x")))
    with pytest.raises(StateConflict) as full:
        await fork(lease.conversation_id, Fork(secrets=secrets(MORE="x", TOO_MANY="x")))
    assert full.value.code == "secrets_full"
    await driver.finish(lease)


async def test_they_go_when_a_deletion_begins(driver: StoreDriver) -> None:
    _, conversation = await ended(driver, many(300))
    await driver.store.vault.keep(conversation, {"TOKEN": CANARY})
    with Breaking(driver, "delete_conversation", 1), pytest.raises(ConnectionError):
        await driver.store.control.delete_conversation(conversation)
    kept = await driver.redis.hkeys(keys.conversation(conversation))
    assert b"deleting" in kept
    assert not {b"secrets", b"secrets_at"} & set(kept)
    await driver.store.control.delete_conversation(conversation)


async def test_what_is_moved_to_another_conversation_does_not_open(driver: StoreDriver) -> None:
    one, other = [(await driver.submit(secrets=secrets(TOKEN=text))).deliveries[0].conversation_id for text in "ab"]
    stolen = await driver.redis.hget(keys.conversation(one), "secrets")
    await driver.redis.hset(keys.conversation(other), "secrets", stolen)
    with pytest.raises(SealBroken):
        await driver.store.vault.opened(other)


async def test_they_go_with_their_conversation(driver: StoreDriver) -> None:
    _, lease = await driver.begin(secrets=secrets(TOKEN=CANARY))
    await driver.finish(lease)
    assert await driver.redis.ttl(keys.conversation(lease.conversation_id)) > 0
    await driver.store.control.delete_conversation(lease.conversation_id)
    for asked in (driver.store.vault.names, driver.store.vault.opened):
        with pytest.raises(UnknownConversation):
            await asked(lease.conversation_id)
    with pytest.raises(UnknownConversation):
        await driver.store.vault.keep(lease.conversation_id, {"TOKEN": "late"})
    assert not await driver.redis.exists(keys.conversation(lease.conversation_id))


@pytest.mark.parametrize("conversation_id", ["conv_00" + "0" * 26, "conv_nonsense", ""])
async def test_a_conversation_that_is_not_there_has_none(driver: StoreDriver, conversation_id: str) -> None:
    with pytest.raises(UnknownConversation):
        await driver.store.vault.keep(conversation_id, {"TOKEN": "x"})
    with pytest.raises(UnknownConversation):
        await driver.store.vault.names(conversation_id)
    assert await driver.redis.keys("*") == []


async def test_a_process_without_the_key_knows_the_names_alone(
    driver: StoreDriver, redis: Any, settings: Settings
) -> None:
    _, lease = await driver.begin(secrets=secrets(TOKEN=CANARY))
    for there in ((), (OLD,)):
        other = Store(redis, with_keys(settings, *there))
        assert await other.vault.names(lease.conversation_id) == ("TOKEN",)
        with pytest.raises(KeyMissing):
            await other.vault.opened(lease.conversation_id)
        await other.feeds.close()
    both = Store(redis, with_keys(settings, OLD, NEW))
    assert await both.vault.opened(lease.conversation_id) == {"TOKEN": CANARY}
    await both.feeds.close()


async def test_a_key_of_another_agent_keeps_nobody_from_the_secrets(redis: Any, settings: Settings) -> None:
    before, after = (Store(redis, with_keys(settings, there)) for there in (OLD, NEW))
    old, new = (
        AGENT.model_copy(update={"model": "inline/m", "endpoint": Endpoint(base_url=f"https://{name}.example.com")})
        for name in ("old", "new")
    )
    assert old.endpoint is not None
    keyed = old.model_copy(update={"endpoint": old.endpoint.model_copy(update={"api_key": SecretStr(CANARY)})})
    submitted = await StoreDriver(before, redis).submit(agent=keyed)
    conversation_id = submitted.deliveries[0].conversation_id
    await after.vault.keep(conversation_id, {"TOKEN": "x"})
    assert await after.vault.opened(conversation_id, new) == {"TOKEN": "x"}
    assert await after.vault.opened(conversation_id) == {"TOKEN": "x"}
    with pytest.raises(KeyMissing):
        await after.vault.opened(conversation_id, old)
    for store in (before, after):
        await store.feeds.close()


async def test_everything_is_sealed_anew_with_the_first_key(redis: Any, settings: Settings) -> None:
    stores = {there: Store(redis, with_keys(settings, *there)) for there in ((OLD,), (NEW, OLD), (NEW,))}
    before, rotating, after = stores.values()
    made = []
    for number in range(7):
        submitted = await StoreDriver(before, redis).submit(secrets=secrets(TOKEN=f"t{number}", OTHER="x"))
        made.append(submitted.deliveries[0].conversation_id)
    without = await StoreDriver(before, redis).submit()
    assert await after.vault.seal_anew() == Sealed(0, 14)
    voices = await redis.hget(keys.conversation(made[0]), "voices")
    assert await rotating.vault.seal_anew() == Sealed(14, 0)
    # Who seals them anew has not set them.
    assert await redis.hget(keys.conversation(made[0]), "voices") == voices
    assert await rotating.vault.seal_anew() == Sealed(0, 0)
    for number, conversation_id in enumerate(made):
        assert await after.vault.opened(conversation_id) == {"TOKEN": f"t{number}", "OTHER": "x"}
    assert await after.vault.opened(without.deliveries[0].conversation_id) == {}
    for store in stores.values():
        await store.feeds.close()


async def test_what_somebody_has_changed_is_named_and_the_others_are_sealed_anew(
    redis: Any, settings: Settings
) -> None:
    before, rotating = (Store(redis, with_keys(settings, *there)) for there in ((OLD,), (NEW, OLD)))
    one, broken, other = [
        (await StoreDriver(before, redis).submit(secrets=secrets(TOKEN=text))).deliveries[0].conversation_id
        for text in "abc"
    ]
    stolen = await redis.hget(keys.conversation(one), "secrets")
    await redis.hset(keys.conversation(broken), "secrets", stolen)
    assert await rotating.vault.seal_anew() == Sealed(2, 0, (f"{broken} TOKEN",))
    for conversation_id, text in ((one, "a"), (other, "c")):
        assert await rotating.vault.opened(conversation_id) == {"TOKEN": text}
    for store in (before, rotating):
        await store.feeds.close()


async def test_another_conversation_of_the_same_id_is_told_apart(driver: StoreDriver) -> None:
    wanted = NewConversation(agent=AGENT, secrets=secrets(TOKEN="one"))
    made, _ = await driver.store.conversations.begin(wanted)
    seen = set()
    for _ in range(2):
        await driver.store.control.delete_conversation(made.id)
        await driver.store.conversations.begin(wanted, made.id)
        submitted = await driver.submit(conversation_id=made.id)
        lease = await driver.claim(submitted.deliveries[0])
        seen.add(lease.secrets_at)
        await driver.finish(lease)
    assert len(seen) == 2
