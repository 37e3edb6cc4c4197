"""Whatever stands in a field of a body, no dialect answers 500: each field of a request that would do something, with
what no client means in its place, over HTTP."""

from __future__ import annotations

import asyncio
import copy
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final

import orjson
import pytest

from features.openai.tests.unit.openai_world import served
from palaver.schemas.actions import ServerQuestion
from palaver.steps.leases import Lease
from palaver.steps.verdicts import AskPerson
from tests.unit.api_world import AGENT, World, call
from tests.unit.mcp_host import MODERN, PREFIX, WITH_TASKS, publish
from tests.unit.test_api_actions_below import call_agent
from tests.waiting import PATIENCE

VALUES: Final[Sequence[Any]] = (None, True, -1, 1.5, "", "\x00", [], {}, [None], {"a": [None]})
GIF: Final = "data:image/gif;base64,R0lGODlhAQABAAAAACw="
FUNCTION: Final = {"name": "weather", "description": "d", "parameters": {"type": "object"}}
Path = tuple[str | int, ...]


class Waiting:
    """Runs that wait for answers of every kind, and a run below one."""

    def __init__(self, run: Mapping[str, Any], above: Mapping[str, Any]) -> None:
        self.run, self.conversation = run["id"], run["conversation_id"]
        self.actions = {action["type"]: action["id"] for action in run["pending_actions"]}
        self.above, self.below = above["id"], above["pending_below"][0]["id"]


async def waiting_in(api: World) -> Waiting:
    """Let them wait."""
    await publish(api, "support", client_tools=[{"name": "pick"}], approvals={"timeout": 3600})
    await publish(api, "researcher", approvals={"timeout": 3600})
    await publish(api, "lead", **{**AGENT, "tools": ["calculator", "agent:researcher"]})
    run = await api.submit(agent="support")
    await api.ask(run, call("c1", "approval"), call("c2", "client_tool", "pick"), call("c3"))
    lease = await api.store.steps.claim(
        run["id"], run["conversation_id"], "1/c3", queues=("tools",), worker="w-1", nonce="n", known=0
    )
    assert isinstance(lease, Lease), lease
    form = {"type": "object", "properties": {"a": {"type": "string"}}}
    asked = AskPerson(ServerQuestion(asker="crm", message="Which?", form=form), 3600.0, "{}")
    await api.store.steps.settle(lease, asked)
    above = await api.submit(agent="lead")
    (child,) = await call_agent(api, above, "c1")
    await api.ask(child, call("a1", "approval"))
    return Waiting(await api.read(run), await api.read(above))


def _ai_sdk(waits: Waiting) -> Iterator[tuple[str, Any]]:
    parts = [{"type": "text", "text": "hi"}, {"type": "file", "url": GIF, "mediaType": "image/gif", "filename": "x"}]
    message = {"id": "m-1", "role": "user", "parts": parts}
    chat = "/ui/agents/support/chat"
    more = {"trigger": "submit-message", "messageId": "m-1", "metadata": {"a": "b"}, "tags": ["a"]}
    yield chat, {"id": "chat", "messages": [message], "on_conflict": "enqueue", **more}
    approval = {"id": waits.actions["approval"], "approved": False, "reason": "no"}
    answers: list[dict[str, Any]] = [
        {"type": "step-start"},
        {"type": "dynamic-tool", "toolCallId": "c1", "state": "approval-responded", "approval": approval},
        {"type": "tool-pick", "toolCallId": "c2", "state": "output-error", "errorText": "closed"},
        {"type": "tool-pick", "toolCallId": "c2", "state": "output-available", "output": {"a": 1}},
        {"type": "data-palaver-question", "id": waits.actions["question"], "data": {"answer": {"response": "decline"}}},
        {"type": "data-palaver-approval", "id": waits.below, "data": {"answer": {"approved": False, "reason": "no"}}},
    ]
    yield chat, {"id": waits.conversation, "messages": [{"id": waits.run, "role": "assistant", "parts": answers}]}
    yield f"{chat}/none/stop", {"runId": "x", "reason": "x"}


