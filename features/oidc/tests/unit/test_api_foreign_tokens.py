"""Tokens of an issuer in the place of keys: who is let in by them, as whom, to what, and for how long."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import hmac
import json
import time
from collections.abc import AsyncIterator
from typing import Any, Final
from uuid import UUID

import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric.padding import PKCS1v15
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from features.oidc import issuer
from features.oidc.tests.unit.local_issuer import KEYS, LocalIssuer, private_key, published
from features.openhands.tests.unit.test_openhands_keys import open_socket
from palaver.config.oidc import ScopeGrant
from palaver.config.settings import Settings
from palaver.store.access.api_keys import KeyGrant
from palaver.vocabulary.limits import limit_of
from palaver.vocabulary.scopes import SCOPES, Scope
from tests.unit.api_world import BODY, LiveRequest, World, assert_problem, world
from tests.unit.test_api_scopes import DIALECTS, ROUTES, code_of, filled, knock
from tests.waiting import BUSY, aeventually

ALL: Final = " ".join(SCOPES)
LISTED: Final = "a-key-of-the-environment"


@pytest.fixture
async def api(there: LocalIssuer) -> AsyncIterator[World]:
    async with world(there.settings()) as made:
        yield made


def bearer(token: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {token}"}


async def test_a_token_is_as_good_as_a_key_and_says_who_asks(api: World, there: LocalIssuer) -> None:
    headers = there.bearer(scope=ALL, sub="auth0|ann")
    answer = await api.client.post("/v1/runs", json=BODY, headers=headers)
    assert answer.status_code == 202, answer.text
    run = answer.json()
    assert run["submitted_by"] == "oidc:auth0|ann"
    cancelled = await api.client.post(f"{run['links']['self']}/cancel", headers=headers)
    assert cancelled.json()["cancel"]["by"] == "oidc:auth0|ann"
    acts = (await api.client.get("/v1/audit", headers=headers)).json()["data"]
    assert [(act["operation"], act["key"], act["key_id"]) for act in acts] == [
        ("submit", "oidc:auth0|ann", None),
        ("cancel", "oidc:auth0|ann", None),
    ]
    long = there.bearer(scope=ALL, sub="x" * 255)
    other = (await api.client.post("/v1/runs", json=BODY, headers=long)).json()
    listed = await api.client.get("/v1/runs", params={"submitted_by": f"oidc:{'x' * 255}"}, headers=headers)
    assert [run["id"] for run in listed.json()["data"]] == [other["id"]]
    assert_problem(await api.client.get("/v1/runs"), 401, "unauthenticated")


@pytest.mark.parametrize("kind", [("first", "RS256"), ("first", "PS256"), ("ec", "ES256"), ("okp", "EdDSA")])
@pytest.mark.parametrize("typ", [None, "JWT", "at+jwt", "application/at+jwt"])
async def test_what_issuers_sign_with(api: World, there: LocalIssuer, kind: tuple[str, str], typ: str | None) -> None:
    there.keys = [published("first"), published("ec", "EC"), published("okp", "OKP")]
    token = there.token(*kind, headers={"typ": typ}, aud=["else", there.settings().oidc_audience])
    assert (await api.client.get("/v1/runs", headers=bearer(token))).status_code == 200


async def test_clocks_may_differ_by_half_a_minute(api: World, there: LocalIssuer) -> None:
    now = int(time.time())
    for claims in ({"exp": now - 20}, {"nbf": now + 20}, {"iat": now + 20}, {"exp": now + 0.5}):
        assert (await api.client.get("/v1/runs", headers=there.bearer(**claims))).status_code == 200, claims
    for claims in ({"exp": now - 31}, {"nbf": now + 300}, {"iat": now + 300}, {"nbf": now + 1e15}):
        assert_problem(await api.client.get("/v1/runs", headers=there.bearer(**claims)), 401, "invalid_token")


def by_hand(header: dict[str, Any], claims: dict[str, Any] | bytes, key: Any = None) -> str:
    """A token that no library would make; signed with HS256 by a text, with RS256 by a private key."""
    parts = [json.dumps(header).encode(), claims if isinstance(claims, bytes) else json.dumps(claims).encode()]
    said = b".".join(base64.urlsafe_b64encode(part).rstrip(b"=") for part in parts)
    if key is None:
        signature = b""
    elif isinstance(key, bytes):
        signature = hmac.digest(key, said, hashlib.sha256)
    else:
        signature = key.sign(said, PKCS1v15(), SHA256())
    return b".".join((said, base64.urlsafe_b64encode(signature).rstrip(b"="))).decode()


@pytest.mark.slow
async def test_forged_tokens_are_refused(api: World, there: LocalIssuer) -> None:
    claims, more = there.claims(), {"kid": "first", "typ": "at+jwt"}
    private = private_key("first", "RSA", 2048)
    pem = private.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
    good = there.token()
    other = private_key("other", "RSA", 2048)
    forged = {
        "none": by_hand({**more, "alg": "none"}, claims),
        "None": by_hand({**more, "alg": "None"}, claims, b""),
        "no algorithm": by_hand(more, claims, pem),
        "HS256 by the public key": by_hand({**more, "alg": "HS256"}, claims, pem),
        "HS256 by the set": by_hand({**more, "alg": "HS256"}, claims, json.dumps(published("first")).encode()),
        "RS384": jwt.encode(claims, private, "RS384", more),
        "RS512": jwt.encode(claims, private, "RS512", more),
        "ES256 in the place of RS256": jwt.encode(claims, private_key("ec", "EC", 2048), "ES256", more),
        "another's key": jwt.encode(claims, other, "RS256", more),
        "a key that it brings": jwt.encode(claims, other, "RS256", {**more, "jwk": published("other", kid="first")}),
        "a key that it names": jwt.encode(claims, other, "RS256", {**more, "kid": "x", "jku": f"{there.url}/mine"}),
        "no kid": there.token(headers={"kid": None}),
        "an unknown kid": there.token(headers={"kid": "unknown"}),
        "a long kid": there.token(headers={"kid": "k" * 257}),
        "a list as kid": by_hand({**more, "alg": "RS256", "kid": ["first"]}, claims, private),
        "a token to log out": there.token(headers={"typ": "logout+jwt"}),
        "a list as typ": by_hand({**more, "alg": "RS256", "typ": []}, claims, private),
        "critical": by_hand({**more, "alg": "RS256", "crit": ["exp"]}, claims, private),
        "a changed claim": ".".join((good.split(".")[0], by_hand(more, {**claims, "sub": "eve"}).split(".")[1],
                                     good.split(".")[2])),
        "no signature": good.rpartition(".")[0] + ".",
        "two parts": good.rpartition(".")[0],
        "four parts": f"{good}.x",
        "deep": by_hand({**more, "alg": "RS256"}, b"[" * 9_000, private),
        "no object": by_hand({**more, "alg": "RS256"}, b"7", private),
        "no JSON": by_hand({**more, "alg": "RS256"}, b"\xff{", private),
        "a deep header": "eyJ" + base64.urlsafe_b64encode(b'"a":' + b'[' * 8_000).decode(),
        "giant": good + "x" * limit_of("foreign_token"),
        "sealed": "eyJhbGciOiJSU0EtT0FFUCJ9.a.b.c.d",
    }  # fmt: skip
    for what, token in forged.items():
        answer = await api.client.get("/v1/runs", headers=bearer(token))
        assert_problem(answer, 401, "invalid_token")
        assert answer.headers["www-authenticate"] == 'Bearer realm="palaver", error="invalid_token"', what
    assert (await api.client.get("/v1/runs", headers=bearer(good))).status_code == 200
    assert there.asked[KEYS] == 1
    assert not there.asked["/realm/mine"]


WRONG: Final[list[dict[str, Any]]] = [
    {"iss": None}, {"iss": "https://other.example.com"}, {"iss": ["x"]},
    {"aud": None}, {"aud": "else"}, {"aud": ["else"]}, {"aud": []}, {"aud": {"https://palaver.example.com": 1}},
    {"aud": 7}, {"aud": "https://palaver.example.com/"},
    {"exp": None}, {"exp": "soon"}, {"exp": "9999999999"}, {"exp": True}, {"exp": [9_999_999_999]}, {"exp": -1},
    {"exp": float("inf")}, {"exp": float("nan")}, {"exp": 10**400}, {"nbf": "now"}, {"iat": {}}, {"nbf": float("nan")},
    {"sub": None}, {"sub": ""}, {"sub": 7}, {"sub": ["ann"]}, {"sub": "ann operation=delete_run"}, {"sub": "ann\n"},
    {"sub": "\u00e4nn"}, {"sub": "x" * 256}, {"scope": 7}, {"scope": {"runs:read": True}}, {"scope": ["runs:read", 7]},
]  # fmt: skip


async def test_claims_that_do_not_fit_are_refused(api: World, there: LocalIssuer) -> None:
    told = []
    for claims in ({}, *WRONG):
        whole = {name: value for name, value in {**there.claims(), **claims}.items() if value is not None}
        signed = by_hand({"alg": "RS256", "kid": "first", "typ": "at+jwt"}, whole, private_key("first", "RSA", 2048))
        answer = await api.client.get("/v1/runs", headers=bearer(signed))
        told.append((claims, answer.status_code, answer.json().get("code")))
    assert told == [({}, 200, None), *((claims, 401, "invalid_token") for claims in WRONG)]


async def test_a_giant_token_is_not_even_read(api: World, there: LocalIssuer) -> None:
    token = there.token(headers={"kid": "new"}, more="x" * limit_of("foreign_token"))
    assert_problem(await api.client.get("/v1/runs", headers=bearer(token)), 401, "invalid_token")
    assert not there.asked


@pytest.mark.slow
@pytest.mark.parametrize("scope", SCOPES)
async def test_a_token_of_one_scope_opens_its_routes_and_no_other(there: LocalIssuer, scope: Scope) -> None:
    grants = tuple(ScopeGrant(f"group of {each}", frozenset({each})) for each in SCOPES)
    async with world(there.settings(oidc_scopes=grants), dialects=DIALECTS) as api:
        headers = there.bearer(scope=[f"group of {scope}", "staff"])
        for method, path, scopes in ROUTES:
            body: dict[str, Any] | None = None if method == "GET" else {}
            answer = await api.client.request(method, filled(path), headers=headers, json=body)
            if not scopes or scope in scopes:
                assert answer.status_code not in (401, 403), (method, path, scope)
                continue
            assert answer.status_code == 403, (method, path, scope)
            needed = f'error="insufficient_scope", scope="{" ".join(scopes)}"'
            assert answer.headers["www-authenticate"].endswith(needed), (method, path)
        for dialect in DIALECTS:
            for route in dialect.sockets:
                said = await knock(api, filled(route.path), headers)
                # The conversation is not there, which only those hear who may ask.
                assert (code_of(said) == 4004) == (dialect.socket_scopes[route.path] == scope)


async def test_without_a_mapping_values_are_scopes(api: World, there: LocalIssuer) -> None:
    for path, scope in (("/v1/runs", "runs:read"), ("/v1/usage", "usage:read"), ("/v1/keys", "admin")):
        for said, status in ((f"openid {scope}", 200), ([scope], 200), ("openid runs:submit", 403), (None, 403)):
            answer = await api.client.get(path, headers=there.bearer(scope=said))
            assert answer.status_code == status, (path, said, answer.text)


async def test_values_that_stand_for_nothing_open_nothing(there: LocalIssuer) -> None:
    grants = (ScopeGrant("support", frozenset({"runs:read"})),)
    settings = there.settings(oidc_scopes=grants, oidc_scopes_claim="realm_access.roles")
    async with world(settings) as api:
        nothing: list[dict[str, Any]] = [
            {},
            {"realm_access": 7},
            {"realm_access": {"roles": ["runs:read", "operator", "admin"]}},
        ]
        something: list[dict[str, Any]] = [
            {"realm_access": {"roles": ["support"]}},
            {"realm_access.roles": "support other"},
        ]
        for claims in nothing:
            answer = await api.client.get("/v1/runs", headers=there.bearer(scope=ALL, **claims))
            assert_problem(answer, 403, "insufficient_scope")
        for claims in something:
            assert (await api.client.get("/v1/runs", headers=there.bearer(**claims))).status_code == 200
            assert (await api.client.post("/v1/runs", json=BODY, headers=there.bearer(**claims))).status_code == 403


async def test_an_operator_is_made_by_a_mapping_alone(there: LocalIssuer) -> None:
    grants = (ScopeGrant("root", frozenset(SCOPES), operator=True), ScopeGrant("all", frozenset(SCOPES)))
    settings = there.settings(oidc_scopes=grants, oidc_tenant_claim="org")
    async with world(settings) as api, world(there.settings(), server=api.server) as plain:
        acme = await api.store.tenants.create("acme")
        made = await api.client.post("/v1/runs", json=BODY, headers=there.bearer(scope="all", org="acme"))
        assert acme.tag in made.json()["id"]
        path = made.json()["links"]["self"]
        root = there.bearer(scope="root", org="default")
        assert (await api.client.get(path, headers=root)).status_code == 200
        assert (await api.client.get("/v1/keys?tenant=acme", headers=root)).status_code == 200
        assert (await api.client.get(path, headers=there.bearer(scope="all", org="default"))).status_code == 404
        refused = await api.client.get(path, headers=there.bearer(scope="root", org="acme"))
        assert_problem(refused, 403, "tenant_not_allowed")
        unmapped = there.bearer(scope=f"operator {ALL}")
        assert (await plain.client.get(path, headers=unmapped)).status_code == 404


async def test_a_tenant_has_its_own_and_who_has_none_nothing(there: LocalIssuer) -> None:
    async with world(there.settings(oidc_tenant_claim="https://example.com/org")) as api:
        await api.store.tenants.create("acme")
        await api.store.tenants.create("evil")

        def of(tenant: object) -> dict[str, str]:
            return there.bearer(scope=ALL, **{"https://example.com/org": tenant})

        made = await api.client.post("/v1/runs", json=BODY, headers=of("acme"))
        path = made.json()["links"]["self"]
        assert (await api.client.get(path, headers=of("acme"))).status_code == 200
        for other in ("evil", "default"):
            assert (await api.client.get(path, headers=of(other))).status_code == 404
            assert (await api.client.get("/v1/runs", headers=of(other))).json()["data"] == []
        refused = [
            await api.client.get(path, headers=of(tenant))
            for tenant in ("nobody", None, "", "ACME", "acme ", ["acme"], 7, {"acme": 1}, "x" * 5_000)
        ]
        for answer in refused:
            assert_problem(answer, 403, "tenant_not_allowed")
        assert len({answer.text.replace(answer.json()["request_id"], "") for answer in refused}) == 1
        said = await knock(api, "/openhands/sockets/events/" + "0" * 32, of("nobody"))
        assert [message["type"] for message in said][-1] != "websocket.accept"
        hello = json.dumps({"type": "auth", "session_api_key": of("nobody")["Authorization"].removeprefix("Bearer ")})
        told, task = await open_socket(api, UUID(int=7), hello)
        await aeventually(lambda: told[-1]["type"] == "websocket.close")
        assert told[-1]["code"] == 4001
        await task


async def test_a_tenant_that_is_made_later_is_there_at_once(there: LocalIssuer) -> None:
    async with world(there.settings(oidc_tenant_claim="org")) as api:
        headers = there.bearer(org="acme")
        assert_problem(await api.client.get("/v1/runs", headers=headers), 403, "tenant_not_allowed")
        await api.store.tenants.create("acme")
        assert (await api.client.get("/v1/runs", headers=headers)).status_code == 200


async def test_a_stream_ends_with_its_token(api: World, there: LocalIssuer) -> None:
    run = (await api.client.post("/v1/runs", json=BODY, headers=there.bearer(scope=ALL))).json()
    brief = there.bearer(exp=time.time() - 28.5)
    began = time.monotonic()
    stream = LiveRequest(api.app, "GET", f"{run['links']['self']}/events", brief)
    await stream.until(lambda body: b"run.created" in body)
    await aeventually(lambda: stream.over)
    assert 1.0 <= time.monotonic() - began <= 1.5 + BUSY
    assert_problem(await api.client.get(run["links"]["self"], headers=brief), 401, "invalid_token")
    await stream.task


async def test_a_token_for_a_page_lives_no_longer(api: World, there: LocalIssuer) -> None:
    run = (await api.client.post("/v1/runs", json=BODY, headers=there.bearer(scope=ALL))).json()
    now = int(time.time())
    for exp, least, most in ((now + 10, 1, 40), (now + 10_000, 899, 900)):
        asked = {"run": run["id"], "expires_in": 900}
        made = await api.client.post("/v1/tokens", json=asked, headers=there.bearer(scope=ALL, exp=exp))
        claims = jwt.decode(made.json()["token"], options={"verify_signature": False})
        assert least <= claims["exp"] - now <= most + BUSY
        assert claims["sub"] == "oidc:ann"
        page = bearer(made.json()["token"])
        assert (await api.client.get(run["links"]["self"], headers=page)).status_code == 200


async def test_who_has_a_token_of_the_issuer_cannot_make_one_for_another_person(api: World, there: LocalIssuer) -> None:
    run = (await api.client.post("/v1/runs", json=BODY, headers=there.bearer(scope=ALL))).json()
    asked = {"run": run["id"], "subject": "bob"}
    answer = await api.client.post("/v1/tokens", json=asked, headers=there.bearer(scope=ALL))
    assert answer.status_code == 422
    assert "has named already: leave it out" in answer.text


async def test_while_the_issuer_is_away_a_good_token_is_no_bad_one(
    api: World, there: LocalIssuer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(issuer, "AGAIN", 0.0)
    for probe in ("/healthz", "/readyz"):
        assert (await api.client.get(probe, headers=there.bearer())).status_code == 200
    assert not there.asked, "a probe waits for nobody"
    there.away = True
    answer = await api.client.get("/v1/runs", headers=there.bearer())
    assert_problem(answer, 503, "unavailable")
    assert answer.headers["retry-after"] == "5"
    assert "issuer of the token does not answer" in answer.json()["detail"]
    for probe in ("/healthz", "/readyz"):
        assert (await api.client.get(probe, headers=there.bearer())).status_code == 200, probe
    told, task = await open_socket(api, UUID(int=7), json.dumps({"type": "auth", "session_api_key": there.token()}))
    await aeventually(lambda: told[-1]["type"] == "websocket.close")
    assert told[-1]["code"] == 1011, "come again"
    await task
    there.away = False
    assert (await api.client.get("/v1/runs", headers=there.bearer())).status_code == 200


async def test_other_keys_and_tokens_go_on_beside_it(there: LocalIssuer) -> None:
    listed = Settings(api_keys=f"ops={LISTED}").api_keys
    async with world(there.settings(api_keys=listed)) as api:
        stored = bearer((await api.store.api_keys.create(KeyGrant("ann", scopes=frozenset(SCOPES)))).key)
        run = (await api.client.post("/v1/runs", json=BODY, headers=bearer(LISTED))).json()
        page = await api.client.post("/v1/tokens", json={"run": run["id"]}, headers=stored)
        for headers in (stored, bearer(page.json()["token"])):
            assert (await api.client.get(run["links"]["self"], headers=headers)).status_code == 200
        assert not there.asked
        answers = await asyncio.gather(
            *(api.client.get(run["links"]["self"], headers=there.bearer(sub=f"u{number}")) for number in range(20))
        )
        assert {answer.status_code for answer in answers} == {200}
        assert there.asked[KEYS] == 1


async def test_the_name_of_a_key_is_not_that_of_a_subject(there: LocalIssuer) -> None:
    """An `Idempotency-Key` belongs to a name, and a second person has another one."""
    async with world(there.settings(require_keys=True)) as api:
        stored = bearer((await api.store.api_keys.create(KeyGrant("ann", scopes=frozenset(SCOPES)))).key)
        same = {"Idempotency-Key": "one"}
        first = await api.client.post("/v1/runs", json=BODY, headers={**stored, **same})
        second = await api.client.post("/v1/runs", json=BODY, headers={**there.bearer(scope=ALL, sub="ann"), **same})
        assert first.json()["id"] != second.json()["id"]
        again = await api.client.post("/v1/runs", json=BODY, headers={**there.bearer(scope=ALL, sub="ann"), **same})
        assert again.json()["id"] == second.json()["id"]
