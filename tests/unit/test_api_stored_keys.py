"""Keys of the store: let in, remembered, and turned away everywhere within a second once they are revoked."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import pytest
from redis.exceptions import ConnectionError

from palaver.config.settings import Settings
from palaver.errors import ConfigurationError
from palaver.operations import stored_keys
from palaver.secrets.api_keys import new_api_key
from palaver.store.access.api_keys import ApiKeys, KeyGrant, NewKey
from palaver.vocabulary.scopes import SCOPES
from tests.unit.api_world import SETTINGS, LiveRequest, World, assert_problem, world
from tests.waiting import BUSY, PATIENCE, aeventually

LISTED = "a-key-of-the-environment"
CLOSED = SETTINGS.model_copy(update={"require_keys": True})
ALL = frozenset(SCOPES)
SOON = 1.0
"""Seconds within which a revocation is seen everywhere."""


@pytest.fixture
async def api() -> AsyncIterator[World]:
    async with world(CLOSED) as made:
        yield made


@pytest.fixture
def looks(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The questions that are asked of the store about keys."""
    asked: list[str] = []
    look, version = ApiKeys.look, ApiKeys.version

    async def counted_look(self: ApiKeys, key_ids: Any) -> Any:
        asked.append("look")
        return await look(self, key_ids)

    async def counted_version(self: ApiKeys) -> bytes:
        asked.append("version")
        return await version(self)

    monkeypatch.setattr(ApiKeys, "look", counted_look)
    monkeypatch.setattr(ApiKeys, "version", counted_version)
    return asked


