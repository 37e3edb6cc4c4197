"""Problems: every error that the API answers, as RFC 9457 ``application/problem+json``.

What a client sent is never quoted back: it may hold a key. A problem's code is stable; its text is not.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Final

import orjson
from starlette.exceptions import HTTPException
from starlette.requests import HTTPConnection
from starlette.responses import Response

from palaver.actions import PendingAction
from palaver.errors import (
    ErrorClass,
    IdempotencyMismatch,
    NewerVersion,
    NoRoom,
    NotDurable,
    StateConflict,
    TimePassed,
    UnknownConversation,
    UnknownRun,
    classify,
)
from palaver.limits import beyond, most

MEDIA_TYPE: Final = "application/problem+json"
RETRY_AFTER: Final = 2
"""Seconds after which a client may try again while the store is away."""
ROOM_AFTER: Final = 5
"""The same where a limit is reached: runs must end before there is room."""
_log = logging.getLogger("palaver.api")
_SAFE_PATH: Final = re.compile(r"/[A-Za-z0-9/_.-]{0,200}")
_MAX_FAULTS: Final = most("faults")

CODES: Final[Mapping[str, tuple[int, str]]] = MappingProxyType(
    {
        "malformed_json": (400, "The body is not JSON"),
        "duplicate_key": (400, "An object in the body has a key twice"),
        "too_deep": (400, "The body is nested too deeply"),
        "unknown_parameter": (400, "There is no such query parameter"),
        "duplicate_parameter": (400, "A query parameter is given twice"),
        "malformed_request": (400, "The request is not well-formed"),
        "invalid_host": (400, "The Host header is not a host"),
        "invalid_idempotency_key": (400, "The Idempotency-Key cannot be used"),
        "invalid_cursor": (400, "There is no such place to go on from"),
        "unauthenticated": (401, "A valid API key is required"),
        "open_address": (403, "This address is not served without API keys"),
        "host_not_allowed": (403, "This host name is not served"),
        "origin_not_allowed": (403, "Pages of this origin are not served"),
        "not_found": (404, "There is nothing here"),
        "run_not_found": (404, "There is no such run"),
        "conversation_not_found": (404, "There is no such conversation"),
        "method_not_allowed": (405, "The method does not apply here"),
        "not_acceptable": (406, "None of the accepted media types is offered"),
        "request_timeout": (408, "The request did not arrive in time"),
        "run_ended": (409, "The run has already ended"),
        "run_active": (409, "The run has not ended"),
        "conversation_busy": (409, "The conversation is busy with another run"),
        "conversation_moved_on": (409, "The conversation has gone on since"),
        "conversation_changed": (409, "Something of the conversation was deleted meanwhile"),
        "conversation_full": (409, "The conversation is full"),
        "queue_full": (409, "The conversation has too many unfinished runs"),
        "steering_full": (409, "Too much waits for the run's next model call"),
        "nothing_to_retry": (409, "The run left nothing to go on with"),
        "pending_action": (409, "The conversation waits for an answer to its run"),
        "unknown_action": (409, "The run has no such pending action"),
        "no_pending_action": (409, "The run waits for no approval"),
        "action_already_resolved": (409, "The action is already resolved"),
        "wrong_action": (409, "The action wants another kind of answer"),
        "digest_mismatch": (409, "The decision is about another call"),
        "not_paused": (409, "The run is not paused"),
        "action_expired": (410, "The time for the action is over"),
        "payload_too_large": (413, "The body is too large"),
        "uri_too_long": (414, "The URL is too long"),
        "unsupported_media_type": (415, "The body must be application/json"),
        "validation_error": (422, "The request does not fit"),
        "invalid_unicode": (422, "A text holds what is not text"),
        "too_many_items": (422, "The body has too many values"),
        "unknown_provider": (422, "There is no such provider"),
        "unknown_price": (422, "A model has no price"),
        "unknown_tool": (422, "There is no such tool"),
        "unknown_policy": (422, "There is no such retry policy"),
        "invalid_policy": (422, "The retry policy does not fit"),
        "duplicate_tool": (422, "A tool is named twice"),
        "invalid_schema": (422, "The parameters of a tool are not a schema"),
        "invalid_arguments": (422, "The arguments do not fit the tool"),
        "duplicate_item": (422, "An action is answered twice"),
        "unknown_step": (422, "The run has no such step"),
        "unknown_conversation": (422, "There is no such conversation"),
        "no_agent": (422, "There is no agent to run"),
        "empty_input": (422, "The input says nothing"),
        "invalid_history": (422, "The messages are not whole turns"),
        "invalid_time": (422, "The times do not fit"),
        "idempotency_key_reused": (422, "The Idempotency-Key was used with another body"),
        "too_many_runs": (429, "Too many runs are unfinished"),
        "headers_too_large": (431, "The headers are too large"),
        "internal": (500, "Internal error"),
        "not_durable": (503, "Done, but not safely yet"),
        "not_ready": (503, "Not ready"),
        "unavailable": (503, "The store does not answer"),
        "store_nearly_full": (503, "The store is nearly full"),
        "too_many_watchers": (503, "Too many clients are watching"),
        "too_many_connections": (503, "Too many clients are connected"),
    }
)
"""Every code: its status and its title."""
_ADVICE: Final[Mapping[str, str]] = MappingProxyType(
    {
        "run_active": "Only a run that has ended can be retried or deleted.",
        "conversation_moved_on": "Retry the newest run, or fork this one with from_step.",
        "conversation_changed": "Send the same request again.",
        "conversation_full": "Begin a new one, fork this one from an earlier step, or delete runs of it.",
        "queue_full": "Wait until runs of it have ended, or cancel them.",
        "steering_full": "Wait until the model has been told, or resume the run if it is paused.",
        "nothing_to_retry": "Or fork the run with from_step.",
        "pending_action": (
            "Answer the run's pending_actions with POST /v1/runs/{run_id}/input, cancel it, "
            "or submit with on_conflict interrupt, rollback or steer."
        ),
        "unknown_action": "Its pending_actions are those that can be answered.",
        "action_already_resolved": "The first answer counts.",
        "too_many_runs": "Nothing was taken on; runs must end first.",
        "store_nearly_full": "Nothing was taken on; the runs that there are go on.",
        "wrong_action": "The type of a pending action says which of the two it is.",
        "digest_mismatch": "Look at the arguments of the pending action again, then decide with its digest.",
    }
)
"""What to do about a refusal, where the store's message does not say so."""