def _ag_ui(waits: Waiting) -> Iterator[tuple[str, Any]]:
    image = {"type": "image", "source": {"type": "data", "value": GIF.partition(",")[2], "mimeType": "image/gif"}}
    user = {"id": "m", "role": "user", "content": [{"type": "text", "text": "hi"}, image]}
    more = {"context": [{"description": "d", "value": "v"}], "state": {}, "forwardedProps": {"agent": "support"}}
    yield "/ag-ui", {"threadId": "t", "runId": "r", "messages": [user], "tools": [FUNCTION], **more}
    payloads = {
        "approval": {"approved": False, "reason": "no", "arguments": {"a": 1}},
        "question": {"a": "b"},
        "client_tool": {"output": 1, "isError": True},
    }
    resume = [
        {"interruptId": f"{waits.run}:{waits.actions[kind]}", "status": "resolved", "payload": payload}
        for kind, payload in payloads.items()
    ]
    result = {"id": "t", "role": "tool", "toolCallId": f"{waits.run}:1:c2", "content": "x", "error": "e"}
    yield "/ag-ui", {"threadId": waits.conversation, "runId": "r", "messages": [result], "resume": resume}
    yield "/ag-ui/threads/none/cancel", {"reason": "x"}


def _openai(waits: Waiting) -> Iterator[tuple[str, Any]]:
    content = [{"type": "input_text", "text": "x"}, {"type": "input_image", "image_url": GIF}]
    items = [
        {"type": "message", "role": "system", "content": "s"},
        {"type": "message", "role": "user", "content": content},
        {"type": "function_call", "call_id": "k", "name": "weather", "arguments": "{}"},
        {"type": "function_call_output", "call_id": "k", "output": "x"},
        {"type": "reasoning"},
    ]
    server = {"type": "mcp", "server_label": "palaver", "allowed_tools": ["calculator"], "require_approval": "always"}
    yield "/openai/v1/responses", {
        "model": "fake/tool-20", "input": items, "background": True, "max_output_tokens": 10, "temperature": 0.5,
        "tools": [{"type": "function", **FUNCTION}, server], "tool_choice": {"type": "function", "name": "weather"},
        "metadata": {"a": "b"}, "text": {"format": {"type": "json_schema", "name": "n", "schema": {"type": "object"}}},
        "reasoning": {"effort": "low"}, "run": {"budget": {"tokens": 10}, "priority": 1, "tags": ["a"]},
    }  # fmt: skip
    response = f"resp_{waits.run.removeprefix('run_')}"
    decision = {"type": "mcp_approval_response", "approval_request_id": waits.actions["approval"], "approve": False}
    output = {"type": "function_call_output", "call_id": "c2", "output": [{"type": "input_text", "text": "x"}]}
    yield "/openai/v1/responses", {"previous_response_id": response, "background": True, "input": [decision, output]}
    above = f"resp_{waits.above.removeprefix('run_')}"
    decision = {**decision, "approval_request_id": waits.below, "reason": "no"}
    yield "/openai/v1/responses", {"previous_response_id": above, "background": True, "input": [decision]}
    messages = [{"role": "user", "content": [{"type": "text", "text": "x"}]}]
    calls = [{"id": "k", "type": "function", "function": {"name": "weather", "arguments": "{}"}}]
    messages += [{"role": "assistant", "content": "", "tool_calls": calls}]
    messages += [{"role": "tool", "tool_call_id": "k", "content": "x"}]
    # One that is wrong is refused in any case: else a client that streams nothing would wait for the answer.
    yield "/openai/v1/chat/completions", {
        "model": "fake/tool-20", "messages": messages, "stop": ["a"], "n": 2, "tools": [{"type": "function"}],
        "response_format": {"type": "json_object"}, "stream_options": {"include_usage": True}, "stream": True,
    }  # fmt: skip
    yield "/openai/v1/conversations", {"metadata": {"a": "b"}, "items": [items[1]]}


