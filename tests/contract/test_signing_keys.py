"""Keys that tokens are signed with: shared by all processes, sealed, new each day, two alive."""

from __future__ import annotations

from typing import Any

import orjson
import pytest
from pydantic import SecretStr

from palaver.config.settings import Settings
from palaver.secrets.sealing import KeyMissing
from palaver.store import Store
from palaver.store.redis import access_keys

DAY = 86_400


@pytest.fixture
def two(redis: Any, settings: Settings) -> tuple[Store, Store]:
    """The stores of two processes."""
    sealed = settings.model_copy(update={"secret_key": (SecretStr(bytes(range(100, 132)).hex()),)})
    return Store(redis, sealed), Store(redis, sealed)


async def known(store: Store) -> set[str]:
    return set(store.signing_keys.opened((await store.api_keys.look([])).signing))


async def grow_old(redis: Any, seconds: int) -> None:
    for name, text in (await redis.hgetall(access_keys.SIGNING_KEYS)).items():
        fields = orjson.loads(text)
        aged = orjson.dumps({**fields, "created_at": fields["created_at"] - seconds})
        await redis.hset(access_keys.SIGNING_KEYS, name, aged)


async def test_all_processes_have_the_same_one(two: tuple[Store, Store]) -> None:
    one, other = two
    before = await one.api_keys.version()
    made = await one.signing_keys.current()
    assert await other.signing_keys.current() == made
    assert await known(other) == {made.id}
    assert await other.api_keys.version() != before
    assert len(made.secret) == 32


async def test_a_new_one_signs_each_day_and_the_one_before_is_known(two: tuple[Store, Store], redis: Any) -> None:
    store, other = two
    first = await store.signing_keys.current()
    await grow_old(redis, DAY + 1)
    second = await other.signing_keys.current()
    assert second.id != first.id
    assert await known(store) == {first.id, second.id}
    await grow_old(redis, DAY + 1)
    third = await store.signing_keys.current()
    assert await known(other) == {second.id, third.id}


async def test_it_is_sealed_and_known_to_nobody_without_the_key(two: tuple[Store, Store], store: Store) -> None:
    made = await two[0].signing_keys.current()
    assert await known(two[1]) == {made.id}
    assert await known(store) == set()
    with pytest.raises(KeyMissing):
        await store.signing_keys.current()
