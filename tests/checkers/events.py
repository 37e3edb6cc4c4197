"""What watchers are shown: numbers without a gap, text that adds up, and the same to everybody."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

from palaver.events import EventKind
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
    numbers, place = [line["id"] for line in seen], 0
    for line, number in zip(seen, numbers, strict=True):
        assert place < (number or 0) <= len(events), f"a watcher of {run_id} saw {numbers} of {len(events)} events"
        data = {name: value for name, value in line["data"].items() if name not in _ADDED - events[place].data.keys()}
        expected = _joined(events[place:number])
        assert (line["type"], data) == expected, f"a watcher of {run_id} saw {line}, the store has {expected}"
        place = number
    assert place == len(events), f"a watcher of {run_id} saw {numbers} of {len(events)} events"


def _joined(events: Sequence[StoredEvent]) -> tuple[str, Mapping[str, Any]] | None:
    """An event as it is told; several deltas of one attempt that come faster than a watcher takes them are told as one,
    with the number of the last. None: these are not."""
    first, *more = events
    if not more:
        return first.type, first.data
    rest = _without_text(first)
    if any(each.type != EventKind.MESSAGE_DELTA or _without_text(each) != rest for each in events):
        return None
    return first.type, {**rest, "text": "".join(each.data["text"] for each in events)}


def _without_text(event: StoredEvent) -> Mapping[str, Any]:
    return {name: value for name, value in event.data.items() if name != "text"}
