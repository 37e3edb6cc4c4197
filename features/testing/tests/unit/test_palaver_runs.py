"""The fixture as a team uses it: agents, tools, failures, approvals and time, without a server."""

from __future__ import annotations

import asyncio
import sqlite3
import threading
import unittest
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from pydantic import ValidationError

from features.testing.runs import PalaverRuns
from palaver import AgentSpec, Message, RetryableToolError, RetryPolicy, ToolContext, ToolError, tool
from palaver.errors import Refused, StateConflict


def refund(order: int, reason: str = "") -> str:
    """Pay an order back."""
    return f"refunded {order}"


@tool(risky=True)
def delete(path: str) -> str:
    """Delete a file."""
    return f"deleted {path}"


LOOK = {"name": "look", "parameters": {"type": "object", "properties": {"at": {"type": "string"}}}}


def test_a_refund_is_made_once(palaver_runs: PalaverRuns) -> None:
    palaver_runs.model.calls("refund", order=4711).says("Done.")
    run = palaver_runs.run("refund 4711", tools=[refund])
    assert run.status == "completed"
    assert run.stop_reason == "end_turn"
    assert run.output == "Done."
    assert run.calls("refund") == [{"order": 4711}]
    assert [message.text for message in run.messages] == ["refund 4711", "", "refunded 4711", "Done."]
    assert run.events[-1].type == "run.finished"
    assert run.error is None
    assert run.retries == []
    assert (run.usage.model_calls, run.usage.tool_calls) == (2, 1)


@pytest.mark.parametrize("stream", [True, False])
def test_the_model_is_sent_what_a_provider_is_sent(palaver_runs: PalaverRuns, *, stream: bool) -> None:
    palaver_runs.model.says("Let me see.").and_calls("refund", order=1).and_calls("refund", order=2)
    palaver_runs.model.says("Both.", tokens=(30, 2))
    agent = AgentSpec(model="openai/gpt-5", instructions="Be kind.", stream=stream)
    run = palaver_runs.run("two", tools=[refund], agent=agent)
    first, second = palaver_runs.model.requests
    assert first.body["model"] == "gpt-5"
    assert first.tools == ["refund"]
    assert [message["role"] for message in first.messages] == ["system", "user"]
    assert [message.get("content") for message in second.messages[2:]] == ["Let me see.", "refunded 1", "refunded 2"]
    assert len({call["id"] for call in second.messages[2]["tool_calls"]}) == 2
    assert run.calls("refund") == [{"order": 1}, {"order": 2}]
    assert run.usage.output_tokens > 2


def test_a_conversation_goes_on(palaver_runs: PalaverRuns) -> None:
    palaver_runs.model.says("Hello.").calls("refund", order=1).says("Done.")
    first = palaver_runs.run("hello", tools=[refund], instructions="Be kind.")
    second = palaver_runs.run("refund 1", conversation_id=first.conversation_id)
    assert [message["role"] for message in palaver_runs.model.requests[1].messages][-3:] == [
        "user",
        "assistant",
        "user",
    ]
    assert (first.calls("refund"), second.calls("refund")) == ([], [{"order": 1}])


def test_what_is_said_of_the_agent_of_a_conversation_changes_it(palaver_runs: PalaverRuns) -> None:
    palaver_runs.model.says("Hello.").says("Hello again.")
    first = palaver_runs.run("hello", agent={"tools": [refund], "model": "a/one"}, instructions="Be kind.")
    palaver_runs.run("again", tools=[delete], model="b/two", conversation_id=first.conversation_id)
    request = palaver_runs.model.requests[-1]
    assert request.tools == ["refund", "delete"]
    assert request.messages[0] == {"role": "system", "content": "Be kind."}
    assert request.body["model"] == "two"


