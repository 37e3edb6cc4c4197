"""Closed by default: what wants no key is on one short list, whatever path, mount or socket a request comes by."""

from __future__ import annotations

import logging
import re
from collections.abc import AsyncIterator
from itertools import product
from typing import Any

import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Mount, Route, WebSocketRoute
from starlette.types import Message
from starlette.websockets import WebSocket

from api.app import create_app
from api.app.installed import dialects_of
from api.http.auth import DOCUMENTS
from palaver.config.settings import Settings
from palaver.errors import ConfigurationError
from tests.feature_cases import brought_to_tests
from tests.unit.api_world import BODY, RUN_ID, SETTINGS, World, assert_problem, in_one_world, world

KEY = "key-of-the-operators"
GUARDED = Settings(redis_url="redis://fake/0", api_keys=KEY)
BEARER = {"Authorization": f"Bearer {KEY}"}
EVERY_ROUTE = [
    (method, route.path_format.replace("{run_id}", RUN_ID).replace("{conversation_id}", "conv_x"))
    for route in create_app().routes
    if isinstance(route, Route)
    for method in sorted(route.methods or ())
]
# Making the list has loaded them.
PROBES = {path for dialect in dialects_of(("*",)) for path in dialect.probes}


def test_the_list_of_what_is_open_is_short() -> None:
    of_dialects = {path for paths in brought_to_tests("PROBES").values() for path in paths}
    assert {"/healthz", "/readyz", *of_dialects} == PROBES
    assert len(EVERY_ROUTE) >= 18
    others = [route for route in create_app().routes if not isinstance(route, Route)]
    assert all(isinstance(route, WebSocketRoute) for route in others), "one that is not among those below"


@pytest.mark.parametrize("root", ["", "/palaver", "/v1", "/healthz"])
async def test_every_route_wants_a_key_under_any_root(root: str) -> None:
    open_by_mistake = {}
    async with world(GUARDED) as api:
        for method, path in [*EVERY_ROUTE, ("GET", "/nothing"), ("GET", "/")]:
            answers = [await ask(api, method, path, root), await ask(api, method, root + path, root)]
            if path in PROBES:
                # There is no issuer, of which that would tell.
                assert answers[1] == (404 if path.startswith("/.well-known") else 200), (method, path)
            elif answers != [401, 401]:
                open_by_mistake[method, path] = answers
    assert open_by_mistake == {}


@in_one_world(
    [
        "/healthz/",
        "//healthz",
        "/healthz/../v1/runs",
        "/healthz\n",
        "/readyz/v1/runs",
        "/HEALTHZ",
        "/healthz;x",
        "/v1/runs#/healthz",
    ],
    GUARDED,
)
async def test_a_path_like_an_open_one_is_closed(api: World, path: str) -> None:
    for root in ("", "/healthz", "/palaver"):
        assert await ask(api, "GET", path, root) == 401


@pytest.mark.parametrize("root", ["", "/palaver", "/inner", "/healthz"])
async def test_what_somebody_adds_or_mounts_is_closed(root: str) -> None:
    async def hello(request: Request) -> Response:
        return PlainTextResponse("hello")

    deep = Starlette(routes=[Route("/healthz", hello)])
    inner = Starlette(routes=[Route("/healthz", hello), Route("/x", hello), Mount("/deep", deep)])
    async with world(GUARDED) as api:
        api.app.add_route("/new", hello)
        api.app.mount("/inner", inner)
        for path in ("/new", "/inner/x", "/inner/healthz", "/inner/deep/healthz"):
            assert await ask(api, "GET", root + path, root) == 401
            assert await ask(api, "GET", root + path, root, bearer=True) == 200


async def test_what_is_mounted_over_an_open_path_is_open_nowhere_else() -> None:
    async def hello(request: Request) -> Response:
        return PlainTextResponse("hello")

    async with world(GUARDED) as api:
        api.app.router.routes.insert(0, Mount("/healthz", routes=[Route("/{rest:path}", hello)]))
        for path in ("/healthz/", "/healthz/x", "/healthz/healthz"):
            assert await ask(api, "GET", path) == 401
            assert await ask(api, "GET", path, bearer=True) == 200


