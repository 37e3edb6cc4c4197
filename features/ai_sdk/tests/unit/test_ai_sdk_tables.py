"""What pages of the AI SDK read of what is closed here: each member has a row, or it is said what holds without."""

from __future__ import annotations

import pytest

from api.kit import run_changes as changes
from features.ai_sdk.projection import ChatProjection
from palaver.errors import ErrorClass, UserAction
from palaver.events import EventKind
from tests.unit.chat_logs import RUN
from tests.unit.test_dialect_tables import ADVICE, ENDS, SILENT, check_changes, error, sentence_of, written


def test_each_change_has_a_row_or_it_is_said_that_there_is_none() -> None:
    check_changes(ChatProjection, {changes.AttemptFailed, changes.ActionNeeded})


@pytest.mark.parametrize("kind", sorted(SILENT))
def test_a_kind_without_a_row_is_passed_over_in_silence(kind: EventKind) -> None:
    assert ChatProjection(RUN).read(written(kind)) == []


@ADVICE
@pytest.mark.parametrize("error_class", [*ErrorClass, "of_tomorrow"])
def test_pages_say_the_sentence_of_the_class_and_what_to_do(error_class: str, action: UserAction, advice: str) -> None:
    ended = written(EventKind.RUN_FINISHED, status="failed", stop_reason="error", error=error(error_class, action))
    (chunk, _) = ChatProjection(RUN).read(ended)
    sentence = sentence_of(error_class, advice)
    assert chunk == {"type": "error", "errorText": f"{sentence} ({error_class}, some_code, {RUN})"}


@ENDS
def test_an_end_without_an_error_has_a_sentence(stop: str, sentence: str) -> None:
    (chunk, _) = ChatProjection(RUN).read(
        written(EventKind.RUN_FINISHED, status="expired", stop_reason=stop, error=None)
    )
    assert chunk == {"type": "error", "errorText": f"{sentence} ({stop}, {RUN})"}
