"""The callers of an API that another application mounts: who they are, whose things they see, and what pages of others
may do in their name."""

from __future__ import annotations

import asyncio
import re
from typing import Any

import httpx
import orjson
import pytest
from fastapi import FastAPI
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import HTTPConnection
from starlette.types import ASGIApp, Receive, Scope, Send

from api.app import identities
from api.app.installed import dialects_of
from api.app.mounted import Mounted
from palaver.config.mounting import Identity
from palaver.store.redis import access_keys
from palaver.vocabulary.limits import limit_of
from palaver.vocabulary.scopes import SCOPES
from tests.contract.clock import TurnedDatabase
from tests.unit.api_world import (
    BODY,
    SETTINGS,
    World,
    assert_problem,
)
from tests.unit.mounted_site import DIALECTS, KEYED, OTHER, OWN, SPEAKING, SUB, site
from tests.unit.test_api_closed import EVERY_ROUTE, PROBES
from tests.unit.two_tenants import TENANTS, Attack, furnish, operations_of
from tests.waiting import PATIENCE


async def test_a_stream_ends_once_the_caller_is_to_be_asked_for_again(monkeypatch: pytest.MonkeyPatch) -> None:
    async with site() as shop:
        shop.user("ann")
        run = (await shop.client.post("/agents/v1/runs", json=BODY)).json()
        monkeypatch.setattr(identities, "_LASTS", 0.1)
        async with asyncio.timeout(PATIENCE):
            told = await shop.client.get(run["links"]["events"], headers={"accept": "text/event-stream"})
        assert told.status_code == 200
        assert "run.created" in told.text
        assert "run.finished" not in told.text


async def test_the_callers_are_those_that_the_application_names() -> None:
    async with site(settings=KEYED) as shop:
        by_key = {"authorization": "Bearer key-of-the-operators"}
        for headers in ({}, by_key):
            problem = assert_problem(await shop.client.get("/agents/v1/runs", headers=headers), 401, "unauthenticated")
            assert "user" not in problem["detail"]
        shop.user("ann")
        caller = (await shop.client.get("/agents/v1/caller")).json()
        of_pages = ["runs:submit", "runs:read", "runs:act", "actions:approve"]
        assert (caller["name"], caller["tenant"], caller["scopes"]) == ("user:ann", "default", of_pages)
        assert caller["operator"] is False
        assert_problem(await shop.client.post("/agents/v1/keys", json={"name": "x"}), 403, "insufficient_scope")
        assert_problem(await shop.client.get("/agents/metrics"), 403, "insufficient_scope")
    async with site(None, settings=KEYED) as shop:
        shop.user("ann")
        assert_problem(await shop.client.get("/agents/v1/runs"), 401, "unauthenticated")
        assert (await shop.client.get("/agents/v1/caller", headers=by_key)).json()["name"] == "ops"


async def test_what_a_user_does_is_recorded_and_a_token_names_no_other() -> None:
    who = Identity("user:ann", "acme", scopes=SCOPES)
    async with site(lambda connection: who) as shop:
        run = (await shop.client.post("/agents/v1/runs", json=BODY)).json()
        await shop.client.post(f"{run['links']['self']}/cancel", json={})
        told = (await shop.client.get(run["links"]["events"], headers={"accept": "application/json"})).json()["data"]
        assert "user:ann" in [event.get("by") for event in told], told
        *_, act = (await shop.client.get("/agents/v1/audit")).json()["data"]
        assert (act["operation"], act["key"], act["key_id"]) == ("cancel", "user:ann", None)
        asked = {"run": run["id"], "subject": "user:bob"}
        assert_problem(await shop.client.post("/agents/v1/tokens", json=asked), 422, "validation_error", "/subject")
        made = await shop.client.post("/agents/v1/tokens", json={"run": run["id"]})
        assert (made.status_code, made.json()["subject"]) == (201, None)


async def test_every_route_wants_a_caller() -> None:
    open_by_mistake = {}
    async with site() as shop:
        for method, path in [*EVERY_ROUTE, ("GET", "/nothing"), ("GET", "/")]:
            status = (await shop.client.request(method, f"/agents{path}")).status_code
            if status != 401 and path not in PROBES:
                open_by_mistake[method, path] = status
    assert open_by_mistake == {}


async def test_an_identity_may_be_held_to_scopes_agents_and_a_conversation() -> None:
    said = Identity("app/user:1", scopes=["runs:read", "admin", "runs:submit"], agents={"support"})

    async def told(connection: HTTPConnection) -> Identity:
        return said

    async with site(told) as shop:
        caller = (await shop.client.get("/agents/v1/caller")).json()
        assert (caller["name"], caller["scopes"]) == ("app/user:1", ["runs:submit", "runs:read", "admin"])
        assert_problem(await shop.client.post("/agents/v1/runs", json=BODY), 403, "agent_not_allowed")
        made = await shop.client.post("/agents/v1/keys", json={"name": "x", "scopes": ["runs:read"]})
        assert made.status_code in (201, 403)
        said = Identity("user:1")
        run, other = [(await shop.client.post("/agents/v1/runs", json=BODY)).json() for _ in range(2)]
        said = Identity("user:1", conversation=run["conversation_id"])
        assert (await shop.client.get(run["links"]["self"])).status_code == 200
        assert_problem(await shop.client.get(other["links"]["self"]), 404, "run_not_found")


