"""What clients of OpenHands read of what is closed here: each member has a row, or it is said what holds without."""

from __future__ import annotations

from typing import Final, get_args

import pytest

from api.http.problems import CODES
from features.openhands.conversations import ConversationCounting
from features.openhands.tables import FOUND_BY, HTTP_STATUS, RUN_STATUSES, TABLES, of_failure
from palaver.errors import FACTS, ErrorClass, UserAction
from palaver.vocabulary.lifecycle import RunStatus, StopReason
from tests.unit.test_dialect_tables import error

C: Final = ErrorClass
ERRORS: Final = {
    C.RATE_LIMITED: ("LLMRateLimitError", "rate_limit"),
    C.PROVIDER_ERROR: ("LLMServiceUnavailableError", "transient"),
    C.CONNECTION: ("LLMServiceUnavailableError", "transient"),
    C.TIMEOUT: ("LLMTimeoutError", "transient"),
    C.QUOTA_EXHAUSTED: ("LLMRateLimitError", "quota"),
    C.AUTHENTICATION: ("LLMAuthenticationError", "auth"),
    C.PERMISSION: ("LLMAuthenticationError", "auth"),
    C.NOT_FOUND: ("LLMBadRequestError", "config"),
    C.INVALID_REQUEST: ("LLMBadRequestError", "config"),
    C.CONTEXT_WINDOW: ("LLMContextWindowExceedError", "agent_action"),
    C.CONTENT_FILTER: ("LLMContentPolicyViolationError", "agent_action"),
    C.INVALID_OUTPUT: ("LLMNoResponseError", "agent_action"),
    C.INVALID_TOOL_CALL: ("FunctionCallValidationError", "agent_action"),
    C.TOOL_ERROR: ("ToolError", "agent_action"),
    C.TOOL_TIMEOUT: ("ToolTimeout", "agent_action"),
    C.TOOL_INTERRUPTED: ("ToolInterrupted", "agent_action"),
    C.TOOL_DENIED: ("UserRejected", "agent_action"),
    C.WORKER_LOST: ("WorkerLost", "transient"),
    C.NO_WORKER: ("NoWorker", "config"),
    C.STUCK: ("Stuck", "agent_action"),
    C.STORAGE: ("StorageError", "transient"),
    C.INTERNAL: ("InternalError", "internal"),
}
"""The code and the kind of each class. A new one gets a row: see what follows for it, and whether it is good."""


def test_each_class_is_in_the_table_of_what_clients_read() -> None:
    assert ERRORS.keys() == set(ErrorClass)


@pytest.mark.parametrize("error_class", ERRORS)
def test_what_a_failure_is_called(error_class: ErrorClass) -> None:
    code, _, classified = of_failure(error(error_class, FACTS[error_class].user_action))
    assert (code, classified["kind"]) == ERRORS[error_class]


def test_a_failure_of_a_newer_version_has_names_too() -> None:
    code, _, classified = of_failure(error("of_tomorrow", "retry"))
    assert (code, classified["kind"]) == ("InternalError", "unknown")


def test_it_declares_tables_for_errors_statuses_and_stops() -> None:
    members = {frozenset(table.members) for table in TABLES.values()}
    assert {frozenset(get_args(UserAction)), frozenset(("idle", *RunStatus))} <= members
    # Of other stops its clients learn by an error, or that all is well.
    ends = {each for each in StopReason if each.status not in (RunStatus.INCOMPLETE, RunStatus.EXPIRED)}
    assert frozenset({*StopReason} - ends) in members
    assert {each.status for each in ends} == {RunStatus.COMPLETED, RunStatus.FAILED, RunStatus.CANCELLED}


def test_what_is_found_by_a_status_is_shown_with_it() -> None:
    shown = {(here, there) for here, there in RUN_STATUSES.items()}
    found = {(here, there) for there, those in FOUND_BY.items() for here in those}
    # A run that is stuck has failed, and is found by both.
    assert found - shown == {("failed", "stuck")}
    assert shown <= found


def test_searches_take_those_statuses() -> None:
    (known,) = [each for each in get_args(ConversationCounting.model_fields["status"].annotation) if get_args(each)]
    assert set(get_args(known)) == set(FOUND_BY)


def test_problems_that_have_another_status_there_are_ours() -> None:
    assert HTTP_STATUS.keys() <= CODES.keys()
