"""The way of a run from its submit to its one end, and what must not happen behind that."""

from __future__ import annotations

from collections.abc import Sequence

from palaver.errors.failure import ErrorObject
from palaver.schemas.models import Run
from palaver.store.reading.events import StoredEvent
from palaver.vocabulary.lifecycle import TRANSITIONS, RunStatus
from tests.checkers.evidence import Evidence

_STATUS_OF = {
    "run.started": RunStatus.RUNNING,
    "run.requires_action": RunStatus.REQUIRES_ACTION,
    "run.paused": RunStatus.PAUSED,
    "run.cancelling": RunStatus.CANCELLING,
}
_SILENT = frozenset({RunStatus.RUNNING, RunStatus.QUEUED, RunStatus.REQUIRES_ACTION, RunStatus.CANCELLING})
"""A run comes here without an event of its own."""
LATE = 5.0
"""Seconds by which a run may miss its deadline."""
STOPS_WITHIN = 20.0
"""Seconds from a cancel to its end, whatever happened: lost leases and an outage of Redis included."""

_CLASS_OF_FAULT = {
    "401": "authentication",
    "402": "quota_exhausted",
    "403": "permission",
    "404": "not_found",
    "429": "rate_limited",
    "500": "provider_error",
    "502": "provider_error",
    "503": "provider_error",
    "529": "rate_limited",
    "quota": "quota_exhausted",
    "budget": "quota_exhausted",
}
"""The error class of what the model server was told to do."""


def statuses_follow_the_table(evidence: Evidence) -> None:
    """I5: from each status that the events show to the next, the table of transitions has a way; a run starts once."""
    for run, events in evidence.runs:
        started = [event.seq for event in events if event.type == "run.started"]
        first = next((event.seq for event in events if event.type == "step.started"), None)
        assert len(started) <= 1, f"{run.id} started at {started}"
        assert first is None or (started and started[0] < first), f"{run.id} had a step before it started"
        status = RunStatus.QUEUED
        for event in events:
            to = RunStatus(event.data["status"]) if event.type == "run.finished" else _STATUS_OF.get(event.type)
            if to is None:
                continue
            assert to == status or to in _reachable(status), f"{run.id} moved from {status} to {to}"
            status = to


def _reachable(status: RunStatus) -> frozenset[RunStatus]:
    """What follows directly, or behind statuses that have no event."""
    seen: set[RunStatus] = set()
    ahead = [status]
    while ahead:
        for to in TRANSITIONS[ahead.pop()]:
            if to not in seen:
                seen.add(to)
                ahead += [to] if to in _SILENT else []
    return frozenset(seen)


def one_end(evidence: Evidence) -> None:
    """I6: one ``run.finished``, in the feed and in the log, with nothing behind it."""
    for history in evidence.histories:
        for run, events in history.ended:
            ends = [event.seq for event in events if event.type == "run.finished"]
            assert ends == [events[-1].seq], f"{run.id} ended at {ends} of {len(events)} events"
            own = [entry.type for entry in history.entries if entry.run_id == run.id]
            assert own.count("run.finished") == 1, f"{run.id} ended {own.count('run.finished')} times in the log"
            assert own[-1] == "run.finished", f"{run.id} has {own[-1]} behind its end in the log"


def nothing_after_the_end(evidence: Evidence) -> None:
    """I6: no model call and no tool begins behind the end of its run, by the ledgers' own clocks."""
    for run, _ in evidence.runs:
        assert run.times.ended_at is not None, f"{run}"
        _nothing_begins(evidence, run, run.times.ended_at.timestamp(), "its end")


def _nothing_begins(evidence: Evidence, run: Run, moment: float, what: str) -> None:
    late = moment + evidence.slack
    calls = [call for call in evidence.calls.get(run.id, ()) if call.at > late]
    assert not calls, f"{run.id}: a model call {calls[0].at - moment:.1f} s behind {what}: {calls[0]}"
    tools = [start for start in evidence.tool_starts.get(run.id, ()) if start["at"] > late]
    assert not tools, f"{run.id}: a tool {tools[0]['at'] - moment:.1f} s behind {what}: {tools[0]}"


