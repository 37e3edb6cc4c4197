"""OpenAI's names for what is closed here: problems, error classes, statuses, stops and kinds of events. A test checks
that no member is without a row."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from http import HTTPStatus
from types import MappingProxyType
from typing import Final

from api.http.problems import CODES, OF_FEATURES
from api.kit.dialects import ClosedTable
from palaver.errors import ErrorClass
from palaver.vocabulary.lifecycle import RunStatus, StopReason


class ErrorType(StrEnum):
    """The ``type`` of an error that a request is answered with."""

    INVALID_REQUEST = "invalid_request_error"
    AUTHENTICATION = "authentication_error"
    PERMISSION = "permission_error"
    NOT_FOUND = "not_found_error"
    CONFLICT = "conflict_error"
    RATE_LIMIT = "rate_limit_error"
    SERVER = "server_error"


class ResponseStatus(StrEnum):
    """The ``status`` of a response."""

    QUEUED = "queued"
    IN_PROGRESS = "in_progress"
    COMPLETED = "completed"
    INCOMPLETE = "incomplete"
    FAILED = "failed"
    CANCELLED = "cancelled"

    @property
    def final(self) -> bool:
        """True if the response does not change any more."""
        return self not in (ResponseStatus.QUEUED, ResponseStatus.IN_PROGRESS)


def _rows(error: ErrorType, codes: str) -> dict[str, ErrorType]:
    return dict.fromkeys(codes.split(), error)


def _error_type(status: int) -> ErrorType:
    """The type of a problem that a feature brings."""
    if status >= HTTPStatus.INTERNAL_SERVER_ERROR:
        return ErrorType.SERVER
    return _BY_STATUS.get(status, ErrorType.INVALID_REQUEST)


_BY_STATUS: Final[Mapping[int, ErrorType]] = MappingProxyType(
    {
        HTTPStatus.UNAUTHORIZED: ErrorType.AUTHENTICATION,
        HTTPStatus.FORBIDDEN: ErrorType.PERMISSION,
        HTTPStatus.NOT_FOUND: ErrorType.NOT_FOUND,
        HTTPStatus.CONFLICT: ErrorType.CONFLICT,
        HTTPStatus.GONE: ErrorType.CONFLICT,
        HTTPStatus.PRECONDITION_FAILED: ErrorType.CONFLICT,
        HTTPStatus.TOO_MANY_REQUESTS: ErrorType.RATE_LIMIT,
    }
)
PROBLEMS: Final[Mapping[str, ErrorType]] = MappingProxyType(
    {
        **_rows(
            ErrorType.INVALID_REQUEST,
            "malformed_json duplicate_key too_deep unknown_parameter duplicate_parameter malformed_request "
            "invalid_host invalid_idempotency_key invalid_precondition invalid_cursor method_not_allowed "
            "not_acceptable request_timeout payload_too_large uri_too_long unsupported_media_type validation_error "
            "invalid_unicode too_many_items endpoint_not_allowed unknown_price unknown_tool unknown_policy "
            "invalid_policy duplicate_tool invalid_schema invalid_arguments duplicate_item unknown_position "
            "unknown_step unknown_tenant unknown_conversation no_agent empty_input unsupported_content "
            "unsupported_option invalid_history invalid_time no_secret_key idempotency_key_reused headers_too_large",
        ),
        **_rows(ErrorType.AUTHENTICATION, "unauthenticated invalid_token"),
        **_rows(
            ErrorType.PERMISSION,
            "open_address insufficient_scope host_not_allowed policy_violation agent_not_allowed "
            "second_person_required not_to_be_edited origin_not_allowed tenant_not_allowed operators_only",
        ),
        **_rows(
            ErrorType.NOT_FOUND,
            "not_found key_not_found tenant_not_found run_not_found conversation_not_found agent_not_found "
            "unknown_provider unknown_agent",
        ),
        **_rows(
            ErrorType.CONFLICT,
            "keys_full run_ended run_active conversation_busy conversation_moved_on conversation_changed "
            "conversation_revised conversation_full queue_full secrets_full secrets_broken steering_full no_answer "
            "nothing_to_condense nothing_to_answer nothing_to_retry pending_action unknown_action no_pending_action "
            "action_already_resolved wrong_action digest_mismatch not_paused agents_full tenant_erased default_tenant "
            "action_expired agent_changed",
        ),
        **_rows(ErrorType.RATE_LIMIT, "too_many_runs tenant_queue_full"),
        **_rows(
            ErrorType.SERVER,
            "internal corrupt_record not_durable not_ready unavailable store_nearly_full too_many_watchers "
            "too_many_connections",
        ),
        **{code: _error_type(each.status) for code, each in OF_FEATURES.items()},
    }
)
"""By code of a problem. The code itself stands beside it."""
MODEL_NOT_FOUND: Final = "model_not_found"
MODELS: Final = frozenset({"unknown_provider", "unknown_agent", "agent_not_found"})
"""Codes that are OpenAI's ``model_not_found``: a model is an agent on the server, or one of a provider."""

