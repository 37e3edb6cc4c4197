"""Tokens for pages: minutes long, for one conversation, never with more rights than the key that made them."""

from __future__ import annotations

import asyncio
import base64
import json
import time
from collections.abc import AsyncIterator
from typing import Any

import jwt
import pytest

from palaver.config.settings import Settings
from palaver.secrets import tokens
from palaver.store.access import signing_keys
from palaver.store.access.api_keys import KeyGrant
from palaver.store.redis import access_keys
from palaver.vocabulary.scopes import SCOPES
from tests.unit.api_world import (
    AGENT,
    BODY,
    CONVERSATION_ID,
    RUN_ID,
    SETTINGS,
    LiveRequest,
    World,
    assert_problem,
    world,
)
from tests.waiting import BUSY, aeventually

LISTED = "a-key-of-the-environment"
CLOSED = SETTINGS.model_copy(update={"api_keys": Settings(api_keys=f"ops={LISTED}").api_keys})
OPS = {"Authorization": f"Bearer {LISTED}"}


@pytest.fixture
async def api() -> AsyncIterator[World]:
    async with world(CLOSED) as made:
        yield made


@pytest.fixture
async def run(api: World) -> dict[str, Any]:
    """A run that goes on."""
    answer = await api.client.post("/v1/runs", json=BODY, headers=OPS)
    found: dict[str, Any] = answer.json()
    return found


