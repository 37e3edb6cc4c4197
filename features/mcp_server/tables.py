"""The tables from ours to MCP's: statuses of runs, limits that ended one, problems. Each has a row for every member."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from http import HTTPStatus
from types import MappingProxyType
from typing import Final, NamedTuple

from api.http.problems import CODES, OF_FEATURES
from api.kit.dialects import ClosedTable
from palaver.errors.problem_codes import ProblemCode
from palaver.vocabulary.lifecycle import RunStatus, StopReason


class State(StrEnum):
    """The states of a run that hosts know; also those of a task."""

    WORKING = "working"
    INPUT_REQUIRED = "input_required"
    COMPLETED = "completed"
    FAILED = "failed"
    CANCELLED = "cancelled"


class McpRefusal(StrEnum):
    """The kinds of refusal that a tool answers with."""

    INVALID_INPUT = "invalid_input"
    NOT_ALLOWED = "not_allowed"
    NOT_FOUND = "not_found"
    CONFLICT = "conflict"
    LIMIT = "limit"


PARSE_ERROR: Final = -32700
INVALID_REQUEST: Final = -32600
METHOD_NOT_FOUND: Final = -32601
INVALID_PARAMS: Final = -32602
INTERNAL: Final = -32603
HEADER_MISMATCH: Final = -32020
MISSING_CAPABILITY: Final = -32021
UNSUPPORTED_VERSION: Final = -32022
WORDS: Final[Mapping[int, str]] = MappingProxyType(
    {
        INVALID_REQUEST: "malformed_request",
        METHOD_NOT_FOUND: "not_found",
        INVALID_PARAMS: "validation_error",
        HEADER_MISMATCH: "header_mismatch",
        MISSING_CAPABILITY: "missing_capability",
        UNSUPPORTED_VERSION: "unsupported_version",
    }
)
"""The code of a problem for each of JSON-RPC with which a request of this dialect may end, unless there is a better
one."""


class Row(NamedTuple):
    """A problem as MCP has it."""

    refusal: McpRefusal | None
    """The refusal of the tool that ran into it; None if it ends the request."""
    rpc: int
    """The JSON-RPC code if it ends the request, as it does outside of tools."""


STATES: Final[Mapping[str, State]] = MappingProxyType(
    {
        RunStatus.QUEUED: State.WORKING,
        RunStatus.RUNNING: State.WORKING,
        RunStatus.REQUIRES_ACTION: State.INPUT_REQUIRED,
        RunStatus.PAUSED: State.WORKING,
        RunStatus.CANCELLING: State.WORKING,
        RunStatus.COMPLETED: State.COMPLETED,
        RunStatus.INCOMPLETE: State.FAILED,
        RunStatus.FAILED: State.FAILED,
        RunStatus.CANCELLED: State.CANCELLED,
        RunStatus.EXPIRED: State.FAILED,
    }
)
"""By the status of a run. One that waits for an action beside other work waits for an action."""
LIMITS: Final[Mapping[str, str]] = MappingProxyType(
    {
        StopReason.MAX_STEPS: "The run made as many model calls as it may.",
        StopReason.MAX_TOKENS: "The answer was cut at the model's output limit.",
        StopReason.BUDGET: "The budget of the run is used up.",
        StopReason.CONTENT_FILTER: "The provider withheld the answer.",
        StopReason.CONVERSATION_FULL: "The conversation is full: begin a new one.",
        StopReason.DEADLINE: "The time that the run had is over.",
    }
)
"""The sentence about a limit that ended a run."""


def _rows(refusal: McpRefusal | None, rpc: int, codes: str) -> dict[str, Row]:
    return dict.fromkeys(codes.split(), Row(refusal, rpc))


def _row(problem: ProblemCode) -> Row:
    """A problem that a feature brings."""
    if problem.status >= HTTPStatus.INTERNAL_SERVER_ERROR:
        return Row(None, INTERNAL)
    if problem.full:
        return Row(McpRefusal.LIMIT, INVALID_REQUEST)
    return Row(_BY_STATUS.get(problem.status, McpRefusal.INVALID_INPUT), INVALID_REQUEST)


_BY_STATUS: Final[Mapping[int, McpRefusal]] = MappingProxyType(
    {
        HTTPStatus.FORBIDDEN: McpRefusal.NOT_ALLOWED,
        HTTPStatus.NOT_FOUND: McpRefusal.NOT_FOUND,
        HTTPStatus.CONFLICT: McpRefusal.CONFLICT,
        HTTPStatus.GONE: McpRefusal.CONFLICT,
        HTTPStatus.PRECONDITION_FAILED: McpRefusal.CONFLICT,
        HTTPStatus.TOO_MANY_REQUESTS: McpRefusal.LIMIT,
    }
)
PROBLEMS: Final[Mapping[str, Row]] = MappingProxyType(
    {
        **_rows(None, PARSE_ERROR, "malformed_json"),
        **_rows(
            None,
            INVALID_REQUEST,
            "duplicate_key too_deep malformed_request invalid_host unknown_parameter duplicate_parameter "
            "invalid_precondition unauthenticated invalid_token insufficient_scope tenant_not_allowed open_address "
            "host_not_allowed origin_not_allowed not_found method_not_allowed not_acceptable request_timeout "
            "payload_too_large uri_too_long unsupported_media_type headers_too_large",
        ),
        **_rows(None, INTERNAL, "internal corrupt_record not_durable not_ready unavailable too_many_connections"),
        **_rows(
            McpRefusal.INVALID_INPUT,
            INVALID_REQUEST,
            "validation_error invalid_unicode too_many_items invalid_idempotency_key invalid_cursor unknown_provider "
            "endpoint_not_allowed unknown_price unknown_tool unknown_policy invalid_policy duplicate_tool "
            "invalid_schema invalid_arguments duplicate_item unknown_position unknown_step unknown_tenant no_agent "
            "empty_input unsupported_content unsupported_option invalid_history invalid_time no_secret_key",
        ),
        **_rows(
            McpRefusal.NOT_ALLOWED,
            INVALID_REQUEST,
            "policy_violation agent_not_allowed second_person_required not_to_be_edited operators_only",
        ),
        **_rows(
            McpRefusal.NOT_FOUND,
            INVALID_REQUEST,
            "run_not_found conversation_not_found agent_not_found key_not_found "
            "tenant_not_found unknown_agent unknown_conversation",
        ),
        **_rows(
            McpRefusal.CONFLICT,
            INVALID_REQUEST,
            "run_ended run_active conversation_busy conversation_moved_on conversation_changed conversation_revised "
            "conversation_full secrets_broken no_answer nothing_to_condense nothing_to_answer nothing_to_retry "
            "pending_action unknown_action no_pending_action action_already_resolved action_expired wrong_action "
            "digest_mismatch not_paused agent_changed tenant_erased "
            "default_tenant idempotency_key_reused",
        ),
        **_rows(
            McpRefusal.LIMIT,
            INVALID_REQUEST,
            "queue_full secrets_full steering_full keys_full agents_full "
            "too_many_runs tenant_queue_full store_nearly_full too_many_watchers",
        ),
        **{code: _row(each) for code, each in OF_FEATURES.items()},
    }
)
"""By code of a problem."""
PASSES: Final = frozenset({"conversation_busy", "conversation_changed", "conversation_revised", "run_active"})
"""Conflicts that pass by themselves, as limits do: the same call may succeed later."""
TABLES: Final[Mapping[str, ClosedTable]] = MappingProxyType(
    {
        "statuses": ClosedTable(tuple(RunStatus), STATES),
        "limits": ClosedTable(
            [member for member in StopReason if member.status in (RunStatus.INCOMPLETE, RunStatus.EXPIRED)], LIMITS
        ),
        "problems": ClosedTable(tuple(CODES), PROBLEMS),
    }
)
