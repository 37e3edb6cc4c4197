"""Deltas that wait together are one: the text of an attempt, and nothing else."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import orjson
import pytest

from palaver.events import EventKind
from palaver.store.reading.events import JoinedDeltas, StoredEvent, joined

AT = datetime(2026, 1, 1, tzinfo=UTC)


def event(seq: int, kind: str = EventKind.MESSAGE_DELTA, **fields: Any) -> StoredEvent:
    """An event of a run; a delta of the first attempt unless ``fields`` say something else."""
    about = {"step": "1", "attempt": 1, "text": f"{seq} ", **fields}
    return StoredEvent("run_1", seq, AT + timedelta(seconds=seq), kind, orjson.dumps(about))


def test_deltas_of_an_attempt_are_one_with_the_number_and_the_time_of_the_last() -> None:
    (one,) = joined([event(5), event(6), event(7)])
    assert isinstance(one, JoinedDeltas)
    assert (one.begins, one.seq, one.at, one.type) == (5, 7, AT + timedelta(seconds=7), "message.delta")
    assert one.data == {"step": "1", "attempt": 1, "text": "5 6 7 "}
    assert orjson.loads(one.to_json()) == {
        "type": "message.delta", "run_id": "run_1", "seq": 7, "at": "2026-01-01T00:00:07Z",
        "step": "1", "attempt": 1, "text": "5 6 7 ",
    }  # fmt: skip


def test_what_was_joined_before_is_joined_again() -> None:
    (one,) = joined([*joined([event(5), event(6)]), event(7)])
    assert (one.begins, one.seq, one.data["text"]) == (5, 7, "5 6 7 ")


@pytest.mark.parametrize(
    "other",
    [
        event(6, attempt=2),
        event(6, step="2"),
        event(6, EventKind.REASONING_DELTA),
        event(6, EventKind.MESSAGE_CREATED),
        event(6, EventKind.TOOL_PROGRESS),
        event(7),
        event(6, newer="field"),
    ],
    ids=["attempt", "step", "reasoning", "no delta", "progress", "a gap", "another field"],
)
def test_what_is_no_more_of_the_same_text_stays_apart(other: StoredEvent) -> None:
    before = event(5)
    assert joined([before, other]) == [before, other]
    behind = event(other.seq + 1)
    assert joined([before, other, behind])[0] == before


def test_one_event_is_left_as_it_is() -> None:
    alone = [event(5)]
    assert joined(alone) is alone