def bearer(token: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {token}"}


async def key_of(api: World, **fields: Any) -> tuple[str, dict[str, str]]:
    """The id of a new key, and its header."""
    fields = {"name": "shop", "scopes": frozenset(SCOPES)} | fields
    made = await api.store.api_keys.create(KeyGrant(**fields))
    return made.record.id, bearer(made.key)


async def made(api: World, headers: dict[str, str] = OPS, **body: Any) -> dict[str, Any]:
    answer = await api.client.post("/v1/tokens", json=body, headers=headers)
    assert answer.status_code == 201, answer.text
    token: dict[str, Any] = answer.json()
    return token


def part(token: str, number: int) -> dict[str, Any]:
    text = token.split(".")[number]
    read: dict[str, Any] = json.loads(base64.urlsafe_b64decode(text + "=" * (-len(text) % 4)))
    return read


async def test_a_token_opens_its_conversation_and_nothing_else(api: World, run: dict[str, Any]) -> None:
    other = (await api.client.post("/v1/runs", json=BODY, headers=OPS)).json()
    for body in ({"run": run["id"]}, {"conversation": run["conversation_id"]}):
        token = await made(api, **body)
        assert (token["conversation"], token["scopes"], token["token_type"]) == (
            run["conversation_id"], ["runs:read"], "Bearer",
        )  # fmt: skip
        headers = bearer(token["token"])
        assert (await api.client.get(run["links"]["self"], headers=headers)).status_code == 200
        assert (await api.client.get(other["links"]["self"], headers=headers)).status_code == 404
        cancelled = await api.client.post(f"{run['links']['self']}/cancel", headers=headers)
        assert_problem(cancelled, 403, "insufficient_scope")
        again = await api.client.post("/v1/tokens", json=body, headers=headers)
        assert_problem(again, 403, "insufficient_scope")


async def test_a_token_is_of_the_form_that_others_know(api: World, run: dict[str, Any]) -> None:
    token = await made(api, run=run["id"], scopes=["runs:read", "runs:act"], expires_in=900)
    header, claims = part(token["token"], 0), part(token["token"], 1)
    assert (header["alg"], header["typ"]) == ("HS256", "at+jwt")
    assert (claims["iss"], claims["aud"], claims["sub"], claims["scope"]) == (
        "palaver", "palaver", "ops", "runs:read runs:act",
    )  # fmt: skip
    assert claims["exp"] - claims["iat"] == 900
    stored = await api.redis.hgetall(access_keys.SIGNING_KEYS)
    assert header["kid"].encode() in stored
    assert 0 < await api.redis.ttl(access_keys.SIGNING_KEYS) <= 2 * 86_400


async def test_what_is_done_with_it_is_recorded_under_the_name_of_the_key(api: World, run: dict[str, Any]) -> None:
    token = await made(api, run=run["id"], scopes=["runs:act"])
    answer = await api.client.post(f"{run['links']['self']}/cancel", headers=bearer(token["token"]))
    assert answer.json()["cancel"]["by"] == "ops"


async def test_a_subject_is_who_did_what_is_done_with_it(api: World) -> None:
    _, shop = await key_of(api)
    conversation = (await api.client.post("/v1/conversations", json={"agent": AGENT}, headers=shop)).json()["id"]
    scopes = ["runs:submit", "runs:read", "runs:act"]
    token = await made(api, shop, conversation=conversation, scopes=scopes, subject="user:17")
    assert token["subject"] == "user:17"
    ann = bearer(token["token"])
    body = {"conversation_id": conversation, "input": "hello"}
    run = (await api.client.post("/v1/runs", json=body, headers=ann)).json()
    assert run["submitted_by"] == "shop/user:17"
    cancelled = (await api.client.post(f"{run['links']['self']}/cancel", headers=ann)).json()
    assert cancelled["cancel"]["by"] == "shop/user:17"
    page = {"Accept": "application/json", **OPS}
    events = (await api.client.get(run["links"]["events"], headers=page)).json()["data"]
    assert [event["by"] for event in events if event["type"] == "run.cancelling"] == ["shop/user:17"]
    for name, found in (("shop/user:17", 1), ("shop", 0), ("shop/user:18", 0)):
        listed = await api.client.get("/v1/runs", params={"submitted_by": name}, headers=OPS)
        assert len(listed.json()["data"]) == found
    who = (await api.client.get("/v1/caller", headers=ann)).json()
    assert (who["name"], who["conversation"]) == ("shop/user:17", conversation)
    audit = (await api.client.get("/v1/audit", headers=OPS)).json()["data"]
    acts = {entry["operation"]: entry for entry in audit}
    assert acts["create_token"]["facts"]["subject"] == "user:17"
    assert {acts[name]["key"] for name in ("submit", "cancel")} == {"shop/user:17"}


async def test_a_page_does_not_choose_its_subject(api: World, run: dict[str, Any]) -> None:
    token = (await made(api, run=run["id"], scopes=["runs:read", "runs:act"], subject="ann"))["token"]
    again = await api.client.post("/v1/tokens", json={"run": run["id"], "subject": "bob"}, headers=bearer(token))
    assert_problem(again, 403, "insufficient_scope")
    head, _, signature = token.split(".")
    forged = json.dumps({**part(token, 1), "user": "bob"}).encode()
    changed = base64.urlsafe_b64encode(forged).rstrip(b"=").decode()
    refused = await api.client.get(run["links"]["self"], headers=bearer(f"{head}.{changed}.{signature}"))
    assert refused.status_code == 401
    asked = {"Palaver-Subject": "bob", "X-Subject": "bob", **bearer(token)}
    who = await api.client.get("/v1/caller?subject=bob&user=bob", headers=asked)
    assert "bob" not in who.text


async def test_subjects_use_what_their_key_has(api: World, run: dict[str, Any]) -> None:
    for name in ("ann", "bob", None):
        more: dict[str, Any] = {} if name is None else {"subject": name}
        token = await made(api, run=run["id"], scopes=["runs:read", "runs:submit"], **more)
        stream = LiveRequest(api.app, "GET", f"{run['links']['self']}/events", bearer(token["token"]))
        await stream.until(lambda body: b"run.created" in body)
    assert {each.key: number for each, number in api.store.feeds.watching_for.items()} == {"ops": 3}


@pytest.mark.parametrize(
    ("body", "status", "code"),
    [
        ({"run": RUN_ID, "subject": "Ann Smith"}, 422, "/subject"),
        ({"run": RUN_ID, "subject": "änn"}, 422, "/subject"),
        ({"run": RUN_ID, "subject": "line\nbreak"}, 422, "/subject"),
        ({"run": RUN_ID, "subject": ""}, 422, "/subject"),
        ({"run": RUN_ID, "subject": "x" * 129}, 422, "/subject"),
        ({"run": RUN_ID, "subject": 17}, 422, "/subject"),
        ({"run": RUN_ID, "subject": "sk-proj-0123456789abcdef"}, 422, "looks like a key"),
        ({"run": RUN_ID, "subject": "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiJhbm4ifQ"}, 422, "looks like a key"),
        ({}, 422, "missing"),
        ({"run": RUN_ID, "conversation": CONVERSATION_ID}, 422, "missing"),
        ({"run": RUN_ID}, 404, "run_not_found"),
        ({"conversation": CONVERSATION_ID}, 404, "conversation_not_found"),
        ({"run": RUN_ID, "scopes": ["admin"]}, 422, "validation_error"),
        ({"run": RUN_ID, "expires_in": 901}, 422, "validation_error"),
        ({"run": RUN_ID, "expires_in": 9}, 422, "validation_error"),
    ],
)
async def test_what_no_token_is_made_for(api: World, body: dict[str, Any], status: int, code: str) -> None:
    answer = await api.client.post("/v1/tokens", json=body, headers=OPS)
    assert answer.status_code == status, answer.text
    assert code in answer.text


async def test_a_token_has_no_right_that_its_key_has_not(api: World, run: dict[str, Any]) -> None:
    _, reader = await key_of(api, scopes=frozenset({"runs:read"}))
    answer = await api.client.post("/v1/tokens", json={"run": run["id"], "scopes": ["runs:act"]}, headers=reader)
    assert_problem(answer, 403, "insufficient_scope")
    _, admin = await key_of(api, scopes=frozenset({"admin"}))
    answer = await api.client.post("/v1/tokens", json={"run": run["id"]}, headers=admin)
    assert_problem(answer, 403, "insufficient_scope")
    assert await made(api, reader, run=run["id"])


async def test_it_is_turned_away_with_the_key_that_made_it(api: World, run: dict[str, Any]) -> None:
    key_id, shop = await key_of(api)
    token = bearer((await made(api, shop, run=run["id"]))["token"])
    stream = LiveRequest(api.app, "GET", f"{run['links']['self']}/events", token)
    await stream.until(lambda body: b"run.created" in body)
    await api.store.api_keys.revoke(key_id)
    began = time.monotonic()
    await aeventually(lambda: stream.over)

    async def refused() -> bool:
        return (await api.client.get(run["links"]["self"], headers=token)).status_code == 401

    await aeventually(refused)
    assert time.monotonic() - began <= 1.0 + BUSY
    await stream.task


async def test_it_ends_by_the_clock_of_the_store_and_its_streams_do(api: World, run: dict[str, Any]) -> None:
    token = await _brief(api, run, 2)
    stream = LiveRequest(api.app, "GET", f"{run['links']['self']}/events", bearer(token))
    await stream.until(lambda body: b"run.created" in body)
    assert (await api.client.get(run["links"]["self"], headers=bearer(token))).status_code == 200
    await aeventually(lambda: stream.over)

    async def refused() -> dict[str, Any]:
        return assert_problem(await api.client.get(run["links"]["self"], headers=bearer(token)), 401, "invalid_token")

    # The store's clock is known as exactly as its last answer was quick: a stream may end that much earlier.
    await aeventually(refused, within=1.0 + BUSY)
    await stream.task


async def _brief(api: World, run: dict[str, Any], seconds: int) -> str:
    """A token as the API makes them, for fewer seconds than anybody may ask for."""
    key = await api.store.signing_keys.current()
    now = int((await api.redis.time())[0])
    claims = {
        "sub": "ops", "iat": now, "exp": now + seconds, "jti": "1", "scope": "runs:read", "tenant": "",
        "conversation": run["conversation_id"],
    }  # fmt: skip
    return tokens.sign(claims, key.id, key.secret)


async def test_forged_tokens_are_refused(api: World, run: dict[str, Any]) -> None:
    good = (await made(api, run=run["id"]))["token"]
    key = await api.store.signing_keys.current()
    claims, header = part(good, 1), part(good, 0)
    more = {"kid": key.id, "typ": "at+jwt"}
    lacking = {name: value for name, value in claims.items() if name != "conversation"}
    forged = [
        jwt.encode(claims, "", algorithm="none", headers=more),
        jwt.encode(claims, key.secret * 2, algorithm="HS384", headers=more),
        jwt.encode(claims, b"x" * 32, algorithm="HS256", headers=more),
        jwt.encode(claims, key.secret, algorithm="HS256", headers={**more, "typ": "JWT"}),
        jwt.encode(claims, key.secret, algorithm="HS256", headers={**more, "kid": "other"}),
        jwt.encode({**claims, "aud": "else"}, key.secret, algorithm="HS256", headers=more),
        jwt.encode({**claims, "iss": "else"}, key.secret, algorithm="HS256", headers=more),
        jwt.encode(lacking, key.secret, algorithm="HS256", headers=more),
        jwt.encode({**claims, "key": "0" * 12}, key.secret, algorithm="HS256", headers=more),
        jwt.encode({**claims, "exp": claims["iat"] - 1}, key.secret, algorithm="HS256", headers=more),
        good[:-2] + ("aa" if good[-2:] != "aa" else "bb"),
        ".".join((good.split(".")[0], good.split(".")[1], "")),
        "eyJ",
        good + "x" * 5_000,
    ]
    assert header["kid"] == key.id
    for token in forged:
        answer = await api.client.get(run["links"]["self"], headers=bearer(token))
        assert_problem(answer, 401, "invalid_token")
    assert (await api.client.get(run["links"]["self"], headers=bearer(good))).status_code == 200


@pytest.mark.slow
async def test_two_signing_keys_are_alive(api: World, run: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    first = (await made(api, run=run["id"]))["token"]
    monkeypatch.setattr(signing_keys, "_SIGNS", -1)
    second = (await made(api, run=run["id"]))["token"]
    assert part(first, 0)["kid"] != part(second, 0)["kid"]
    for token in (first, second, first):
        assert (await api.client.get(run["links"]["self"], headers=bearer(token))).status_code == 200
    old = part(first, 0)["kid"]
    text: Any = await api.redis.hget(access_keys.SIGNING_KEYS, old)
    stored = json.loads(text)
    await api.redis.hset(
        access_keys.SIGNING_KEYS, old, json.dumps({**stored, "created_at": stored["created_at"] - 172_801})
    )
    await made(api, run=run["id"])
    assert old.encode() not in await api.redis.hgetall(access_keys.SIGNING_KEYS)

    async def gone() -> bool:
        return (await api.client.get(run["links"]["self"], headers=bearer(first))).status_code == 401

    await aeventually(gone)


async def test_what_signs_is_sealed_and_without_a_key_for_that_there_are_no_tokens(
    api: World, run: dict[str, Any]
) -> None:
    await made(api, run=run["id"])
    key = await api.store.signing_keys.current()
    stored: Any = await api.redis.hgetall(access_keys.SIGNING_KEYS)
    assert base64.b64encode(key.secret) not in b"".join(stored.values())
    async with world(CLOSED.model_copy(update={"secret_key": ()})) as other:
        begun = (await other.client.post("/v1/runs", json=BODY, headers=OPS)).json()
        answer = await other.client.post("/v1/tokens", json={"run": begun["id"]}, headers=OPS)
        assert_problem(answer, 422, "no_secret_key")


async def test_where_no_key_is_wanted_tokens_of_others_pass() -> None:
    """A proxy before the API may have its own."""
    async with world() as open_api:
        foreign = jwt.encode({"sub": "x"}, b"x" * 32, algorithm="HS256")
        assert (await open_api.client.get("/v1/runs", headers=bearer(foreign))).status_code == 200


async def test_a_token_of_a_listed_key_is_looked_at_no_more_often_than_it_has_to_be(
    api: World, run: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    token, asked, look = (await made(api, run=run["id"]))["token"], [], api.store.api_keys.look

    async def counted(ids: Any) -> Any:
        asked.append(ids)
        return await look(ids)

    monkeypatch.setattr(api.app.state.access.keys.stored._keys, "look", counted, raising=False)
    for _ in range(20):
        assert (await api.client.get(run["links"]["self"], headers=bearer(token))).status_code == 200
    assert len(asked) <= 2


async def test_many_ask_at_once(api: World, run: dict[str, Any]) -> None:
    _, shop = await key_of(api)
    answers = await asyncio.gather(*(made(api, shop, run=run["id"]) for _ in range(20)))
    asked = [api.client.get(run["links"]["self"], headers=bearer(each["token"])) for each in answers]
    assert {answer.status_code for answer in await asyncio.gather(*asked)} == {200}
