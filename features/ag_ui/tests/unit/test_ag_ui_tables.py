"""What kits of AG-UI read of what is closed here: each member has a row, or it is said what holds without."""

from __future__ import annotations

import pytest

from api.kit import run_changes as changes
from features.ag_ui.projection import RunProjection
from palaver.errors import ErrorClass, UserAction
from palaver.events import EventKind
from tests.unit.chat_logs import RUN
from tests.unit.test_dialect_tables import ADVICE, ENDS, SILENT, check_changes, error, sentence_of, written


def test_each_change_has_a_row_or_it_is_said_that_there_is_none() -> None:
    # What waits for an answer is told of in the end.
    untold: set[type[changes.Change]] = {
        changes.AttemptFailed,
        changes.ActionNeeded,
        changes.MessageTold,
        changes.SteerTold,
        changes.ActionAsked,
        changes.ActionSettled,
        changes.AskedBelow,
        changes.ResolvedBelow,
    }
    check_changes(RunProjection, untold)


@pytest.mark.parametrize("kind", sorted(SILENT))
def test_a_kind_without_a_row_is_passed_over_in_silence(kind: EventKind) -> None:
    page = RunProjection("thread", "run", RUN)
    assert (page.read(written(kind)), page.view.reached) == ([], 1)


@ADVICE
@pytest.mark.parametrize("error_class", [*ErrorClass, "of_tomorrow"])
def test_pages_say_the_sentence_of_the_class_and_what_to_do(error_class: str, action: UserAction, advice: str) -> None:
    ended = written(EventKind.RUN_FINISHED, status="failed", stop_reason="error", error=error(error_class, action))
    (last,) = RunProjection("thread", "run", RUN).read(ended)
    assert last == {"type": "RUN_ERROR", "message": f"{sentence_of(error_class, advice)} ({RUN})", "code": error_class}


@ENDS
def test_an_end_without_an_error_has_a_sentence(stop: str, sentence: str) -> None:
    ended = written(EventKind.RUN_FINISHED, status="expired", stop_reason=stop, error=None)
    (last,) = RunProjection("thread", "run", RUN).read(ended)
    assert last == {"type": "RUN_ERROR", "message": f"{sentence} ({RUN})", "code": stop}


def test_a_stream_that_the_store_has_lost_ends_with_the_class_of_that() -> None:
    (last,) = RunProjection("thread", "run", RUN).read(written(EventKind.STREAM_REWOUND, first=5, last=9))
    assert (last["type"], last["code"]) == ("RUN_ERROR", "storage")
