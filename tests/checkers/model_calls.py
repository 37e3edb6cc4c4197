"""The model server's ledger against the log: who asked, with what, how often, and whose answer was kept."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Sequence

from palaver.store.reading.events import StoredEvent
from tests.checkers.evidence import Evidence, message_of
from tests.checkers.told import digests
from tests.model_server import LedgerEntry

CLOCK = 0.1
"""Seconds by which the clocks of a ledger and of the store may differ: the same clock, rounded, and read late."""
REPEATS = 8
"""Messages that may have been sent again while a worker had read what they repeat (workers/loops/sweeper.py)."""
NONCE = re.compile(r"nonce-[0-9a-f]{16}")


def nothing_refused(evidence: Evidence) -> None:
    """I4: the model server never saw a history that a provider refuses, and never failed itself."""
    for calls in evidence.calls.values():
        for call in calls:
            assert _extra(call) or not call.outcome.startswith(("refused", "failed")), f"{call}"


def newest_try_commits(evidence: Evidence) -> None:
    """I10: the message of a step was committed by the newest try of it: that had been answered by then."""
    for run, events in evidence.runs:
        calls: dict[str, LedgerEntry] = {}
        asked = set()
        for call in evidence.calls.get(run.id, ()):
            calls[call.request_id or ""] = call
            asked.add((call.request_id or "").rpartition(":")[0])
        newest: dict[str, int] = {}
        for event in events:
            step = event.data.get("step", "")
            if event.type == "step.started":
                newest[step] = event.data["attempt"]
            elif _whole_answer(event):
                key = f"{run.id}:{step}"
                if key not in asked:
                    continue  # Another provider than the one with the ledger.
                own = calls.get(f"{key}:{newest[step]}")
                assert own is not None, f"{run.id} step {step}: try {newest[step]} never asked; {event}"
                begun = own.first_byte_at or float("inf")
                assert begun <= event.at.timestamp() + CLOCK, f"{run.id} step {step}: committed before {own}"


def overlaps_follow_losses(evidence: Evidence) -> None:
    """I10: two model calls of one run go on at the same time only if the first one's worker had lost its lease."""
    for run, events in evidence.runs:
        lost = {(event.data["step"], event.data["attempt"]) for event in events if event.type == "step.lost"}
        calls = sorted(_own(evidence.calls.get(run.id, ())), key=lambda call: call.at)
        for number, call in enumerate(calls):
            if call.ended_at is None or _try_of(call) in lost:
                continue
            late = [other for other in calls[number + 1 :] if other.at < call.ended_at - evidence.slack]
            assert not late, f"{run.id}: while {call} went on, there began {late[0]}"


def asked_from_own_log(evidence: Evidence) -> None:
    """I13: a run asked with what its own conversation's log says, and kept only what the model answered to that."""
    for history in evidence.histories:
        for run, _ in history.ended:
            calls = evidence.calls.get(run.id, ())
            asked, kept = digests(run, history.entries)
            strange = [call for call in calls if call.digest not in asked and not _condenses(call)]
            assert not strange, f"{run.id} asked with something else than its log: {strange}"
            answered = {c.digest for c in calls if c.status == 200 and c.outcome not in ("open", "disconnected")}
            assert all(each & answered for each in kept), f"{run.id} kept what the model never answered"


def nonces_stay(evidence: Evidence) -> None:
    """I13: a nonce in a run's input is nowhere but in its own conversation, and in what that asked the model."""
    owner = {}
    conversation_of = {run_id: history for history in evidence.histories for run_id in history.runs}
    for sent in evidence.sent:
        if (found := NONCE.search(sent.text)) and sent.run_id in conversation_of:
            owner[found[0]] = conversation_of[sent.run_id].conversation.id
    for history in evidence.histories:
        for entry in history.entries:
            for nonce in NONCE.findall(str(entry.data)):
                assert owner.get(nonce) == history.conversation.id, f"{nonce} of {owner.get(nonce)} in {entry}"
        for run_id in history.runs:
            for call in evidence.calls.get(run_id, ()):
                for nonce in NONCE.findall(call.last_user):
                    assert owner.get(nonce) == history.conversation.id, f"{nonce} of {owner.get(nonce)} in {call}"


