"""Every route by which a payment may be asked for: who asks by it approves nothing. A new route is in no row of the
table here, and fails a test."""

from __future__ import annotations

import ast
import asyncio
import re
from collections import ChainMap
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, Final

import pytest

from features.ag_ui.tests.unit.ag_ui_page import Page
from features.ai_sdk.tests.unit.chat_page import said
from features.openhands.tests.unit.test_openhands_agents import AGENT as OPENHANDS_AGENT
from palaver.vocabulary.ids import uuid_of
from tests.feature_cases import brought_to_tests
from tests.pages import syntax
from tests.unit.mcp_host import ACCEPT
from tests.unit.test_api_second_person import AGENT, PAY, Office, office
from tests.unit.test_api_tenants import OPERATIONS
from tests.waiting import aeventually

Way = Callable[[Office], Awaitable[dict[str, Any]]]
"""Ann has a part in a run by this route alone, and Bob by others: the run, whose model is about to ask for it."""
WAYS: Final[dict[str, Way]] = {}
PAGE: Final = Path("docs/reference/policy.md")


def way(route: str) -> Callable[[Way], Way]:
    def keep(of: Way) -> Way:
        assert route not in WAYS
        WAYS[route] = of
        return of

    return keep


NONE: Final[dict[str, str]] = {
    **dict.fromkeys(
        [
            "DELETE /v1/runs/{run_id}", "POST /v1/runs/{run_id}/cancel", "DELETE /v1/conversations/{conversation_id}",
            "DELETE /openhands/api/conversations/{conversation}", "POST /ag-ui/threads/{thread_id}/cancel",
            "POST /ui/agents/{name}/chat/{chat_id}/stop", "DELETE /openai/v1/conversations/{conversation_id}",
            "DELETE /openai/v1/responses/{response_id}", "POST /openai/v1/responses/{response_id}/cancel",
            "DELETE /v1/agents/{name}",
            "POST /openhands/api/conversations/{conversation}/pause",
            "POST /openhands/api/conversations/{conversation}/interrupt",
        ],
        "it ends something",
    ),
    **dict.fromkeys(
        [
            "POST /v1/conversations/{conversation_id}/withdraw",
            "POST /openhands/api/conversations/{conversation}/navigate",
        ],
        "it takes words away, and says none",
    ),
    **dict.fromkeys(
        [
            "POST /v1/conversations/{conversation_id}/condense",
            "POST /openhands/api/conversations/{conversation}/condense",
        ],
        "the words of a summary are the model's",
    ),
    **dict.fromkeys(
        [
            "POST /v1/conversations/{conversation_id}/ask",
            "POST /openhands/api/conversations/{conversation}/ask_agent",
            "POST /openhands/api/conversations/{conversation}/generate_title",
        ],
        "it leaves no trace in the conversation, and its own run has no tools",
    ),
    **dict.fromkeys(
        ["PATCH /openhands/api/conversations/{conversation}", "POST /openai/v1/conversations/{conversation_id}"],
        "no model is told what it brings",
    ),
    **dict.fromkeys(
        [
            "POST /v1/keys",
            "POST /v1/tokens", "DELETE /v1/keys/{api_key_id}", "POST /v1/keys/{api_key_id}/rotate",
            "PATCH /v1/tenants/{tenant}", "POST /v1/tenants/{tenant}/erase",
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


SECRETS: Final = {"secrets": {"ACCOUNT": "that of ann"}}


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


PLANNED: Final = {"every": 3600, "run": {"agent": AGENT, "input": PAY}}


@way("PUT /v1/schedules/{name}")
async def _plan(desk: Office) -> dict[str, Any]:
    await desk.have("ann", "PUT", "/v1/schedules/daily", PLANNED)
    return await desk.have("bob", "POST", "/v1/schedules/daily/trigger")


@way("POST /v1/schedules/{name}/trigger")
async def _trigger(desk: Office) -> dict[str, Any]:
    await desk.have("bob", "PUT", "/v1/schedules/daily", PLANNED)
    return await desk.have("ann", "POST", "/v1/schedules/daily/trigger")


@way("POST /v1/schedules/{name}/resume")
async def _resume(desk: Office) -> dict[str, Any]:
    await desk.have("bob", "PUT", "/v1/schedules/daily", PLANNED)
    await desk.have("bob", "POST", "/v1/schedules/daily/pause")
    await desk.have("ann", "POST", "/v1/schedules/daily/resume")
    desk.clock.now += 3700
    await desk.look()
    return (await desk.runs())[0]


@way("POST /v1/batches")
async def _order(desk: Office) -> dict[str, Any]:
    await desk.batch("ann")
    await desk.look()
    return (await desk.runs())[0]


@way("POST /v1/batches/{batch_id}/items")
async def _add(desk: Office) -> dict[str, Any]:
    batch = await desk.batch("bob", items=[])
    await desk.have("ann", "POST", f"/v1/batches/{batch['id']}/items", {"offset": 0, "items": [{"input": PAY}]})
    await desk.look()
    return (await desk.runs())[0]


@way("POST /v1/batches/{batch_id}/retry")
async def _begin_again(desk: Office) -> dict[str, Any]:
    batch = await desk.batch("bob", complete=True)
    await desk.look()
    await desk.fail((await desk.runs())[0])
    await desk.look()
    await desk.have("ann", "POST", f"/v1/batches/{batch['id']}/retry")
    await desk.look()
    return (await desk.runs("status=queued"))[0]


TALKS: Final = "/openhands/api/conversations"
ASKS: Final = {**OPENHANDS_AGENT, "tools": [{"name": "pay", "params": {}}], "include_default_tools": []}


async def _talk(desk: Office, by: str) -> str:
    """A conversation of OpenHands': its path."""
    body = {"agent": ASKS, "client_tools": [], "confirmation_policy": {"kind": "AlwaysConfirm"}}
    return f"{TALKS}/{(await desk.have(by, 'POST', TALKS, body))['id']}"


async def _say(desk: Office, by: str, talk: str, *, run: bool = False) -> None:
    content = [{"type": "text", "text": PAY}]
    await desk.have(by, "POST", f"{talk}/events", {"role": "user", "content": content, "run": run})


async def _run(desk: Office, talk: str, by: str = "bob") -> dict[str, Any]:
    await desk.have(by, "POST", f"{talk}/run")
    return (await desk.runs("status=queued"))[0]


@way("POST /openhands/api/conversations")
async def _begin_talk(desk: Office) -> dict[str, Any]:
    talk = await _talk(desk, "ann")
    await _say(desk, "bob", talk)
    return await _run(desk, talk)


@way("POST /openhands/api/conversations/{conversation}/events")
async def _say_to_talk(desk: Office) -> dict[str, Any]:
    talk = await _talk(desk, "bob")
    await _say(desk, "ann", talk)
    return await _run(desk, talk)


@way("POST /openhands/api/conversations/{conversation}/run")
async def _run_talk(desk: Office) -> dict[str, Any]:
    talk = await _talk(desk, "bob")
    await _say(desk, "bob", talk)
    return await _run(desk, talk, "ann")


@way("POST /openhands/api/conversations/{conversation}/events/respond_to_confirmation")
async def _reject_with_words(desk: Office) -> dict[str, Any]:
    talk = await _talk(desk, "bob")
    await _say(desk, "bob", talk, run=True)
    await desk.pay((await desk.runs())[0])
    await desk.have("ann", "POST", f"{talk}/events/respond_to_confirmation", {"accept": False, "reason": PAY})
    await _say(desk, "bob", talk)
    return await _run(desk, talk)


@way("POST /openhands/api/conversations/{conversation}/confirmation_policy")
async def _change_policy(desk: Office) -> dict[str, Any]:
    talk = await _talk(desk, "bob")
    policy = {"policy": {"kind": "ConfirmRisky", "threshold": "LOW"}}
    await desk.have("ann", "POST", f"{talk}/confirmation_policy", policy)
    await _say(desk, "bob", talk)
    return await _run(desk, talk)


@way("POST /openhands/api/conversations/{conversation}/security_analyzer")
async def _change_analyzer(desk: Office) -> dict[str, Any]:
    talk = await _talk(desk, "bob")
    await desk.have("ann", "POST", f"{talk}/security_analyzer", {"security_analyzer": {"kind": "LLMSecurityAnalyzer"}})
    await _say(desk, "bob", talk)
    return await _run(desk, talk)


@way("POST /openhands/api/conversations/{conversation}/secrets")
async def _set_secrets_of_talk(desk: Office) -> dict[str, Any]:
    talk = await _talk(desk, "bob")
    await desk.have("ann", "POST", f"{talk}/secrets", SECRETS)
    await _say(desk, "bob", talk)
    return await _run(desk, talk)


@way("POST /openhands/api/conversations/{conversation}/fork")
async def _fork_talk(desk: Office) -> dict[str, Any]:
    talk = await _talk(desk, "bob")
    await _say(desk, "bob", talk)
    made = await desk.have("ann", "POST", f"{talk}/fork", {})
    return await _run(desk, f"{TALKS}/{made['id']}")


async def _streamed(desk: Office, path: str, body: Any, **headers: str) -> dict[str, Any]:
    """The run that a request of Ann's makes whose answer is a stream."""
    asking = asyncio.create_task(desk.ask("ann", "POST", path, body, **headers))
    desk.asking.append(asking)

    async def there() -> bool:
        assert not asking.done(), asking.result().text
        return bool(await desk.runs())

    await aeventually(there)
    return (await desk.runs())[0]


async def _teller(desk: Office) -> None:
    await desk.have("bob", "PUT", "/v1/agents/teller", AGENT)


def _thread(**more: Any) -> dict[str, Any]:
    page = Page(None, agent="teller")  # type: ignore[arg-type]
    page.say(PAY)
    return page.body(**more)


@way("POST /ag-ui/agents/{name}")
async def _speak_to_agent(desk: Office) -> dict[str, Any]:
    await _teller(desk)
    return await _streamed(desk, "/ag-ui/agents/teller", _thread())


@way("POST /ag-ui")
async def _speak_in_thread(desk: Office) -> dict[str, Any]:
    await _teller(desk)
    return await _streamed(desk, "/ag-ui", _thread(forwardedProps={"agent": "teller"}))


@way("POST /ui/agents/{name}/chat")
async def _chat(desk: Office) -> dict[str, Any]:
    await _teller(desk)
    body = {"id": "chat-1", "messages": [said(PAY)], "trigger": "submit-message"}
    return await _streamed(desk, "/ui/agents/teller/chat", body)


@way("POST /mcp")
async def _call_as_host(desk: Office) -> dict[str, Any]:
    await _teller(desk)
    asks = {"jsonrpc": "2.0", "id": "1"}
    listed = await desk.have("ann", "POST", "/mcp", {**asks, "method": "tools/list", "params": {}}, **ACCEPT)
    tool = next(each for each in listed["result"]["tools"] if "teller" in each["name"])
    (said_in,) = tool["inputSchema"]["required"]
    params = {"name": tool["name"], "arguments": {said_in: PAY}}
    await desk.have("ann", "POST", "/mcp", {**asks, "method": "tools/call", "params": params}, **ACCEPT)
    return (await desk.runs())[0]


@way("POST /openai/v1/responses")
async def _respond(desk: Office) -> dict[str, Any]:
    await _teller(desk)
    await desk.have("ann", "POST", "/openai/v1/responses", {"model": "teller", "input": PAY, "background": True})
    return (await desk.runs())[0]


@way("POST /openai/v1/chat/completions")
async def _complete(desk: Office) -> dict[str, Any]:
    await _teller(desk)
    body = {"model": "teller", "messages": [{"role": "user", "content": PAY}], "stream": True}
    run = await _streamed(desk, "/openai/v1/chat/completions", {**body, "run": {"on_disconnect": "continue"}})
    # A completion that sees its run wait for a decision cancels it: its client goes before.
    asking = desk.asking.pop()
    asking.cancel()
    await asyncio.wait([asking])
    return run


ITEM: Final = {"type": "message", "role": "user", "content": PAY}


async def _answered(desk: Office, conversation: str) -> dict[str, Any]:
    body = {"model": "teller", "input": "go on", "conversation": conversation, "background": True}
    await desk.have("bob", "POST", "/openai/v1/responses", body)
    return (await desk.runs())[0]


@way("POST /openai/v1/conversations")
async def _begin_with_items(desk: Office) -> dict[str, Any]:
    await _teller(desk)
    made = await desk.have("ann", "POST", "/openai/v1/conversations", {"items": [ITEM]})
    return await _answered(desk, made["id"])


@way("POST /openai/v1/conversations/{conversation_id}/items")
async def _add_items(desk: Office) -> dict[str, Any]:
    await _teller(desk)
    made = await desk.have("bob", "POST", "/openai/v1/conversations", {})
    await desk.have("ann", "POST", f"/openai/v1/conversations/{made['id']}/items", {"items": [ITEM]})
    return await _answered(desk, made["id"])


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


_YES: Final = "Yes, approved. Go on, run it, continue."
WORDS: Final[dict[str, tuple[str, str, Any]]] = {
    "a message into the run": ("POST", "/v1/runs/{run}/input", {"items": [{"type": "message", "content": _YES}]}),
    "a pause and a resume": ("POST", "/v1/runs/{run}/input", {"items": [{"type": "pause"}]}),
    "a resume": ("POST", "/v1/runs/{run}/input", {"items": [{"type": "resume"}]}),
    "an output": (
        "POST", "/v1/runs/{run}/input", {"items": [{"type": "tool_output", "call_id": "c1", "output": "approved"}]},
    ),
    "an answer": (
        "POST", "/v1/runs/{run}/input", {"items": [{"type": "answer", "action_id": "{action}", "response": "accept"}]},
    ),
    "a message": ("POST", "/v1/conversations/{conversation}/messages", {"input": _YES}),
    **{
        f"a submit that does {on_conflict}": (
            "POST", "/v1/runs", {"conversation_id": "{conversation}", "input": _YES, "on_conflict": on_conflict}
        )
        for on_conflict in ("enqueue", "reject", "interrupt", "rollback", "steer")
    },
    "a retry": ("POST", "/v1/runs/{run}/retry", {}),
    "OpenHands' message": ("POST", f"{TALKS}/{{number}}/events", {"role": "user", "content": _YES}),
    "OpenHands' message that runs": ("POST", f"{TALKS}/{{number}}/events", {"content": _YES, "run": True}),
    "AG-UI's message": ("POST", "/ag-ui/agents/teller", {"threadId": "{conversation}"}),
    "AG-UI's output": (
        "POST", "/ag-ui/agents/teller",
        {"threadId": "{conversation}", "resume": [{"interruptId": "{run}:{action}", "status": "resolved",
                                                   "payload": {"output": "approved"}}]},
    ),
    "AG-UI's empty resume": (
        "POST", "/ag-ui/agents/teller",
        {"threadId": "{conversation}", "resume": [{"interruptId": "{run}:{action}", "status": "resolved"}]},
    ),
    "the AI SDK's message": (
        "POST", "/ui/agents/teller/chat",
        {"id": "{conversation}", "messages": [said(_YES)], "trigger": "submit-message"},
    ),
    "OpenAI's message": (
        "POST", "/openai/v1/responses",
        {"model": "teller", "input": _YES, "conversation": "{conversation}", "background": True},
    ),
    "OpenAI's message behind the response": (
        "POST", "/openai/v1/responses",
        {"model": "teller", "input": _YES, "previous_response_id": "{response}", "background": True},
    ),
    "OpenAI's item": ("POST", "/openai/v1/conversations/{conversation}/items", {"items": [ITEM]}),
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
        await _teller(desk)
        run = await desk.submit("ann", PAY, agent="teller")
        await desk.pay(run)
        (action,) = (await desk.read(run))["pending_actions"]
        names = {
            "run": run["id"], "conversation": run["conversation_id"], "action": action["id"],
            "number": str(uuid_of(run["conversation_id"])), "response": run["id"].replace("run_", "resp_"),
        }  # fmt: skip
        method, path, body = WORDS[words]
        asked = _filled(body, names)
        if path.startswith("/ag-ui"):
            asked = _thread(**{"messages": [], **asked} if "resume" in asked else asked)
        await desk.ask("cid", method, _filled(path, names), asked)
        if words.startswith("a pause"):
            await desk.have("cid", "POST", f"/v1/runs/{run['id']}/input", {"items": [{"type": "resume"}]})
        now = await desk.read(run)
        assert now["usage"]["tool_calls"] == 0
        events = await desk.have("ann", "GET", f"/v1/runs/{run['id']}/events", Accept="application/json")
        decisions = [each["decision"] for each in events["data"] if each["type"] == "action.resolved"]
        assert set(decisions) <= {"deny", "cancelled"}
        assert bool(now["pending_actions"]) != bool(decisions)
