"""What a chat is shown of a run, over runs at random: legal to the client, and in the end what the log has."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any

from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from api.kit.projections import written
from features.ai_sdk.assembly import AssembledMessage
from features.ai_sdk.projection import ChatProjection
from features.ai_sdk.tests.unit.chat_page import Chunk, check, chunks_of
from features.ai_sdk.values import output_of
from features.ai_sdk.wire import answers_in
from palaver.events import DELTAS, EventKind
from palaver.store.reading.events import StoredEvent, joined
from tests.unit.chat_logs import CLIENT_TOOLS, RUN, RunLog

LOGS = st.integers(0, 10**9).map(RunLog)
RANDOM = settings(deadline=None, phases=(Phase.generate,))
"""A smaller seed makes no smaller run."""


def projected(events: Iterable[StoredEvent], edge: int) -> list[Chunk]:
    """What a client is sent that comes when the run is at ``edge``."""
    machine = ChatProjection(RUN, client_tools=CLIENT_TOOLS, edge=edge)
    made = [machine.opening()]
    for event in events:
        made += machine.read(event)
    return made


def shown(*parts: Iterable[Chunk]) -> list[dict[str, Any]]:
    """The parts of the message that the client makes of it, without what the log has not."""
    made = AssembledMessage()
    for chunks in parts:
        made.add(chunks)
    found: list[dict[str, Any]] = []
    for part in made.parts:
        if part["type"] == "reasoning":
            continue
        if part["type"] == "text" and found[-1]["type"] == "text":
            # Reasoning was between them.
            found[-1] = {**part, "text": found[-1]["text"] + part["text"]}
        else:
            found.append(part)
    return found


def steps_of(parts: Sequence[dict[str, Any]]) -> list[str]:
    """The texts of the steps."""
    found: list[str] = []
    for part in parts:
        if part["type"] == "step-start":
            found.append("")
        elif part["type"] == "text":
            found[-1] += part["text"]
    return found


@RANDOM
@given(log=LOGS)
def test_the_client_takes_all_of_it_and_has_in_the_end_what_the_log_has(log: RunLog) -> None:
    chunks = projected(log.events, len(log.events))
    check(chunks)
    parts = shown(chunks)
    assert steps_of(parts) == list(log.said.values())
    results = [event.data["message"] for event in log.events if event.type == EventKind.TOOL_FINISHED]
    told = [part for part in parts if "toolCallId" in part]
    assert len({part["toolCallId"] for part in told}) == len(told) == len(results), "each call is known by its own id"
    assert {part["state"] for part in told} <= {"output-available", "output-error", "output-denied"}
    outputs = [repr(part["output"]) for part in told if part["state"] == "output-available"]
    assert sorted(outputs) == sorted(repr(output_of(each["content"])) for each in results if not each["is_error"])
    decisions = {part["toolCallId"]: part["approval"]["approved"] for part in told if "approval" in part}
    denied = {part["toolCallId"] for part in told if part["state"] == "output-denied"}
    assert denied == {call for call, approved in decisions.items() if not approved}


@RANDOM
@given(log=LOGS, first=st.integers(1, 60), length=st.integers(0, 60))
def test_what_is_gone_of_the_way_changes_nothing_of_the_end(log: RunLog, first: int, length: int) -> None:
    whole = shown(projected(log.events, len(log.events)))
    # Also by a client that was away from where an answer was discarded.
    gaps = [(event.seq, len(log.events)) for event in log.events if event.type == EventKind.MESSAGE_DISCARDED]
    torn = [log.torn(*gap) for gap in [(first, first + length), *gaps]]
    for events in (log.kept(), *torn, list(joined(log.events))):
        chunks = projected(events, len(log.events))
        check(chunks)
        assert shown(chunks) == whole


@RANDOM
@given(log=LOGS, sizes=st.lists(st.integers(1, 5)), straight=st.booleans())
def test_a_replay_says_the_same_however_the_events_come(log: RunLog, sizes: list[int], straight: bool) -> None:
    answer = ChatProjection(RUN, client_tools=CLIENT_TOOLS, edge=len(log.events))
    left, sent = list(log.events), written([answer.opening()])
    for size in [*sizes, len(left)]:
        batch, left = left[:size], left[size:]
        while straight and batch and batch[0].type in DELTAS and (frame := answer.at_once(batch[0])):
            sent += frame
            answer.passed()
            del batch[0]
        sent += b"".join(answer.pieces(batch)) if batch else b""
    assert chunks_of(sent) == projected(log.events, len(log.events))
    assert answer.view.over
    assert b"".join(answer.pieces(log.events)) == b"", "nothing behind the end"


@RANDOM
@given(log=LOGS)
def test_an_answer_goes_on_where_the_client_has_stopped(log: RunLog) -> None:
    whole = shown(projected(log.events, len(log.events)))
    for place in log.waits:
        before = projected(log.events, place)
        check(before)
        assert before[-1]["finishReason"] == "tool-calls"
        settled = {e.data["action_id"] for e in log.events[:place] if e.type == EventKind.ACTION_RESOLVED}
        asked = [e.data["action"]["id"] for e in log.events[:place] if e.type == EventKind.ACTION_REQUIRED]
        # Others may have answered the first of them.
        answered = [action for action in asked if action not in settled][-1]
        calls = [chunk["toolCallId"] for chunk in before if chunk["type"] == "tool-input-available"]
        edge = len(log.events)
        follows = ChatProjection(RUN, client_tools=CLIENT_TOOLS, edge=edge, answers=frozenset({answered}))
        behind = chunks_of(b"".join(follows.pieces(log.events)))
        check(behind, calls)
        assert shown(before, behind) == whole


@RANDOM
@given(log=LOGS, place=st.floats(0, 1))
def test_a_client_that_comes_late_is_not_shown_an_end_that_was_none(log: RunLog, place: float) -> None:
    last = len(log.events)
    # Also within what one script writes: nobody comes there, but what is shown does not hang on that.
    for edge in {1 + int(place * (last - 1)), *log.waits, *(min(each + 1, last) for each in log.waits)}:
        chunks = projected(log.events[:edge], edge)
        check(chunks, whole=False)
        over = any(chunk["type"] == "finish" for chunk in chunks)
        assert over == (edge in log.waits or edge == len(log.events)), edge


@RANDOM
@given(log=LOGS)
def test_what_is_about_a_call_that_is_not_there_is_left_out(log: RunLog) -> None:
    # A page of a list may begin within an answer.
    made = AssembledMessage()
    machine = ChatProjection(RUN, client_tools=CLIENT_TOOLS, edge=math.inf)
    for event in log.events[len(log.events) // 2 :]:
        chunks = machine.read(event)
        assert None not in [value for chunk in chunks for value in chunk.values()]
        made.add(chunks)
    assert {"input-available", "approval-requested"}.isdisjoint(part.get("state") for part in made.parts)


def test_answers_are_those_of_the_last_step() -> None:
    def call(call_id: str, output: str) -> dict[str, Any]:
        return {"type": "tool-pick_colour", "toolCallId": call_id, "state": "output-available", "output": output}

    step = {"type": "step-start"}
    theirs = {**call("call_2", "x"), "type": "dynamic-tool", "providerExecuted": True}
    parts = [step, call("call_1", "red"), call("call_3", "old"), step, call("call_1~2", "blue"), theirs]
    answers = answers_in({"parts": parts}, "/messages/0")
    assert {name: answer.model_dump()["output"] for name, answer in answers.items()} == {"call_1": "blue"}
