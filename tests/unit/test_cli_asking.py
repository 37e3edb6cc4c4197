"""``palaver run`` on a terminal: who is there is asked about calls that wait for an approval."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.command_line import EVENTS, RUN, RUNS
from tests.scripted_api import (
    COMPLETED,
    RUN_ID,
    ScriptedAPI,
    action_object,
    answer,
    frame,
    problem,
    run_object,
    stream,
)
from tests.terminal import Terminal

pytestmark = pytest.mark.process

INPUT = f"{RUN}/input"
SEND = action_object(1)
OPEN = action_object(3, "client_tool", "open_file")
QUESTION = 'Approve send {"to": "bob"}? [y]es, [n]o, no with a [r]eason, [e]dit the arguments: '
TAKEN = answer(run_object("running"), 202)
FINISHED = frame(9, "run.finished")
COMMANDS = ("run", "hi", "-m", "a/b")


@pytest.fixture
def api() -> Iterator[ScriptedAPI]:
    with ScriptedAPI() as server:
        server.on("POST", RUNS, answer(run_object("queued"), 202))
        server.on("GET", RUN, answer(run_object("requires_action", pending_actions=[SEND])), answer(COMPLETED))
        server.on("GET", EVENTS, stream(frame(1, "action.required", step="1/c", action=SEND), FINISHED))
        server.on("POST", INPUT, TAKEN)
        yield server


def sent(api: ScriptedAPI) -> list[dict[str, Any]]:
    """The items that were sent, without what all of them have."""
    items = [item for seen in api.asked("POST", INPUT) for item in seen.body["items"]]
    for item in items:
        assert (item.pop("type"), item.pop("action_id"), item.pop("digest")) == ("approval", "act_1", SEND["digest"])
    return items


ANSWERS: dict[str, tuple[tuple[tuple[str, str], ...], dict[str, Any]]] = {
    "yes": (((QUESTION, "y\n"),), {"decision": "approve"}),
    "no": (((QUESTION, "N\n"),), {"decision": "deny"}),
    "reason": (((QUESTION, "r\n"), ("Reason: ", "not bob\n")), {"decision": "deny", "reason": "not bob"}),
    "edit": (
        ((QUESTION, "e\n"), ("Arguments as JSON", '{"to": "eve"}\n')),
        {"decision": "edit", "arguments": {"to": "eve"}},
    ),
    "what is no answer": (((QUESTION, "perhaps\n"), (QUESTION, "\n"), (QUESTION, "yes\n")), {"decision": "approve"}),
    "what is no JSON": (
        (
            (QUESTION, "e\n"), ("Arguments as JSON", "eve\n"), ("That is no JSON object.", ""),
            (QUESTION, "e\n"), ("Arguments as JSON", "[]\n"), ("That is no JSON object.", ""),
            (QUESTION, "y\n"),
        ),
        {"decision": "approve"},
    ),
}  # fmt: skip


@pytest.mark.parametrize(("dialogue", "item"), ANSWERS.values(), ids=ANSWERS)
def test_a_decision(api: ScriptedAPI, dialogue: tuple[tuple[str, str], ...], item: dict[str, Any]) -> None:
    waiting = answer(run_object("requires_action", pending_actions=[SEND]))
    api.on("GET", RUN, *[waiting] * sum(question == QUESTION for question, _ in dialogue), answer(COMPLETED))
    with Terminal(api, *COMMANDS) as terminal:
        for question, typed in dialogue:
            terminal.wait_for(question)
            terminal.type(typed)
        assert terminal.end() == 0
    assert sent(api) == [item]
    assert "palaver approve" not in terminal.shown


@pytest.mark.parametrize("options", [["--no-stream"], []])
def test_only_the_answer_is_on_a_standard_output_that_is_piped(api: ScriptedAPI, options: list[str]) -> None:
    with Terminal(api, *COMMANDS, *options, piped=True) as terminal:
        terminal.wait_for(QUESTION)
        terminal.type("y\n")
        assert terminal.end() == 0
        assert "Approve" not in terminal.piped()


def test_json_is_for_programs_and_asks_nobody(api: ScriptedAPI) -> None:
    with Terminal(api, *COMMANDS, "--json", piped=True) as terminal:
        terminal.wait_for(f"  palaver approve {RUN_ID} act_1")
        assert terminal.end() == 0
    assert QUESTION not in terminal.shown


def test_what_the_api_refuses_is_asked_again(api: ScriptedAPI) -> None:
    waiting = answer(run_object("requires_action", pending_actions=[SEND]))
    api.on("GET", RUN, waiting, waiting, answer(COMPLETED))
    api.on("POST", INPUT, problem(422, "invalid_arguments", "to: is not an address"), TAKEN)
    with Terminal(api, *COMMANDS) as terminal:
        terminal.wait_for(QUESTION)
        terminal.type("e\n")
        terminal.wait_for("Arguments")
        terminal.type('{"to": 3}\n')
        terminal.wait_for("That was not taken: to: is not an address")
        terminal.wait_for(QUESTION)
        terminal.type("n\n")
        assert terminal.end() == 0
    assert [item["decision"] for item in sent(api)] == ["edit", "deny"]


def test_an_api_that_is_away_when_the_answer_comes(api: ScriptedAPI) -> None:
    waiting = answer(run_object("requires_action", pending_actions=[SEND]))
    away = problem(503, "unavailable", "Try again soon.", Retry_After="0")
    api.on("GET", RUN, waiting, *[away] * 4, answer(COMPLETED))
    api.on("POST", INPUT, *[away] * 4, TAKEN)
    with Terminal(api, *COMMANDS) as terminal:
        for _ in range(2):
            terminal.wait_for(QUESTION)
            terminal.type("y\n")
        assert terminal.end() == 0
    assert "That was not taken: Try again soon." in terminal.shown
    assert len(sent(api)) == 5


def test_what_somebody_else_decided_meanwhile(api: ScriptedAPI) -> None:
    refusal = "This was decided or answered before. The first answer counts."
    api.on("POST", INPUT, problem(409, "action_already_resolved", refusal))
    with Terminal(api, *COMMANDS) as terminal:
        terminal.wait_for(QUESTION)
        terminal.type("y\n")
        terminal.wait_for("The first answer counts.")
        assert terminal.end() == 0
    assert len(sent(api)) == 1


def test_what_is_decided_already_is_not_asked(api: ScriptedAPI) -> None:
    api.on("GET", RUN, answer(run_object("running")), answer(COMPLETED))
    with Terminal(api, *COMMANDS) as terminal:
        assert terminal.end() == 0
    assert QUESTION not in terminal.shown
    assert not sent(api)


def test_the_outputs_of_clients_are_not_asked_for(api: ScriptedAPI) -> None:
    api.on("GET", EVENTS, stream(frame(1, "action.required", step="1/c", action=OPEN), FINISHED))
    api.on("GET", RUN, answer(run_object("requires_action", pending_actions=[OPEN])), answer(COMPLETED))
    with Terminal(api, *COMMANDS) as terminal:
        terminal.wait_for(f"  palaver answer {RUN_ID} act_3 OUTPUT")
        assert terminal.end() == 0


def test_ctrl_d_leaves_it_to_somebody_else(api: ScriptedAPI) -> None:
    with Terminal(api, *COMMANDS) as terminal:
        terminal.wait_for(QUESTION)
        terminal.type("\x04")
        terminal.wait_for(f"  palaver approve {RUN_ID} act_1")
        assert terminal.end() == 0
    assert not sent(api)


def test_ctrl_c_cancels_the_run(api: ScriptedAPI) -> None:
    api.on("POST", f"{RUN}/cancel", answer(run_object("cancelling"), 202))
    api.on("GET", EVENTS, stream(frame(1, "action.required", action=SEND), hang=True), stream(FINISHED))
    cancelled = answer(run_object("cancelled", stop_reason="cancelled"))
    api.on("GET", RUN, answer(run_object("requires_action", pending_actions=[SEND])), cancelled)
    with Terminal(api, *COMMANDS) as terminal:
        terminal.wait_for(QUESTION)
        terminal.type("\x03")
        terminal.wait_for("Cancelling the run; press Ctrl-C again")
        assert terminal.end() == 130
    assert not sent(api)
    assert api.asked("GET", EVENTS)[1].headers["last-event-id"] == "1"


def test_a_run_that_is_deleted_meanwhile_ends_the_command(api: ScriptedAPI) -> None:
    api.on("GET", RUN, problem(404, "run_not_found", "It was never there."))
    with Terminal(api, *COMMANDS) as terminal:
        terminal.wait_for("It was never there.")
        assert terminal.end() == 2


def test_the_questions_of_a_turn_come_one_after_another(api: ScriptedAPI) -> None:
    other = action_object(2, tool="shout", arguments="{}")
    both = answer(run_object("requires_action", pending_actions=[SEND, other]))
    required = [frame(1, "action.required", action=SEND), frame(2, "action.required", action=other)]
    api.on("GET", RUN, both, both, answer(COMPLETED))
    api.on("GET", EVENTS, stream(*required, FINISHED))
    with Terminal(api, *COMMANDS) as terminal:
        terminal.wait_for(QUESTION)
        terminal.type("y\n")
        terminal.wait_for("Approve shout {}?")
        terminal.type("n\n")
        assert terminal.end() == 0
    decided = [
        (item["action_id"], item["decision"]) for seen in api.asked("POST", INPUT) for item in seen.body["items"]
    ]
    assert decided == [("act_1", "approve"), ("act_2", "deny")]