@pytest.mark.parametrize(
    ("parts", "sentence"),
    [
        ({"user": ""}, "user is 1 to 128"),
        ({"user": "Ann Other"}, "user is 1 to 128"),
        ({"user": 17}, "user is 1 to 128"),
        ({"user": "u" * 129}, "user is 1 to 128"),
        ({"tenant": "Acme Corp."}, "tenant is 1 to 63 of a-z"),
        ({"tenant": ""}, "tenant is 1 to 63 of a-z"),
        ({"tenant": 4}, "tenant is 1 to 63 of a-z"),
        ({"scopes": ["root"]}, "scopes has root: there is runs:submit"),
        ({"scopes": "admin"}, "scopes is a list or a set"),
        ({"agents": "support"}, "agents is a list or a set"),
        ({"conversation": "17"}, "conversation is the id of one"),
    ],
)
def test_an_identity_that_cannot_be_says_what_may_be(parts: dict[str, Any], sentence: str) -> None:
    with pytest.raises((TypeError, ValueError), match=sentence):
        Identity(**{"user": "user:1", **parts})


async def test_a_function_that_is_not_async_will_do() -> None:
    async with site(lambda connection: Identity("user:1")) as shop:
        assert (await shop.client.get("/agents/v1/runs")).status_code == 200


async def test_what_the_function_raises_is_answered_by_the_application_around() -> None:
    raised: Any = HTTPException(307, headers={"Location": "/login"})

    async def who(connection: HTTPConnection) -> Any:
        if isinstance(raised, Exception):
            raise raised
        return raised

    async with site(who) as shop:
        answer = await shop.client.get("/agents/v1/runs")
        assert (answer.status_code, answer.headers["location"]) == (307, "/login")
        raised = HTTPException(402, "Your plan has no agents.")
        answer = await shop.client.get("/agents/v1/runs")
        assert (answer.status_code, answer.json()) == (402, {"detail": "Your plan has no agents."})
        assert (await shop.client.get("/agents/readyz")).status_code == 200, "it is not asked about probes"
        for wrong in ("user:1", {"user": "user:1"}, LookupError("of the database at 10.0.0.1")):
            raised = wrong
            answer = await shop.client.get("/agents/v1/runs")
            assert (answer.status_code, answer.text) == (500, "Internal Server Error")
        raised, alone = "user:1", httpx.ASGITransport(shop.api)
        async with httpx.AsyncClient(transport=alone, base_url="http://127.0.0.1") as client:
            with pytest.raises(TypeError, match=re.escape("has to return palaver.Identity or None, not str")):
                await client.get("/v1/runs")


async def test_the_function_sees_the_request_as_the_application_has_it() -> None:
    seen: list[Any] = []
    kept: list[Any] = []

    async def who(connection: HTTPConnection) -> Identity:
        seen.append((connection.app, connection.path_params, connection.session["user"], connection.state.caller))
        return Identity("user:1")

    class Around:
        """A middleware that has something of its own in the scope of a request, and looks at it afterwards."""

        def __init__(self, app: ASGIApp) -> None:
            self.app = app

        async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
            scope["session"] = {"user": "ann"}
            scope.setdefault("state", {})["caller"] = "theirs"
            await self.app(scope, receive, send)
            kept.append(scope["state"])

    def around(api: Mounted) -> FastAPI:
        app = FastAPI(middleware=[Middleware(Around)])
        app.mount("/shops/{shop}", api)
        return app

    async with site(who, around=around) as shop:
        run = (await shop.client.post("/shops/7/v1/runs", json=BODY)).json()
        assert run["links"]["self"] == f"/shops/7/v1/runs/{run['id']}"
    [(app, path_params, user, caller)] = seen
    assert isinstance(app, FastAPI)
    assert (path_params, user, caller) == ({"shop": "7"}, "ann", "theirs")
    assert kept == [{"caller": "theirs"}]


