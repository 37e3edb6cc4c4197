"""Each route of each dialect with a key of each scope: the document says which opens it, and no other does.

The routes come from the document and from the dialects, so that a new one is among them by itself.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Any, Final
from uuid import UUID

import pytest
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import WebSocketRoute
from starlette.types import Message
from starlette.websockets import WebSocket

from api.app import create_app
from api.app.installed import dialects_of
from api.kit.dialects import Dialect
from api.native import NATIVE
from palaver.config.settings import Settings
from palaver.store.access.api_keys import KeyGrant
from palaver.vocabulary.ids import conversation_id
from palaver.vocabulary.scopes import SCOPES, Scope
from tests.unit.api_world import BODY, CONVERSATION_ID, RUN_ID, SETTINGS, WEBHOOK_ID, World, assert_problem, call, world
from tests.unit.toy_dialect import TOY
from tests.waiting import PATIENCE

DIALECTS: Final = (*dialects_of(("*",)), TOY)
CLOSED = SETTINGS.model_copy(update={"require_keys": True})
NUMBER = UUID(int=7)
"""Of a conversation that is not there."""
PARTS: Final = {
    "run_id": RUN_ID,
    "response_id": RUN_ID.replace("run_", "resp_"),
    "conversation_id": CONVERSATION_ID,
    "conversation": str(NUMBER),
    "item_id": "msg_1",
    "model_id": "no-provider/no-model",
    "event": str(NUMBER),
    "task": RUN_ID,
    "api_key_id": "0" * 12,
    "webhook_id": WEBHOOK_ID,
    "batch_id": "batch_" + "0" * 24,
    "name": "nobody",
    "chat_id": "nothing",
    "thread_id": "nothing",
    "tenant": "nobody",
}
KEEPING: Final = {"GET /v1/caller", "POST /v1/runs", "POST /mcp", "POST /ag-ui", "POST /openai/v1/responses"}
"""Routes that keep a caller who is held to one conversation to it themselves."""
BESIDE: Final = [("POST", "/openai/v1/responses", {"model": "fake/tool-20", "input": "hello"})]
"""What such a caller asks one of them for beside its conversation."""
DOCUMENT: Final = create_app(SETTINGS, dialects=DIALECTS).openapi()["paths"]
ROUTES: Final = [
    (method.upper(), path, tuple(scope for way in operation.get("security", ()) for scope in way["key"]))
    for path, methods in DOCUMENT.items()
    for method, operation in methods.items()
]


@pytest.fixture
async def api() -> AsyncIterator[World]:
    async with world(CLOSED, dialects=DIALECTS) as made:
        yield made


async def bearer(api: World, **fields: Any) -> dict[str, str]:
    """The header of a new key."""
    fields = {"name": "key", "scopes": frozenset(SCOPES)} | fields
    return {"Authorization": f"Bearer {(await api.store.api_keys.create(KeyGrant(**fields))).key}"}


def filled(path: str, **parts: str) -> str:
    """A path with the ids of what is not there, or with these."""
    return re.sub(r"{(\w+)}", lambda part: {**PARTS, **parts}[part[1]], path)


async def knock(api: World, path: str, headers: Mapping[str, str]) -> list[Message]:
    """What a WebSocket is told until it is closed, by a client that says nothing."""
    said: list[Message] = []
    first = [{"type": "websocket.connect"}]

    async def receive() -> Message:
        if not first:
            await asyncio.Event().wait()
        return first.pop()

    async def send(message: Message) -> None:
        said.append(message)

    given = [(b"host", b"127.0.0.1"), *((name.lower().encode(), value.encode()) for name, value in headers.items())]
    scope = {
        "type": "websocket", "asgi": {"version": "3.0", "spec_version": "2.3"}, "http_version": "1.1", "scheme": "ws",
        "path": path, "raw_path": path.encode(), "root_path": "", "query_string": b"", "client": ("127.0.0.1", 1),
        "server": ("127.0.0.1", 80), "headers": given, "extensions": {},
    }  # fmt: skip
    await asyncio.wait_for(api.app(scope, receive, send), PATIENCE)
    return said


def code_of(said: Sequence[Message]) -> int:
    """The code with which a WebSocket was closed."""
    (code,) = (int(message["code"]) for message in said if message["type"] == "websocket.close")
    return code


def test_every_route_says_its_scope_or_is_a_probe() -> None:
    assert len(ROUTES) > 40
    probes = {path for dialect in DIALECTS for path in dialect.probes}
    assert {path for _, path, scopes in ROUTES if not scopes} == probes
    assert {scope for _, _, scopes in ROUTES for scope in scopes} <= set(SCOPES)
    for method, path, scopes in ROUTES:
        told = DOCUMENT[path][method.lower()]["responses"].get("403", {}).get("description", "")
        assert ("insufficient_scope" in told) == bool(scopes), (method, path)


@pytest.mark.slow
@pytest.mark.parametrize("scope", SCOPES)
async def test_a_key_of_one_scope_opens_its_routes_and_no_other(api: World, scope: Scope) -> None:
    held, others = await bearer(api, scopes=frozenset({scope})), await bearer(api, scopes=frozenset(SCOPES) - {scope})
    for method, path, scopes in ROUTES:
        for headers, has in ((held, {scope}), (others, set(SCOPES) - {scope})):
            body: dict[str, Any] | None = None if method == "GET" else {}
            answer = await api.client.request(method, filled(path), headers=headers, json=body)
            if not scopes or has & set(scopes):
                assert answer.status_code not in (401, 403), (method, path, scope)
                continue
            assert answer.status_code == 403, (method, path, scope)
            needed = f'error="insufficient_scope", scope="{" ".join(scopes)}"'
            assert answer.headers["www-authenticate"].endswith(needed), (method, path)
            assert "insufficient_scope" in answer.text or path.startswith("/openhands"), (method, path)


@pytest.mark.parametrize("scope", SCOPES)
async def test_a_key_of_one_scope_opens_its_sockets_and_no_other(api: World, scope: Scope) -> None:
    headers = await bearer(api, scopes=frozenset({scope}))
    sockets = [(dialect, route.path) for dialect in DIALECTS for route in dialect.sockets]
    for dialect, path in sockets:
        said = await knock(api, filled(path), headers)
        assert said[0]["type"] == "websocket.accept"
        # The conversation is not there, which only those hear who may ask.
        assert (code_of(said) == 4004) == (dialect.socket_scopes[path] == scope), (path, scope)


def test_a_route_without_a_scope_is_none() -> None:
    async def nothing() -> Response:
        raise NotImplementedError

    dialect = Dialect("odd", "/odd", TOY.respond, TOY.errors)
    declared: dict[str, Any] = {"tag": "x", "summary": "x", "answers": {200: ("x", None)}}
    with pytest.raises(TypeError, match="scope"):
        dialect.route("GET", "/odd/x", **declared)
    with pytest.raises(ValueError, match="/odd/x needs runs:everything"):
        dialect.route("GET", "/odd/x", scope="runs:everything", **declared)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="scope"):
        dialect.socket("/odd/x", key_in=lambda frame: None, codes=None)  # type: ignore[call-arg, arg-type]
    dialect.route("GET", "/odd/x", scope=None, **declared)(nothing)
    assert dialect.probes == {"/odd/x"}


async def test_what_somebody_adds_has_no_scope_and_is_not_there_for_a_key(api: World) -> None:
    async def hello(request: Request) -> Response:
        return PlainTextResponse("hello")

    async def echo(socket: WebSocket) -> None:
        await socket.accept()
        await socket.close()

    api.app.add_route("/new", hello)
    api.app.routes.append(WebSocketRoute("/live", echo))
    headers = await bearer(api)
    assert (await api.client.get("/new", headers=headers)).status_code == 404
    assert (await api.client.get("/openapi.json", headers=headers)).status_code == 200
    assert (await knock(api, "/live", headers))[0]["type"] == "websocket.close"
    listed = Settings(redis_url="redis://fake/0", api_keys="a-key-of-the-environment")
    async with world(listed) as other:
        other.app.add_route("/new", hello)
        known = {"Authorization": "Bearer a-key-of-the-environment"}
        assert (await other.client.get("/new", headers=known)).status_code == 200


ITEMS: Final = [
    ({"type": "approval", "action_id": "all", "decision": "approve"}, "actions:approve"),
    ({"type": "message", "content": "go on"}, "runs:act"),
    ({"type": "pause"}, "runs:act"),
]


async def test_each_item_of_an_input_needs_its_scope(api: World) -> None:
    everything = await bearer(api)
    api.client.headers.update(everything)
    run = await api.submit(agent={**BODY["agent"], "approvals": {"require": ["*"]}})
    await api.ask(run, call("call_1", "approval"))
    path = f"{run['links']['self']}/input"
    for scope, other in (("actions:approve", "runs:act"), ("runs:act", "actions:approve")):
        headers = await bearer(api, scopes=frozenset({scope}))
        for item, needed in ITEMS:
            answer = await api.client.post(path, json={"items": [item]}, headers=headers)
            if needed == scope:
                assert answer.status_code == 202, answer.text
            else:
                assert_problem(answer, 403, "insufficient_scope")
                assert f'scope="{other}"' in answer.headers["www-authenticate"]
    both = [ITEMS[0][0], ITEMS[1][0]]
    for scope in ("actions:approve", "runs:act"):
        headers = await bearer(api, scopes=frozenset({scope}))
        assert (await api.client.post(path, json={"items": both}, headers=headers)).status_code == 403


@pytest.mark.parametrize("how", ["interrupt", "rollback", "steer"])
async def test_who_may_only_submit_does_not_change_a_run_by_it(api: World, how: str) -> None:
    headers = await bearer(api, scopes=frozenset({"runs:submit"}))
    begun = (await api.client.post("/v1/runs", json=BODY, headers=headers)).json()
    body = {**BODY, "conversation_id": begun["conversation_id"], "on_conflict": how}
    assert_problem(await api.client.post("/v1/runs", json=body, headers=headers), 403, "insufficient_scope")
    answer = await api.client.post("/v1/runs", json=body, headers=await bearer(api))
    assert answer.status_code == 202, answer.text


@pytest.fixture
async def two(api: World) -> tuple[dict[str, Any], dict[str, Any]]:
    """A run of the conversation that a key is held to, and one of another."""
    api.client.headers.update(await bearer(api))
    mine, other = await api.submit(), await api.submit()
    api.client.headers.update(await bearer(api, conversation=mine["conversation_id"]))
    return mine, other


def shown(text: str, *ids: str) -> str:
    """An answer without what differs from one request to the next."""
    for each in sorted(ids, key=len, reverse=True):
        text = text.replace(each, "ID")
    return re.sub(r"req_\w+", "REQUEST", text)


@pytest.mark.slow
async def test_what_is_not_of_its_conversation_is_unknown_to_a_key(
    api: World, two: tuple[dict[str, Any], dict[str, Any]]
) -> None:
    _, other = two
    number = UUID(int=0xABC)
    there = conversation_id(number, 1)
    await api.client.post("/v1/conversations", json={"id": there}, headers=await bearer(api))
    foreign = {"run_id": other["id"], "conversation_id": other["conversation_id"], "conversation": str(number)}
    seen = set()
    for method, path, scopes in ROUTES:
        named = re.findall(r"{(\w+)}", path)
        if not scopes or not named:
            continue
        body: dict[str, Any] | None = None if method in ("GET", "DELETE") else {}
        answers = [
            await api.client.request(method, filled(path, **parts), json=body)
            for parts in (foreign, {name: PARTS[name] for name in foreign})
        ]
        ids = (*foreign.values(), *PARTS.values(), there, conversation_id(NUMBER, 1))
        texts = [shown(each.text, *ids) for each in answers]
        assert answers[0].status_code == answers[1].status_code >= 400, (method, path)
        assert texts[0] == texts[1], (method, path)
        seen.add(answers[0].status_code)
    assert seen <= {403, 404, 422}


async def test_a_key_that_is_held_to_a_conversation_works_there(
    api: World, two: tuple[dict[str, Any], dict[str, Any]]
) -> None:
    mine, other = two
    own = f"/v1/conversations/{mine['conversation_id']}"
    for path in (mine["links"]["self"], own, f"{own}/messages"):
        assert (await api.client.get(path)).status_code == 200, path
    body = {**BODY, "conversation_id": mine["conversation_id"]}
    assert (await api.client.post("/v1/runs", json=body)).status_code == 202
    assert (await api.client.post(f"{mine['links']['self']}/cancel")).status_code == 200
    assert (await api.client.get("/readyz")).json()["status"] == "ok"
    for foreign in (other["conversation_id"], CONVERSATION_ID):
        answer = await api.client.post("/v1/runs", json={**BODY, "conversation_id": foreign})
        assert_problem(answer, 422, "unknown_conversation", "/conversation_id")


async def test_a_key_that_is_held_to_a_conversation_goes_no_further(
    api: World, two: tuple[dict[str, Any], dict[str, Any]]
) -> None:
    mine, _ = two
    beyond: list[tuple[str, str, dict[str, Any]]] = [
        (method, filled(path), {})
        for method, path, scopes in ROUTES
        if scopes and "{" not in path and f"{method} {path}" not in KEEPING
    ]
    assert len(beyond) > 10
    beyond += [
        ("POST", "/v1/runs", BODY),
        *((method, path, body) for method, path, body in BESIDE if path in DOCUMENT),
        ("POST", f"/v1/conversations/{mine['conversation_id']}/fork", {}),
        ("POST", f"{mine['links']['self']}/retry", {"from_step": 1}),
    ]
    for method, path, body in beyond:
        answer = await api.client.request(method, path, json=None if method == "GET" else body)
        assert answer.status_code == 403, (method, path, answer.text)
        assert 'error="insufficient_scope"' in answer.headers["www-authenticate"]


assert NATIVE in DIALECTS
