"""Whatever comes in: never a 500, and every refusal is a problem."""

from __future__ import annotations

import asyncio
import json
from datetime import UTC, datetime, timedelta
from typing import Any

import httpx
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.unit.api_world import AGENT, CONVERSATION_ID, RUN_ID, world
from tests.waiting import PATIENCE

SEEDS = [
    json.dumps(body).encode()
    for body in (
        {"agent": AGENT, "input": "hello"},
        {
            "agent": {**AGENT, "max_steps": 5, "temperature": 0.5},
            "input": [{"role": "user", "content": "hi"}],
        },
        {
            "agent": AGENT,
            "input": [
                {"role": "user", "content": "hi"},
                {"role": "assistant", "tool_calls": [{"id": "c1", "name": "calculator", "arguments": "{}"}]},
                {"role": "tool", "content": "4", "call_id": "c1"},
            ],
            "metadata": {"k": "v"},
            "tags": ["a"],
            "on_conflict": "reject",
            "deadline": (datetime.now(UTC) + timedelta(days=1)).isoformat(),
        },
        {"conversation_id": CONVERSATION_ID, "input": "hello", "start_by": "2026-01-01T00:00:00+02:00"},
        {
            "agent": {
                **AGENT,
                "name": "clerk",
                "client_tools": [
                    {"name": "ask", "parameters": {"type": "object", "properties": {"a": {"type": "null"}}}}
                ],
                "approvals": {"require": ["calc*"], "timeout": 60},
            },
            "input": "hello",
            "on_conflict": "steer",
        },
        {"mode": "graceful", "reason": "enough"},
        {
            "items": [
                {"type": "approval", "action_id": "1/c1", "decision": "deny", "reason": "no", "digest": "00"},
                {"type": "approval", "action_id": "1/c2", "decision": "edit", "arguments": {"expression": "1"}},
                {"type": "tool_output", "call_id": "c3", "output": {"a": [1]}, "is_error": True},
            ]
        },
        {"items": [{"type": "message", "content": "hi"}, {"type": "pause", "now": True}, {"type": "resume"}]},
        {"from_step": 1, "input": "again", "agent": AGENT, "budget": {"tokens": 5}},
        {
            "action": "cancel",
            "filter": {"status": ["failed", "queued"], "tag": "a", "older_than": 5, "error_class": "stuck"},
            "mode": "now",
            "limit": 10,
        },
        {"action": "delete", "all": True, "dry_run": True},
    )
]
TOKENS = [
    b"NaN", b"-Infinity", b"1e400", b"9" * 400, b"-0", b"null", b"true", b"[", b"]", b"{", b"}", b'"', b",", b":",
    rb"\ud800", rb"\u0000", rb"\udc00", b"\xff", b"\x00", b"\xef\xbb\xbf", b"[" * 40, b'{"a":' * 40,
    b'"input":1,', b"__proto__", "é🦊".encode(), b"1792000000", b"-1e18", b'"2026-13-40T25:61:61Z"',
    b'"9999-12-31T23:59:59-23:59"', b'"0001-01-01T00:00:00+23:59"', b'"0001-01-01T00:00:00Z"',
]  # fmt: skip
HEADER_NAMES = [
    "accept", "prefer", "idempotency-key", "last-event-id", "x-request-id", "content-encoding", "content-length",
    "content-type",
]  # fmt: skip
PARAMETERS = [
    "limit", "cursor", "status", "tag", "error_class", "conversation_id", "wait", "until", "after", "format", "queue",
    "agent", "created_after", "created_before",
]  # fmt: skip
ORDINARY = [
    "", "0", "1", "60", "queued", "terminal", "change", "keda", "model", "\u0665", "\x00", "%", "2026-01-01T00:00:00Z",
    "0001-01-01T00:00:00+23:59", "9999-12-31T23:59:59-23:59",
]  # fmt: skip
TEXT = st.text(st.characters(min_codepoint=0x21, max_codepoint=0x7E), max_size=40)

Edit = tuple[int, int, bytes]


@st.composite
def mutated(draw: st.DrawFn) -> bytes:
    """A valid body with a few of its bytes cut out and others put in."""
    raw = draw(st.sampled_from(SEEDS))
    edits: list[Edit] = draw(
        st.lists(
            st.tuples(st.integers(0, 400), st.integers(0, 12), st.sampled_from(TOKENS) | st.binary(max_size=6)),
            min_size=1,
            max_size=4,
        )
    )
    for at, cut, put in edits:
        at %= len(raw) + 1
        raw = raw[:at] + put + raw[at + cut :]
    return raw


HEADERS = st.dictionaries(st.sampled_from(HEADER_NAMES), TEXT, max_size=3)
QUERIES = st.lists(st.tuples(st.sampled_from(PARAMETERS) | TEXT, TEXT | st.sampled_from(ORDINARY)), max_size=3)
PATHS = st.sampled_from(
    ["/v1/runs", f"/v1/runs/{RUN_ID}", f"/v1/runs/{RUN_ID}/events", "/v1/queues", "/healthz",
     f"/v1/conversations/{CONVERSATION_ID}", f"/v1/conversations/{CONVERSATION_ID}/messages", "/v1/runs/actions"]
) | TEXT.map(lambda text: f"/v1/runs/{text}")  # fmt: skip
SLOWLY = settings(suppress_health_check=[HealthCheck.too_slow])


@SLOWLY
@given(mutated(), HEADERS)
@pytest.mark.slow
def test_no_body_breaks_the_api(raw: bytes, headers: dict[str, str]) -> None:
    requests: list[dict[str, Any]] = [
        {
            "method": "POST",
            "url": path,
            "content": raw,
            "headers": {"content-type": "application/json", **extra},
        }
        for path in (
            "/v1/runs",
            "/v1/conversations",
            "/v1/runs/actions",
            "{run}/input",
            "{run}/retry",
            "{run}/cancel",
        )
        for extra in ({}, headers)
    ]
    asyncio.run(_send(requests))


@SLOWLY
@given(PATHS, QUERIES, HEADERS)
@pytest.mark.slow
def test_no_url_breaks_the_api(path: str, query: list[tuple[str, str]], headers: dict[str, str]) -> None:
    headers.pop("content-length", None)
    asyncio.run(
        _send([{"method": method, "url": path, "params": query, "headers": headers} for method in ("GET", "DELETE")])
    )


async def _send(requests: list[dict[str, Any]]) -> None:
    async with world() as api:
        run = (await api.submit())["links"]["self"]
        for request in requests:
            request["url"] = request["url"].replace("{run}", run)
            if "text/event-stream" in request["headers"].get("accept", ""):
                continue
            try:
                built = api.client.build_request(**request)
            except (httpx.InvalidURL, UnicodeEncodeError):
                continue
            answer = await asyncio.wait_for(api.client.send(built), PATIENCE)
            assert answer.status_code < 500, (request, answer.text)
            if answer.status_code >= 400:
                assert answer.headers["content-type"] == "application/problem+json", request
                assert answer.json()["status"] == answer.status_code
        assert (await api.client.get("/readyz")).status_code == 200
