"""Calls of an MCP server that it answers with a question, or makes a task of: what is kept of them, what a person is
asked, and what may not be asked. The server counts: no call is made twice."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from aiohttp import web

from features.mcp_client.source import McpTools
from features.mcp_client.tests.unit.mcp_server import McpServer, Message, answer, error, says, serving, tool
from features.mcp_client.tests.unit.mcp_tools import OpenedTools, opened_at
from palaver.errors import InvalidToolCall, ToolError, ToolFailure, ToolTimeout
from palaver.schemas.models import ToolCall
from palaver.steps.verdicts import AskPerson, Postpone
from palaver.tools import ToolContext
from palaver.tools.context import LeftCall
from palaver.vocabulary.lifecycle import WaitReason
from tests.waiting import aeventually
from workers.sources.containment import CallLeft, cancel
from workers.steps.tool_calls import tool_of

_FORM = {"type": "object", "properties": {"name": {"type": "string", "title": "Name"}}, "required": ["name"]}


def _asks(message: str = "Who?", **more: Any) -> dict[str, Any]:
    params = {"message": message, "requestedSchema": _FORM, **more}
    return {"method": "elicitation/create", "params": params}


def _input(requests: Any = None, state: Any = "state-1") -> dict[str, Any]:
    requests = {"who": _asks()} if requests is None else requests
    return {"resultType": "input_required", "inputRequests": requests, "requestState": state}


Answering = Callable[[Mapping[str, Any]], dict[str, Any]]


def _tool(answering: Answering) -> Any:
    """A tool that answers by the parameters of the call."""

    async def behave(server: McpServer, request: web.Request, message: Message) -> web.StreamResponse:
        return answer(message, answering(message["params"]))

    return behave


@asynccontextmanager
async def _opened(folder: Path, answering: Answering, table: str = "") -> AsyncIterator[tuple[McpServer, OpenedTools]]:
    server = McpServer({"t": _tool(answering)})
    async with serving(server), opened_at(folder, server, table) as tools:
        yield server, tools


async def _left(tools: OpenedTools, kept: str | None = None, said: Any = None) -> AskPerson | Postpone:
    """The verdict of a call that goes on later."""
    with pytest.raises(CallLeft) as left:
        await tools.call("t", context=_context(kept, said))
    return left.value.verdict


def _context(kept: str | None, said: Any = None) -> ToolContext:
    left = None if kept is None else LeftCall(kept, None if said is None else json.dumps(said))
    return ToolContext(left=left)


async def _asked(tools: OpenedTools, kept: str | None = None, said: Any = None) -> AskPerson:
    verdict = await _left(tools, kept, said)
    assert isinstance(verdict, AskPerson)
    return verdict


async def test_a_question_is_put_to_a_person_and_its_answer_goes_back_with_the_state(tmp_path: Path) -> None:
    def answering(params: Mapping[str, Any]) -> dict[str, Any]:
        if "inputResponses" not in params:
            return _input()
        return says(json.dumps([params["inputResponses"], params["requestState"], params["arguments"]]))

    async with _opened(tmp_path, answering, "ask_timeout = 60") as (server, tools):
        asked = await _asked(tools)
        assert (asked.timeout, asked.question.asker, asked.question.message) == (60, "s", "Who?")
        assert asked.question.form == {**_FORM, "additionalProperties": False}
        # Any process goes on with it: nothing but what is kept is needed.
        async with opened_at(tmp_path, server) as other:
            said = {"action": "accept", "content": {"name": "Ada"}}
            result = await other.call("t", context=_context(asked.kept, said))
        assert json.loads(str(result)) == [{"who": said}, "state-1", {}]
        assert server.calls == ["t", "t"]
        first, second = (each for each in server.requests if each["method"] == "tools/call")
        assert first["id"] != second["id"] or server.methods.count("server/discover") == 2


async def test_several_questions_are_asked_one_after_the_other(tmp_path: Path) -> None:
    def answering(params: Mapping[str, Any]) -> dict[str, Any]:
        responses = params.get("inputResponses", {})
        if not responses:
            return _input({"a": _asks("A?"), "b": _asks("B?", mode="url", url="https://pay.example/x?y=1")})
        return _input({"c": _asks("C?")}, None) if "a" in responses else says(json.dumps(params["inputResponses"]))

    async with _opened(tmp_path, answering) as (server, tools):
        first = await _asked(tools)
        second = await _asked(tools, first.kept, {"action": "decline"})
        assert (first.question.message, second.question.message) == ("A?", "B?")
        assert (second.question.url, second.question.form) == ("https://pay.example/x?y=1", None)
        assert len(server.calls) == 1
        third = await _asked(tools, second.kept, {"action": "accept"})
        assert third.question.message == "C?"
        result = await tools.call("t", context=_context(third.kept, {"action": "cancel"}))
        assert json.loads(str(result)) == {"c": {"action": "cancel"}}
        assert "requestState" not in server.requests[-1]["params"]
        assert server.requests[-2]["params"]["inputResponses"] == {
            "a": {"action": "decline"},
            "b": {"action": "accept"},
        }


def _gone_on_with(tools: OpenedTools, name: str, kept: str | None) -> Any:
    """The tool and the arguments of a step that calls it."""
    agent = SimpleNamespace(tools=(name,), client_tools=(), subagents={})
    attempt: Any = SimpleNamespace(
        lease=SimpleNamespace(kept=kept, agent=agent, shown=None),
        runtime=SimpleNamespace(tools=tools.box),
        calls=SimpleNamespace(offered={}),
    )
    return tool_of(attempt, ToolCall(id="c1", name=name, arguments='{"a": 1}'))


async def test_a_call_that_was_left_goes_on_whatever_the_list_says_by_now(tmp_path: Path) -> None:
    strict = {"type": "object", "properties": {"a": {"type": "string"}}}
    server = McpServer(listed=[tool("t", inputSchema=strict)])
    async with serving(server), opened_at(tmp_path, server) as tools:
        with pytest.raises(InvalidToolCall):
            _gone_on_with(tools, "s__t", None)
        declared, arguments = _gone_on_with(tools, "s__t", "{}")
        assert (declared.name, arguments) == ("s__t", {"a": 1})
        with pytest.raises(ToolError, match=r"s__other is no longer there\. It may or may not have taken effect\."):
            _gone_on_with(tools, "s__other", "{}")
        source = McpTools(())
        with pytest.raises(ToolError, match="no longer there: it may or may not have taken effect"):
            await source.call(declared, {}, _context("{}"))
        with pytest.raises(ToolError, match="no longer there: nothing was called"):
            await source.call(declared, {}, _context(None))


async def test_what_hides_from_a_person_is_taken_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("THE_TOKEN", "token-4711-of-the-server")
    form = {"type": "object", "properties": {"a": {"type": "string", "title": "A\u202e", "evil": {"$ref": "x"}}}}
    asks = _asks("Hi\u200b <!-- x --> token-4711-of-the-server " + "x" * 9_000, requestedSchema=form)
    table = 'headers.X-Key = { env = "THE_TOKEN" }'
    async with _opened(tmp_path, lambda _: _input({"q": asks}), table) as (_, tools):
        question = (await _asked(tools)).question
    assert question.message.startswith("Hi  [redacted] xxx")
    assert len(question.message) <= 4_000
    assert question.form is not None
    assert question.form["properties"] == {"a": {"type": "string", "title": "A"}}


_NESTED = {"type": "object", "properties": {"a": {"type": "object", "properties": {}}}}
_HOSTILE: dict[str, tuple[Any, str]] = {
    "a sample of a model": (
        {"q": {"method": "sampling/createMessage", "params": {}}},
        "wants 'sampling/createMessage'",
    ),
    "the roots": ({"q": {"method": "roots/list", "params": {}}}, "wants 'roots/list'"),
    "no method": ({"q": {"params": {}}}, "no question"),
    "no object": ({"q": 7}, "no question"),
    "a list": ([1], "does not say what"),
    "no words": ({"q": {"method": "elicitation/create", "params": {"requestedSchema": _FORM}}}, "without words"),
    "a way nobody knows": ({"q": _asks(mode="voice")}, "in a way that is unknown"),
    "no form": ({"q": _asks(requestedSchema=None)}, "something else than a form"),
    "a form that is a text": ({"q": _asks(requestedSchema={"type": "string"})}, "something else than a form"),
    "an object in it": ({"q": _asks(requestedSchema=_NESTED)}, "than texts, numbers and choices"),
    "a type that is none": (
        {"q": _asks(requestedSchema={"type": "object", "properties": {"a": {"type": ["string"]}}})},
        "than texts, numbers and choices",
    ),
    "a list of objects": (
        {"q": _asks(requestedSchema={"type": "object", "properties": {"a": {"type": "array", "items": _NESTED}}})},
        "than texts, numbers and choices",
    ),
    "a bad pattern": (
        {"q": _asks(requestedSchema={"type": "object", "properties": {"a": {"type": "string", "pattern": "("}}})},
        "no answer can be held to",
    ),
    "too many fields": (
        {
            "q": _asks(
                requestedSchema={"type": "object", "properties": {f"f{n}": {"type": "string"} for n in range(33)}}
            )
        },
        "more than a form may",
    ),
    "a huge form": (
        {"q": _asks(requestedSchema={**_FORM, "description": "x" * 20_000})},
        "more than a form may",
    ),
    **{
        f"hidden letters in {where}": (
            {"q": _asks(requestedSchema={"type": "object", "properties": {name: field}})},
            "shows something else than it says",
        )
        for where, name, field in (
            ("a name", "a\u202e", {"type": "string"}),
            ("a choice", "a", {"type": "string", "enum": ["yes\u200b"]}),
            ("a name of a choice", "a", {"type": "string", "enum": ["y"], "enumNames": ["\x1b[2J"]}),
            ("a title of a choice", "a", {"type": "string", "oneOf": [{"const": "y", "title": "\u2066no"}]}),
            ("what is there before", "a", {"type": "string", "default": "\x1b[1m"}),
            ("an item", "a", {"type": "array", "items": {"enum": ["\u202e"]}}),
        )
    },
    "what is required is not there": ({"q": _asks(requestedSchema={**_FORM, "required": ["other"]})}, "than a form"),
    "nine questions": ({f"q{n}": _asks() for n in range(9)}, "more than 8 questions"),
    "a long name": ({"q" * 201: _asks()}, "a name that is none"),
    "a script": ({"q": _asks(mode="url", url="javascript:alert(1)")}, "an address that is none"),
    "a file": ({"q": _asks(mode="url", url="file:///etc/passwd")}, "an address that is none"),
    "a login": ({"q": _asks(mode="url", url="https://bank.example@evil.example/")}, "an address that is none"),
    "another host": ({"q": _asks(mode="url", url="https://evil.example\\@bank.example/")}, "an address that is none"),
    "letters that look alike": ({"q": _asks(mode="url", url="https://b\u0430nk.example/")}, "an address that is none"),
    "a break": ({"q": _asks(mode="url", url="https://x.example/\n")}, "an address that is none"),
    "no address": ({"q": _asks(mode="url")}, "an address that is none"),
    "a bad address": ({"q": _asks(mode="url", url="https://[::1/")}, "an address that is none"),
}


async def test_what_is_no_question_is_put_to_nobody(tmp_path: Path) -> None:
    current: dict[str, Any] = {}
    async with _opened(tmp_path, lambda _: _input(current["requests"])) as (server, tools):
        for case, (requests, said) in _HOSTILE.items():
            current["requests"] = requests
            failure = await tools.failure("t")
            assert said in str(failure), case
        assert len(server.calls) == len(_HOSTILE)
        current["requests"] = {"q": _asks()}
        for state, said in (("x" * 65_537, "more than 65,536 bytes"), (7, "its state is no text")):
            server.behaviours["t"] = _tool(lambda _, state=state: _input(state=state))  # type: ignore[misc]
            assert said in str(await tools.failure("t"))


async def test_a_server_that_asks_without_end_is_stopped(tmp_path: Path) -> None:
    async with _opened(tmp_path, lambda _: _input()) as (server, tools):
        asked = await _asked(tools)
        for _ in range(7):
            asked = await _asked(tools, asked.kept, {"action": "accept", "content": {"name": "x"}})
        with pytest.raises(ToolError, match="more than 8 questions in one call"):
            await tools.call("t", context=_context(asked.kept, {"action": "decline"}))
        assert len(server.calls) == 9


async def test_what_the_operator_does_not_allow_is_not_declared_and_refused(tmp_path: Path) -> None:
    answers = [_input(), {"resultType": "task", "taskId": "1"}]
    table = "ask_timeout = 0\ntask_timeout = 0"
    async with _opened(tmp_path, lambda _: answers.pop(0), table) as (server, tools):
        assert "which the operator does not allow" in str(await tools.failure("t"))
        assert "which was not asked for" in str(await tools.failure("t"))
        assert _capabilities(server) == {}
    async with _opened(tmp_path, lambda _: says("x")) as (server, tools):
        await tools.call("t")
        assert _capabilities(server) == {
            "elicitation": {"form": {}, "url": {}},
            "extensions": {"io.modelcontextprotocol/tasks": {}},
        }


def _capabilities(server: McpServer) -> Any:
    return server.requests[-1]["params"]["_meta"]["io.modelcontextprotocol/clientCapabilities"]


class _Tasks:
    """A server that makes tasks of calls."""

    def __init__(self, *states: Mapping[str, Any] | int) -> None:
        self.states = list(states)
        """What it answers to ``tasks/get``, one after the other; a number is the code of an error."""
        self.server = McpServer({"t": _tool(lambda _: {"resultType": "task", "taskId": "täsk 1", "pollIntervalMs": 2})})
        self.seen: list[tuple[str, Any]] = []
        self.heads: list[str | None] = []

    async def handle(self, request: web.Request) -> web.StreamResponse:
        message = await request.json()
        if not message["method"].startswith("tasks/"):
            return await self.server.handle(request)
        params = message["params"]
        self.seen.append((message["method"], params.get("inputResponses")))
        self.heads.append(request.headers.get("Mcp-Name"))
        assert params["taskId"] == "täsk 1"
        if message["method"] != "tasks/get":
            return answer(message, {})
        state = self.states.pop(0) if len(self.states) > 1 else self.states[0]
        if isinstance(state, int):
            return web.Response(status=state) if state > 0 else error(message, state, "unknown task")
        if state.get("hangs"):
            await asyncio.Event().wait()
        return answer(message, {"resultType": "complete", "taskId": "täsk 1", **state})


@asynccontextmanager
async def _with_tasks(
    folder: Path, *states: Mapping[str, Any] | int, table: str = ""
) -> AsyncIterator[tuple[_Tasks, OpenedTools, str]]:
    """A server with tasks, and what is kept of a call that it has made one of."""
    tasks = _Tasks(*states)
    app = web.Application()
    app.router.add_route("*", "/mcp", tasks.handle)
    runner = web.AppRunner(app, handler_cancellation=True, shutdown_timeout=0.1)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    tasks.server.url = f"http://127.0.0.1:{runner.addresses[0][1]}/mcp"
    try:
        async with opened_at(folder, tasks.server, table) as tools:
            yield tasks, tools, (await _postponed(tools)).kept or ""
    finally:
        await runner.cleanup()


async def _postponed(tools: OpenedTools, kept: str | None = None, said: Any = None) -> Postpone:
    verdict = await _left(tools, kept, said)
    assert isinstance(verdict, Postpone)
    return verdict


async def _ended(tools: OpenedTools, kept: str) -> Any:
    return await tools.call("t", context=_context(kept))


async def test_a_task_is_kept_before_it_is_asked_for_and_any_process_goes_on_with_it(tmp_path: Path) -> None:
    working = {"status": "working", "statusMessage": "half", "pollIntervalMs": 700_000}
    done = {"status": "completed", "result": says("done")}
    async with _with_tasks(tmp_path, working, done) as (tasks, tools, kept):
        assert tasks.seen == []
        shown: list[str] = []
        context = ToolContext(left=LeftCall(kept, None), report=lambda text, _: shown.append(text))
        with pytest.raises(CallLeft) as left:
            await tools.call("t", context=context)
        waits = left.value.verdict
        assert isinstance(waits, Postpone)
        assert (waits.delay, waits.reason, waits.code, waits.begun) == (60.0, WaitReason.REMOTE_TASK, "s", True)
        assert shown == ["half"]
        async with opened_at(tmp_path, tasks.server) as other:
            assert await _ended(other, waits.kept or "") == "done"
        assert [method for method, _ in tasks.seen] == ["tasks/get"] * 2
        assert tasks.server.calls == ["t"]
        assert set(tasks.heads) == {"=?base64?dMOkc2sgMQ==?="}


@pytest.mark.parametrize(
    ("state", "said"),
    [
        (
            {"status": "failed", "error": {"code": -32603, "message": "broke\u200b"}},
            "answered with an error: broke (-32603)",
        ),
        ({"status": "cancelled"}, "has cancelled the call: it may or may not have taken effect"),
        ({"status": "completed", "result": {"content": [{"type": "text", "text": "no"}], "isError": True}}, "no"),
        ({"status": "completed"}, "what is no task"),
        ({"status": "failed"}, "what is no task"),
        ({"status": "input_required"}, "does not say what"),
        ({"status": "on fire"}, "what is no task"),
        ({}, "what is no task"),
        (-32602, "says no more of its task: unknown task: it may or may not have taken effect"),
        (403, "says no more of its task: it refused the worker's credentials"),
    ],
)
async def test_a_task_ends_with_the_truth(state: Mapping[str, Any] | int, said: str, tmp_path: Path) -> None:
    async with _with_tasks(tmp_path, state) as (tasks, tools, kept):
        with pytest.raises(ToolFailure) as failed:
            await _ended(tools, kept)
        assert said in str(failed.value)
        assert tasks.server.calls == ["t"]


async def test_a_server_that_is_away_is_asked_for_its_task_later(tmp_path: Path) -> None:
    async with _with_tasks(tmp_path, 503, 500, {"status": "completed", "result": says("done")}) as (_, tools, kept):
        delays = []
        for _ in range(2):
            waits = await _postponed(tools, kept)
            kept = waits.kept or ""
            delays.append(waits.delay)
        assert delays == [1.0, 2.0]
        assert await _ended(tools, kept) == "done"
    waits = await _postponed_of_nobody(tmp_path, kept)
    assert waits.delay >= 1.0


async def test_it_is_known_whether_the_server_answered_when_a_call_is_left(tmp_path: Path) -> None:
    async with _with_tasks(tmp_path, 503, {"status": "working"}) as (_, tools, kept):
        for answered in (False, True):
            with pytest.raises(CallLeft) as left:
                await _ended(tools, kept)
            assert left.value.answered is answered


async def test_a_server_that_hangs_at_one_time_ends_no_task(tmp_path: Path) -> None:
    hangs, done = {"hangs": True}, {"status": "completed", "result": says("done")}
    async with _with_tasks(tmp_path, hangs, done, table="timeout = 1.5") as (_, tools, kept):
        waits = await _postponed(tools, kept)
        assert await _ended(tools, waits.kept or "") == "done"


async def _postponed_of_nobody(folder: Path, kept: str) -> Postpone:
    server = McpServer({"t": _tool(lambda _: says("x"))})
    async with serving(server), opened_at(folder, server):
        pass
    async with opened_at(folder, server) as tools:
        return await _postponed(tools, kept)


async def test_a_task_asks_each_of_its_questions_once(tmp_path: Path) -> None:
    asks = {"status": "input_required", "inputRequests": {"a": _asks("A?"), "b": _asks("B?")}}
    async with _with_tasks(tmp_path, asks) as (tasks, tools, kept):
        first = await _asked(tools, kept)
        assert first.question.message == "A?"
        said = {"action": "accept", "content": {"name": "x"}}
        waits = await _postponed(tools, first.kept, said)
        assert tasks.seen[-1] == ("tasks/update", {"a": said})
        # It has not yet seen the answer: that is not given again, and the next question is asked.
        second = await _asked(tools, waits.kept)
        assert second.question.message == "B?"
        waits = await _postponed(tools, second.kept, {"action": "decline"})
        assert tasks.seen[-1] == ("tasks/update", {"b": {"action": "decline"}})
        await _postponed(tools, waits.kept)
        assert [method for method, _ in tasks.seen].count("tasks/update") == 2


async def test_a_task_asks_nothing_that_the_operator_does_not_allow(tmp_path: Path) -> None:
    asks = {"status": "input_required", "inputRequests": {"a": _asks("A?")}}
    async with _with_tasks(tmp_path, asks, table="ask_timeout = 0") as (tasks, tools, kept):
        with pytest.raises(ToolError, match="which the operator does not allow: it may or may not have taken effect"):
            await _ended(tools, kept)
        assert [method for method, _ in tasks.seen] == ["tasks/get", "tasks/cancel"]


async def test_an_answer_is_passed_on_once_the_server_is_back(tmp_path: Path) -> None:
    asks = {"status": "input_required", "inputRequests": {"a": _asks("A?")}}
    async with _with_tasks(tmp_path, asks, 503, asks) as (tasks, tools, kept):
        asked = await _asked(tools, kept)
        said = {"action": "accept", "content": {"name": "x"}}
        waits = await _postponed(tools, asked.kept, said)
        assert [method for method, _ in tasks.seen] == ["tasks/get", "tasks/get"]
        waits = await _postponed(tools, waits.kept, said)
        assert tasks.seen[-1] == ("tasks/update", {"a": said})
        # Its step has the answer still; it is passed on once.
        await _postponed(tools, waits.kept, said)
        assert [method for method, _ in tasks.seen].count("tasks/update") == 1


async def test_an_answer_that_comes_when_the_task_is_over_is_given_to_nobody(tmp_path: Path) -> None:
    asks = {"status": "input_required", "inputRequests": {"a": _asks("A?")}}
    async with _with_tasks(tmp_path, asks, {"status": "completed", "result": says("done")}) as (tasks, tools, kept):
        asked = await _asked(tools, kept)
        result = await tools.call("t", context=_context(asked.kept, {"action": "accept", "content": {"name": "x"}}))
        assert result == "done"
        assert [method for method, _ in tasks.seen] == ["tasks/get", "tasks/get"]


async def test_a_task_that_takes_too_long_is_cancelled(tmp_path: Path) -> None:
    async with _with_tasks(tmp_path, {"status": "working"}, table="task_timeout = 5") as (tasks, tools, kept):
        late = json.loads(kept)
        assert late["task"]["until"] == pytest.approx(time.time() + 5, abs=2)
        late["task"]["until"] = time.time() - 1
        with pytest.raises(ToolTimeout, match="longer than 5 s: it may or may not"):
            await _ended(tools, json.dumps(late))
        assert [method for method, _ in tasks.seen] == ["tasks/cancel"]


@pytest.mark.parametrize("cancelled", [True, False])
async def test_a_cancel_reaches_the_server_and_the_end_of_a_worker_does_not(cancelled: bool, tmp_path: Path) -> None:
    async with _with_tasks(tmp_path, {"hangs": True}) as (tasks, tools, kept):
        asking = asyncio.create_task(_ended(tools, kept))
        await aeventually(lambda: bool(tasks.seen))
        if cancelled:
            cancel(asking)
        else:
            asking.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asking
        assert [method for method, _ in tasks.seen] == ["tasks/get", *(["tasks/cancel"] if cancelled else [])]


@pytest.mark.parametrize("made", [{"taskId": ""}, {"taskId": "x" * 1_025}, {"taskId": 7}, {}])
async def test_a_task_without_an_id_is_none(made: dict[str, Any], tmp_path: Path) -> None:
    async with _opened(tmp_path, lambda _: {"resultType": "task", **made}) as (_, tools):
        assert "a task of the call that has no id" in str(await tools.failure("t"))
