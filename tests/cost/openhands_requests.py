"""The same for the routes of OpenHands' dialect."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, Final

from palaver.vocabulary.ids import uuid_of
from palaver.vocabulary.limits import limit_of
from tests.cost.requests import CASES, Ask, Case, fields, submitted
from tests.unit.api_world import World

_PREFIX: Final = "/openhands/api/conversations"
_MESSAGES: Final = limit_of("input_messages")
_VALUES: Final = 9_000
"""Fields of a body, about as many values as there may be."""


def _at(rest: str, body: Callable[[int], Any] | None = None) -> Callable[[World, int], Awaitable[Ask]]:
    """A request about a conversation with ``n`` messages, or with a body of size ``n``."""

    async def prepare(api: World, n: int) -> Ask:
        run = await submitted(api, 1 if body else n)
        return Ask(f"{_PREFIX}/{uuid_of(run['conversation_id'])}{rest}", body(n) if body else None)

    return prepare


async def _several(api: World, n: int) -> Ask:
    ids = [str(uuid_of((await submitted(api))["conversation_id"])) for _ in range(n)]
    return Ask(f"{_PREFIX}?ids={','.join(ids)}")


def _lists(rest: str) -> Callable[[World, int], Awaitable[Ask]]:
    async def prepare(api: World, n: int) -> Ask:
        await _several(api, n)
        return Ask(f"{_PREFIX}{rest}")

    return prepare


async def _begin(api: World, n: int) -> Ask:
    agent = {"kind": "Agent", "llm": {"model": "fake/echo"}, "include_default_tools": [], **fields(n)}
    return Ask(_PREFIX, {"agent": agent})


def _nothing(path: str) -> Callable[[World, int], Awaitable[Ask]]:
    async def prepare(api: World, n: int) -> Ask:
        return Ask(path)

    return prepare


_ONE: Final = f"{_PREFIX}/{{conversation}}"
EVERY: Final = (
    Case(f"POST {_PREFIX}", "fields of an agent", 4_000, _begin),
    Case(f"GET {_PREFIX}", "conversations", 99, _several),
    Case(f"GET {_PREFIX}/search", "conversations", 99, _lists("/search"), counted_at=40),
    Case(f"GET {_PREFIX}/count", "conversations", 99, _lists("/count"), counted_at=40),
    Case(f"POST {_ONE}/secrets", "secrets", limit_of("secrets"), _at("/secrets", lambda n: {
        "secrets": {f"S{k}": "value" for k in range(n)}})),
    Case(f"GET {_ONE}", "entries", _MESSAGES, _at("")),
    Case(f"PATCH {_ONE}", "unknown fields", _VALUES, _at("", fields)),
    Case(f"DELETE {_ONE}", "entries", _MESSAGES, _at("")),
    Case(f"GET {_ONE}/agent_final_response", "entries", _MESSAGES, _at("/agent_final_response")),
    Case(f"POST {_ONE}/events", "parts of a message", limit_of("message_parts"), _at("/events", lambda n: {
        "role": "user", "content": [{"type": "text", "text": "hello"}] * n})),
    Case(f"GET {_ONE}/events/search", "entries", _MESSAGES, _at("/events/search?sort_order=TIMESTAMP_DESC")),
    Case(f"GET {_ONE}/events/count", "entries", _MESSAGES, _at("/events/count?body=nothing")),
    Case(f"GET {_ONE}/events/{{event}}", "entries", _MESSAGES, _at("/events/none")),
    Case(f"POST {_ONE}/events/respond_to_confirmation", "unknown fields", _VALUES,
         _at("/events/respond_to_confirmation", lambda n: {"accept": False, **fields(n)})),
    Case(f"POST {_ONE}/fork", "entries", _MESSAGES, _at("/fork", lambda n: {"title": "a" * min(n, 200)})),
    Case(f"POST {_ONE}/condense", "entries", _MESSAGES, _at("/condense")),
    Case(f"POST {_ONE}/ask_agent", "unknown fields", _VALUES, _at("/ask_agent", lambda n: {
        "question": "", **fields(n)})),
    Case(f"POST {_ONE}/generate_title", "unknown fields", _VALUES, _at("/generate_title", lambda n: {
        "max_length": 0, **fields(n)})),
    Case(f"POST {_ONE}/navigate", "unknown fields", _VALUES, _at("/navigate", fields)),
    Case(f"POST {_ONE}/run", "entries", _MESSAGES, _at("/run")),
    Case(f"POST {_ONE}/pause", "entries", _MESSAGES, _at("/pause")),
    Case(f"POST {_ONE}/interrupt", "entries", _MESSAGES, _at("/interrupt")),
    Case(f"POST {_ONE}/confirmation_policy", "unknown fields", _VALUES,
         _at("/confirmation_policy", lambda n: {"policy": {"kind": "NeverConfirm", **fields(n)}})),
    Case(f"POST {_ONE}/security_analyzer", "unknown fields", _VALUES,
         _at("/security_analyzer", lambda n: {"security_analyzer": None, **fields(n)})),
    *(Case(f"GET {path}", "nothing", 4, _nothing(path)) for path in
      ("/openhands/server_info", "/openhands/health", "/openhands/alive", "/openhands/ready")),
    *CASES,
)  # fmt: skip
"""With those of the routes that are ours. The last one is the cheapest."""