def test_failures_are_tried_again_as_in_production_and_no_test_waits(palaver_runs: PalaverRuns) -> None:
    palaver_runs.model.fails(429, retry_after=20).fails("timeout").fails("connection").fails("cut").says("At last.")
    began = palaver_runs.clock.now
    run = palaver_runs.run("hello")
    assert run.output == "At last."
    assert [each["error"]["class"] for each in run.retries] == ["rate_limited", "timeout", "connection", "connection"]
    assert run.retries[0]["delay"] >= 20
    assert palaver_runs.clock.now - began > timedelta(seconds=20)
    assert run.shown.times.ended_at is not None
    assert run.shown.times.ended_at - run.shown.times.created_at > timedelta(seconds=20)


def test_a_provider_that_is_out_ends_the_run_in_the_end(palaver_runs: PalaverRuns) -> None:
    palaver_runs.model.fails(503).fails(503)
    run = palaver_runs.run("hello", retry={"rules": {"provider_error": {"attempts": 2}}})
    assert run.status == "failed"
    assert run.error is not None
    assert run.error["class"] == "provider_error"


def test_a_fault_of_the_request_is_not_tried_again(palaver_runs: PalaverRuns) -> None:
    palaver_runs.model.fails(401).fails(400, code="content_policy_violation")
    assert palaver_runs.run("hello").shown.error["class"] == "authentication"  # type: ignore[index]
    assert palaver_runs.run("hello").stop_reason == "content_filter"


def test_another_model_is_asked(palaver_runs: PalaverRuns) -> None:
    palaver_runs.model.fails(500).says("I can.")
    rule = {"attempts": 1, "then": "fallback_model"}
    run = palaver_runs.run("hello", model="a/large", fallbacks=["b/small"], retry={"rules": {"provider_error": rule}})
    assert run.output == "I can."
    assert [request.body["model"] for request in palaver_runs.model.requests] == ["large", "small"]


def test_what_is_asked_beyond_the_script_shows_what_was_asked(palaver_runs: PalaverRuns) -> None:
    palaver_runs.model.calls("refund", order=1)
    with pytest.raises(AssertionError, match=r"asked 2 times, and its script has 1 answers.*refunded 1"):
        palaver_runs.run("refund 1", tools=[refund])


@pytest.mark.parametrize("how", [200, 600, "flood"])
def test_a_failure_that_is_none_is_refused(palaver_runs: PalaverRuns, how: Any) -> None:
    with pytest.raises(ValueError, match="failure"):
        palaver_runs.model.fails(how)
    with pytest.raises(ValueError, match="begin one with says or calls"):
        palaver_runs.model.and_calls("refund")
    with pytest.raises(ValueError, match="has no header"):
        palaver_runs.model.fails("cut", retry_after=1)


def test_a_person_approves(palaver_runs: PalaverRuns) -> None:
    palaver_runs.model.calls("delete", path="a").says("Gone.")
    run = palaver_runs.run("delete a", tools=[delete])
    assert run.status == "requires_action"
    assert [action.tool for action in run.pending_actions] == ["delete"]
    assert run.calls(delete) == []
    run.approve().goes_on()
    assert (run.status, run.output) == ("completed", "Gone.")
    assert run.calls(delete) == [{"path": "a"}]
    with pytest.raises(StateConflict):
        run.approve().goes_on()


def test_a_person_denies_and_the_model_is_told_why(palaver_runs: PalaverRuns) -> None:
    palaver_runs.model.calls("delete", path="a").says("As you wish.")
    run = palaver_runs.run("delete a", tools=[delete]).deny("we need it").goes_on()
    assert "we need it" in palaver_runs.model.requests[1].messages[-1]["content"]
    assert run.calls(delete) == []


def test_a_person_changes_the_arguments(palaver_runs: PalaverRuns) -> None:
    palaver_runs.model.calls("delete", path="a").says("b, then.")
    run = palaver_runs.run("delete a", tools=[delete])
    (action,) = run.pending_actions
    edit = {"type": "approval", "action_id": action.id, "decision": "edit", "arguments": {"path": "b"}}
    assert run.sends(edit).goes_on().calls(delete) == [{"path": "b"}]


