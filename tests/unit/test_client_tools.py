"""Client tools: functions that the SDK declares, calls when a run asks for them, and answers with."""

from __future__ import annotations

import asyncio
import functools
import sys
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest
from pydantic import BaseModel

from palaver import ToolContext, ToolError, tool
from palaver.client import AsyncPalaver, Conflict, NotFound, WaitTimeout
from palaver.errors import ConfigurationError
from palaver.schemas.actions import Approvals, ClientTool
from palaver.schemas.models import AgentSpec
from tests.both_clients import RUN, RUNS, Call, async_client, both_clients
from tests.scripted_api import (
    COMPLETED,
    CONVERSATION_ID,
    RUN_ID,
    Reply,
    ScriptedAPI,
    action_object,
    answer,
    problem,
    run_object,
)
from tests.waiting import PATIENCE

INPUT = f"{RUN}/input"
TAKEN = answer(run_object("running"), 202)


@pytest.fixture
def api() -> Iterator[ScriptedAPI]:
    with ScriptedAPI() as server:
        server.on("POST", RUNS, answer(run_object("queued"), 202))
        server.on("POST", INPUT, TAKEN)
        yield server


def wanting(number: int = 1, tool: str = "open_file", arguments: str = '{"path": "a.txt"}') -> dict[str, Any]:
    """A pending call of a client tool."""
    return action_object(number, "client_tool", tool, arguments=arguments)


def pending(*actions: dict[str, Any], status: str = "requires_action") -> Reply:
    """A run that waits for these."""
    return answer(run_object(status, pending_actions=list(actions)))


def outputs(api: ScriptedAPI) -> list[tuple[str, str, bool]]:
    """Call, output and whether it is an error, as they were sent."""
    items = [item for seen in api.asked("POST", INPUT) for item in seen.body["items"]]
    assert all(item["type"] == "tool_output" for item in items)
    return [(item["call_id"], item["output"], item["is_error"]) for item in items]


def open_file(path: str, line: int = 1) -> str:
    """Show a file in the editor."""
    return f"{path}:{line}"


OPEN_FILE = {
    "name": "open_file",
    "description": "Show a file in the editor.",
    "parameters": {
        "type": "object",
        "properties": {"path": {"type": "string"}, "line": {"type": "integer", "default": 1}},
        "required": ["path"],
        "additionalProperties": False,
    },
}


@async_client
class TestDeclaring:
    @pytest.mark.parametrize("method", ["submit", "run", "create_conversation"])
    def test_functions_specs_and_dicts(self, api: ScriptedAPI, call: Call, method: str) -> None:
        api.on("POST", RUNS, answer(COMPLETED))
        now = "2026-01-01T00:00:00Z"
        conversation = {"id": CONVERSATION_ID, "created_at": now, "updated_at": now}
        api.on("POST", "/v1/conversations", answer(conversation, 201))
        tools = [open_file, tool(name="shout", timeout=5)(open_file), ClientTool(name="look"), {"name": "listen"}]
        said = () if method == "create_conversation" else ("hi",)
        call(api.url, method, *said, model="a/b", client_tools=tools, approvals="always")
        assert api.seen[0].body["agent"] == {
            "model": "a/b",
            "approvals": {"require": "always"},
            "client_tools": [
                OPEN_FILE,
                {**OPEN_FILE, "name": "shout", "timeout": 5.0},
                {"name": "look"},
                {"name": "listen"},
            ],
        }

    @pytest.mark.parametrize(
        ("approvals", "sent"),
        [
            ("never", {"require": "never"}),
            (["send_*"], {"require": ["send_*"]}),
            (Approvals(timeout=60), {"timeout": 60.0}),
            ({"require": "risky", "timeout": 9}, {"require": "risky", "timeout": 9}),
        ],
    )
    def test_approvals(self, api: ScriptedAPI, call: Call, approvals: Any, sent: Any) -> None:
        call(api.url, "submit", "hi", model="a/b", approvals=approvals)
        assert api.seen[0].body["agent"]["approvals"] == sent

    @pytest.mark.parametrize(
        "agent",
        [
            AgentSpec(model="a/b", client_tools=(ClientTool(name="open_file"), ClientTool(name="look"))),
            {"model": "a/b", "client_tools": [{"name": "open_file"}, {"name": "look"}]},
        ],
    )
    def test_an_agent_keeps_what_it_declares_itself(self, api: ScriptedAPI, call: Call, agent: Any) -> None:
        call(api.url, "submit", "hi", agent=agent, client_tools=[open_file, {"name": "listen"}])
        declared = [{"name": "open_file"}, {"name": "look"}, {"name": "listen"}]
        assert api.seen[0].body["agent"] == {"model": "a/b", "client_tools": declared}

    @pytest.mark.parametrize(
        ("arguments", "why"),
        [
            ({"client_tools": [open_file, {"name": "open_file"}], "model": "a/b"}, "two client tools are named"),
            ({"client_tools": [tool(risky=True)(open_file)], "model": "a/b"}, "open_file is risky"),
            ({"client_tools": [lambda: ""], "model": "a/b"}, "lambda"),
            ({"client_tools": [functools.partial(open_file, line=2)], "model": "a/b"}, "needs a name"),
            ({"client_tools": [open_file]}, "no agent would be told of them"),
            ({"approvals": "always"}, "approvals given without a model"),
            ({"approvals": "always", "agent": {"model": "a/b"}}, "not both"),
        ],
    )
    def test_what_cannot_be_is_not_sent(self, api: ScriptedAPI, call: Call, arguments: Any, why: str) -> None:
        with pytest.raises(ValueError, match=why):
            call(api.url, "submit", "hi", **arguments)
        assert not api.seen

    def test_a_signature_that_is_no_schema(self, api: ScriptedAPI, call: Call) -> None:
        def untyped(path):  # type: ignore[no-untyped-def]
            return path

        with pytest.raises(ConfigurationError, match="needs a type annotation"):
            call(api.url, "run", "hi", model="a/b", client_tools=[untyped])
        assert not api.seen


