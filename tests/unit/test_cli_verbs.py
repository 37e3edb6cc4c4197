"""What the commands do to a run that is there, and what they say about it."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.command_line import EVENTS, RUN, RUNS, TURN, CommandResult
from tests.scripted_api import (
    COMPLETED,
    CONVERSATION_ID,
    RUN_ID,
    Reply,
    ScriptedAPI,
    action_object,
    answer,
    conversation_object,
    frame,
    problem,
    run_object,
    stream,
)

INPUT = f"{RUN}/input"
SEND = action_object(1)
SHOUT = action_object(2, tool="shout", arguments="{}")
OPEN = action_object(3, "client_tool", "open_file", arguments='{"path": "a"}')


@pytest.fixture
def api() -> Iterator[ScriptedAPI]:
    with ScriptedAPI() as server:
        waiting = run_object("requires_action", pending_actions=[SEND, SHOUT, OPEN])
        server.on("GET", RUN, answer(waiting))
        server.on("POST", INPUT, answer(run_object("running"), 202))
        yield server


def sent(api: ScriptedAPI) -> list[Any]:
    """The items of the last input."""
    items: list[Any] = api.asked("POST", INPUT)[-1].body["items"]
    return items


def decision(action: dict[str, Any], decided: str, **more: Any) -> dict[str, Any]:
    return {
        "type": "approval", "action_id": action["id"], "digest": action["digest"], "decision": decided, **more,
    }  # fmt: skip


class TestDeciding:
    def test_approving_what_is_named(self, api: ScriptedAPI) -> None:
        said = CommandResult(api, "approve", RUN_ID, "act_1")
        assert (said.code, said.out, said.err) == (0, f'approved send {{"to": "bob"}}; {RUN_ID} is running\n', "")
        assert sent(api) == [decision(SEND, "approve")]

    def test_approving_all_that_is_pending_decides_on_exactly_that(self, api: ScriptedAPI) -> None:
        said = CommandResult(api, "approve", RUN_ID)
        assert said.out == f'approved send {{"to": "bob"}}, shout {{}}; {RUN_ID} is running\n'
        assert sent(api) == [decision(SEND, "approve"), decision(SHOUT, "approve")]

    def test_approving_with_other_arguments(self, api: ScriptedAPI, tmp_path: Path) -> None:
        arguments = tmp_path / "arguments.json"
        arguments.write_text('{"to": "eve"}')
        said = CommandResult(api, "approve", RUN_ID, "act_1", "--arguments", f"@{arguments}")
        assert said.out == (
            f'approved send {{"to": "bob"}}, with {{"to": "eve"}} in place of its arguments; {RUN_ID} is running\n'
        )
        assert sent(api) == [decision(SEND, "edit", arguments={"to": "eve"})]

    def test_a_call_may_be_named_by_its_own_id(self, api: ScriptedAPI) -> None:
        CommandResult(api, "deny", RUN_ID, "call_2", "--reason", "too loud")
        assert sent(api) == [decision(SHOUT, "deny", reason="too loud")]

    def test_denying(self, api: ScriptedAPI) -> None:
        api.on("POST", INPUT, answer(run_object("requires_action", pending_actions=[OPEN]), 202))
        said = CommandResult(api, "deny", RUN_ID)
        assert said.out == f'denied send {{"to": "bob"}}, shout {{}}; {RUN_ID} is requires_action; 1 call still waits\n'
        assert sent(api) == [decision(SEND, "deny"), decision(SHOUT, "deny")]
        CommandResult(api, "deny", RUN_ID, "--stop")
        assert sent(api) == [decision(SEND, "deny"), decision(SHOUT, "deny"), {"type": "stop"}]

    @pytest.mark.parametrize(
        ("arguments", "item"),
        [
            (["act_3", "twelve lines"], {"call_id": "act_3", "output": "twelve lines", "is_error": False}),
            (["call_3", "no such file", "--error"], {"call_id": "call_3", "output": "no such file", "is_error": True}),
            (["act_3", "-"], {"call_id": "act_3", "output": "from a pipe", "is_error": False}),
        ],
    )
    def test_answering(self, api: ScriptedAPI, arguments: list[str], item: dict[str, Any]) -> None:
        said = CommandResult(api, "answer", RUN_ID, *arguments, input="from a pipe")
        assert said.out == f'answered open_file {{"path": "a"}}; {RUN_ID} is running\n'
        assert sent(api) == [{"type": "tool_output", **item}]

    @pytest.mark.parametrize("command", [["approve"], ["deny"], ["answer", "act_3", "x"]])
    def test_json_is_the_run(self, api: ScriptedAPI, command: list[str]) -> None:
        verb, *rest = command
        [document] = CommandResult(api, verb, RUN_ID, *rest, "--json").documents
        assert document["status"] == "running"

    def test_an_unknown_action_lists_what_is_pending_and_how_to_decide(self, api: ScriptedAPI) -> None:
        api.on(
            "POST", INPUT,
            problem(409, "unknown_action", "The run has no such pending action.", run_id=RUN_ID,
                    pending_actions=[SEND, OPEN]),
        )  # fmt: skip
        said = CommandResult(api, "approve", RUN_ID, "act_9")
        assert (said.code, said.out) == (2, "")
        first, *rest = said.err.splitlines()
        assert first == "palaver: The run has no such pending action (unknown_action, request req_1)."
        assert [re.sub("until .*", "until …", line) for line in rest] == [
            'send {"to": "bob"} waits for an approval until …',
            f"  palaver approve {RUN_ID} act_1",
            f"  palaver deny {RUN_ID} act_1 --reason TEXT",
            'open_file {"path": "a"} waits for an output of the client until …',
            f"  palaver answer {RUN_ID} act_3 OUTPUT",
        ]
        assert sent(api) == [{"type": "approval", "action_id": "act_9", "decision": "approve"}]

    @pytest.mark.parametrize("verb", ["approve", "deny"])
    def test_nothing_pending_is_said(self, api: ScriptedAPI, verb: str) -> None:
        api.on("GET", RUN, answer(run_object("running")))
        refusal = "No call of the run awaits an approval."
        api.on("POST", INPUT, problem(409, "no_pending_action", refusal, run_id=RUN_ID, pending_actions=[]))
        said = CommandResult(api, verb, RUN_ID)
        assert (said.code, said.out) == (2, "")
        assert said.err == "palaver: No call of the run awaits an approval (no_pending_action, request req_1).\n"

    @pytest.mark.parametrize(
        ("arguments", "complaint"),
        [
            (["--arguments", '{"to": "eve"}'], "whose arguments are these? act_1, act_2"),
            (["act_1", "--arguments", "[]"], "arguments are a JSON object"),
            (["act_1", "--arguments", "{"], "Expecting property name"),
        ],
    )
    def test_arguments_that_cannot_be(self, api: ScriptedAPI, arguments: list[str], complaint: str) -> None:
        said = CommandResult(api, "approve", RUN_ID, *arguments)
        assert (said.code, said.out) == (2, "")
        assert complaint in " ".join(said.err.split())
        assert not api.asked("POST", INPUT)

    def test_arguments_are_for_the_one_call_that_waits(self, api: ScriptedAPI) -> None:
        api.on("GET", RUN, answer(run_object("requires_action", pending_actions=[OPEN, SEND])))
        CommandResult(api, "approve", RUN_ID, "--arguments", '{"to": "eve"}')
        assert sent(api) == [decision(SEND, "edit", arguments={"to": "eve"})]
        api.on("GET", RUN, answer(run_object("running")))
        said = CommandResult(api, "approve", RUN_ID, "--arguments", '{"to": "eve"}')
        assert said.code == 2
        assert "nothing waits for an approval" in " ".join(said.err.split())


class TestGoingOn:
    @pytest.mark.parametrize(
        ("command", "item"),
        [
            (["steer", RUN_ID, "faster"], {"type": "message", "content": "faster"}),
            (["steer", RUN_ID, "-"], {"type": "message", "content": "from a pipe"}),
            (["pause", RUN_ID], {"type": "pause", "now": False}),
            (["pause", RUN_ID, "--now"], {"type": "pause", "now": True}),
            (["resume", RUN_ID], {"type": "resume"}),
        ],
    )
    def test_says_where_the_run_is_then(self, api: ScriptedAPI, command: list[str], item: dict[str, Any]) -> None:
        said = CommandResult(api, *command, input="from a pipe")
        assert (said.code, said.out) == (0, f"{RUN_ID} is running\n")
        assert sent(api) == [item]
        assert CommandResult(api, *command, "--json", input="from a pipe").documents[0]["status"] == "running"

    @pytest.mark.parametrize(("run_id", "told"), [(None, "said; `palaver run -c"), (RUN_ID, f"told run {RUN_ID}")])
    def test_words_without_a_run(self, api: ScriptedAPI, run_id: str | None, told: str) -> None:
        api.on("POST", f"/v1/conversations/{CONVERSATION_ID}/messages", answer({"position": 3, "run_id": run_id}, 201))
        said = CommandResult(api, "say", CONVERSATION_ID, "-", input="hello")
        assert said.code == 0
        assert said.out.startswith(told)
        assert api.seen[0].body == {"input": "hello"}

    def test_going_back_and_forking(self, api: ScriptedAPI) -> None:
        api.on("POST", f"/v1/conversations/{CONVERSATION_ID}/withdraw", answer(conversation_object()))
        api.on("POST", f"/v1/conversations/{CONVERSATION_ID}/fork", answer(conversation_object(), 201))
        said = CommandResult(api, "withdraw", CONVERSATION_ID, "--after", "4")
        assert (said.code, said.out) == (0, f"{CONVERSATION_ID} goes on behind position 4\n")
        assert CommandResult(api, "fork", CONVERSATION_ID, "--through", "4").out == f"{CONVERSATION_ID}\n"
        assert [seen.body for seen in api.seen] == [{"after": 4}, {"through": 4}]

    def test_a_run_that_answers_what_was_said(self, api: ScriptedAPI) -> None:
        api.on("POST", "/v1/runs", answer(run_object("queued"), 202))
        assert CommandResult(api, "run", "-c", CONVERSATION_ID, "--detach").out == f"{RUN_ID}\n"
        assert api.seen[0].body["input"] == []
        assert CommandResult(api, "run", "-m", "a/b").code == 2

    def test_a_pause_that_does_not_hold_yet(self, api: ScriptedAPI) -> None:
        api.on("POST", INPUT, answer(run_object("running", pausing=True), 202))
        said = CommandResult(api, "pause", RUN_ID)
        assert said.out == f"{RUN_ID} is running and pauses once nothing is under way any more\n"

    def test_what_is_not_paused(self, api: ScriptedAPI) -> None:
        api.on("POST", INPUT, problem(409, "not_paused", "The run is not paused."))
        said = CommandResult(api, "resume", RUN_ID)
        assert (said.code, said.out) == (2, "")
        assert said.err == "palaver: The run is not paused (not_paused, request req_1).\n"

    def test_retry(self, api: ScriptedAPI) -> None:
        made = run_object("queued", id="run_00new", retried_from=RUN_ID)
        api.on("POST", f"{RUN}/retry", answer(made, 202))
        assert CommandResult(api, "retry", RUN_ID).out == f"run_00new goes on with {RUN_ID}\n"
        fork = ["--from-step", "2", "--input", "-", "-a", '{"model": "a/b"}', "-b", "tokens=9"]
        said = CommandResult(api, "retry", RUN_ID, *fork, input="by train")
        assert said.out == f"run_00new forks {RUN_ID} before step 2, in conversation {CONVERSATION_ID}\n"
        assert [seen.body for seen in api.seen] == [
            {},
            {"from_step": 2, "input": "by train", "agent": {"model": "a/b"}, "budget": {"tokens": 9}},
        ]
        assert CommandResult(api, "retry", RUN_ID, "--json").documents[0]["retried_from"] == RUN_ID

    @pytest.mark.parametrize(("id", "path"), [(RUN_ID, RUN), (CONVERSATION_ID, f"/v1/conversations/{CONVERSATION_ID}")])
    def test_delete(self, api: ScriptedAPI, id: str, path: str) -> None:
        api.on("DELETE", path, Reply(204))
        assert CommandResult(api, "delete", id).out == f"deleted {id}\n"
        assert CommandResult(api, "delete", id, "--json").documents == [{"deleted": id}]
        assert {(seen.method, seen.path) for seen in api.seen} == {("DELETE", path)}

    @pytest.mark.parametrize("mode", ["graceful", "now", "rollback"])
    def test_cancel_has_modes(self, api: ScriptedAPI, mode: str) -> None:
        api.on("POST", f"{RUN}/cancel", answer(run_object("cancelling"), 202))
        assert CommandResult(api, "cancel", RUN_ID, "--mode", mode).out == f"{RUN_ID} is cancelling\n"
        assert api.seen[0].body == {"mode": mode}
        assert CommandResult(api, "cancel", RUN_ID, "--mode", "hard").code == 2


class TestShowing:
    def test_pending_actions_with_the_commands_to_type(self, api: ScriptedAPI) -> None:
        said = CommandResult(api, "show", RUN_ID)
        block = said.out[said.out.index("send ") :].splitlines()
        assert [re.sub("until .*", "until …", line) for line in block] == [
            'send {"to": "bob"} waits for an approval until …',
            f"  palaver approve {RUN_ID} act_1",
            f"  palaver deny {RUN_ID} act_1 --reason TEXT",
            "shout {} waits for an approval until …",
            f"  palaver approve {RUN_ID} act_2",
            f"  palaver deny {RUN_ID} act_2 --reason TEXT",
            'open_file {"path": "a"} waits for an output of the client until …',
            f"  palaver answer {RUN_ID} act_3 OUTPUT",
        ]

    def test_who_is_to_decide_sees_every_argument_as_it_is(self, api: ScriptedAPI) -> None:
        """However long, and whatever a terminal would make of it."""
        hidden = {"to": "bob", "text": "x" * 1000, "more": "\x1b[2K\u202eevil"}
        arguments = json.dumps(hidden, ensure_ascii=False) + "\x08\n"
        action = {**SEND, "arguments": arguments}
        api.on("GET", RUN, answer(run_object("requires_action", pending_actions=[action])))
        line = next(line for line in CommandResult(api, "show", RUN_ID).out.splitlines() if line.startswith("send "))
        assert "x" * 1000 in line
        assert line.isprintable()
        assert r"\u001b[2K\u202eevil" in line
        assert r"\x08\n" in line

    def test_a_paused_run_and_a_cancelled_one(self, api: ScriptedAPI) -> None:
        api.on("GET", RUN, answer(run_object("paused", retried_from="run_00old", submitted_by="bob")))
        out = CommandResult(api, "show", RUN_ID).out
        assert "submitted by  bob\n" in out
        assert f"what to do    palaver resume {RUN_ID}\n" in out
        assert "retry of      run_00old\n" in out
        api.on("GET", RUN, answer(run_object("running", pausing=True)))
        assert "status        running, pausing\n" in CommandResult(api, "show", RUN_ID).out
        cancel = {"requested_at": "2026-01-01T00:00:00Z", "mode": "rollback", "by": "alice", "reason": "enough"}
        ended = run_object("cancelled", stop_reason="cancelled", withdrawn=True, cancel=cancel)
        api.on("GET", RUN, answer(ended))
        out = CommandResult(api, "show", RUN_ID).out
        assert "status        cancelled (cancelled, withdrawn)\n" in out
        assert re.search(r"^cancel +\S+ \S+ rollback by alice enough$", out, re.MULTILINE)

    def test_the_runs_above_and_below(self, api: ScriptedAPI) -> None:
        below = [
            {"run_id": "run_00below", "step": "1/c1", "agent": "researcher", "status": "completed"},
            {"run_id": "run_00later", "step": "1/c2", "agent": "researcher"},
        ]
        above = {"run_id": "run_00above", "step": "4/c9", "depth": 1}
        wait = {"reason": "agent_run", "run_id": "run_00later", "code": "run_00later"}
        api.on("GET", RUN, answer(run_object("running", parent=above, children=below, waiting=wait)))
        out = CommandResult(api, "show", RUN_ID).out
        assert "called by     run_00above step 4/c9\n" in out
        assert "runs below    run_00below researcher: completed\n" in out
        assert "runs below    run_00later researcher: goes on\n" in out
        assert "waiting       run of an agent, run_00later\n" in out

    def test_a_list_of_runs_that_wait_for_somebody(self, api: ScriptedAPI) -> None:
        wait = {"reason": "approval", "until": "2026-01-02T00:00:00Z"}
        waiting = run_object("requires_action", waiting=wait, pending_actions=[SEND, SHOUT])
        api.on("GET", RUNS, answer({"data": [waiting], "next_cursor": None}))
        said = CommandResult(api, "list", "-s", "requires_action", "--agent-name", "demo", "--error-class", "timeout")
        assert re.search(r"approval, until \S+ \S+: send, shout$", said.out, re.MULTILINE)
        assert api.seen[0].query == {
            "status": "requires_action", "agent": "demo", "error_class": "timeout", "limit": "20",
        }  # fmt: skip


class TestRun:
    @pytest.fixture(autouse=True)
    def _ends(self, api: ScriptedAPI) -> None:
        api.on("POST", RUNS, answer(run_object("queued"), 202))
        api.on("GET", RUN, answer(COMPLETED))
        api.on("GET", EVENTS, stream(*TURN))

    @pytest.mark.parametrize(
        ("asked", "require"),
        [
            (["always"], "always"),
            (["never"], "never"),
            (["risky"], "risky"),
            (["send_*", "calculator"], ["send_*", "calculator"]),
        ],
    )
    def test_which_calls_wait(self, api: ScriptedAPI, asked: list[str], require: Any) -> None:
        options = [option for each in asked for option in ("--ask", each)]
        CommandResult(api, "run", "hi", "-m", "a/b", "--detach", *options)
        assert api.seen[0].body["agent"]["approvals"] == {"require": require}

    def test_a_busy_conversation(self, api: ScriptedAPI) -> None:
        CommandResult(api, "run", "hi", "-c", CONVERSATION_ID, "--detach", "--on-conflict", "steer")
        assert api.seen[0].body["on_conflict"] == "steer"
        refusal = "The conversation waits for an answer to an action."
        api.on("POST", RUNS, problem(409, "pending_action", refusal, run_id=RUN_ID, pending_actions=[SEND]))
        said = CommandResult(api, "run", "hi", "-c", CONVERSATION_ID)
        assert said.code == 2
        assert f"\n  palaver approve {RUN_ID} act_1\n" in said.err

    @pytest.mark.parametrize(
        "options", [["--ask", "always", "--ask", "send"], ["--on-conflict", "fight"], ["--ask", "always", "-a", "{}"]]
    )
    def test_what_cannot_be_is_not_sent(self, api: ScriptedAPI, options: list[str]) -> None:
        model = [] if "-a" in options else ["-m", "a/b"]
        assert CommandResult(api, "run", "hi", *model, *options).code == 2
        assert not api.seen

    WAITING = answer(run_object("requires_action", pending_actions=[SEND]))
    EVENTS_OF_A_WAIT = (
        frame(1, "action.required", step="1/c", action=SEND),
        frame(2, "action.resolved", action_id="act_1", decision="approve", by="alice"),
        frame(3, "run.pausing", now=False, reason=None),
        frame(4, "run.paused"),
        frame(5, "run.cancelling", mode="rollback", reason="enough"),
        frame(6, "messages.withdrawn", first=1, last=4),
        frame(7, "run.finished"),
    )

    def test_without_a_terminal_it_says_what_to_type_and_goes_on_waiting(self, api: ScriptedAPI) -> None:
        api.on("GET", EVENTS, stream(*self.EVENTS_OF_A_WAIT))
        api.on("GET", RUN, self.WAITING, answer(run_object("paused")), answer(COMPLETED))
        said = CommandResult(api, "run", "hi", "-m", "a/b")
        assert said.code == 0
        assert said.out.splitlines()[1:-1] == [
            'send {"to": "bob"} waits for an approval (action act_1)',
            "decided by alice: approve",
            "pausing once nothing is under way any more",
            "paused",
            "cancelling and withdrawing what was said (enough)",
            "(what was said in this run is withdrawn: models are not told of it any more)",
        ]
        assert said.err.splitlines() == [
            f"  palaver approve {RUN_ID} act_1",
            f"  palaver deny {RUN_ID} act_1 --reason TEXT",
            f"  palaver resume {RUN_ID}",
        ]
        assert not api.asked("POST", INPUT)

    @pytest.mark.parametrize("mode", ["--json", "--no-stream"])
    def test_who_does_not_read_the_events_is_told_which_call_it_is(self, api: ScriptedAPI, mode: str) -> None:
        api.on("GET", EVENTS, stream(*self.EVENTS_OF_A_WAIT))
        api.on("GET", RUN, self.WAITING, answer(COMPLETED))
        said = CommandResult(api, "run", "hi", "-m", "a/b", mode)
        assert said.code == 0
        assert said.err.startswith('send {"to": "bob"} waits for an approval until ')
        assert f"\n  palaver approve {RUN_ID} act_1\n" in said.err

    def test_who_watches_later_is_not_told_what_is_over(self, api: ScriptedAPI) -> None:
        api.on("GET", EVENTS, stream(*self.EVENTS_OF_A_WAIT))
        said = CommandResult(api, "watch", RUN_ID)
        assert (said.code, said.err) == (0, "")
        assert "waits for an approval (action act_1)" in said.out

    def test_an_api_that_is_away_does_not_say_that_it_is_over(self, api: ScriptedAPI) -> None:
        api.on("GET", EVENTS, stream(*self.EVENTS_OF_A_WAIT))
        api.on("GET", RUN, *[problem(503, "unavailable", Retry_After="0")] * 4, answer(COMPLETED))
        said = CommandResult(api, "run", "hi", "-m", "a/b")
        assert said.code == 0
        assert f"  palaver approve {RUN_ID} act_1\n" in said.err