@pytest.mark.parametrize("extensions", [{}, {"websocket.http.response": {}}], ids=["closed", "answered"])
async def test_a_websocket_wants_a_key(extensions: dict[str, Any]) -> None:
    async def echo(socket: WebSocket) -> None:
        await socket.accept()
        await socket.close()

    inner = Starlette(routes=[WebSocketRoute("/healthz", echo)])
    async with world(GUARDED) as api:
        api.app.routes.append(WebSocketRoute("/live", echo))
        api.app.mount("/inner", inner)
        for root, path in product(["", "/palaver", "/healthz"], ["/live", "/inner/healthz"]):
            refused = await knock(api, root + path, {}, extensions, root)
            if extensions:
                assert (refused[0]["type"], refused[0]["status"]) == ("websocket.http.response.start", 401)
            else:
                assert refused == [{"type": "websocket.close", "code": 1008}]
            known = {"authorization": f"Bearer {KEY}"}
            assert (await knock(api, root + path, known, extensions, root))[0]["type"] == "websocket.accept"
    async with world() as api:
        api.app.routes.append(WebSocketRoute("/live", echo))
        page = {"origin": "http://evil.example"}
        assert (await knock(api, "/live", page, {}))[0]["type"] == "websocket.close"
        assert (await knock(api, "/live", {}, {}))[0]["type"] == "websocket.accept"


@pytest.mark.slow
async def test_the_documents_may_be_opened_and_nothing_else_by_that() -> None:
    async with world(GUARDED.model_copy(update={"open_docs": True})) as api:
        assert (await api.client.get("/openapi.json")).status_code == 200
        assert (await api.client.get("/docs")).status_code == 200
        assert (await api.client.get("/redoc")).status_code == 401
        assert (await api.client.get("/v1/runs")).status_code == 401
        assert (await api.client.get("/redoc", headers=BEARER)).status_code == 404


async def test_strangers_hear_whether_it_is_ready_and_nothing_of_what_goes_on() -> None:
    async with world(GUARDED) as api:
        assert (await api.client.get("/readyz")).json() == {
            "status": "ok",
            "store_rewound": None,
            "no_worker": None,
            "refused_workers": None,
        }
        api.server.connected = False
        for headers in ({}, BEARER):
            away = assert_problem(await api.client.get("/readyz", headers=headers), 503, "not_ready")
            assert away["detail"] == "The store does not answer."


@in_one_world(["127.0.0.1", "127.0.0.1:8080", "localhost", "LOCALHOST:1", "[::1]", "[::1]:8080", "127.1.2.3"])
async def test_without_keys_loopback_names_are_served(api: World, host: str) -> None:
    assert (await api.client.get("/v1/runs", headers={"Host": host})).status_code == 200


@in_one_world(["evil.example", "evil.example:8080", "127.0.0.1.evil.example", "localhost.evil.example", "192.168.1.5",
     "[2001:db8::1]", "0.0.0.0"])  # fmt: skip
async def test_without_keys_no_other_name_is_served(api: World, host: str) -> None:
    for path in ("/v1/runs", "/docs", "/openapi.json"):
        problem = assert_problem(await api.client.get(path, headers={"Host": host}), 403, "host_not_allowed")
        assert "PALAVER_ALLOWED_HOSTS" in problem["detail"]
    assert (await api.client.get("/healthz", headers={"Host": host})).status_code == 200


async def test_further_names_are_served_where_a_setting_says_so() -> None:
    named = Settings(redis_url="redis://fake/0", allowed_hosts="palaver.test, Other.test")
    async with world(named) as api:
        for host, status in (
            ("palaver.test:80", 200),
            ("other.test", 200),
            ("127.0.0.1", 200),
            ("x.palaver.test", 403),
        ):
            assert (await api.client.get("/v1/runs", headers={"Host": host})).status_code == status
        page = {"Host": "palaver.test", "Origin": "https://palaver.test"}
        assert (await api.client.get("/v1/runs", headers=page)).status_code == 200
    async with world(named.model_copy(update={"api_keys": GUARDED.api_keys})) as api:
        for host, status in (("palaver.test", 200), ("127.0.0.1", 403), ("evil.example", 403)):
            assert (await api.client.get("/v1/runs", headers={"Host": host, **BEARER})).status_code == status
    async with world(GUARDED) as api:
        assert (await api.client.get("/v1/runs", headers={"Host": "any.example", **BEARER})).status_code == 200