def _mcp(waits: Waiting) -> Iterator[tuple[str, Any]]:
    def calls(name: str, **arguments: Any) -> dict[str, Any]:
        params = {"name": name, "arguments": arguments, "_meta": {"palaver/idempotencyKey": "k"}}
        return {"jsonrpc": "2.0", "id": "1", "method": "tools/call", "params": params}

    answers = [
        {"action_id": waits.actions["approval"], "decision": "deny", "reason": "no"},
        {"action_id": waits.actions["client_tool"], "content": 1, "is_error": True},
        {"action_id": waits.actions["question"], "response": "accept", "content": {"a": "x"}},
        {"action_id": waits.below, "decision": "deny"},
    ]
    yield "/mcp", calls("run_start", agent="support", message="x", idempotency_key="k", wait_s=0)
    yield "/mcp", calls("run_get", run_id=waits.run, after=0, wait_s=0)
    yield "/mcp", calls("run_answer", run_id=waits.run, answers=answers)
    meta = {f"{PREFIX}protocolVersion": MODERN, f"{PREFIX}clientCapabilities": WITH_TASKS}
    forms = {
        waits.actions["approval"]: {"action": "accept", "content": {"approve": False, "reason": "no"}},
        waits.actions["question"]: {"action": "accept", "content": {"a": "b"}},
    }
    params = {"taskId": waits.run, "inputResponses": forms, "_meta": meta}
    yield "/mcp", {"jsonrpc": "2.0", "id": "1", "method": "tasks/update", "params": params}


@pytest.mark.slow
@pytest.mark.parametrize("bodies", [_ai_sdk, _ag_ui, _openai, _mcp])
async def test_no_field_is_an_error_of_ours(bodies: Callable[[Waiting], Iterator[tuple[str, Any]]]) -> None:
    async with served() as (api, address, _):
        for url, body in bodies(await waiting_in(api)):
            for path in _paths(body):
                for value in VALUES:
                    status, said = await _sent(address, url, _with(body, path, value))
                    assert status < 500, (url, path, value, said)
                    assert b'"code":-32603' not in said, (url, path, value, said)


async def _sent(address: str, url: str, body: Any) -> tuple[int, bytes]:
    """The status, and the beginning of what is answered. Written as it goes over the wire: a client of HTTP takes as
    long as what it asks."""
    content = orjson.dumps(body)
    # What goes on is answered after a second.
    lines = ["content-type: application/json", f"content-length: {len(content)}", "x-stainless-read-timeout: 11"]
    if "tasks/update" in str(body):
        lines += [f"mcp-protocol-version: {MODERN}", "mcp-method: tasks/update"]
    host, port = address.removeprefix("http://").split(":")
    async with asyncio.timeout(PATIENCE):
        reader, writer = await asyncio.open_connection(host, int(port))
        try:
            writer.write("\r\n".join([f"POST {url} HTTP/1.1", f"host: {host}", *lines, "", ""]).encode() + content)
            head = await reader.readuntil(b"\r\n\r\n")
            return int(head.split()[1]), await _beginning(reader, head.lower())
        finally:
            writer.close()
            await writer.wait_closed()


async def _beginning(reader: asyncio.StreamReader, head: bytes) -> bytes:
    """All of a body whose length is said, else its first chunk."""
    if length := re.search(rb"content-length: (\d+)", head):
        return await reader.readexactly(int(length[1]))
    if b"transfer-encoding: chunked" not in head:
        return b""
    return await reader.readexactly(int(await reader.readuntil(b"\r\n"), 16))


def _paths(value: Any, behind: Path = ()) -> Iterator[Path]:
    yield behind
    places = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for place, part in places:
        yield from _paths(part, (*behind, place))


def _with(body: Any, path: Path, value: Any) -> Any:
    """The body with the value at that place."""
    if not path:
        return value
    made = copy.deepcopy(body)
    at = made
    for place in path[:-1]:
        at = at[place]
    at[path[-1]] = value
    return made