def test_a_second_person_has_to_approve(palaver_runs: PalaverRuns) -> None:
    palaver_runs.model.calls("delete", path="a").says("Gone.")
    run = palaver_runs.run("delete a", tools=[delete], approvals={"second_person": ["delete"]}, by="ann")
    with pytest.raises(StateConflict, match="second person"):
        run.approve().goes_on(by="ann")
    assert run.approve().goes_on(by="bob").output == "Gone."


def test_messages_go_in_and_what_happens_is_told_the_same_each_time(palaver_runs: PalaverRuns) -> None:
    before = [{"role": "user", "content": "hello"}, {"role": "assistant", "content": "hi"}]
    palaver_runs.model.says("It is fine, all of it.").says("It is fine, all of it.")
    told = []
    for _ in range(2):
        run = palaver_runs.run([*before, Message(role="user", content="how is it?")])
        told.append([event.type for event in run.events])
        assert [message["content"] for message in palaver_runs.model.requests[-1].messages] == [
            "hello",
            "hi",
            "how is it?",
        ]
    assert told[0] == told[1]
    assert told[0].count("message.delta") == 1


def test_an_approval_runs_out(palaver_runs: PalaverRuns) -> None:
    palaver_runs.model.calls("delete", path="a").says("It is too late.")
    run = palaver_runs.run("delete a", tools=[delete], approvals={"timeout": 3600})
    palaver_runs.clock.advance(minutes=59)
    assert run.goes_on().status == "requires_action"
    palaver_runs.clock.advance(minutes=2)
    assert run.goes_on().output == "It is too late."
    assert run.calls(delete) == []


def test_time_runs_out_while_a_person_is_awaited(palaver_runs: PalaverRuns) -> None:
    palaver_runs.model.calls("delete", path="a").calls("delete", path="a")
    slow = palaver_runs.run("delete a", tools=[delete], budget={"seconds": 600})
    late = palaver_runs.run("delete a", tools=[delete], deadline=palaver_runs.clock.now + timedelta(minutes=10))
    palaver_runs.clock.advance(minutes=11)
    assert slow.goes_on().stop_reason == "budget"
    assert (late.goes_on().status, late.stop_reason) == ("expired", "deadline")


def test_a_run_that_begins_later_does_so_at_once(palaver_runs: PalaverRuns) -> None:
    palaver_runs.model.says("Good morning.")
    morning = palaver_runs.clock.now + timedelta(days=3)
    run = palaver_runs.run("wake me", start_after=morning)
    assert run.output == "Good morning."
    assert run.shown.times.started_at is not None
    assert run.shown.times.started_at >= morning.replace(microsecond=0)


def test_a_client_answers_its_tool(palaver_runs: PalaverRuns) -> None:
    palaver_runs.model.calls("look", at="the sky").says("Blue.")
    run = palaver_runs.run("what colour?", client_tools=[LOOK])
    assert run.status == "requires_action"
    assert run.answer("look", {"colour": "blue"}).goes_on().output == "Blue."
    assert palaver_runs.model.requests[1].messages[-1]["content"] == '{"colour": "blue"}'


def test_an_agent_calls_another_one(palaver_runs: PalaverRuns) -> None:
    palaver_runs.model.calls("agent_clerk", message="refund 1").calls("refund", order=1).says("Paid.").says("All done.")
    clerk = {"agent": {"model": "other/clerk", "tools": ["refund"]}}
    run = palaver_runs.run(
        "refund 1", tools=[refund], agent={"tools": ["agent_clerk"], "subagents": {"agent_clerk": clerk}}
    )
    assert run.output == "All done."
    assert len(run.shown.children) == 1
    assert palaver_runs.clock.skipped == 0
    assert [request.body["model"] for request in palaver_runs.model.requests] == ["model", "clerk", "clerk", "model"]