async def test_a_tenant_is_made_when_it_is_first_named() -> None:
    async with site() as shop:
        shop.user("ann", "acme")
        answers = await asyncio.gather(*(shop.client.get("/agents/v1/runs") for _ in range(5)))
        assert {answer.status_code for answer in answers} == {200}
        assert [tenant.name for tenant in await shop.store.tenants.list()] == ["default", "acme"]
        run = (await shop.client.post("/agents/v1/runs", json=BODY)).json()
        shop.user("bob", "globex")
        assert_problem(await shop.client.get(run["links"]["self"]), 404, "run_not_found")
        shop.user("eve")
        assert_problem(await shop.client.get(run["links"]["self"]), 404, "run_not_found")
        shop.user("joe", "acme")
        assert (await shop.client.get(run["links"]["self"])).json()["submitted_by"] == "user:ann"
        # For a minute it is not looked for again.
        await shop.redis.delete(access_keys.TENANTS)
        assert (await shop.client.get("/agents/v1/runs")).status_code == 200
        assert len(await shop.store.tenants.list()) == 1


async def test_a_tenant_that_leaves_is_refused_and_so_is_one_too_many(caplog: pytest.LogCaptureFixture) -> None:
    async with site() as shop:
        await shop.store.tenants.create("acme")
        await shop.redis.hset(access_keys.TENANTS, "-acme", "1")
        shop.user("ann", "acme")
        assert_problem(await shop.client.get("/agents/v1/runs"), 409, "tenant_erased")
        await shop.redis.hset(access_keys.TENANTS, mapping={f"t{n}": "{}" for n in range(2 * limit_of("tenants"))})
        shop.user("bob", "globex")
        assert_problem(await shop.client.get("/agents/v1/runs"), 503, "unavailable")
        assert "the tenant globex that the identity of a caller names cannot be made" in caplog.text
        shop.server.connected = False
        assert_problem(await shop.client.get("/agents/v1/runs"), 503, "unavailable")
        assert (await shop.client.get("/agents/healthz")).status_code == 200


@pytest.mark.slow
async def test_nothing_of_one_tenant_is_shown_to_another() -> None:
    def who(connection: HTTPConnection) -> Identity | None:
        name = connection.headers.get("authorization", "").removeprefix("Bearer ")
        return Identity("ci", name, scopes=SCOPES) if name in TENANTS else None

    server = TurnedDatabase()
    async with site(who, "/", dialects=dialects_of(("*",)), server=server) as shop:
        for name, tag in TENANTS.items():
            if tag:
                await shop.redis.hset(access_keys.TENANTS, mapping={name: orjson.dumps({"tag": tag}), f"@{tag}": name})
        app = await shop.api._started()
        api = World(app, shop.client, shop.store, shop.redis, server, shop.publisher)
        attack = Attack(api, await furnish(api, "acme"), "acme", "globex")
        tried = {"GET /v1/runs/{run_id}", "POST /v1/runs/{run_id}/cancel", "GET /v1/conversations/{conversation_id}"}
        for operation in operations_of(app.openapi()):
            if operation.id in tried:
                await attack.on(operation, [place for place in operation.places() if place.takes_id])
        assert attack.tried >= 8 * len(tried) / 2


@pytest.mark.parametrize(
    ("headers", "allowed"),
    [
        ({}, True),
        ({"sec-fetch-site": "same-origin", "origin": OWN}, True),
        # A proxy has put another host into the place of the one that was asked for.
        ({"sec-fetch-site": "same-origin", "origin": "https://shop.example"}, True),
        ({"sec-fetch-site": "none"}, True),
        ({"sec-fetch-site": "same-site", "origin": SUB}, False),
        ({"sec-fetch-site": "cross-site", "origin": OTHER}, False),
        ({"sec-fetch-site": "cross-site"}, False),
        ({"origin": OWN}, True),
        ({"origin": OTHER}, False),
        ({"origin": f"{OWN}:3000"}, False),
        ({"origin": "null"}, False),
        ({"sec-fetch-site": "cross-site", "origin": "https://app.example"}, True),
        ({"origin": "https://app.example"}, True),
    ],
)
async def test_only_pages_of_its_own_change_something(headers: dict[str, str], allowed: bool) -> None:
    settings = SETTINGS.model_copy(update={"cors_origins": ("https://app.example",)})
    async with site(settings=settings, dialects=(*DIALECTS, SPEAKING)) as shop:
        shop.user("ann")
        answer = await shop.client.post("/agents/v1/runs", json=BODY, headers=headers)
        if allowed:
            assert answer.status_code == 202, answer.text
        else:
            assert_problem(answer, 403, "origin_not_allowed")
        assert (await shop.client.get("/agents/v1/runs", headers=headers)).status_code == 200


@pytest.mark.parametrize("host", ["evil.example", "10.1.2.3"])
async def test_a_name_that_leads_here_brings_no_cookie_and_may_be_refused(host: str) -> None:
    async with site() as shop:
        assert_problem(await shop.client.get("/agents/v1/runs", headers={"host": host}), 401, "unauthenticated")
    async with site(settings=SETTINGS.model_copy(update={"allowed_hosts": ("127.0.0.1",)})) as shop:
        shop.user("ann")
        assert (await shop.client.get("/agents/v1/runs")).status_code == 200
        assert_problem(await shop.client.get("/agents/v1/runs", headers={"host": host}), 403, "host_not_allowed")
