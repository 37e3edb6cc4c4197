"""What surrounds a body: keys, hosts, sizes, methods, media types, query parameters, request ids."""

from __future__ import annotations

import pytest

from palaver.config.settings import Settings
from tests.unit.api_world import BODY, RUN_ID, LiveRequest, World, assert_problem, in_one_world, world

GUARDED = Settings(redis_url="redis://fake/0", api_keys="first-key-of-all,clé-clé-clé-clé-clé")
ROUTES = [
    ("GET", "/v1/runs"),
    ("POST", "/v1/runs"),
    ("GET", f"/v1/runs/{RUN_ID}"),
    ("GET", f"/v1/runs/{RUN_ID}/events"),
    ("POST", f"/v1/runs/{RUN_ID}/cancel"),
    ("POST", f"/v1/runs/{RUN_ID}/input"),
    ("POST", f"/v1/runs/{RUN_ID}/retry"),
    ("POST", "/v1/runs/actions"),
    ("DELETE", f"/v1/runs/{RUN_ID}"),
    ("POST", "/v1/conversations"),
    ("GET", "/v1/conversations/x"),
    ("DELETE", "/v1/conversations/x"),
    ("GET", "/v1/conversations/x/messages"),
    ("GET", "/v1/queues"),
    ("GET", "/v1/nothing"),
]


@in_one_world(ROUTES, GUARDED)
async def test_every_route_of_the_api_needs_a_key(api: World, method: str, path: str) -> None:
    problem = assert_problem(await api.client.request(method, path), 401, "unauthenticated")
    assert problem["instance"] == path


@pytest.mark.parametrize(
    "authorization",
    [b"", b"first-key-of-all", b"Basic first-key-of-all", b"Bearer", b"Bearer ", b"Bearer FIRST-KEY-OF-ALL",
     b"Bearer first-key-of-all x",
     b"Bearer first-key-of-al", b"Bearer \xff\xfe", b"Bearer first-key-of-all,first-key-of-all"],
)  # fmt: skip
async def test_a_wrong_key_is_refused_and_not_logged(authorization: bytes, caplog: pytest.LogCaptureFixture) -> None:
    async with world(GUARDED) as api:
        answer = await api.client.get("/v1/runs", headers={b"Authorization": authorization})
        assert_problem(answer, 401, "unauthenticated")
        assert answer.headers["www-authenticate"].startswith("Bearer")
        assert "first-ke" not in answer.text + caplog.text


@in_one_world(["Bearer first-key-of-all", "bearer  first-key-of-all", "Bearer clé-clé-clé-clé-clé"], GUARDED)
async def test_a_right_key_is_let_in(api: World, authorization: str) -> None:
    headers = {b"Authorization": authorization.encode()}
    assert (await api.client.get("/v1/runs", headers=headers)).status_code == 200


@pytest.mark.parametrize("path", ["/v1/runs?api_key=first-key-of-all", "/v1/runs?access_token=first-key-of-all"])
async def test_a_key_in_the_url_is_no_key(path: str) -> None:
    async with world(GUARDED) as api:
        assert_problem(await api.client.get(path), 401, "unauthenticated")


