"""What a key that is held to some agents may not submit it does not cause by any route: none lets a run of another
agent begin, puts words into one, or takes its conversation along. A new route is tried by itself."""

from __future__ import annotations

import asyncio
import copy
import re
from collections.abc import Iterator
from typing import Any, Final

import orjson
import pytest

from palaver.operations import Caller
from palaver.processes.tasks import end
from tests.feature_cases import brought_to_tests
from tests.unit.api_world import AGENT, World
from tests.unit.test_api_tenants import OPERATIONS
from tests.unit.two_tenants import CANARY, NOTHING, Belongings, Operation, asking_as, furnish_again, tenants

CHANGING: Final = [each for each in OPERATIONS if each.method != "GET"]
WHO: Final = "default"
_PATIENCE: Final = 0.5
"""Seconds for the first part of an answer that may be a stream."""
DOES: Final = (
    "POST /v1/runs", "POST /v1/conversations/{conversation_id}/fork",
    "POST /v1/conversations/{conversation_id}/withdraw", "POST /v1/conversations/{conversation_id}/messages",
    "PATCH /v1/conversations/{conversation_id}",
    *(route for routes in brought_to_tests("CAUSES", "tenants").values() for route in routes),
)  # fmt: skip
_PLACES: Final = {
    "run": ("run_id", "retried_from"),
    "conversation": ("conversation_id", "conversation", "threadId", "thread_id", "chat_id", "id"),
    "number": ("conversation", "id"),
    "response": ("response_id", "previous_response_id"),
    "agent": ("name",),
    "schedule": ("name",),
    "batch": ("batch_id",),
    "action": ("action_id", "call_id"),
}
"""For each kind of thing, the names of places in paths and bodies where it may stand."""


def _values(has: Belongings, name: str) -> Iterator[str]:
    for kind, names in _PLACES.items():
        if name in names:
            yield from has.values.get(kind, ())


def _aimed(value: Any, has: Belongings, turn: int, name: str = "") -> Any:
    """A body that means the things of others, and whose agent is the key's own."""
    if name in ("agent", "model", "scorer"):
        return "mine"
    if name == "agents":
        return ["mine"]
    match value:
        case dict():
            return {key: _aimed(each, has, turn, key) for key, each in value.items()}
        case list():
            return [_aimed(each, has, turn, name) for each in value]
        case str() if found := [*_values(has, name)]:
            return found[turn % len(found)]
    return value


def _requests(operation: Operation, has: Belongings) -> Iterator[tuple[str, Any]]:
    named = re.findall(r"{(\w+)}", operation.path)
    for turn in range(4):
        path = operation.path
        for name in named:
            found = [*_values(has, name)] or [NOTHING[name]]
            path = path.replace(f"{{{name}}}", found[turn % len(found)])
        for body in operation.bodies() or [None]:
            yield path, _aimed(copy.deepcopy(body), has, turn)
            if isinstance(body, dict) and "agent" in body:
                yield path, {key: each for key, each in _aimed(body, has, turn).items() if key != "agent"}


async def _send(api: World, operation: Operation, has: Belongings) -> None:
    """Send all of these requests. Some answers are streams: what they made has to go on, and no worker is here."""
    for path, body in _requests(operation, has):
        sent = {} if body is None else {"json": body}
        asking = asyncio.create_task(api.client.request(operation.method, path, **sent))
        await asyncio.wait(
            [asking], timeout=_PATIENCE if operation.streams and not operation.path.startswith("/v1/") else None
        )
        await end(asking)


async def _seen(api: World) -> dict[str, Any]:
    """What models of others are told, and what lets runs of others begin."""
    seen: dict[str, Any] = {}
    for run in (await api.client.get("/v1/runs?limit=200")).json()["data"]:
        if run["agent"]["name"] != "mine":
            seen[run["id"]] = await api.redis.hget(f"{{p{run['id'][4:6]}}}:run:{run['id']}", "steer")
    for each in (await api.client.get("/v1/conversations?limit=200")).json()["data"]:
        path = f"/v1/conversations/{each['id']}"
        told = [
            (message["role"], message["content"], message["withdrawn"])
            for message in (await api.client.get(f"{path}/messages?limit=200")).json()["data"]
        ]
        if CANARY in orjson.dumps([told, each["agent"]]).decode():
            secrets = (await api.client.get(f"{path}/secrets")).json()["data"]
            seen[each["id"]] = told, each["agent"], secrets
    for more in brought_to_tests("seen", "tenants").values():
        seen |= await more(api)
    return seen


async def _changed(operation: Operation, who: Caller) -> dict[str, Any]:
    """What these requests change of what others have, asked by this caller."""
    async with tenants() as api:
        has = await furnish_again(api, WHO)
        api.app.state.access.keys._callers["who"] = who
        with asking_as(api, WHO):
            assert (await api.client.put("/v1/agents/mine", json=AGENT)).is_success
            before = await _seen(api)
        assert before.keys() >= {*has.runs, *has.conversations}
        with asking_as(api, "who"):
            await _send(api, operation, has)
        with asking_as(api, WHO):
            after = await _seen(api)
    return {name: after.get(name) for name in before.keys() | after.keys() if before.get(name) != after.get(name)}


@pytest.mark.slow
@pytest.mark.parametrize("operation", CHANGING, ids=[each.id for each in CHANGING])
async def test_a_key_for_other_agents_causes_nothing(operation: Operation) -> None:
    assert await _changed(operation, Caller(True, "held", agents=frozenset({"mine"}))) == {}


@pytest.mark.slow
@pytest.mark.parametrize("route", DOES)
async def test_the_same_requests_do_so_with_a_key_for_any_agent(route: str) -> None:
    (operation,) = (each for each in CHANGING if each.id == route)
    assert await _changed(operation, Caller(True, "free"))
