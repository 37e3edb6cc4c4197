"""What clients of OpenAI's API read of what is closed here: each member has a row, or it is said what holds without."""

from __future__ import annotations

from typing import Final

import pytest

from api.kit import run_changes as changes
from features.openai.ids import ResponseId
from features.openai.projection import ResponseProjection
from features.openai.tables import error_code
from palaver.errors import ErrorClass
from palaver.events import EventKind
from palaver.schemas.models import AgentSpec
from tests.unit.chat_logs import RUN
from tests.unit.test_dialect_tables import SILENT, check_changes, written

C: Final = ErrorClass
K: Final = EventKind
ERRORS: Final = {
    C.RATE_LIMITED: "rate_limit_exceeded",
    C.PROVIDER_ERROR: "server_error",
    C.CONNECTION: "server_error",
    C.TIMEOUT: "server_error",
    C.QUOTA_EXHAUSTED: "rate_limit_exceeded",
    C.AUTHENTICATION: "server_error",
    C.PERMISSION: "server_error",
    C.NOT_FOUND: "server_error",
    C.INVALID_REQUEST: "invalid_prompt",
    C.CONTEXT_WINDOW: "invalid_prompt",
    C.CONTENT_FILTER: "invalid_prompt",
    C.INVALID_OUTPUT: "server_error",
    C.INVALID_TOOL_CALL: "server_error",
    C.TOOL_ERROR: "server_error",
    C.TOOL_TIMEOUT: "server_error",
    C.TOOL_INTERRUPTED: "server_error",
    C.TOOL_DENIED: "server_error",
    C.WORKER_LOST: "server_error",
    C.NO_WORKER: "server_error",
    C.STUCK: "server_error",
    C.STORAGE: "server_error",
    C.INTERNAL: "server_error",
}
"""The code of each class. A new one gets a row: see what follows for it, and whether it is good."""


def test_each_class_is_in_the_table_of_what_clients_read() -> None:
    assert ERRORS.keys() == set(ErrorClass)


@pytest.mark.parametrize("error_class", ERRORS)
def test_what_a_failure_is_called(error_class: ErrorClass) -> None:
    assert error_code(error_class) == ERRORS[error_class]


def test_a_failure_of_a_newer_version_has_a_name_too() -> None:
    assert error_code("of_tomorrow") == "server_error"


def test_each_change_has_a_row_or_it_is_said_that_there_is_none() -> None:
    # A text is closed with its step or its message, and calls are told with that. Actions below are in no stream, and
    # what is said of the stream itself is said elsewhere.
    untold: set[type[changes.Change]] = {
        changes.StepBegun,
        changes.PartClosed,
        changes.SteerTold,
        changes.CallTold,
        changes.CallProgressed,
        changes.AskedBelow,
        changes.ResolvedBelow,
        changes.RunSuspended,
        changes.StreamLost,
    }
    check_changes(ResponseProjection, untold)


@pytest.mark.parametrize("kind", sorted(SILENT))
def test_a_kind_without_a_row_is_passed_over_in_silence(kind: EventKind) -> None:
    response = ResponseProjection(ResponseId(RUN, 0), AgentSpec(model="fake/echo"))
    (_, *begun) = response.read(written(K.RUN_CREATED, conversation_id="conv"))
    assert (len(begun), kind == K.RUN_CREATED or response.read(written(kind))) == (1, kind == K.RUN_CREATED or [])