@in_one_world(
    [
        ("limit=abc", 422, "validation_error", "?limit"),
        ("limit=0", 422, "validation_error", "?limit"),
        ("limit=201", 422, "validation_error", "?limit"),
        ("limit=-1", 422, "validation_error", "?limit"),
        ("limit=99999999999999999999", 422, "validation_error", "?limit"),
        ("limit=%D9%A5", 422, "validation_error", "?limit"),
        ("limit=1_0", 422, "validation_error", "?limit"),
        ("limit=5.0", 422, "validation_error", "?limit"),
        ("limit=+5", 422, "validation_error", "?limit"),
        ("limit=", 422, "validation_error", "?limit"),
        ("limit=5&limit=6", 400, "duplicate_parameter", "?limit"),
        ("status=queued&status=done", 422, "validation_error", "?status"),
        ("status=queued&status=", 422, "validation_error", "?status"),
        ("limt=5", 400, "unknown_parameter", "?limt"),
        ("%00=5", 400, "unknown_parameter", "?"),
        ("offset=5", 400, "unknown_parameter", "?offset"),
        ("status=", 422, "validation_error", "?status"),
        ("status=done", 422, "validation_error", "?status"),
        ("status=queued,,running", 422, "validation_error", "?status"),
        ("error_class=rate_limit", 422, "validation_error", "?error_class"),
        ("error_class=budget", 422, "validation_error", "?error_class"),
        ("error_class=content_filter", 422, "validation_error", "?error_class"),
        ("error_class=tool_error", 422, "validation_error", "?error_class"),
        ("conversation_id=conv_*", 422, "validation_error", "?conversation_id"),
        ("tag=", 422, "validation_error", "?tag"),
        ("agent=", 422, "validation_error", "?agent"),
        ("created_after=yesterday", 422, "validation_error", "?created_after"),
        ("created_after=1700000000", 422, "validation_error", "?created_after"),
        ("created_before=2026-01-01T00:00:00", 422, "validation_error", "?created_before"),
        ("created_before=2026-01-01T00:00:00+01:00", 422, "validation_error", "?created_before"),
        (
            "created_before=2026-01-01T00:00:00Z&created_after=2026-01-01T00:00:00Z",
            422,
            "validation_error",
            "?",
        ),
    ]
)
async def test_query_parameters_are_read_strictly(api: World, query: str, status: int, code: str, place: str) -> None:
    assert_problem(await api.client.get(f"/v1/runs?{query}"), status, code, place)


@in_one_world(["%ff=1", "limit=%C3%28", "&".join(f"a{n}=1" for n in range(60))])
async def test_a_query_string_that_cannot_be_read_is_refused(api: World, query: str) -> None:
    assert_problem(await api.client.get(f"/v1/runs?{query}"), 400, "malformed_request")


@in_one_world(
    [
        ("GET", "/v1/conversations/x?a=1"),
        ("POST", "/v1/runs?wait=5"),
        ("GET", f"/v1/runs/{RUN_ID}?wait=5&a=1"),
        ("POST", f"/v1/runs/{RUN_ID}/cancel?wait=5"),
        ("POST", f"/v1/runs/{RUN_ID}/input?wait=5"),
        ("POST", f"/v1/runs/{RUN_ID}/retry?from_step=5"),
        ("POST", "/v1/runs/actions?dry_run=true"),
        ("DELETE", f"/v1/runs/{RUN_ID}?force=true"),
        ("DELETE", "/v1/conversations/x?force=true"),
        ("GET", "/v1/queues?name=model"),
    ]
)
async def test_no_route_takes_parameters_that_it_does_not_know(api: World, method: str, path: str) -> None:
    body = BODY if path.startswith("/v1/runs?") else None
    assert_problem(await api.client.request(method, path, json=body), 400, "unknown_parameter")


@in_one_world(["wait=61", "wait=-1", "wait=soon", "until=never"])
async def test_a_wait_has_its_limits(api: World, query: str) -> None:
    run = await api.submit()
    assert_problem(await api.client.get(f"{run['links']['self']}?{query}"), 422, "validation_error")


@in_one_world(
    [
        ("DELETE", "/v1/runs", "GET, POST"),
        ("PUT", "/v1/runs", "GET, POST"),
        ("TRACE", "/v1/runs", "GET, POST"),
        ("PATCH", f"/v1/runs/{RUN_ID}", "DELETE, GET"),
        ("GET", f"/v1/runs/{RUN_ID}/cancel", "POST"),
        ("PUT", "/v1/runs/actions", "POST"),
        ("PUT", "/v1/conversations/x", "DELETE, GET, PATCH"),
        ("POST", "/healthz", "GET"),
        ("DELETE", "/v1/conversations", "GET, POST"),
    ]
)
async def test_other_methods_are_told_what_is_allowed(api: World, method: str, path: str, allow: str) -> None:
    answer = await api.client.request(method, path)
    assert_problem(answer, 405, "method_not_allowed")
    assert answer.headers["allow"] == allow