def bearer(key: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {key}"}


async def made(api: World, **changes: Any) -> NewKey:
    fields = {"name": "shop", "scopes": ALL} | changes
    return await api.store.api_keys.create(KeyGrant(**fields))


async def status(api: World, key: str, path: str = "/v1/runs") -> int:
    return (await api.client.get(path, headers=bearer(key))).status_code


async def within_a_second(condition: Callable[[], Awaitable[bool]]) -> None:
    assert stored_keys.EVERY < stored_keys.TRUSTED < SOON
    began = time.monotonic()
    await aeventually(condition)
    assert time.monotonic() - began <= SOON + BUSY


async def test_a_key_of_the_store_is_let_in_under_its_name(api: World) -> None:
    key = await made(api)
    assert_problem(await api.client.get("/v1/runs"), 401, "unauthenticated")
    api.client.headers.update(bearer(key.key))
    run = await api.submit()
    assert run["submitted_by"] == "shop"


async def test_what_is_no_key_is_an_invalid_token(api: World) -> None:
    key = (await made(api)).key
    kind, key_id, secret, _ = key.split("_")
    forged = new_api_key().split("_")
    for wrong in (new_api_key(), key[:-1], f"{key}0", "plv_", f"{kind}_{key_id}_{secret}_{forged[3]}", key.upper()):
        if wrong.startswith("plv_"):
            problem = await api.client.get("/v1/runs", headers=bearer(wrong))
            assert_problem(problem, 401, "invalid_token")
            assert problem.headers["www-authenticate"] == 'Bearer realm="palaver", error="invalid_token"'
            assert wrong not in problem.text
    assert await status(api, key) == 200


async def test_the_secret_of_another_key_does_not_open_it(api: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """With a checksum that fits: it keeps typos away, and nobody else."""
    monkeypatch.setattr("palaver.secrets.api_keys._checksum", lambda text: "0000000")
    one, other = await made(api), await made(api)
    _, first_id, _, _ = one.key.split("_")
    _, _, second_secret, _ = other.key.split("_")
    assert await status(api, f"plv_{first_id}_{second_secret}_0000000") == 401
    assert await status(api, one.key) == 200


async def test_who_uses_none_pays_nothing(looks: list[str]) -> None:
    async with world(Settings(redis_url="redis://fake/0", api_keys=LISTED)) as api:
        assert await status(api, LISTED) == 200
        assert await status(api, "another-key-0123456789") == 401
        assert await status(api, "plv_but-no-key-of-the-store") == 401
        assert looks == []
        assert api.app.state.access.keys.stored._watching is None


async def test_a_listed_key_may_look_like_one_of_the_store(looks: list[str]) -> None:
    key = new_api_key()
    async with world(Settings(redis_url="redis://fake/0", api_keys=key)) as api:
        assert await status(api, key) == 200
    assert looks == []


async def test_a_key_is_looked_up_once_and_then_its_version_is(api: World, looks: list[str]) -> None:
    key = await made(api)
    for _ in range(20):
        assert await status(api, key.key) == 200
    assert looks.count("look") == 1
    began, seen = time.monotonic(), looks.count("version")
    await aeventually(lambda: looks.count("version") >= seen + 3)
    assert time.monotonic() - began > 2 * stored_keys.EVERY
    for _ in range(20):
        assert await status(api, key.key) == 200
    assert looks.count("look") == 1


async def test_nothing_is_looked_at_once_nobody_uses_a_key(
    api: World, looks: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stored_keys, "_UNUSED", 0.1)
    assert await status(api, (await made(api)).key) == 200
    keys = api.app.state.access.keys.stored
    await aeventually(lambda: keys._watching is None)
    assert not keys._known


async def test_a_revoked_key_is_turned_away_within_a_second(api: World) -> None:
    key, other = await made(api), await made(api)
    assert [await status(api, each.key) for each in (key, other)] == [200, 200]
    await api.store.api_keys.revoke(key.record.id)

    async def refused() -> bool:
        return await status(api, key.key) == 401

    await within_a_second(refused)
    assert await status(api, other.key) == 200


@pytest.mark.slow
async def test_an_expired_key_is_turned_away(api: World) -> None:
    async def opened() -> NewKey | None:
        # Its second may be over before a slow machine asks.
        key = await made(api, life=1)
        return key if await status(api, key.key) == 200 else None

    key = await aeventually(opened)
    assert key is not None

    async def refused() -> bool:
        return await status(api, key.key) == 401

    await aeventually(refused)


@pytest.mark.slow
async def test_two_keys_are_valid_while_one_replaces_the_other(api: World) -> None:
    async def overlapping() -> tuple[NewKey, NewKey] | None:
        old = await made(api)
        assert await status(api, old.key) == 200
        new = await api.store.api_keys.rotate(old.record.id, overlap=1)
        answers = [await status(api, old.key), await status(api, new.key)]
        assert answers[1] == 200
        return (old, new) if answers[0] == 200 else None

    pair = await aeventually(overlapping)
    assert pair is not None
    old, new = pair

    async def replaced() -> bool:
        return [await status(api, old.key), await status(api, new.key)] == [401, 200]

    await aeventually(replaced)


@pytest.mark.slow
async def test_a_process_that_cannot_look_does_not_go_on(api: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """A page of documents needs no Redis: only the key does."""
    key = await made(api)
    assert await status(api, key.key, "/openapi.json") == 200
    began = time.monotonic()
    api.server.connected = False

    async def unknown() -> bool:
        return await status(api, key.key, "/openapi.json") == 503

    await aeventually(unknown)
    assert time.monotonic() - began <= SOON + stored_keys.EVERY + BUSY
    assert await status(api, key.key, "/healthz") == 200
    assert_problem(await api.client.get("/v1/runs", headers=bearer(new_api_key())), 503, "unavailable")
    api.server.connected = True

    async def known() -> bool:
        return await status(api, key.key, "/openapi.json") == 200

    await aeventually(known)


@pytest.mark.slow
async def test_a_revocation_that_nobody_hears_of_holds_all_the_same(
    api: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    key = await made(api)
    assert await status(api, key.key) == 200

    async def lost(self: ApiKeys) -> bytes:
        raise ConnectionError("lost")

    monkeypatch.setattr(ApiKeys, "version", lost)
    await api.store.api_keys.revoke(key.record.id)

    async def refused() -> bool:
        return await status(api, key.key) == 401

    await within_a_second(refused)


@pytest.mark.parametrize("ended_by", ["revoking", "expiry"])
async def test_a_stream_ends_with_its_key(api: World, ended_by: str) -> None:
    key, other = await made(api, life=2 if ended_by == "expiry" else None), await made(api)
    run = (await api.client.post("/v1/runs", json=_BODY, headers=bearer(key.key))).json()
    path = f"{run['links']['self']}/events"
    stream, spared = (LiveRequest(api.app, "GET", path, bearer(each.key)) for each in (key, other))
    for watching in (stream, spared):
        await watching.until(lambda body: b"run.created" in body)
    if ended_by == "revoking":
        await api.store.api_keys.revoke(key.record.id)

        async def over() -> bool:
            return stream.over

        await within_a_second(over)
    else:
        await aeventually(lambda: stream.over)
    assert b"run.finished" not in stream.body
    assert not spared.over
    spared.disconnect()
    await asyncio.gather(stream.task, spared.task)


async def test_a_long_poll_ends_with_its_key(api: World) -> None:
    key = await made(api)
    run = (await api.client.post("/v1/runs", json=_BODY, headers=bearer(key.key))).json()
    waiting = asyncio.create_task(api.client.get(f"{run['links']['self']}?wait=30", headers=bearer(key.key)))
    await aeventually(lambda: api.app.state.access.keys.stored._known[key.record.id].holders == 1)
    await api.store.api_keys.revoke(key.record.id)
    began = time.monotonic()
    assert_problem(await waiting, 401, "invalid_token")
    assert time.monotonic() - began <= SOON + BUSY


async def test_a_key_that_was_forgotten_since_it_was_read_is_looked_at_again(api: World) -> None:
    """Whoever holds it then may hold one that was revoked."""
    key, keys = await made(api), api.app.state.access.keys.stored
    live = await keys.open(key.key.encode())
    await api.store.api_keys.revoke(key.record.id)
    await aeventually(lambda: keys._watching is None)
    assert key.record.id not in keys._known
    with keys.held(live):
        await asyncio.wait_for(live.ended.wait(), PATIENCE)
    assert not live.valid


async def test_there_is_a_most_of_keys_that_are_remembered(api: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stored_keys, "_MOST", 2)
    made_keys = [await made(api) for _ in range(4)]
    for key in made_keys:
        assert await status(api, key.key) == 200
    assert len(api.app.state.access.keys.stored._known) == 2
    assert [await status(api, key.key) for key in made_keys] == [200] * 4


async def test_the_minute_of_the_last_use_is_written(api: World) -> None:
    key, unused = await made(api), await made(api)
    assert await status(api, key.key) == 200

    async def used() -> bool:
        minutes = {record.id: minute for record, minute in await api.store.api_keys.list()}
        assert minutes[unused.record.id] is None
        return (minutes[key.record.id] or 0) > 1_600_000_000

    await aeventually(used)


@pytest.mark.slow
async def test_without_listed_keys_one_is_wanted_where_a_setting_says_so() -> None:
    async with world(CLOSED) as api:
        assert (await api.client.get("/v1/runs")).status_code == 401
        assert (await api.client.get("/healthz")).status_code == 200
        assert "securitySchemes" in api.app.openapi()["components"]
        anywhere = {"Host": "any.example", **bearer((await made(api)).key)}
        assert (await api.client.get("/v1/runs", headers=anywhere)).status_code == 200
    with pytest.raises(ConfigurationError, match="no keys"):
        async with world(SETTINGS.model_copy(update={"host": "0.0.0.0"})):
            pass
    async with world(CLOSED.model_copy(update={"host": "0.0.0.0"})):
        pass


async def test_where_none_is_wanted_a_key_is_a_key_all_the_same() -> None:
    async with world() as api:
        key = await made(api, scopes=frozenset({"runs:submit"}))
        assert (await api.client.get("/v1/runs")).status_code == 200
        assert await status(api, key.key) == 403
        assert await status(api, new_api_key()) == 401
        assert await status(api, "plv_a-typo") == 401


_BODY: dict[str, Any] = {"agent": {"model": "fake/echo"}, "input": "hello"}