@in_one_world(
    [
        ("http://127.0.0.1:3000", 200),
        ("http://localhost", 200),
        ("http://[::1]:8080", 200),
        ("http://evil.example", 403),
        ("null", 403),
        ("http://localhost.evil.example", 403),
        ("http://localhost@evil.example", 403),
        ("", 403),
        ("http://[", 403),
    ]
)
async def test_without_keys_pages_of_loopback_are_served(api: World, origin: str, status: int) -> None:
    answer = await api.client.get("/v1/runs", headers={"Origin": origin})
    assert answer.status_code == status
    if status != 200:
        assert_problem(answer, 403, "origin_not_allowed")


async def test_a_page_of_another_site_changes_nothing() -> None:
    cross = {"Sec-Fetch-Site": "cross-site"}
    async with world() as api:
        run = await api.submit()
        assert_problem(await api.client.post("/v1/conversations", headers=cross), 403, "origin_not_allowed")
        assert_problem(await api.client.post("/v1/runs", json=BODY, headers=cross), 403, "origin_not_allowed")
        assert_problem(await api.client.delete(f"/v1/runs/{run['id']}", headers=cross), 403, "origin_not_allowed")
        assert (await api.client.get("/v1/runs", headers=cross)).status_code == 200
    async with world(GUARDED) as api:
        answer = await api.client.post("/v1/conversations", headers={**cross, **BEARER})
        assert_problem(answer, 403, "origin_not_allowed")


async def test_a_page_says_the_type_even_of_no_body_and_curl_need_not() -> None:
    async with world() as api:
        page = {"Origin": "http://127.0.0.1:3000"}
        assert_problem(await api.client.post("/v1/conversations", headers=page), 415, "unsupported_media_type")
        own = {"Sec-Fetch-Site": "same-origin"}
        assert_problem(await api.client.post("/v1/conversations", headers=own), 415, "unsupported_media_type")
        said = {**page, "Content-Type": "application/json"}
        assert (await api.client.post("/v1/conversations", headers=said)).status_code == 201
        assert (await api.client.post("/v1/conversations")).status_code == 201
        run = await api.submit()
        assert (await api.client.post(f"/v1/runs/{run['id']}/cancel")).status_code == 200


@pytest.mark.parametrize(
    ("server", "settings", "status"),
    [
        (("127.0.0.1", 8080), SETTINGS, 200),
        (("::1", 8080), SETTINGS, 200),
        (("/run/palaver.sock", None), SETTINGS, 200),
        (("10.0.0.7", 8080), SETTINGS, 403),
        (("2001:db8::1", 8080), SETTINGS, 403),
        (("10.0.0.7", 8080), SETTINGS.model_copy(update={"insecure_open": True}), 200),
        (("10.0.0.7", 8080), GUARDED, 401),
    ],
)
async def test_without_keys_a_request_must_come_to_a_loopback_address(
    server: tuple[str, int | None], settings: Settings, status: int
) -> None:
    async with world(settings) as api:
        assert await ask(api, "GET", "/v1/runs", server=server) == status
        assert await ask(api, "GET", "/healthz", server=server) == 200


async def test_who_means_to_be_open_is_asked_by_address_and_not_by_a_strange_name() -> None:
    async with world(SETTINGS.model_copy(update={"insecure_open": True})) as api:
        for host, status in (("10.0.0.7:8080", 200), ("127.0.0.1", 200), ("evil.example", 403)):
            assert await ask(api, "GET", "/v1/runs", server=("10.0.0.7", 8080), host=host) == status


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "10.0.0.7", "palaver.test"])
async def test_an_open_address_without_keys_is_refused_at_start(host: str) -> None:
    for settings in (GUARDED, SETTINGS.model_copy(update={"insecure_open": True})):
        async with world(settings.model_copy(update={"host": host})):
            pass
    with pytest.raises(ConfigurationError, match=r"PALAVER_HOST: .*PALAVER_API_KEYS.*PALAVER_INSECURE_OPEN"):
        async with world(SETTINGS.model_copy(update={"host": host})):
            pass


