"""Every route by which a payment may be asked for: who asks by it approves nothing. A new route is in no row of the
table here, and fails a test."""

from __future__ import annotations

import ast
import re
from collections import ChainMap
from pathlib import Path
from typing import Any, Final

import pytest

from palaver.vocabulary.ids import uuid_of
from tests.feature_cases import brought_to_tests, of_the_whole
from tests.pages import syntax
from tests.unit.asking import SECRETS, YES, Ways, teller
from tests.unit.test_api_second_person import AGENT, PAY, Office, office
from tests.unit.test_api_tenants import OPERATIONS

WAYS: Final = Ways()
PAGE: Final = Path("docs/reference/policy.md")
way = WAYS.by


NONE: Final[dict[str, str]] = {
    **dict.fromkeys(
        [
            "DELETE /v1/runs/{run_id}", "POST /v1/runs/{run_id}/cancel", "DELETE /v1/conversations/{conversation_id}",
            "DELETE /v1/agents/{name}",
        ],
        "it ends something",
    ),
    "POST /v1/conversations/{conversation_id}/withdraw": "it takes words away, and says none",
    "POST /v1/conversations/{conversation_id}/condense": "the words of a summary are the model's",
    "POST /v1/conversations/{conversation_id}/ask": "its own run has no tools, and leaves no trace",
    **dict.fromkeys(
        [
            "POST /v1/keys",
            "POST /v1/tokens", "DELETE /v1/keys/{api_key_id}", "POST /v1/keys/{api_key_id}/rotate",
            "PATCH /v1/tenants/{tenant}",
        ],
        "it is about no conversation",
    ),
    **ChainMap({}, *brought_to_tests("NO_PART").values()),
}  # fmt: skip
"""The routes that give no part in a run, each with the reason."""


@way("POST /v1/runs")
async def _submit(desk: Office) -> dict[str, Any]:
    return await desk.submit("ann", PAY)


@way("POST /v1/runs/{run_id}/input")
async def _steer(desk: Office) -> dict[str, Any]:
    run = await desk.submit("bob")
    items = {"items": [{"type": "message", "content": PAY}]}
    await desk.have("ann", "POST", f"/v1/runs/{run['id']}/input", items)
    return run


async def _failed(desk: Office) -> dict[str, Any]:
    run = await desk.submit("bob")
    await desk.fail(run)
    return run


@way("POST /v1/runs/{run_id}/retry")
async def _retry(desk: Office) -> dict[str, Any]:
    return await desk.have("ann", "POST", f"/v1/runs/{(await _failed(desk))['id']}/retry", {})


@way("POST /v1/runs/actions")
async def _retry_many(desk: Office) -> dict[str, Any]:
    await _failed(desk)
    await desk.have("ann", "POST", "/v1/runs/actions", {"action": "retry", "all": True})
    return (await desk.runs("status=queued"))[0]


@way("POST /v1/conversations")
async def _begin(desk: Office) -> dict[str, Any]:
    made = await desk.have("ann", "POST", "/v1/conversations", {"agent": {**AGENT, "instructions": PAY}})
    return await desk.submit("bob", conversation_id=made["id"])


@way("PATCH /v1/conversations/{conversation_id}")
async def _change(desk: Office) -> dict[str, Any]:
    made = await desk.have("bob", "POST", "/v1/conversations", {"agent": AGENT})
    await desk.have("ann", "PATCH", f"/v1/conversations/{made['id']}", {"agent": {**AGENT, "instructions": PAY}})
    return await desk.submit("bob", conversation_id=made["id"])


@way("POST /v1/conversations/{conversation_id}/messages")
async def _append(desk: Office) -> dict[str, Any]:
    made = await desk.have("bob", "POST", "/v1/conversations", {"agent": AGENT})
    await desk.have("ann", "POST", f"/v1/conversations/{made['id']}/messages", {"input": PAY})
    return await desk.submit("bob", conversation_id=made["id"])


@way("PATCH /v1/conversations/{conversation_id}/secrets")
async def _set_secrets(desk: Office) -> dict[str, Any]:
    made = await desk.have("bob", "POST", "/v1/conversations", {"agent": AGENT})
    await desk.have("ann", "PATCH", f"/v1/conversations/{made['id']}/secrets", SECRETS)
    return await desk.submit("bob", conversation_id=made["id"])


@way("POST /v1/conversations/{conversation_id}/fork")
async def _fork(desk: Office) -> dict[str, Any]:
    run = await desk.submit("bob")
    await desk.end(run)
    made = await desk.have("ann", "POST", f"/v1/conversations/{run['conversation_id']}/fork", {})
    return await desk.submit("bob", conversation_id=made["id"])


