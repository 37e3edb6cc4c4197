"""The same for the routes of the Model Context Protocol."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, Final

from features.mcp_server.tools import tool_of
from palaver.schemas.models import AgentSpec
from palaver.vocabulary.limits import KIB, limit_of
from tests.cost.ag_ui_requests import AG_UI_CASES
from tests.cost.openhands_requests import EVERY as OTHERS
from tests.cost.requests import Ask, Case, fields, submitted
from tests.unit.api_world import World

_ROUTE: Final = "POST /mcp"
_VALUES: Final = 9_000
"""Fields of a body, about as many values as there may be."""


def _message(method: str, params: Any) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}


def _call(tool: str, arguments: Callable[[int], dict[str, Any]]) -> Callable[[World, int], Awaitable[Ask]]:
    """A call of a tool, with a run in its arguments where it takes one."""

    async def prepare(api: World, n: int) -> Ask:
        named = {} if tool == "run_start" else {"run_id": (await submitted(api))["id"]}
        return Ask("/mcp", _message("tools/call", {"name": tool, "arguments": {**named, **arguments(n)}}))

    return prepare


async def _agents(api: World, n: int) -> None:
    for k in range(n):
        await api.store.agents.keep("", f"agent.{k}", AgentSpec(model="fake/echo"))


async def _listed(api: World, n: int) -> Ask:
    await _agents(api, n)
    return Ask("/mcp", _message("tools/list", {}))


async def _sought(api: World, n: int) -> Ask:
    await _agents(api, n)
    params = {"name": tool_of("agent.none"), "arguments": {"message": "hello"}}
    return Ask("/mcp", _message("tools/call", params))


async def _followed(api: World, n: int) -> Ask:
    run = await submitted(api, n)
    return Ask("/mcp", _message("tools/call", {"name": "run_get", "arguments": {"run_id": run["id"], "after": 0}}))


async def _unread(api: World, n: int) -> Ask:
    return Ask("/mcp", _message("tools/list", fields(n)))


async def _metadata(api: World, n: int) -> Ask:
    return Ask("/.well-known/oauth-protected-resource/mcp")


EVERY: Final = (
    Case(_ROUTE, "unknown fields of the params", _VALUES, _unread),
    Case(_ROUTE, "unknown arguments", _VALUES, _call("run_start", lambda n: {"message": "x", **fields(n)})),
    Case(_ROUTE, "characters of a message", 64 * KIB, _call("run_start", lambda n: {"message": "x" * n})),
    Case(_ROUTE, "answers", limit_of("run_items"), _call("run_answer", lambda n: {
        "answers": [{"action_id": f"act_{k}", "decision": "approve"} for k in range(n)]})),
    Case(_ROUTE, "messages of a run that is looked at", limit_of("input_messages"), _followed),
    Case(_ROUTE, "agents that are listed", 48, _listed),
    Case(_ROUTE, "agents that are looked through", limit_of("agents"), _sought, counted_at=200),
    Case("GET /.well-known/oauth-protected-resource/mcp", "nothing", 4, _metadata),
    *AG_UI_CASES,
    *OTHERS,
)  # fmt: skip
"""With those of all others. The last one is the cheapest."""
