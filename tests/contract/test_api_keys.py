"""Keys of the API that the store keeps: made, found by their id, listed, replaced, forgotten; each change is seen."""

from __future__ import annotations

from typing import Any

import pytest

from features.stack.redis_server import RedisServer
from palaver.config.settings import Settings
from palaver.errors import NotDurable, Refused, StateConflict
from palaver.schemas.api_keys import KeyInfo
from palaver.secrets.api_keys import KeyParts
from palaver.store import Store
from palaver.store.access import api_keys
from palaver.store.access.api_keys import KeyGrant, NewKey
from palaver.store.redis import access_keys
from palaver.store.scripting import scripts
from palaver.vocabulary.scopes import SCOPES

GRANT = KeyGrant("shop", scopes=frozenset({"runs:submit", "runs:read"}))
NARROW = KeyGrant(
    "widget",
    tenant="acme00",
    tenant_name="acme",
    scopes=frozenset({"runs:read"}),
    agents=frozenset({"support", "sales"}),
    conversation="conv_00" + "0" * 26,
    life=3600,
)


async def listed(store: Store, tenant: str = "") -> list[KeyInfo]:
    return [record.shown(used) for record, used in await store.api_keys.list(tenant)]


async def found(store: Store, made: NewKey) -> bool:
    return made.record.id in (await store.api_keys.look([made.record.id])).records


@pytest.mark.parametrize("grant", [GRANT, NARROW, KeyGrant("root", scopes=frozenset(SCOPES), operator=True)])
async def test_a_key_is_what_it_was_made_as(store: Store, redis: Any, grant: KeyGrant) -> None:
    made = await store.api_keys.create(grant, by="ops")
    parts = KeyParts.of(made.key)
    assert parts is not None
    assert await store.api_keys.get(parts.id) == made.record
    assert (made.record.grant, made.record.created_by) == (grant, "ops")
    assert parts.opens(made.record.digest)
    now = await store.api_keys.look([parts.id, "nobody000000"])
    assert now.records == {parts.id: made.record}
    assert abs(now.at - made.record.created_at) < 5
    ttl = await redis.ttl(access_keys.api_key(parts.id))
    assert ttl == -1 if grant.life is None else 30 * 86_400 < ttl <= 30 * 86_400 + grant.life


async def test_nothing_that_opens_it_is_stored(store: Store, redis: Any) -> None:
    made = await store.api_keys.create(GRANT)
    secret = made.key.split("_")[2].encode()
    for name in await redis.keys("*"):
        kind = await redis.type(name)
        stored = await (redis.get(name) if kind == b"string" else redis.zrange(name, 0, -1))
        assert secret not in name + repr(stored).encode()


async def test_keys_are_listed_by_tenant_the_newest_first(store: Store, redis: Any) -> None:
    first, second = await store.api_keys.create(GRANT), await store.api_keys.create(GRANT)
    await redis.zincrby(access_keys.api_keys(""), 1, second.record.id)
    other = await store.api_keys.create(NARROW)
    assert [key.id for key in await listed(store)] == [second.record.id, first.record.id]
    (key,) = await listed(store, "acme00")
    assert (key.id, key.tenant, key.agents) == (other.record.id, "acme", ("sales", "support"))
    assert key.expires_at is not None
    assert await listed(store, "nobody") == []


async def test_the_minute_of_the_last_use_is_known(store: Store, redis: Any) -> None:
    made = await store.api_keys.create(GRANT)
    assert [key.last_used_at for key in await listed(store)] == [None]
    await store.api_keys.note_use({made.record.id: 29_000_000})
    (key,) = await listed(store)
    assert key.last_used_at is not None
    assert key.last_used_at.timestamp() == 29_000_000 * 60
    assert 0 < await redis.ttl(access_keys.api_key_used(made.record.id)) <= 400 * 86_400


async def test_a_revoked_key_is_gone(store: Store, redis: Any) -> None:
    made = await store.api_keys.create(GRANT)
    await store.api_keys.note_use({made.record.id: 1})
    assert await store.api_keys.revoke(made.record.id) == made.record
    assert not await found(store, made)
    assert await listed(store) == []
    assert await redis.keys("*") == [access_keys.API_KEYS_VERSION.encode()]
    for key_id in (made.record.id, "nobody000000", "not an id", ""):
        with pytest.raises(Refused, match="key_not_found"):
            await store.api_keys.revoke(key_id)


async def test_two_are_valid_while_one_replaces_the_other(store: Store) -> None:
    old = await store.api_keys.create(NARROW, by="ops")
    new = await store.api_keys.rotate(old.record.id, overlap=60, by="ann")
    assert new.key != old.key
    assert (new.record.grant, new.record.created_by) == (NARROW, "ann")
    stays = await store.api_keys.get(old.record.id)
    assert stays.expires_at is not None
    assert stays.expires_at - old.record.created_at in range(59, 66)
    assert stays.digest == old.record.digest
    assert {key.id for key in await listed(store, "acme00")} == {old.record.id, new.record.id}


async def test_a_key_does_not_live_longer_by_being_replaced(store: Store) -> None:
    old = await store.api_keys.create(NARROW)
    await store.api_keys.rotate(old.record.id, overlap=86_400)
    assert (await store.api_keys.get(old.record.id)).expires_at == old.record.expires_at


async def test_it_is_replaced_at_once_without_an_overlap(store: Store) -> None:
    old = await store.api_keys.create(GRANT)
    new = await store.api_keys.rotate(old.record.id, overlap=0)
    assert not await found(store, old)
    assert await found(store, new)


async def test_each_change_has_another_version(store: Store) -> None:
    versions = [await store.api_keys.version()]
    made = await store.api_keys.create(GRANT)
    versions.append(await store.api_keys.version())
    new = await store.api_keys.rotate(made.record.id, overlap=60)
    versions.append(await store.api_keys.version())
    await store.api_keys.revoke(new.record.id)
    versions.append((await store.api_keys.look([])).version)
    assert len(set(versions)) == 4
    await store.api_keys.note_use({made.record.id: 1})
    assert await store.api_keys.version() == versions[-1]


async def test_what_has_gone_by_itself_is_listed_no_more_and_makes_room(
    store: Store, redis: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(api_keys, "_MOST", 2)
    gone, stays = await store.api_keys.create(GRANT), await store.api_keys.create(GRANT)
    with pytest.raises(StateConflict, match="the tenant has") as full:
        await store.api_keys.create(GRANT)
    assert full.value.code == "keys_full"
    with pytest.raises(StateConflict, match="the tenant has"):
        await store.api_keys.rotate(stays.record.id, overlap=60)
    await store.api_keys.create(NARROW)
    await redis.delete(access_keys.api_key(gone.record.id))
    await store.api_keys.create(GRANT)
    assert len(await listed(store)) == 2
    assert await redis.zcard(access_keys.api_keys("")) == 2


@pytest.mark.process
async def test_a_change_waits_until_it_is_durable(
    server: RedisServer, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A single server has no replica: nothing is safe there."""
    monkeypatch.setattr(scripts, "_WAIT_MS", 1)
    careful = settings.model_copy(update={"redis_url": server.url, "durability": "replicas=1"})
    async with Store.connect(settings.model_copy(update={"redis_url": server.url})) as store:
        made = await store.api_keys.create(GRANT)
        async with Store.connect(careful, shared=True) as other:
            with pytest.raises(NotDurable):
                await other.api_keys.revoke(made.record.id)
        assert not await found(store, made)