@dataclass(frozen=True, slots=True)
class Fault:
    """One thing that is wrong. ``pointer`` is a JSON pointer into the body, or ``?parameter``."""

    pointer: str
    code: str
    message: str


class Problem(Exception):
    """A request that cannot be answered as asked."""

    def __init__(
        self,
        code: str,
        detail: str | None = None,
        *,
        faults: Sequence[Fault] = (),
        run_id: str | None = None,
        pending_actions: Sequence[PendingAction] | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(code)
        self.code = code
        self.status, self.title = CODES[code]
        self.detail = detail or "; ".join(f"{fault.pointer or '/'}: {fault.message}" for fault in faults[:3]) or None
        if len(faults) > _MAX_FAULTS:
            beyond("faults")
        self.faults = tuple(faults[:_MAX_FAULTS])
        self.run_id = run_id
        self.pending_actions = pending_actions
        self.headers = dict(headers or {})

    @classmethod
    def of_conflict(cls, conflict: StateConflict, pending_actions: Sequence[PendingAction] | None = None) -> Problem:
        """A conflict: what is in the way, and what to do about it. It may say what the run waits for."""
        what = str(conflict).rstrip(".")
        advice = _ADVICE.get(conflict.code, "").format(run_id=conflict.run_id)
        detail = f"{what[:1].upper()}{what[1:]}. {advice}".rstrip()
        return cls(conflict.code, detail, run_id=conflict.run_id, pending_actions=pending_actions)

    @classmethod
    def of_faults(cls, faults: Sequence[Fault]) -> Problem:
        """A problem with their common code, if it is one of a problem, else ``validation_error``."""
        codes = {fault.code for fault in faults}
        code = codes.pop() if len(codes) == 1 else ""
        return cls(code if code in CODES else "validation_error", faults=faults)

    def response(self, *, instance: str, request_id: str) -> Response:
        """The problem on the wire."""
        body: dict[str, Any] = {
            "type": f"/errors/{self.code}",
            "title": self.title,
            "status": self.status,
            "detail": self.detail,
            "instance": instance if _SAFE_PATH.fullmatch(instance) else None,
            "code": self.code,
            "errors": [
                {"pointer": fault.pointer, "code": fault.code, "message": fault.message} for fault in self.faults
            ],
            "request_id": request_id,
        }
        if self.run_id is not None:
            body["run_id"] = self.run_id
        if self.pending_actions is not None:
            body["pending_actions"] = [action.model_dump(mode="json") for action in self.pending_actions]
        return Response(orjson.dumps(body), self.status, self.headers, media_type=MEDIA_TYPE)


def problem_of(error: Exception, request_id: str) -> Problem:
    """The problem that an exception is. What nobody foresaw is ``internal``; its traceback is logged."""
    match error:
        case Problem():
            return error
        case UnknownRun():
            return Problem("run_not_found", "It was never there, or its retention has passed.")
        case UnknownConversation():
            return Problem("conversation_not_found", "It was never there, or its retention has passed.")
        case IdempotencyMismatch():
            return Problem("idempotency_key_reused", "Use a new key for another request.")
        case StateConflict():
            return Problem.of_conflict(error)
        case NewerVersion():
            return unavailable()
        case NoRoom():
            return Problem(error.code, _ADVICE[error.code], headers={"Retry-After": str(ROOM_AFTER)})
        case TimePassed():
            return Problem.of_faults([Fault(f"/{error.name}", "invalid_time", "is in the past")])
        case NotDurable():
            _log.warning("written, but not as safely as PALAVER_DURABILITY asks (request %s)", request_id)
            again = "Send the same request again, with the same Idempotency-Key if it had one: it is done once."
            return Problem("not_durable", again, run_id=error.run_id, headers={"Retry-After": str(RETRY_AFTER)})
        case HTTPException(status_code=404):
            return Problem("not_found")
        case HTTPException(status_code=405):
            return Problem("method_not_allowed", headers=error.headers)
    if classify(error).error_class is ErrorClass.STORAGE:
        _log.warning("the store does not answer: %s: %s (request %s)", type(error).__name__, error, request_id)
        return unavailable()
    _log.error("unforeseen error (request %s)", request_id, exc_info=error)
    return Problem("internal", "The log has the details under this request id.")


def unavailable() -> Problem:
    """The store is away for now."""
    return Problem("unavailable", "Try again soon.", headers={"Retry-After": str(RETRY_AFTER)})


def respond(error: Exception, request: HTTPConnection) -> Response:
    """The answer to an exception."""
    request_id = request.scope["state"]["request_id"]
    return problem_of(error, request_id).response(instance=request.scope["path"], request_id=request_id)