@pytest.mark.slow
async def test_the_page_of_the_document_needs_nothing_from_elsewhere(caplog: pytest.LogCaptureFixture) -> None:
    async with world() as api:
        with caplog.at_level(logging.WARNING):
            page = await api.client.get("/docs")
            asked = [f"/{name}" for name in re.findall(r"(?:src|href)='([^']+)'", page.text)]
            answers = {path: await api.client.get(path) for path in asked}
        assert not caplog.records
        policy = page.headers["content-security-policy"]
        assert "default-src 'none'; script-src 'self';" in policy
        assert "unsafe-eval" not in policy
        assert "://" not in page.text
        assert not re.search(r"<script[^>]*>[^<]", page.text), "no script in the page itself"
        assert {*asked, "/docs", "/"} == DOCUMENTS
        assert {answer.status_code for answer in answers.values()} == {200}
        kept = {answer.headers.get("x-content-type-options") for path, answer in answers.items() if "docs" in path}
        assert kept == {"nosniff"}
        start = answers["/docs/start.js"].text
        assert 'url: "openapi.json"' in start
        assert "tryItOutEnabled: true" in start
        assert "SwaggerUIBundle" in answers["/docs/swagger-ui-bundle.js"].text


async def test_the_address_alone_leads_to_the_documents() -> None:
    async with world(GUARDED.model_copy(update={"open_docs": True})) as api:
        answer = await api.client.get("/")
        assert (answer.status_code, answer.headers["location"]) == (307, "/docs")
    async with world(GUARDED) as api:
        assert (await api.client.get("/")).status_code == 401


@pytest.mark.slow
async def test_the_documents_begin_with_what_is_used_first() -> None:
    async with world() as api:
        document = (await api.client.get("/openapi.json")).json()
    paths = list(document["paths"])
    assert [paths[0], next(iter(document["paths"][paths[0]]))] == ["/v1/runs", "post"]
    assert paths[1:3] == ["/v1/runs/{run_id}", "/v1/runs/{run_id}/events"]
    of_openhands = [path.startswith("/openhands/") for path in paths]
    assert of_openhands == sorted(of_openhands), "they come last"
    used = {tag for methods in document["paths"].values() for each in methods.values() for tag in each["tags"]}
    assert {tag["name"] for tag in document["tags"]} == used


async def ask(
    api: World,
    method: str,
    path: str,
    root: str = "",
    *,
    server: tuple[str, int | None] = ("127.0.0.1", 80),
    host: str = "127.0.0.1",
    bearer: bool = False,
) -> int:
    """The status of an answer to a request that a server under ``root`` passes on, with a key if ``bearer``."""
    headers = {"host": host} | ({"authorization": f"Bearer {KEY}"} if bearer else {})
    scope = _scope("http", path, root, server, headers) | {"method": method}
    return (await _talk(api, scope, {"type": "http.request", "body": b""}))[0]["status"]  # type: ignore[no-any-return]


async def knock(
    api: World, path: str, headers: dict[str, str], extensions: dict[str, Any], root: str = ""
) -> list[Message]:
    """What a WebSocket is told that a server under ``root`` passes on."""
    scope = _scope("websocket", path, root, ("127.0.0.1", 80), {"host": "127.0.0.1", **headers})
    return await _talk(api, scope | {"extensions": extensions}, {"type": "websocket.connect"})


def _scope(kind: str, path: str, root: str, server: tuple[str, int | None], headers: dict[str, str]) -> dict[str, Any]:
    return {
        "type": kind, "asgi": {"version": "3.0", "spec_version": "2.3"}, "http_version": "1.1", "scheme": kind,
        "path": path, "raw_path": path.encode(), "root_path": root, "query_string": b"", "client": ("127.0.0.1", 1),
        "server": server, "headers": [(name.encode(), value.encode()) for name, value in headers.items()],
    }  # fmt: skip


async def _talk(api: World, scope: dict[str, Any], first: Message) -> list[Message]:
    async def messages() -> AsyncIterator[Message]:
        yield first
        while True:
            yield {"type": "http.disconnect"}

    said, given = [], messages()

    async def send(message: Message) -> None:
        said.append(message)

    await api.app(scope, lambda: anext(given), send)
    return said