class Found(BaseModel):
    """What a function may return."""

    lines: int


def finds(path: str) -> Found:
    return Found(lines=12)


def raises(path: str) -> str:
    raise OSError("no such file")


def says_why(path: str) -> str:
    raise ToolError("ask for another one")


def leaves(path: str) -> str:
    sys.exit(3)


async def awaits(path: str) -> str:
    await asyncio.sleep(0)
    return f"awaited {path}"


async def raises_later(path: str) -> str:
    await asyncio.sleep(0)
    raise OSError("no such file")


async def gives_up(path: str) -> str:
    raise asyncio.CancelledError


def knows_its_call(path: str, context: ToolContext) -> str:
    context.progress("to nobody")
    return f"{context.run_id} {context.idempotency_key}"


ENDINGS: dict[Any, tuple[str, bool]] = {
    knows_its_call: (f"{RUN_ID} {RUN_ID}:act_1", False),
    open_file: ("a.txt:1", False),
    finds: ('{"lines":12}', False),
    awaits: ("awaited a.txt", False),
    raises: ("raises failed: OSError: no such file", True),
    raises_later: ("raises_later failed: OSError: no such file", True),
    says_why: ("ask for another one", True),
    leaves: ("leaves failed: SystemExit: 3", True),
    gives_up: ("gives_up failed: CancelledError: ", True),
}


