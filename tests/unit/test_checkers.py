"""The checkers of the invariants: whole evidence passes; evidence in which one thing is wrong does not.

What a mutant of the product shows (tests/chaos/mutants.py) is not shown here again; together they cover every checker.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, replace
from datetime import UTC, datetime, timedelta
from typing import Any

import orjson
import pytest

from palaver.schemas.conversation import Conversation
from palaver.schemas.models import AgentSpec, Cancellation, Message, Run, RunTimes
from palaver.steps.leases import LogMessage
from palaver.store.reading.events import LogEntry, StoredEvent
from tests.chaos.mutants import MUTANTS
from tests.checkers import CHECKERS, violations
from tests.checkers.evidence import Evidence, History, Sent
from tests.checkers.told import Told
from tests.model_server import LedgerEntry
from tests.model_server.judge import read
from workers.protocols import MESSAGES, CallSettings
from workers.steps.conversations import CachedConversation

RUN, CONVERSATION = "run_00" + "0" * 26, "conv_00" + "0" * 26
NONCE = "nonce-0123456789abcdef"
BEGUN = datetime(2026, 1, 1, tzinfo=UTC)
CALL = {"id": "call_1", "name": "record", "arguments": "{}"}
DONE = {"status": "completed", "stop_reason": "end_turn", "error": None}
ANSWER = {"role": "assistant", "content": "done"}


def said(step: str, message: dict[str, Any]) -> tuple[str, dict[str, Any]]:
    return "message.created", {"step": step, "message": message}


STORY: Sequence[tuple[str, dict[str, Any]]] = (
    ("message.created", {"message": {"role": "user", "content": NONCE}}),
    ("run.started", {}),
    ("step.started", {"step": "1", "attempt": 1, "worker": "w"}),
    said("1", {"role": "assistant", "tool_calls": [CALL]}),
    ("step.started", {"step": "1/call_1", "attempt": 1, "worker": "t"}),
    ("tool.finished", {"step": "1/call_1", "message": {"role": "tool", "call_id": "call_1", "name": "record"}}),
    ("step.started", {"step": "2", "attempt": 1, "worker": "w"}),
    ("message.delta", {"step": "2", "attempt": 1, "text": "done"}),
    said("2", ANSWER),
    ("run.finished", DONE),
)
"""One event a second."""
SHOWN_ONLY = {"step.started", "message.delta"}


def at(second: float) -> datetime:
    return BEGUN + timedelta(seconds=second)


def called(number: int, second: float, digest: str) -> LedgerEntry:
    """A model call that took half a second."""
    begun = at(second).timestamp()
    return LedgerEntry(
        n=number, at=begun, at_monotonic=second, model="echo", digest=digest, messages=1, turn=1, call_index=number,
        attempt=1, stream=True, started_at=begun, last_user=NONCE, tool_results=0, run=RUN, idempotency_key=None,
        request_id=f"{RUN}:{number}:1", status=200, outcome="answered", first_byte_at=begun, ended_at=begun + 0.5,
    )  # fmt: skip


def whole() -> Evidence:
    """The evidence of a run with a tool call, of whom everybody says the same."""
    events = [StoredEvent(RUN, n, at(n), kind, orjson.dumps(data)) for n, (kind, data) in enumerate(STORY, 1)]
    durable = [event for event in events if event.type not in SHOWN_ONLY]
    entries = [LogEntry(**asdict(event), position=n) for n, event in enumerate(durable, 1)]
    told, digests = Told(""), []
    for entry in entries:
        if entry.data.get("message", {}).get("role") == "assistant":
            digests.append(told.digest)
        told.add(entry)
    run = Run(
        id=RUN,
        conversation_id=CONVERSATION,
        status="completed",
        stop_reason="end_turn",
        agent=AgentSpec(model="fake/echo"),
        model="fake/echo",
        step=2,
        times=RunTimes(created_at=at(0), ended_at=at(10), deadline=at(60)),
        last_event_id=len(events),
        usage={"model_calls": 2},
    )
    conversation = Conversation(id=CONVERSATION, created_at=at(0), updated_at=at(10), entries=len(entries))
    watched = [{"run": RUN, "connection": 1, "id": e.seq, "type": e.type, "data": e.data} for e in events]
    return Evidence(
        histories=[History(conversation, entries, {RUN: run}, {RUN: events}, [])],
        calls={RUN: [called(1, 3.2, digests[0]), called(2, 7.2, digests[1])]},
        tool_starts={RUN: [{"call": f"{RUN}:1:call_1", "at": at(5).timestamp()}]},
        sent=[Sent(RUN, NONCE, "key")],
        watched=watched,
        deaths=0,
        slack=1.0,
    )


def changed(evidence: Evidence, change: Callable[[History], History]) -> Evidence:
    return replace(evidence, histories=[change(history) for history in evidence.histories])


def with_run(evidence: Evidence, **fields: Any) -> Evidence:
    return changed(evidence, lambda each: replace(each, runs={RUN: each.runs[RUN].model_copy(update=fields)}))


def with_call(evidence: Evidence, number: int, **fields: Any) -> Evidence:
    calls = list(evidence.calls[RUN])
    calls[number] = replace(calls[number], **fields)
    return replace(evidence, calls={RUN: calls})


def late_call(evidence: Evidence) -> Evidence:
    return with_call(evidence, 1, at=at(11.5).timestamp())


def late_tool(evidence: Evidence) -> Evidence:
    return replace(evidence, tool_starts={RUN: [{"call": f"{RUN}:1:call_1", "at": at(11.5).timestamp()}]})


def endless_call(evidence: Evidence) -> Evidence:
    return with_call(evidence, 1, ended_at=at(11.5).timestamp())


def open_call(evidence: Evidence) -> Evidence:
    return replace(with_call(evidence, 1, ended_at=None, outcome="open"), at=at(11.5).timestamp())


def overdue(evidence: Evidence) -> Evidence:
    return with_run(evidence, times=RunTimes(created_at=at(0), ended_at=at(10), deadline=at(3)))


def other_nonce_asked(evidence: Evidence) -> Evidence:
    return with_call(evidence, 1, last_user="nonce-fedcba9876543210")


def other_nonce_kept(evidence: Evidence) -> Evidence:
    return replace(evidence, sent=[])


def undeclared_event(evidence: Evidence, kind: str, data: bytes) -> Evidence:
    odd = StoredEvent(RUN, 2, at(2), kind, data)
    first, _, *others = evidence.histories[0].events[RUN]
    return changed(evidence, lambda each: replace(each, events={RUN: [first, odd, *others]}))


def event_of_no_kind(evidence: Evidence) -> Evidence:
    return undeclared_event(evidence, "run.begun", b"{}")


def field_that_nobody_declared(evidence: Evidence) -> Evidence:
    return undeclared_event(evidence, "run.started", b'{"by":"w"}')


def fleeting_event_in_the_log(evidence: Evidence) -> Evidence:
    def change(each: History) -> History:
        delta = LogEntry(**asdict(each.events[RUN][7]), position=7)
        return replace(each, entries=[*each.entries[:6], delta])

    return changed(evidence, change)


def event_that_the_log_lacks(evidence: Evidence) -> Evidence:
    return changed(evidence, lambda each: replace(each, entries=[e for e in each.entries if e.seq != 9]))


def call_behind_a_cancel(evidence: Evidence) -> Evidence:
    asked = StoredEvent(RUN, 5, at(5), "run.cancelling", b'{"mode":"now","by":null,"reason":null}')
    cancel = Cancellation(requested_at=at(5), mode="now")
    return changed(
        with_run(evidence, cancel=cancel),
        lambda each: replace(each, events={RUN: [*each.events[RUN][:4], asked, *each.events[RUN][5:]]}),
    )


def went_back(evidence: Evidence) -> Evidence:
    """Two things were said behind the run, and withdrawn again with the last words of the run."""

    def change(each: History) -> History:
        entries, words = list(each.entries), b'{"message":{"role":"user","content":"and this"}}'
        size = len(entries)
        for kind, data in (
            ("message.created", words),
            ("message.created", words),
            ("messages.withdrawn", b'{"first":%d,"last":%d}' % (size - 1, size + 2)),
        ):
            entries.append(LogEntry("", 0, at(11), kind, data, position=len(entries) + 1))
        entries = [replace(entry, withdrawn=size - 1 <= entry.position <= size + 2) for entry in entries]
        return replace(each, entries=entries, conversation=each.conversation.model_copy(update={"entries": size + 3}))

    return changed(evidence, change)


def with_withdrawn(evidence: Evidence, place: int, withdrawn: bool) -> Evidence:
    def change(each: History) -> History:
        entries = list(each.entries)
        entries[place] = replace(entries[place], withdrawn=withdrawn)
        return replace(each, entries=entries)

    return changed(evidence, change)


def words_that_are_not_withdrawn(evidence: Evidence) -> Evidence:
    return with_withdrawn(went_back(evidence), -2, False)


def words_that_are_withdrawn_for_nothing(evidence: Evidence) -> Evidence:
    return with_withdrawn(went_back(evidence), 0, True)


def withdrawal_of_something_else_than_the_end(evidence: Evidence) -> Evidence:
    def change(each: History) -> History:
        *entries, last = each.entries
        return replace(each, entries=[*entries, replace(last, payload=b'{"first":1,"last":2}')])

    return changed(went_back(evidence), change)


WRONG: Sequence[tuple[str, Callable[[Evidence], Evidence]]] = (
    ("nothing_after_the_end", late_call),
    ("nothing_after_the_end", late_tool),
    ("calls_stop_with_the_run", endless_call),
    ("calls_stop_with_the_run", open_call),
    ("in_time", overdue),
    ("nonces_stay", other_nonce_asked),
    ("nonces_stay", other_nonce_kept),
    ("log_and_feed_agree", event_that_the_log_lacks),
    ("events_are_declared", event_of_no_kind),
    ("events_are_declared", field_that_nobody_declared),
    ("events_are_declared", fleeting_event_in_the_log),
    ("nothing_starts_after_a_cancel", call_behind_a_cancel),
    ("withdrawn_as_a_whole", words_that_are_not_withdrawn),
    ("withdrawn_as_a_whole", words_that_are_withdrawn_for_nothing),
    ("withdrawn_as_a_whole", withdrawal_of_something_else_than_the_end),
)


def test_whole_evidence_passes() -> None:
    assert violations(whole()) == []


def test_a_conversation_that_went_back_passes() -> None:
    assert violations(went_back(whole())) == []


@pytest.mark.parametrize(("checker", "spoil"), WRONG, ids=[spoil.__name__ for _, spoil in WRONG])
def test_what_is_wrong_is_found(checker: str, spoil: Callable[[Evidence], Evidence]) -> None:
    assert checker in {violation.checker for violation in violations(spoil(whole()))}


def test_every_checker_is_shown_to_fail() -> None:
    shown = {name for name, _ in WRONG}.union(*(mutant.caught_by for mutant in MUTANTS.values()))
    known = {checker.__name__ for checkers in CHECKERS.values() for checker in checkers}
    assert shown == known | {"linear_order"}


USER, SAID = {"role": "user", "content": "hello"}, {"role": "assistant", "content": "well"}
ASKED = {"role": "assistant", "tool_calls": [{**CALL, "arguments": '{"x": 1}'}]}
RESULT = {"role": "tool", "call_id": "call_1", "name": "record", "content": "ok"}


@pytest.mark.parametrize(
    "told",
    [
        (USER,),
        (USER, SAID, USER),
        (USER, ASKED, RESULT),
        (USER, USER, SAID, SAID, USER),
        (USER, SAID),
        (USER, ASKED, RESULT, SAID, SAID),
        (SAID, USER),
    ],
    ids=lambda told: " ".join(message["role"] for message in told),
)
def test_what_claude_is_told_is_known_from_the_log(told: Sequence[dict[str, Any]]) -> None:
    conversation, known = CachedConversation(MESSAGES, "claude/echo"), Told("Be brief.", "claude/echo")
    for position, message in enumerate(told, 1):
        conversation.extend([LogMessage(position, Message.model_validate_json(orjson.dumps(message)))], position)
        data = orjson.dumps({"step": "1", "message": message})
        known.add(LogEntry(RUN, position, at(position), "message.created", data, position=position))
    agent, settings = AgentSpec(model="claude/echo", instructions="Be brief."), CallSettings(max_output_tokens=9)
    body = MESSAGES.body(agent, conversation.messages(), [], settings)
    assert read("/v1/messages", body, {"anthropic-version": ""}).digest in known.digests
    known.add(LogEntry(RUN, 99, at(99), "message.created", orjson.dumps({"message": USER}), position=99))
    assert read("/v1/messages", body, {"anthropic-version": ""}).digest not in known.digests


@pytest.mark.parametrize(("number", "text", "fits"), [(3, "abc", True), (3, "ac", False), (2, "ab", False)])
def test_deltas_are_told_one_by_one_or_joined_and_all_of_them(number: int, text: str, fits: bool) -> None:
    facts = {"step": "1", "attempt": 1}
    events = [
        StoredEvent(RUN, seq, at(seq), "message.delta", orjson.dumps({**facts, "text": each}))
        for seq, each in enumerate("abc", 1)
    ]
    told = {"run": RUN, "connection": 1, "id": number, "type": "message.delta", "data": {**facts, "text": text}}
    shown = changed(replace(whole(), watched=[told]), lambda each: replace(each, events={RUN: events}))
    missed = [each for each in violations(shown) if each.checker == "watchers_saw_everything"]
    assert bool(missed) is not fits