RATE_LIMIT_EXCEEDED: Final = "rate_limit_exceeded"
INVALID_PROMPT: Final = "invalid_prompt"
SERVER_ERROR: Final = "server_error"
ERRORS: Final[Mapping[str, str]] = MappingProxyType(
    {
        ErrorClass.RATE_LIMITED: RATE_LIMIT_EXCEEDED,
        ErrorClass.QUOTA_EXHAUSTED: RATE_LIMIT_EXCEEDED,
        ErrorClass.INVALID_REQUEST: INVALID_PROMPT,
        ErrorClass.CONTEXT_WINDOW: INVALID_PROMPT,
        ErrorClass.CONTENT_FILTER: INVALID_PROMPT,
    }
)
"""The ``code`` of a response's error by the class, which is its ``type``. For all others the protocol's own word is
``server_error``. Clients in strict mode know no other codes."""
STATUSES: Final[Mapping[str, ResponseStatus]] = MappingProxyType(
    {
        RunStatus.QUEUED: ResponseStatus.QUEUED,
        RunStatus.RUNNING: ResponseStatus.IN_PROGRESS,
        RunStatus.REQUIRES_ACTION: ResponseStatus.COMPLETED,
        RunStatus.PAUSED: ResponseStatus.IN_PROGRESS,
        RunStatus.CANCELLING: ResponseStatus.IN_PROGRESS,
        RunStatus.COMPLETED: ResponseStatus.COMPLETED,
        RunStatus.INCOMPLETE: ResponseStatus.INCOMPLETE,
        RunStatus.FAILED: ResponseStatus.FAILED,
        RunStatus.CANCELLED: ResponseStatus.CANCELLED,
        RunStatus.EXPIRED: ResponseStatus.FAILED,
    }
)
"""By the status of a run. One that waits for the client has answered, with calls; the next response goes on."""
INCOMPLETE: Final[Mapping[str, str]] = MappingProxyType(
    {
        StopReason.MAX_STEPS: "max_output_tokens",
        StopReason.MAX_TOKENS: "max_output_tokens",
        StopReason.BUDGET: "max_output_tokens",
        StopReason.CONTENT_FILTER: "content_filter",
        StopReason.CONVERSATION_FULL: "max_output_tokens",
    }
)
"""The reason of ``incomplete_details`` by the stop reason, which is in the metadata."""
FINISHES: Final[Mapping[str, str]] = MappingProxyType(
    {
        RunStatus.QUEUED: "length",
        RunStatus.RUNNING: "length",
        RunStatus.REQUIRES_ACTION: "tool_calls",
        RunStatus.PAUSED: "length",
        RunStatus.CANCELLING: "length",
        RunStatus.COMPLETED: "stop",
        RunStatus.INCOMPLETE: "length",
        RunStatus.FAILED: "stop",
        RunStatus.CANCELLED: "stop",
        RunStatus.EXPIRED: "stop",
    }
)
"""The ``finish_reason`` of a chat completion by the status of its run."""
TIERS: Final[Mapping[int, str]] = MappingProxyType({2: "priority", 7: "flex"})
"""The ``service_tier`` by the priority of a run; of others it is ``default``."""
TABLES: Final[Mapping[str, ClosedTable]] = MappingProxyType(
    {
        "problems": ClosedTable(tuple(CODES), PROBLEMS),
        "errors": ClosedTable((), ERRORS, optional=tuple(ErrorClass)),
        "statuses": ClosedTable(tuple(RunStatus), STATUSES),
        "finishes": ClosedTable(tuple(RunStatus), FINISHES),
        "limits": ClosedTable([reason for reason in StopReason if reason.status is RunStatus.INCOMPLETE], INCOMPLETE),
    }
)


def error_code(error_class: str) -> str:
    """Return the code of an error by its class; also of a class that only a newer version knows."""
    return ERRORS.get(error_class, SERVER_ERROR)
