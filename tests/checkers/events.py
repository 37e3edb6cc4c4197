"""What watchers are shown: numbers without a gap, text that adds up, and the same to everybody."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

from palaver.store.reading.events import StoredEvent
from tests.checkers.evidence import Evidence
from tests.declared_events import DURABLE, declared

_ADDED = frozenset({"type", "run_id", "seq", "at"})
"""What the wire adds to an event's data."""


def events_are_declared(evidence: Evidence) -> None:
    """Each event is of a kind and has the fields that palaver.events says, and the log has what it may."""
    for history in evidence.histories:
        for events in history.events.values():
            for event in events:
                declared(event)
        for entry in history.entries:
            assert entry.type in DURABLE, f"{entry.type} is in the log"


def numbers_have_no_gap(evidence: Evidence) -> None:
    """I9: the events of a run are 1, 2, … up to what the run counts."""
    for run, events in evidence.runs:
        numbers = [event.seq for event in events]
        assert numbers == list(range(1, run.last_event_id + 1)), f"{run.id}: {run.last_event_id} events, {numbers}"


def log_and_feed_agree(evidence: Evidence) -> None:
    """I9: the log has the durable ones of the run's events, and no others."""
    for history in evidence.histories:
        for run, events in history.ended:
            logged = [(entry.seq, entry.type) for entry in history.entries if entry.run_id == run.id]
            durable = {kind for _, kind in logged}
            shown = [(event.seq, event.type) for event in events if event.type in durable]
            assert logged == shown, f"{run.id}: {logged} in the log, {shown} in the feed"


def text_adds_up(evidence: Evidence) -> None:
    """I9: what was shown of a message and not withdrawn adds up to what was kept; so a dead try's text is withdrawn."""
    for run, events in evidence.runs:
        shown: dict[str, str] = defaultdict(str)
        for event in events:
            step = event.data.get("step", "")
            if event.type == "message.delta":
                shown[step] += event.data["text"]
            elif event.type == "message.discarded":
                shown[step] = ""
            elif event.type == "step.started":
                assert not shown[step], f"{run.id} step {step} begins anew, and {shown[step]!r} was not withdrawn"
            elif event.type == "message.created" and shown[step]:
                kept = event.data["message"].get("content", "")
                assert shown.pop(step) == kept, f"{run.id} step {step} showed something else than {kept!r}"
        assert not any(shown.values()), f"{run.id} ended with text that is neither kept nor withdrawn: {dict(shown)}"


def watchers_saw_everything(evidence: Evidence) -> None:
    """I9: over all its connections, a watcher saw each event once, in order, as the store has it, to the end."""
    seen = defaultdict(list)
    for line in evidence.watched:
        seen[line["run"]].append(line)
    for run, events in evidence.runs:
        if run.id in seen:
            _compare(run.id, seen[run.id], events)


def _compare(run_id: str, seen: Sequence[Mapping[str, Any]], events: Sequence[StoredEvent]) -> None:
    numbers = [line["id"] for line in seen]
    assert numbers == list(range(1, len(events) + 1)), f"a watcher of {run_id} saw {numbers} of {len(events)} events"
    for line, event in zip(seen, events, strict=True):
        data = {name: value for name, value in line["data"].items() if name not in _ADDED - event.data.keys()}
        assert (line["type"], data) == (event.type, event.data), f"a watcher saw {line}, the store has {event}"
