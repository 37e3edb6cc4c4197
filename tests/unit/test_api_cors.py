"""Pages of other origins: those that the setting names read answers, all others as little as before."""

from __future__ import annotations

from collections.abc import AsyncIterator

import httpx
import pytest
from pydantic import ValidationError

from palaver.config.settings import Settings
from tests.unit.api_world import BODY, World, assert_problem, world

PAGE, OTHER = "https://app.example.com", "https://evil.example.com"
KEY = "a-key-of-the-environment"
BEARER = {"Authorization": f"Bearer {KEY}"}
NAMED = Settings(redis_url="redis://fake/0", api_keys=KEY, cors_origins=f"{PAGE}, http://localhost:3000")
ASKS = {"Access-Control-Request-Method": "POST", "Access-Control-Request-Headers": "authorization,content-type"}


@pytest.fixture
async def api() -> AsyncIterator[World]:
    async with world(NAMED) as made:
        yield made


def allowed(answer: httpx.Response) -> str | None:
    origin: str | None = answer.headers.get("access-control-allow-origin")
    return origin


@pytest.mark.parametrize("page", [PAGE, "http://localhost:3000"])
async def test_a_named_page_asks_and_reads(api: World, page: str) -> None:
    origin = {"Origin": page, "Sec-Fetch-Site": "cross-site"}
    preflight = await api.client.options("/v1/runs", headers={**origin, **ASKS})
    assert (preflight.status_code, allowed(preflight), preflight.content) == (204, page, b"")
    assert "POST" in preflight.headers["access-control-allow-methods"]
    assert preflight.headers["access-control-allow-headers"] == ASKS["Access-Control-Request-Headers"]
    answer = await api.client.post("/v1/runs", json=BODY, headers={**origin, **BEARER})
    assert (answer.status_code, allowed(answer)) == (202, page)
    assert "Location" in answer.headers["access-control-expose-headers"]
    assert "access-control-allow-credentials" not in answer.headers
    refused = await api.client.get("/v1/runs", headers=origin)
    assert_problem(refused, 401, "unauthenticated")
    assert allowed(refused) == page


@pytest.mark.parametrize(
    "page", [OTHER, "null", PAGE.replace("https", "http"), f"{PAGE}:8443", f"{PAGE}.evil.example.com", PAGE.upper()]
)
async def test_other_pages_do_not(api: World, page: str) -> None:
    origin = {"Origin": page, "Sec-Fetch-Site": "cross-site"}
    preflight = await api.client.options("/v1/runs", headers={**origin, **ASKS})
    assert (preflight.status_code, allowed(preflight)) == (401, None)
    assert_problem(
        await api.client.post("/v1/runs", json=BODY, headers={**origin, **BEARER}), 403, "origin_not_allowed"
    )
    answer = await api.client.get("/v1/runs", headers={"Origin": page, **BEARER})
    assert (answer.status_code, allowed(answer), answer.headers["vary"]) == (200, None, "Origin")


@pytest.mark.parametrize(
    "sent",
    [
        "authorization,content-type,openai-organization,openai-project,user-agent,x-stainless-arch,x-stainless-lang,"
        "x-stainless-os,x-stainless-package-version,x-stainless-retry-count,x-stainless-runtime,"
        "x-stainless-runtime-version,x-stainless-timeout,x-stainless-helper-method,x-stainless-poll-helper",
        "authorization,content-type,last-event-id,mcp-method,mcp-name,mcp-protocol-version,mcp-session-id",
        "anthropic-dangerous-direct-browser-access, anthropic-version, content-type, x-api-key",
        "accept,authorization,cache-control,content-type,user-agent",
        "baggage,content-type,if-match,if-none-match,idempotency-key,prefer,sentry-trace,traceparent,tracestate",
        "x-request-id,x-session-api-key",
    ],
    ids=["OpenAI", "MCP", "Anthropic", "kits", "ours and traces", "OpenHands"],
)
@pytest.mark.parametrize("path", ["/v1/runs", "/openai/v1/responses", "/mcp", "/ui/chat", "/ag-ui/agent"])
async def test_a_named_page_may_send_what_its_client_adds(api: World, path: str, sent: str) -> None:
    origin = {"Origin": PAGE, "Sec-Fetch-Site": "cross-site"}
    asks = {"Access-Control-Request-Method": "POST", "Access-Control-Request-Headers": sent}
    preflight = await api.client.options(path, headers={**origin, **asks})
    assert (preflight.status_code, preflight.headers["access-control-allow-headers"]) == (204, sent)


@pytest.mark.parametrize("sent", ["", "a b", "a;b", "a\tb", "a,," + "b" * 200, ",".join("a" * 101)])
async def test_what_names_no_headers_allows_none(api: World, sent: str) -> None:
    asks = {"Access-Control-Request-Method": "GET", "Access-Control-Request-Headers": sent}
    preflight = await api.client.options("/v1/runs", headers={"Origin": PAGE, **asks})
    assert (preflight.status_code, allowed(preflight)) == (204, PAGE)
    assert "access-control-allow-headers" not in preflight.headers


async def test_what_its_client_reads_is_shown_to_it(api: World) -> None:
    answer = await api.client.get("/v1/runs", headers={"Origin": PAGE, **BEARER})
    shown = {name.strip().lower() for name in answer.headers["access-control-expose-headers"].split(",")}
    assert shown >= {
        "x-request-id", "retry-after", "location", "link", "etag", "x-should-retry", "www-authenticate",
        "idempotency-replayed", "preference-applied", "x-vercel-ai-ui-message-stream",
    }  # fmt: skip


async def test_what_is_no_preflight_is_an_ordinary_request(api: World) -> None:
    answer = await api.client.options("/v1/runs", headers={"Origin": PAGE, **BEARER})
    assert answer.status_code == 405
    assert allowed(answer) == PAGE


async def test_without_the_setting_nothing_is_added() -> None:
    async with world(Settings(redis_url="redis://fake/0", api_keys=KEY)) as api:
        answer = await api.client.get("/v1/runs", headers={"Origin": PAGE, **BEARER})
        assert [name for name in answer.headers if name.startswith("access-control") or name == "vary"] == []
        assert (await api.client.options("/v1/runs", headers={"Origin": PAGE, **ASKS})).status_code == 401


async def test_without_keys_a_named_page_is_served_too() -> None:
    async with world(Settings(redis_url="redis://fake/0", cors_origins=PAGE)) as api:
        assert (await api.client.get("/v1/runs", headers={"Origin": PAGE})).status_code == 200
        assert_problem(await api.client.get("/v1/runs", headers={"Origin": OTHER}), 403, "origin_not_allowed")


@pytest.mark.parametrize(
    "text", ["*", "https://*.example.com", "null", "app.example.com", f"{PAGE}/", f"{PAGE}/x", "https://A.example.com"]
)
def test_what_is_no_origin_stops_the_process(text: str) -> None:
    with pytest.raises(ValidationError, match="is not an origin such as"):
        Settings(cors_origins=f"{PAGE},{text}")