def test_a_run_is_cancelled(palaver_runs: PalaverRuns) -> None:
    palaver_runs.model.calls("delete", path="a")
    run = palaver_runs.run("delete a", tools=[delete])
    assert run.cancel().goes_on().status == "cancelled"
    assert run.messages[-1].role == "tool"


def test_limits_of_a_run_hold(palaver_runs: PalaverRuns) -> None:
    palaver_runs.model.calls("refund", order=1).calls("refund", order=2, reason="again")
    run = palaver_runs.run("loop", tools=[refund], max_steps=2)
    assert (run.status, run.stop_reason) == ("incomplete", "max_steps")
    palaver_runs.model.calls("refund", order=1)
    assert palaver_runs.run("x", tools=[refund], budget={"tokens": 1}).stop_reason == "budget"


def test_what_a_tool_raises_is_told_to_the_model(palaver_runs: PalaverRuns) -> None:
    def fails() -> str:
        raise LookupError("no such order")

    palaver_runs.model.calls("fails").says("Sorry.")
    assert palaver_runs.run("x", tools=[fails]).output == "Sorry."
    assert palaver_runs.model.requests[1].messages[-1]["content"] == "Error: fails failed: LookupError: no such order"
    palaver_runs.model.calls("fails")
    with pytest.raises(LookupError, match="no such order"):
        palaver_runs.run("x", tools=[fails], raise_errors=True)


def test_what_a_tool_tells_the_model_on_purpose_is_not_raised(palaver_runs: PalaverRuns) -> None:
    def says_no() -> str:
        raise ToolError("it is closed")

    palaver_runs.model.calls("says_no").says("Sorry.")
    assert palaver_runs.run("x", tools=[says_no], raise_errors=True).output == "Sorry."


@pytest.mark.parametrize("kind", ["blocking", "async", "inline"])
def test_an_assertion_in_a_tool_fails_the_test(palaver_runs: PalaverRuns, kind: str) -> None:
    def checks(order: int) -> str:
        assert order == 2, "another order"
        return "ok"

    async def checks_async(order: int) -> str:
        return checks(order)

    function: Callable[..., Any] = checks_async if kind == "async" else checks
    palaver_runs.model.calls("checks", order=1)
    with pytest.raises(AssertionError, match="another order"):
        palaver_runs.run("x", tools=[tool(name="checks", inline=kind == "inline")(function)])


def test_a_tool_is_tried_again_by_its_policy(palaver_runs: PalaverRuns) -> None:
    tries = iter([RetryableToolError("busy", retry_after=300), None])

    @tool(retry=RetryPolicy.parse({"rules": {"tool_error": {"attempts": 3}}}))
    def book(seat: str) -> str:
        if (error := next(tries)) is not None:
            raise error
        return f"{seat} is yours"

    palaver_runs.model.calls("book", seat="1A").says("Booked.")
    began = palaver_runs.clock.now
    run = palaver_runs.run("1A", tools=[book])
    assert run.output == "Booked."
    assert run.calls("book") == [{"seat": "1A"}, {"seat": "1A"}]
    assert palaver_runs.clock.now - began >= timedelta(seconds=300)


def test_a_blocking_tool_runs_in_the_thread_of_the_test_and_in_no_loop(palaver_runs: PalaverRuns) -> None:
    """As an ORM wants it whose connection belongs to the test; sqlite3 refuses other threads."""
    with sqlite3.connect(":memory:") as database:
        database.execute("CREATE TABLE refunds (number INTEGER)")

        def note(number: int) -> int:
            with pytest.raises(RuntimeError, match="no running event loop"):
                asyncio.get_running_loop()
            return database.execute("INSERT INTO refunds VALUES (?)", [number]).rowcount

        palaver_runs.model.calls("note", number=4711).says("Noted.")
        palaver_runs.run("x", tools=[note], raise_errors=True)
        assert database.execute("SELECT number FROM refunds").fetchall() == [(4711,)]
    database.close()