def calls_within_tries(evidence: Evidence) -> None:
    """I14: the model was not asked oftener than steps were begun, and the run counts what it was asked and kept.

    A conversation that is too long is condensed, in calls of their own, and asked with once more by the same try.
    """
    for history in evidence.histories:
        for run, events in history.ended:
            calls = evidence.calls.get(run.id, ())
            tries = len(_tries(events)) + sum(map(_extra, calls))
            assert len(calls) <= tries, f"{run.id}: {len(calls)} model calls for {tries} tries"
            kept = [entry for entry in history.entries if entry.run_id == run.id and _whole_answer(entry)]
            counted = evidence.own_model_calls(run)
            if counted or kept:
                assert len(kept) <= counted <= tries, f"{run}: {len(kept)} kept, {tries} tries"


def calls_within_need(evidence: Evidence) -> None:
    """I14: model calls <= needed + retries + losses + what was handed back + waits in an outage, or for a better key.
    Losses and hand-backs show watchers that the text of a try is withdrawn; a try whose work had not begun has asked
    nobody."""
    for run, events in evidence.runs:
        steps = {event.data["step"] for event in _tries(events)}
        again = [e for e in events if e.type in ("run.retrying", "step.lost", "message.discarded") if _model(e)]
        again += [e for e in events if e.type == "run.waiting" and e.data["code"] == "outage"]
        # Another worker may have a better key.
        again += [e for e in events if e.type == "run.waiting" and e.data["code"].startswith("refused_key:")]
        calls = len(_own(evidence.calls.get(run.id, ())))
        assert calls <= len(steps) + len(again), f"{run.id}: {calls} calls for {len(steps)} steps, {len(again)} more"


def losses_follow_deaths(evidence: Evidence) -> None:
    """I14: no step loses its worker oftener than workers died or froze: whoever lives keeps its leases."""
    if evidence.deaths is None:
        return
    for run, events in evidence.runs:
        lost: dict[str, int] = defaultdict(int)
        for event in events:
            if event.type == "step.lost":
                lost[event.data["step"]] += 1
        most = max(lost.values(), default=0)
        assert most <= evidence.deaths, f"{run.id}: {dict(lost)} lost, and only {evidence.deaths} workers died"


def retries_wait(evidence: Evidence) -> None:
    """I14: after a failure the model is not asked again before the delay that the run announced has gone by."""
    for run, events in evidence.runs:
        calls = _own(evidence.calls.get(run.id, ()))
        for event in events:
            if event.type != "run.retrying" or not _model(event):
                continue
            tried, failed = (event.data["step"], event.data["attempt"]), event.at.timestamp()
            # The next try that does not wait at all comes sooner than clocks differ: it has a number.
            after = [call for call in calls if call.at > failed + CLOCK or _is_next_try(call, *tried)]
            early = [call for call in after if call.at < failed + event.data["delay"] - CLOCK]
            assert not early, f"{run.id} was to wait {event.data['delay']} s from {event.at}: {early[0]}"


def backlog_not_multiplied(evidence: Evidence) -> None:
    """I14: the broker never holds more messages than steps wait, but for as many as the sweeper may send again."""
    for messages, steps in evidence.backlog:
        assert messages <= steps + REPEATS, f"{messages} messages in the broker for {steps} steps that wait"


def _whole_answer(entry: StoredEvent) -> bool:
    message = message_of(entry)
    return bool(message and message["role"] == "assistant" and not message.get("partial"))


def _try_of(call: LedgerEntry) -> tuple[str, int]:
    """The step that a call is of, and which try of it."""
    _, step, attempt = (call.request_id or "::").split(":")
    return step, int(attempt or 0)


def _is_next_try(call: LedgerEntry, step: str, attempt: int) -> bool:
    of, number = _try_of(call)
    return of == step and number > attempt


def _own(calls: Sequence[LedgerEntry]) -> list[LedgerEntry]:
    return [call for call in calls if not _extra(call)]


def _extra(call: LedgerEntry) -> bool:
    return call.outcome in ("refused:context_length", "refused:stale") or _condenses(call)


def _condenses(call: LedgerEntry) -> bool:
    return ":condense-" in (call.request_id or "")


def _tries(events: Sequence[StoredEvent]) -> list[StoredEvent]:
    return [event for event in events if event.type == "step.started" and _model(event)]


def _model(event: StoredEvent) -> bool:
    return "/" not in event.data["step"]