@both_clients
class TestCalling:
    @pytest.mark.parametrize("function", ENDINGS, ids=lambda function: function.__name__)
    def test_whatever_a_function_does_is_an_output(self, api: ScriptedAPI, call: Call, function: Any) -> None:
        api.on("GET", RUN, pending(wanting(tool=function.__name__)), answer(COMPLETED))
        run = call(api.url, "run", "hi", model="a/b", client_tools=[function])
        assert run.output == "four"
        assert outputs(api) == [("act_1", *ENDINGS[function])]

    @pytest.mark.parametrize("arguments", ['{"path": 3}', '{"file": "a"}', "{", "[]"])
    def test_arguments_that_do_not_fit_are_told_to_the_model(
        self, api: ScriptedAPI, call: Call, arguments: str
    ) -> None:
        api.on("GET", RUN, pending(wanting(arguments=arguments)), answer(COMPLETED))
        call(api.url, "wait", RUN_ID, client_tools=[open_file])
        [(_, output, is_error)] = outputs(api)
        assert output.startswith("the arguments of open_file do not fit")
        assert is_error

    def test_the_submission_may_bring_the_calls_already(self, api: ScriptedAPI, call: Call) -> None:
        api.on("POST", RUNS, pending(wanting()))
        api.on("GET", RUN, pending(wanting(2)), answer(COMPLETED))
        call(api.url, "run", "hi", model="a/b", client_tools=[open_file])
        assert [call_id for call_id, _, _ in outputs(api)] == ["act_1", "act_2"]
        assert [seen.query["until"] for seen in api.asked("GET", RUN)] == ["action"] * 2

    def test_calls_of_a_turn_are_made_at_the_same_time(self, api: ScriptedAPI, call: Call) -> None:
        both = threading.Barrier(2, timeout=10)

        def meet(path: str) -> str:
            both.wait()
            return "met"

        api.on("GET", RUN, pending(wanting(1, "meet"), wanting(2, "meet")), answer(COMPLETED))
        call(api.url, "wait", RUN_ID, client_tools=[meet])
        assert api.seen[0].query == {"wait": "30", "until": "action"}, "or it would hear of the calls only at the end"
        assert sorted(outputs(api)) == [("act_1", "met", False), ("act_2", "met", False)]

    def test_an_output_is_sent_when_it_is_there(self, api: ScriptedAPI, call: Call) -> None:
        """So that it is not lost with a process that dies while another function goes on."""
        arrived = threading.Event()

        def slow(path: str) -> str:
            assert arrived.wait(10)
            return "at last"

        api.on("POST", INPUT, Reply(202, TAKEN.body, TAKEN.headers, before=arrived.set))
        api.on("GET", RUN, pending(wanting(1, "slow"), wanting(2)), answer(COMPLETED))
        call(api.url, "wait", RUN_ID, client_tools=[slow, open_file])
        assert outputs(api) == [("act_2", "a.txt:1", False), ("act_1", "at last", False)]

    def test_a_conversation_that_has_the_tools_needs_only_the_functions(self, api: ScriptedAPI, call: Call) -> None:
        api.on("GET", RUN, pending(wanting()), answer(COMPLETED))
        call(api.url, "run", "and then?", conversation_id=CONVERSATION_ID, client_tools=[open_file])
        assert api.seen[0].body == {"input": "and then?", "conversation_id": CONVERSATION_ID}
        assert len(outputs(api)) == 1

    def test_a_declaration_without_a_function_is_somebody_elses(self, api: ScriptedAPI, call: Call) -> None:
        api.on("POST", RUNS, pending(wanting(tool="look")))
        run = call(api.url, "run", "hi", model="a/b", client_tools=[{"name": "look"}])
        assert (run.status, [action.tool for action in run.pending_actions]) == ("requires_action", ["look"])
        assert outputs(api) == []


@async_client
class TestWaitingForOthers:
    def test_what_nobody_here_answers_is_returned_after_what_is_answered_here(
        self, api: ScriptedAPI, call: Call
    ) -> None:
        api.on("POST", RUNS, pending(action_object(1), wanting(2)))
        api.on("GET", RUN, pending(action_object(1)))
        run = call(api.url, "run", "hi", model="a/b", tools=["send"], client_tools=[open_file])
        assert [action.id for action in run.pending_actions] == ["act_1"]
        assert outputs(api) == [("act_2", "a.txt:1", False)]

    def test_a_submission_that_needs_an_approval_returns_at_once(self, api: ScriptedAPI, call: Call) -> None:
        api.on("POST", RUNS, pending(action_object()))
        assert call(api.url, "run", "hi", model="a/b").status == "requires_action"
        assert len(api.seen) == 1

    @pytest.mark.parametrize("client_tools", [(), (open_file,)])
    def test_or_is_waited_for_if_that_is_wanted(self, api: ScriptedAPI, call: Call, client_tools: Any) -> None:
        api.on("POST", RUNS, pending(action_object()))
        api.on("GET", RUN, pending(action_object()), answer(run_object()), answer(COMPLETED))
        run = call(api.url, "run", "hi", model="a/b", client_tools=client_tools, until="terminal")
        assert run.status == "completed"

    @pytest.mark.parametrize(
        "reply", [pending(action_object()), pending(action_object(), status="running"), answer(run_object("paused"))]
    )
    def test_wait_returns_when_somebody_is_needed_if_it_is_asked_to(
        self, api: ScriptedAPI, call: Call, reply: Reply
    ) -> None:
        api.on("GET", RUN, reply, answer(COMPLETED))
        assert call(api.url, "wait", RUN_ID, until="action").status != "completed"
        assert api.seen[0].query["until"] == "action"
        assert call(api.url, "wait", RUN_ID).status == "completed"
        assert api.seen[-1].query["until"] == "terminal"

    def test_an_approval_that_takes_its_time_is_not_asked_about_all_the_time(
        self, api: ScriptedAPI, call: Call
    ) -> None:
        api.on("GET", RUN, pending(action_object()))
        with pytest.raises(WaitTimeout, match="requires_action"):
            call(api.url, "wait", RUN_ID, timeout=1, client_tools=[open_file])
        assert len(api.seen) < 8