def test_an_async_tool_runs_on_a_loop_and_hears_of_its_call(palaver_runs: PalaverRuns) -> None:
    async def who(context: ToolContext) -> str:
        await asyncio.sleep(0)
        return f"{context.metadata['user']} {context.secrets['key']}"

    palaver_runs.model.calls("who").says("Ann.")
    run = palaver_runs.run("x", tools=[who], metadata={"user": "ann"}, secrets={"key": "s3cret-s3cret"})
    assert run.messages[2].text.startswith("ann ")
    assert "s3cret" not in run.messages[2].text


def test_a_tool_of_a_queue_of_its_own_is_called_too(palaver_runs: PalaverRuns) -> None:
    palaver_runs.model.calls("render").says("Done.")
    assert palaver_runs.run("x", tools=[tool(queue="gpu", name="render")(lambda: "an image")]).calls("render") == [{}]


def test_a_tool_that_takes_too_long_is_told_so(palaver_runs: PalaverRuns) -> None:
    @tool(timeout=0.001)
    def slow() -> str:
        sum(range(200_000))
        return "late"

    palaver_runs.model.calls("slow").says("Pity.")
    assert "took longer than 0.001 s" in palaver_runs.run("x", tools=[slow]).messages[2].text


async def test_in_an_async_test_it_is_awaited(palaver_runs: PalaverRuns) -> None:
    loops: list[asyncio.AbstractEventLoop] = []

    async def look() -> str:
        loops.append(asyncio.get_running_loop())
        return "seen"

    palaver_runs.model.calls("look").and_calls("delete", path="a").says("Done.")
    run = await palaver_runs.arun("x", tools=[look, delete])
    await run.approve().agoes_on()
    assert run.output == "Done."
    assert loops == [asyncio.get_running_loop()]
    with pytest.raises(RuntimeError, match=r"await palaver_runs\.arun"):
        palaver_runs.run("x")


async def test_in_an_async_test_blocking_tools_run_where_it_says(palaver_runs: PalaverRuns) -> None:
    threads: list[int] = []

    def note() -> str:
        threads.append(threading.get_ident())
        return "noted"

    async def here(call: Callable[[], Any]) -> Any:
        return call()

    palaver_runs.model.calls("note").says("1").calls("note").says("2")
    await palaver_runs.arun("x", tools=[note])
    palaver_runs.in_thread = here
    await palaver_runs.arun("x", tools=[note])
    assert [each == threading.get_ident() for each in threads] == [False, True]


def test_what_does_not_fit_is_refused_as_the_api_refuses_it(palaver_runs: PalaverRuns) -> None:
    with pytest.raises(TypeError, match="neither an agent nor a run has a field 'instruction'; did you mean"):
        palaver_runs.run("x", instruction="Be kind.")
    with pytest.raises(TypeError, match="give the agent itself, and not its name 'support'"):
        palaver_runs.run("x", agent="support")  # type: ignore[arg-type]
    with pytest.raises(ValidationError, match="max_steps"):
        palaver_runs.run("x", max_steps=0)
    with pytest.raises(Refused, match=r"unknown_tool.* did you mean 'refund'"):
        palaver_runs.run("x", tools=[refund], agent={"tools": ["refunds"]})
    with pytest.raises(ValueError, match="forward"):
        palaver_runs.clock.advance(-1)


class OfUnittest(unittest.TestCase):
    """A class of unittest, or of Django: a fixture of the class has it."""

    @pytest.fixture(autouse=True)
    def _with_runs(self, palaver_runs: PalaverRuns) -> None:
        self.palaver_runs = palaver_runs

    def test_it(self) -> None:
        self.palaver_runs.model.says("Hello.")
        assert self.palaver_runs.run("hello").output == "Hello."

    def test_without_pytest(self) -> None:
        with PalaverRuns() as runs:
            runs.model.says("Hello.")
            assert runs.run("hello").output == "Hello."
        with pytest.raises(AssertionError, match="not asked for 1 of its 1 answers"), PalaverRuns() as runs:
            runs.model.says("Never.")