@way("PUT /v1/agents/{name}")
async def _put(desk: Office) -> dict[str, Any]:
    await desk.have("ann", "PUT", "/v1/agents/teller", {**AGENT, "instructions": PAY})
    return await desk.submit("bob", agent="teller")


for more in brought_to_tests("WAYS", "ways").values():
    assert not WAYS.keys() & more.keys()
    WAYS.update(more)


def test_every_route_is_in_the_table() -> None:
    routes = {each.id for each in OPERATIONS if each.method != "GET"}
    assert WAYS.keys() | NONE.keys() == routes
    assert not WAYS.keys() & NONE.keys()


@pytest.mark.slow
@pytest.mark.parametrize("route", WAYS)
async def test_who_asks_by_a_route_does_not_approve(route: str) -> None:
    async with office() as desk:
        run = await WAYS[route](desk)
        await desk.check(await desk.pay(run), none_of="ann", but="cid")


@of_the_whole
def test_every_row_of_the_page_is_held_by_tests_that_are_there() -> None:
    tests = {
        node.name
        for folder in ("tests", "features")
        for path in Path(folder).rglob("test_*.py")
        for node in ast.walk(syntax(path))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    }
    table = PAGE.read_text().partition("| way |")[2].partition("\n\n")[0].splitlines()[2:]
    assert len(table) >= 20
    for row in table:
        named = re.findall(r"`(test_\w+)`", row)
        assert named, row
        assert set(named) <= tests, row


WORDS: Final[dict[str, tuple[str, str, Any]]] = {
    "a message into the run": ("POST", "/v1/runs/{run}/input", {"items": [{"type": "message", "content": YES}]}),
    "a pause and a resume": ("POST", "/v1/runs/{run}/input", {"items": [{"type": "pause"}]}),
    "a resume": ("POST", "/v1/runs/{run}/input", {"items": [{"type": "resume"}]}),
    "an output": (
        "POST", "/v1/runs/{run}/input", {"items": [{"type": "tool_output", "call_id": "c1", "output": "approved"}]},
    ),
    "an answer": (
        "POST", "/v1/runs/{run}/input", {"items": [{"type": "answer", "action_id": "{action}", "response": "accept"}]},
    ),
    "a message": ("POST", "/v1/conversations/{conversation}/messages", {"input": YES}),
    **{
        f"a submit that does {on_conflict}": (
            "POST", "/v1/runs", {"conversation_id": "{conversation}", "input": YES, "on_conflict": on_conflict}
        )
        for on_conflict in ("enqueue", "reject", "interrupt", "rollback", "steer")
    },
    "a retry": ("POST", "/v1/runs/{run}/retry", {}),
    **ChainMap({}, *brought_to_tests("WORDS", "ways").values()),
}  # fmt: skip
"""What says something, or lets something go on, and is no approval."""


def _filled(value: Any, names: dict[str, str]) -> Any:
    match value:
        case str():
            return re.sub(r"\{(\w+)\}", lambda found: names[found[1]], value)
        case list():
            return [_filled(each, names) for each in value]
        case dict():
            return {name: _filled(each, names) for name, each in value.items()}
    return value


@pytest.mark.slow
@pytest.mark.parametrize("words", WORDS)
async def test_words_approve_nothing_in_any_dialect(words: str) -> None:
    async with office() as desk:
        await teller(desk)
        run = await desk.submit("ann", PAY, agent="teller")
        await desk.pay(run)
        (action,) = (await desk.read(run))["pending_actions"]
        names = {
            "run": run["id"], "conversation": run["conversation_id"], "action": action["id"],
            "number": str(uuid_of(run["conversation_id"])), "response": run["id"].replace("run_", "resp_"),
        }  # fmt: skip
        method, path, body = WORDS[words]
        asked = _filled(body, names)
        await desk.ask("cid", method, _filled(path, names), asked)
        if words.startswith("a pause"):
            await desk.have("cid", "POST", f"/v1/runs/{run['id']}/input", {"items": [{"type": "resume"}]})
        now = await desk.read(run)
        assert now["usage"]["tool_calls"] == 0
        events = await desk.have("ann", "GET", f"/v1/runs/{run['id']}/events", Accept="application/json")
        decisions = [each["decision"] for each in events["data"] if each["type"] == "action.resolved"]
        assert set(decisions) <= {"deny", "cancelled"}
        assert bool(now["pending_actions"]) != bool(decisions)
