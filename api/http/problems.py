"""Problems: every error that the API answers, with its code, its status and its title. A dialect says how it looks.

What a client sent is never quoted back: it may hold a key. A problem's code is stable; its text is not.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any, Final

from starlette.exceptions import HTTPException

from palaver.errors import (
    CorruptRecord,
    ErrorClass,
    FieldError,
    IdempotencyMismatch,
    NewerVersion,
    NoRoom,
    NotDurable,
    Refused,
    StateConflict,
    StoreUnavailable,
    TimePassed,
    UnknownRecord,
    classify,
)
from palaver.errors.problem_codes import ProblemCode
from palaver.feature import brought
from palaver.operations import InsufficientScope, InvalidKey, IssuerUnavailable

RETRY_AFTER: Final = 2
"""Seconds after which a client may try again while the store is away."""
ROOM_AFTER: Final = 5
_SILENT: Final = frozenset({"store_unavailable", "store_timeout"})
"""Codes of failures of a store that is not there."""
"""Seconds after which a client may try again where a limit is reached: runs must end before there is room."""
_log = logging.getLogger("palaver.api")

OF_FEATURES: Final[Mapping[str, ProblemCode]] = MappingProxyType(
    {code: each for codes in brought("problems") for code, each in codes.items()}
)
"""The codes of features that are installed."""
CODES: Final[Mapping[str, tuple[int, str]]] = MappingProxyType(
    {
        "malformed_json": (400, "The body is not JSON"),
        "duplicate_key": (400, "An object in the body has a key twice"),
        "too_deep": (400, "The body is nested too deeply"),
        "unknown_parameter": (400, "There is no such query parameter"),
        "duplicate_parameter": (400, "A query parameter that is no list is given twice"),
        "malformed_request": (400, "The request is not well-formed"),
        "invalid_host": (400, "The Host header is not a host"),
        "invalid_idempotency_key": (400, "The Idempotency-Key cannot be used"),
        "invalid_precondition": (400, "If-Match or If-None-Match cannot be used"),
        "invalid_cursor": (400, "There is no such place to go on from"),
        "unauthenticated": (401, "A valid API key is required"),
        "invalid_token": (401, "The API key is not valid"),
        "open_address": (403, "This address is not served without API keys"),
        "insufficient_scope": (403, "The key is not for this"),
        "host_not_allowed": (403, "This host name is not served"),
        "policy_violation": (403, "A rule of the operator's policy does not allow this"),
        "agent_not_allowed": (403, "The key is not for this agent"),
        "second_person_required": (403, "The call needs the approval of a second person"),
        "not_to_be_edited": (403, "The arguments of the call may not be changed"),
        "origin_not_allowed": (403, "Pages of this origin are not served"),
        "tenant_not_allowed": (403, "The token is not for a tenant here"),
        "operators_only": (403, "This is for operators"),
        "not_found": (404, "There is nothing here"),
        "key_not_found": (404, "There is no such key"),
        "tenant_not_found": (404, "There is no such tenant"),
        "run_not_found": (404, "There is no such run"),
        "conversation_not_found": (404, "There is no such conversation"),
        "agent_not_found": (404, "There is no such agent"),
        "method_not_allowed": (405, "The method does not apply here"),
        "not_acceptable": (406, "None of the accepted media types is offered"),
        "request_timeout": (408, "The request did not arrive in time"),
        "keys_full": (409, "There are too many keys"),
        "run_ended": (409, "The run has already ended"),
        "run_active": (409, "The run has not ended"),
        "conversation_busy": (409, "The conversation is busy with another run"),
        "conversation_moved_on": (409, "The conversation has gone on since"),
        "conversation_changed": (409, "The conversation was changed meanwhile"),
        "conversation_revised": (409, "Another client has changed the conversation"),
        "conversation_full": (409, "The conversation is full"),
        "queue_full": (409, "The conversation has too many unfinished runs"),
        "secrets_full": (409, "The conversation has too many secrets"),
        "secrets_broken": (409, "A secret of the conversation cannot be opened"),
        "steering_full": (409, "Too much waits for the run's next model call"),
        "no_answer": (409, "The model gave no answer"),
        "nothing_to_condense": (409, "There is nothing to condense"),
        "nothing_to_answer": (409, "There is nothing for a model to answer"),
        "nothing_to_retry": (409, "The run left nothing to go on with"),
        "pending_action": (409, "The conversation waits for an answer to its run"),
        "unknown_action": (409, "The run has no such pending action"),
        "no_pending_action": (409, "The run waits for no approval"),
        "action_already_resolved": (409, "The action is already resolved"),
        "wrong_action": (409, "The action wants another kind of answer"),
        "digest_mismatch": (409, "The decision is about another call"),
        "not_paused": (409, "The run is not paused"),
        "agents_full": (409, "There are too many agents"),
        "tenant_erased": (409, "The tenant is being erased, or was"),
        "action_expired": (410, "The time for the action is over"),
        "agent_changed": (412, "The agent is not as the request expects"),
        "payload_too_large": (413, "The body is too large"),
        "uri_too_long": (414, "The URL is too long"),
        "unsupported_media_type": (415, "The body must be application/json"),
        "validation_error": (422, "The request does not fit"),
        "invalid_unicode": (422, "A text holds what is not text"),
        "too_many_items": (422, "The body has too many values"),
        "unknown_provider": (422, "There is no such provider"),
        "endpoint_not_allowed": (422, "An agent may not have this endpoint"),
        "unknown_price": (422, "A model has no price"),
        "unknown_tool": (422, "There is no such tool"),
        "unknown_agent": (422, "There is no such agent on the server"),
        "unknown_policy": (422, "There is no such retry policy"),
        "invalid_policy": (422, "The retry policy does not fit"),
        "duplicate_tool": (422, "A tool is named twice"),
        "invalid_schema": (422, "A schema is none, or does not fit"),
        "invalid_arguments": (422, "The arguments do not fit the tool"),
        "duplicate_item": (422, "An action is answered twice"),
        "unknown_position": (422, "The log cannot be cut there"),
        "unknown_step": (422, "The run has no such step"),
        "unknown_tenant": (422, "There is no such tenant"),
        "unknown_conversation": (422, "There is no such conversation"),
        "no_agent": (422, "There is no agent to run"),
        "empty_input": (422, "The input says nothing"),
        "unsupported_content": (422, "A model of the agent cannot be sent this"),
        "unsupported_option": (422, "A model of the agent cannot be asked with this"),
        "invalid_history": (422, "The messages are not whole turns"),
        "invalid_time": (422, "The times do not fit"),
        "no_secret_key": (422, "Secrets cannot be kept here"),
        "idempotency_key_reused": (422, "The Idempotency-Key was used with another body"),
        "too_many_runs": (429, "Too many runs are unfinished"),
        "tenant_queue_full": (429, "Too many runs of the tenant wait to begin"),
        "headers_too_large": (431, "The headers are too large"),
        "internal": (500, "Internal error"),
        "corrupt_record": (500, "What the store has of this cannot be read"),
        "not_durable": (503, "Done, but not safely yet"),
        "not_ready": (503, "Not ready"),
        "unavailable": (503, "Cannot be done now"),
        "store_nearly_full": (503, "The store is nearly full"),
        "too_many_watchers": (503, "Too many clients are watching"),
        "too_many_connections": (503, "Too many clients are connected"),
        **{code: (each.status, each.title) for code, each in OF_FEATURES.items()},
    }
)
"""Every code: its status and its title."""


class Problem(Refused):
    """A request that cannot be answered as it is, with its HTTP status and headers."""

    def __init__(
        self,
        code: str,
        detail: str | None = None,
        *,
        faults: Sequence[FieldError] = (),
        run_id: str | None = None,
        pending_actions: Sequence[Any] | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(code, detail, faults=faults, run_id=run_id)
        self.status, self.title = CODES[code]
        self.pending_actions = pending_actions
        self.headers = dict(headers or {})

    @property
    def sentence(self) -> str:
        """A sentence on what is wrong, and where."""
        return ": ".join(filter(None, (self.title, self.detail)))


def problem_of(error: Exception, request_id: str) -> Problem:
    """Return the problem that an exception is. An unforeseen one is ``internal``; its traceback is logged."""
    match error:
        case Problem():
            return error
        case InsufficientScope():
            needed = f', scope="{" ".join(error.scopes)}"' if error.scopes else ""
            how = f'Bearer realm="palaver", error="insufficient_scope"{needed}'
            return Problem(error.code, error.detail, headers={"WWW-Authenticate": how})
        case InvalidKey():
            how = 'Bearer realm="palaver", error="invalid_token"'
            return Problem(error.code, error.detail, headers={"WWW-Authenticate": how})
        case Refused():
            # Codes of single faults are more than those of problems.
            code = error.code if error.code in CODES else "validation_error"
            return Problem(code, error.detail, faults=error.faults, run_id=error.run_id)
        case UnknownRecord():
            return Problem(error.code, _sentence(error))
        case IdempotencyMismatch():
            return Problem("idempotency_key_reused", "Use a new key for another request.")
        case StateConflict():
            what, waits_for = _sentence(error), error.pending_actions
            return Problem(error.code, what, run_id=error.run_id, pending_actions=waits_for)
        case NoRoom():
            return Problem(error.code, _sentence(error), headers={"Retry-After": str(ROOM_AFTER)})
        case TimePassed():
            return Problem("invalid_time", faults=[FieldError(f"/{error.name}", "invalid_time", "is in the past")])
        case NewerVersion() if error.feature:
            return _unavailable(f"This run needs the feature {error.feature}: ask an API that has it.")
        case NewerVersion():
            return _unavailable("A newer version of Palaver works on this conversation: ask an API of that version.")
        case CorruptRecord():
            _log.error("%s: %r (request %s)", error, error.__cause__, request_id)
            return Problem("corrupt_record", f"{_sentence(error)} Delete it, or restore a backup; the log has more.")
        case StoreUnavailable():
            _log.warning("the store does not answer: it took too long (request %s)", request_id)
            return _unavailable("The store does not answer.")
        case IssuerUnavailable():
            headers = {"Retry-After": str(ROOM_AFTER)}
            return Problem("unavailable", "The issuer of the token does not answer.", headers=headers)
        case NotDurable():
            _log.warning("written, but not as safely as PALAVER_DURABILITY asks (request %s)", request_id)
            again = "Send the same request again, with the same Idempotency-Key if it had one: it is done once."
            return Problem("not_durable", again, run_id=error.run_id, headers={"Retry-After": str(RETRY_AFTER)})
        case HTTPException(status_code=404):
            return Problem("not_found")
        case HTTPException(status_code=405):
            return Problem("method_not_allowed", headers=error.headers)
    if classify(error).error_class is ErrorClass.STORAGE:
        why = storage_sentence(error)
        _log.warning("t%s: %s: %s (request %s)", why[1:-1], type(error).__name__, error, request_id)
        return _unavailable(why)
    _log.error("unforeseen error (request %s)", request_id, exc_info=error)
    return Problem("internal", "The log has the details under this request id.")


def storage_sentence(error: Exception) -> str:
    """Return the sentence about a store that cannot do what it is asked to: it does not answer, or why it refuses."""
    failure = classify(error)
    return "The store does not answer." if failure.code in _SILENT else failure.message


def _unavailable(why: str) -> Problem:
    return Problem("unavailable", why, headers={"Retry-After": str(RETRY_AFTER)})


def _sentence(error: Exception) -> str:
    what = str(error).rstrip(".")
    return f"{what[:1].upper()}{what[1:]}."