@async_client
class TestSending:
    @pytest.fixture(autouse=True)
    def _one_call(self, api: ScriptedAPI) -> None:
        api.on("GET", RUN, pending(wanting()), answer(COMPLETED))

    def test_it_keeps_trying_and_calls_the_function_once(self, api: ScriptedAPI, call: Call) -> None:
        """More failures than one call of the SDK bears."""
        calls = []

        def open_file(path: str) -> str:
            calls.append(path)
            return "opened"

        later = problem(503, "unavailable", Retry_After="0")
        api.on("POST", INPUT, Reply(cut=True), *[later] * 5, TAKEN)
        call(api.url, "wait", RUN_ID, client_tools=[open_file])
        assert calls == ["a.txt"]
        sent = api.asked("POST", INPUT)
        assert len(sent) == 7
        assert len({seen.headers["idempotency-key"] for seen in sent}) == 1

    def test_until_its_time_is_up(self, api: ScriptedAPI, call: Call) -> None:
        api.on("POST", INPUT, problem(503, "unavailable", Retry_After="0.1"))
        with pytest.raises(WaitTimeout, match="requires_action"):
            call(api.url, "wait", RUN_ID, timeout=0.5, client_tools=[open_file])

    def test_the_timeout_does_not_leave_a_function(self, api: ScriptedAPI, call: Call) -> None:
        def nap(path: str) -> str:
            time.sleep(0.3)
            return "slept"

        api.on("GET", RUN, pending(wanting(tool="nap")))
        with pytest.raises(WaitTimeout):
            call(api.url, "wait", RUN_ID, timeout=0.1, client_tools=[nap])
        assert outputs(api) == [("act_1", "slept", False)]

    @pytest.mark.parametrize(
        ("status", "code"), [(409, "run_ended"), (409, "action_already_resolved"), (410, "action_expired")]
    )
    def test_what_comes_too_late_is_no_error(self, api: ScriptedAPI, call: Call, status: int, code: str) -> None:
        api.on("POST", INPUT, problem(status, code))
        assert call(api.url, "wait", RUN_ID, client_tools=[open_file]).status == "completed"
        assert len(outputs(api)) == 1

    def test_a_call_is_never_made_twice(self, api: ScriptedAPI, call: Call) -> None:
        api.on("POST", INPUT, problem(410, "action_expired"))
        api.on("GET", RUN, pending(wanting()), pending(wanting()), answer(COMPLETED))
        call(api.url, "wait", RUN_ID, client_tools=[open_file])
        assert len(outputs(api)) == 1

    @pytest.mark.parametrize("status", [413, 422])
    def test_an_output_that_is_refused_is_told_as_an_error(self, api: ScriptedAPI, call: Call, status: int) -> None:
        api.on("POST", INPUT, problem(status, "invalid_unicode", "It holds a NUL."), TAKEN)
        call(api.url, "wait", RUN_ID, client_tools=[open_file])
        assert outputs(api) == [
            ("act_1", "a.txt:1", False),
            ("act_1", "the output of open_file could not be sent: It holds a NUL.", True),
        ]
        first, second = api.asked("POST", INPUT)
        assert first.headers["idempotency-key"] != second.headers["idempotency-key"]

    @pytest.mark.parametrize(
        ("status", "code", "kind"), [(404, "run_not_found", NotFound), (409, "wrong_action", Conflict)]
    )
    def test_any_other_refusal_is_raised(
        self, api: ScriptedAPI, call: Call, status: int, code: str, kind: type[Exception]
    ) -> None:
        api.on("POST", INPUT, problem(status, code))
        with pytest.raises(kind):
            call(api.url, "wait", RUN_ID, client_tools=[open_file])


async def test_who_is_cancelled_takes_the_calls_along(api: ScriptedAPI) -> None:
    begun, left = asyncio.Event(), asyncio.Event()

    async def hang(path: str) -> str:
        begun.set()
        try:
            await asyncio.Event().wait()
        finally:
            left.set()
        return "unreachable"

    api.on("GET", RUN, pending(wanting(tool="hang")))
    async with AsyncPalaver(api.url) as client:
        waiting = asyncio.create_task(client.wait(RUN_ID, client_tools=[hang]))
        await asyncio.wait_for(begun.wait(), PATIENCE)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
    assert left.is_set()
    assert outputs(api) == []
