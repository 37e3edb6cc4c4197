"""What is closed here is whole in every dialect: each member has a row, or it is said what holds without; and no row is
without a member."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any, Final, get_args

import orjson
import pytest

from api.app.installed import dialects_of
from api.http.problems import CODES
from api.kit import run_changes as changes
from api.kit.dialects import ClosedTable
from api.kit.projections import ViewProjection
from api.kit.run_changes import Change
from api.kit.run_view import REDUCERS
from features.ag_ui.projection import RunProjection
from features.ai_sdk.projection import ChatProjection
from features.openai.ids import ResponseId
from features.openai.projection import ResponseProjection
from features.openai.tables import error_code
from features.openhands.conversations import ConversationCounting
from features.openhands.tables import FOUND_BY, HTTP_STATUS, RUN_STATUSES, TABLES, of_failure
from palaver.errors import FACTS, ErrorClass, ErrorObject, UserAction
from palaver.events import EventKind, PartOf, complete
from palaver.schemas.models import AgentSpec
from palaver.store.reading.events import StoredEvent
from palaver.vocabulary.lifecycle import RunStatus, StopReason
from tests.unit.chat_logs import RUN

DECLARED = [(dialect.name, name, table) for dialect in dialects_of(("*",)) for name, table in dialect.tables.items()]

C: Final = ErrorClass
K: Final = EventKind
ERRORS: Final = {
    # Of OpenAI's responses the code, of OpenHands' events the code and the kind.
    C.RATE_LIMITED: ("rate_limit_exceeded", "LLMRateLimitError", "rate_limit"),
    C.PROVIDER_ERROR: ("server_error", "LLMServiceUnavailableError", "transient"),
    C.CONNECTION: ("server_error", "LLMServiceUnavailableError", "transient"),
    C.TIMEOUT: ("server_error", "LLMTimeoutError", "transient"),
    C.QUOTA_EXHAUSTED: ("rate_limit_exceeded", "LLMRateLimitError", "quota"),
    C.AUTHENTICATION: ("server_error", "LLMAuthenticationError", "auth"),
    C.PERMISSION: ("server_error", "LLMAuthenticationError", "auth"),
    C.NOT_FOUND: ("server_error", "LLMBadRequestError", "config"),
    C.INVALID_REQUEST: ("invalid_prompt", "LLMBadRequestError", "config"),
    C.CONTEXT_WINDOW: ("invalid_prompt", "LLMContextWindowExceedError", "agent_action"),
    C.CONTENT_FILTER: ("invalid_prompt", "LLMContentPolicyViolationError", "agent_action"),
    C.INVALID_OUTPUT: ("server_error", "LLMNoResponseError", "agent_action"),
    C.INVALID_TOOL_CALL: ("server_error", "FunctionCallValidationError", "agent_action"),
    C.TOOL_ERROR: ("server_error", "ToolError", "agent_action"),
    C.TOOL_TIMEOUT: ("server_error", "ToolTimeout", "agent_action"),
    C.TOOL_INTERRUPTED: ("server_error", "ToolInterrupted", "agent_action"),
    C.TOOL_DENIED: ("server_error", "UserRejected", "agent_action"),
    C.WORKER_LOST: ("server_error", "WorkerLost", "transient"),
    C.NO_WORKER: ("server_error", "NoWorker", "config"),
    C.STUCK: ("server_error", "Stuck", "agent_action"),
    C.STORAGE: ("server_error", "StorageError", "transient"),
    C.INTERNAL: ("server_error", "InternalError", "internal"),
}
"""What clients read of each class. A new one gets a row: see what follows for it, and whether it is good."""
SILENT: Final = {
    K.RUN_CREATED,
    K.RUN_PAUSING,
    K.MESSAGES_WITHDRAWN,
    K.BUDGET_WARNING,
    K.CONVERSATION_CONDENSED,
    K.REASONING_DROPPED,
    K.CONVERSATION_DELETED,
}
"""Kinds that change nothing of what the reducer of a run's events tells."""
UNTOLD: Final[dict[type[ViewProjection[Any]], set[type[Change]]]] = {
    ChatProjection: {changes.AttemptFailed, changes.ActionNeeded},
    # What waits for somebody is told of in the end.
    RunProjection: {
        changes.AttemptFailed,
        changes.ActionNeeded,
        changes.MessageTold,
        changes.SteerTold,
        changes.ActionAsked,
        changes.ActionSettled,
        changes.AskedBelow,
        changes.ResolvedBelow,
    },
    # A text is closed with its step or its message, and calls are told with that. Actions below are in no stream, and
    # what is said of the stream itself is said elsewhere.
    ResponseProjection: {
        changes.StepBegun,
        changes.PartClosed,
        changes.SteerTold,
        changes.CallTold,
        changes.CallProgressed,
        changes.AskedBelow,
        changes.ResolvedBelow,
        changes.RunSuspended,
        changes.StreamLost,
    },
}
"""Changes of a run that each table over them has no row for."""


def written(kind: EventKind, **data: Any) -> StoredEvent:
    return StoredEvent(RUN, 1, datetime(2026, 1, 2, tzinfo=UTC), kind, orjson.dumps(complete(kind, data)))


def error(error_class: str, user_action: str) -> ErrorObject:
    fields = {"class": error_class, "code": "some_code", "user_action": user_action}
    own = {"message": "Ours. (HTTP 500)", "provider": {"name": "p", "model": "m", "message": "Words of the provider."}}
    rest = {"source": "model", "retryable": True, "recoverable": False, "step": "1", "attempt": 1}
    return {**fields, **own, **rest}  # type: ignore[typeddict-item]


@pytest.mark.parametrize("table", [each[2] for each in DECLARED], ids=[f"{each[0]} {each[1]}" for each in DECLARED])
def test_each_member_has_a_row_and_each_row_a_member(table: ClosedTable) -> None:
    assert table.amiss == set()