@in_one_world(["/v1", "/v1/", "/v1/runs/", "/v2/runs", "/errors/not_found", "/v1/runs/a/b"])
async def test_other_paths_are_problems_too(api: World, path: str) -> None:
    assert_problem(await api.client.get(path), 404, "not_found")


@in_one_world(["text/html", "text/event-stream;q=0, text/plain", "application/xml", "application/*;q=0", ","])
async def test_media_types_that_are_not_offered_are_not_acceptable(api: World, accept: str) -> None:
    run = await api.submit()
    for path in ("/v1/runs", run["links"]["self"], run["links"]["events"], "/v1/queues"):
        answer = await api.client.get(path, headers={"Accept": accept})
        assert_problem(answer, 406, "not_acceptable")


@in_one_world(["*/*", "application/*", "text/html, */*;q=0.1", "application/json;q=0.5, text/html"])
async def test_media_types_that_cover_json_are_served(api: World, accept: str) -> None:
    assert (await api.client.get("/v1/runs", headers={"Accept": accept})).status_code == 200


async def test_a_url_and_headers_have_limits() -> None:
    async with world() as api:
        assert_problem(await api.client.get(f"/v1/runs?cursor={'a' * 60_000}"), 414, "uri_too_long")
        assert_problem(await api.client.get(f"/v1/runs/{'a' * 10_000}"), 414, "uri_too_long")
        many = [(f"X-{n}", "1") for n in range(500)]
        assert_problem(await api.client.get("/v1/runs", headers=many), 431, "headers_too_large")
        large = {"X-Large": "a" * 100_000}
        assert_problem(await api.client.get("/v1/runs", headers=large), 431, "headers_too_large")


@in_one_world(["a/evil?", "a b", "", "a@b", "a:99999999", "[::1", "a\\b", "a,b"])
async def test_a_host_that_is_none_is_refused(api: World, host: str) -> None:
    assert_problem(await api.client.get("/v1/runs", headers={"Host": host}), 400, "invalid_host")


@in_one_world(["localhost", "127.0.0.1:8080", "[::1]:8080", "palaver.example", "api_1:80"], GUARDED)
async def test_with_a_key_any_host_is_let_in(api: World, host: str) -> None:
    headers = {"Host": host, "Authorization": "Bearer first-key-of-all"}
    assert (await api.client.get("/v1/runs", headers=headers)).status_code == 200


async def test_two_lengths_are_refused() -> None:
    async with world() as api:
        live = LiveRequest(api.app, "POST", "/v1/runs", {"content-length": "5", "transfer-encoding": "chunked"})
        await live.task
        assert live.status == 400
        assert b"malformed_request" in live.body


@pytest.mark.slow
async def test_every_answer_has_a_request_id() -> None:
    async with world() as api:
        answers = [
            await api.client.get(path) for path in ("/healthz", "/v1/runs", "/nothing", "/v1/runs/x", "/openapi.json")
        ]
        answers.append(await api.client.delete("/v1/runs"))
        ids = [answer.headers["x-request-id"] for answer in answers]
        assert len(set(ids)) == len(ids)
        assert all(each.startswith("req_") for each in ids)


@in_one_world([("abc-123", True), ("a" * 65, False), ("a b", False), ("é", False)])
async def test_a_request_id_of_the_client_is_kept_if_it_may_enter_a_log(api: World, given: str, kept: bool) -> None:
    answer = await api.client.get("/healthz", headers={b"X-Request-Id": given.encode()})
    assert (answer.headers["x-request-id"] == given) is kept


async def test_what_is_no_http_is_left_to_the_framework() -> None:
    async with world() as api:
        sent = []

        async def receive() -> dict[str, str]:
            return {"type": "websocket.connect"}

        async def send(message: object) -> None:
            sent.append(message)

        scope = {"type": "websocket", "path": "/v1/runs", "headers": [], "query_string": b"", "root_path": ""}
        await api.app(scope, receive, send)
        assert [message["type"] for message in sent] == ["websocket.close"]  # type: ignore[index]