def all_end(evidence: Evidence) -> None:
    """I7: every run of the test has ended, and no conversation waits for one."""
    assert not evidence.unended, "\n".join(evidence.unended)
    for history in evidence.histories:
        assert history.conversation.active_run is None, f"{history.conversation}"
        assert not history.conversation.queued_runs, f"{history.conversation}"


def in_time(evidence: Evidence) -> None:
    """I7: a run ends by its deadline, or within seconds."""
    for run, _ in evidence.runs:
        assert run.times.ended_at is not None, f"{run}"
        late = (run.times.ended_at - run.times.deadline).total_seconds()
        assert late <= LATE + evidence.slack, f"{run.id} ended {late:.1f} s behind its deadline"


def ends_truthfully(evidence: Evidence) -> None:
    """I8: status, stop reason and error fit each other, and the event says the same as the run."""
    for run, events in evidence.runs:
        assert run.stop_reason is not None, f"{run}"
        assert events[-1].data.get("status") == run.status == run.stop_reason.status, f"{run}: {events[-1]}"
        assert (run.error is not None) == (run.status == "failed"), f"{run}"
        assert events[-1].data["error"] == run.error, f"{run}: {events[-1]}"
        assert run.error is None or run.error.keys() == ErrorObject.__annotations__.keys(), f"{run}"


def error_names_the_fault(evidence: Evidence) -> None:
    """I8: the error of a failed run has the class, and the HTTP status, of what the model server did to that try."""
    for run, _ in evidence.runs:
        if run.error is None or run.error["provider"] is None:
            continue
        name = f"{run.id}:{run.error['step']}:{run.error['attempt']}"
        calls = [call for call in evidence.calls.get(run.id, ()) if call.request_id == name]
        wanted = _CLASS_OF_FAULT.get(calls[-1].fault or "") if calls else None
        if wanted is not None:
            assert run.error["class"] == wanted, f"{run.id}: {run.error} for {calls[-1]}"
            assert run.error["provider"]["http_status"] == calls[-1].status, f"{run.id}: {run.error} for {calls[-1]}"


def cancel_wins(evidence: Evidence) -> None:
    """I11: a run whose cancel was acknowledged ends as cancelled, soon."""
    for run, events in evidence.runs:
        asked = _cancelled_at(events)
        if asked is None:
            continue
        assert run.status == "cancelled", f"{run}"
        assert run.times.ended_at is not None, f"{run}"
        mode = run.cancel.mode if run.cancel else None
        took = run.times.ended_at.timestamp() - asked
        assert mode == "graceful" or took <= STOPS_WITHIN, f"{run.id} took {took:.1f} s to stop"


def nothing_starts_after_a_cancel(evidence: Evidence) -> None:
    """I11: no model call and no tool begins behind an acknowledged cancel, by the ledgers' own clocks."""
    for run, events in evidence.runs:
        if (asked := _cancelled_at(events)) is not None:
            _nothing_begins(evidence, run, asked, "its cancel")


def calls_stop_with_the_run(evidence: Evidence) -> None:
    """I11: a model call does not go on behind the end of its run. One that is open and not the run's last is one whose
    model server was killed."""
    for run, _ in evidence.runs:
        assert run.times.ended_at is not None, f"{run}"
        over = run.times.ended_at.timestamp() + evidence.slack
        calls = evidence.calls.get(run.id, ())
        for call in calls:
            until = call.ended_at or (evidence.at if call is calls[-1] else 0)
            assert until <= over, f"{run.id} ended at {run.times.ended_at}, but not {call}"


def _cancelled_at(events: Sequence[StoredEvent]) -> float | None:
    return next((event.at.timestamp() for event in events if event.type == "run.cancelling"), None)