def test_a_table_says_what_is_amiss() -> None:
    assert ClosedTable(("one", "two"), {"two": 2, "three": 3}).amiss == {"one", "three"}
    assert ClosedTable(("one",), {"one": 1, "two": 2, "three": 3}, optional=("two", "four")).amiss == {"three"}


def test_what_is_part_of_the_answer_has_a_row_in_the_reducer() -> None:
    assert {kind for kind in K if kind.part_of is PartOf.ANSWER} - REDUCERS.keys() == set()
    assert {*K} - REDUCERS.keys() == SILENT


@pytest.mark.parametrize("dialect", UNTOLD)
def test_each_change_has_a_row_or_it_is_said_that_there_is_none(dialect: type[ViewProjection[Any]]) -> None:
    assert {*changes.CHANGES} - dialect.rows.keys() == UNTOLD[dialect]
    assert dialect.rows.keys() <= {*changes.CHANGES}


@pytest.mark.parametrize("kind", sorted(SILENT))
def test_a_kind_without_a_row_is_passed_over_in_silence(kind: EventKind) -> None:
    assert ChatProjection(RUN).read(written(kind)) == []
    page = RunProjection("thread", "run", RUN)
    assert (page.read(written(kind)), page.view.reached) == ([], 1)
    response = ResponseProjection(ResponseId(RUN, 0), AgentSpec(model="fake/echo"))
    (_, *begun) = response.read(written(K.RUN_CREATED, conversation_id="conv"))
    assert (len(begun), kind == K.RUN_CREATED or response.read(written(kind))) == (1, kind == K.RUN_CREATED or [])


def test_each_class_is_in_the_table_of_what_clients_read() -> None:
    assert ERRORS.keys() == set(ErrorClass)


@pytest.mark.parametrize("error_class", ERRORS)
def test_what_openai_and_openhands_call_a_failure(error_class: ErrorClass) -> None:
    code, _, classified = of_failure(error(error_class, FACTS[error_class].user_action))
    assert (error_code(error_class), code, classified["kind"]) == ERRORS[error_class]


def test_a_failure_of_a_newer_version_has_names_too() -> None:
    code, _, classified = of_failure(error("of_tomorrow", "retry"))
    assert (error_code("of_tomorrow"), code, classified["kind"]) == ("server_error", "InternalError", "unknown")


@pytest.mark.parametrize(
    ("action", "advice"),
    [("retry", " Try again."), ("wait", " Try again later."), ("settings", ""), ("fix_input", ""), ("none", "")],
)
@pytest.mark.parametrize("error_class", [*ErrorClass, "of_tomorrow"])
def test_pages_say_the_sentence_of_the_class_and_what_to_do(error_class: str, action: UserAction, advice: str) -> None:
    ended = written(K.RUN_FINISHED, status="failed", stop_reason="error", error=error(error_class, action))
    known: dict[str, str] = {each: f"{FACTS[each].sentence}{advice}" for each in FACTS}
    sentence = known.get(error_class, "Internal error.")
    (chunk, _) = ChatProjection(RUN).read(ended)
    assert chunk == {"type": "error", "errorText": f"{sentence} ({error_class}, some_code, {RUN})"}
    (last,) = RunProjection("thread", "run", RUN).read(ended)
    assert last == {"type": "RUN_ERROR", "message": f"{sentence} ({RUN})", "code": error_class}


@pytest.mark.parametrize(
    ("stop", "sentence"), [("deadline", "There was no time left for this."), ("error", "Internal error.")]
)
def test_an_end_without_an_error_has_a_sentence(stop: str, sentence: str) -> None:
    ended = written(K.RUN_FINISHED, status="expired", stop_reason=stop, error=None)
    (chunk, _) = ChatProjection(RUN).read(ended)
    assert chunk == {"type": "error", "errorText": f"{sentence} ({stop}, {RUN})"}
    (last,) = RunProjection("thread", "run", RUN).read(ended)
    assert last == {"type": "RUN_ERROR", "message": f"{sentence} ({RUN})", "code": stop}


def test_a_stream_that_the_store_has_lost_ends_with_the_class_of_that() -> None:
    (last,) = RunProjection("thread", "run", RUN).read(written(K.STREAM_REWOUND, first=5, last=9))
    assert (last["type"], last["code"]) == ("RUN_ERROR", "storage")


def test_openhands_declares_those_for_errors_statuses_and_stops() -> None:
    members = {frozenset(table.members) for table in TABLES.values()}
    assert {frozenset(get_args(UserAction)), frozenset(("idle", *RunStatus))} <= members
    # Of other stops its clients learn by an error, or that all is well.
    ends = {each for each in StopReason if each.status not in (RunStatus.INCOMPLETE, RunStatus.EXPIRED)}
    assert frozenset({*StopReason} - ends) in members
    assert {each.status for each in ends} == {RunStatus.COMPLETED, RunStatus.FAILED, RunStatus.CANCELLED}


def test_what_openhands_finds_by_a_status_is_shown_with_it() -> None:
    shown = {(here, there) for here, there in RUN_STATUSES.items()}
    found = {(here, there) for there, those in FOUND_BY.items() for here in those}
    # A run that is stuck has failed, and is found by both.
    assert found - shown == {("failed", "stuck")}
    assert shown <= found


def test_openhands_searches_take_those_statuses() -> None:
    (known,) = [each for each in get_args(ConversationCounting.model_fields["status"].annotation) if get_args(each)]
    assert set(get_args(known)) == set(FOUND_BY)


def test_problems_that_have_another_status_there_are_ours() -> None:
    assert HTTP_STATUS.keys() <= CODES.keys()
