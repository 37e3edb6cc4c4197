"""The exceptions of the SDK.

PalaverError
 ├── RunFailed              the run itself failed (palaver.errors)
 └── ClientError            the API was asked and did not do it
      ├── APIError          it answered with an error
      │    ├── Unauthorized       401, 403
      │    ├── NotFound           404
      │    ├── Conflict           409, 410
      │    ├── Unprocessable      400, 413, 415, 422
      │    ├── TooManyRequests    429
      │    └── Unavailable        5xx
      ├── ConnectionFailed  it could not be reached, or the connection broke
      └── WaitTimeout       the run did not end in the time given to `wait`
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from palaver.errors import PalaverError
from palaver.schemas.actions import PendingAction
from palaver.vocabulary.lifecycle import RunStatus

_BEGUN_NOTHING: Final = frozenset({"store_nearly_full", "too_many_connections", "too_many_watchers"})
"""Codes of a 503 that refuses a request before it has any effect."""


class ClientError(PalaverError):
    """The API was asked and did not do it.

    ``run_id`` is the run that it was asked about, or that stands in the way; ``perhaps_done``, whether the request may
    have taken effect all the same, because an answer was lost.
    """

    run_id: str | None = None
    perhaps_done: bool = False


class APIError(ClientError):
    """The API answered with an error.

    ``code`` is the machine's word for it, such as ``run_ended``; ``errors`` names the faults of the request, field by
    field, each ``{"pointer", "code", "message"}``; ``request_id`` finds the request in the server's log;
    ``retry_after`` is in seconds, if the server said when to come back; ``pending_actions`` is what the run ``run_id``
    waits for, if the server said so.
    """

    def __init__(
        self,
        status: int,
        code: str,
        detail: str,
        request_id: str | None = None,
        errors: Sequence[Mapping[str, Any]] = (),
        *,
        run_id: str | None = None,
        retry_after: float | None = None,
        pending_actions: Sequence[PendingAction] = (),
    ) -> None:
        fields = "; ".join(field for field in map(_field, errors) if field not in detail)
        super().__init__(f"{detail} ({fields})" if fields else detail)
        self.status = status
        self.code = code
        self.detail = detail
        self.request_id = request_id
        self.errors = tuple(errors)
        self.run_id = run_id
        self.perhaps_done = status >= 500 and code not in _BEGUN_NOTHING
        self.retry_after = retry_after
        self.pending_actions = tuple(pending_actions)


class Unauthorized(APIError):
    """The key is missing or not accepted, or may not do this."""


class NotFound(APIError):
    """There is no such run or conversation, or no longer."""


class Conflict(APIError):
    """The present state does not allow it; ``code`` says which rule, and the message what can be done."""

    def __str__(self) -> str:
        waits = ", ".join(f"{action.tool} ({action.type} {action.id})" for action in self.pending_actions)
        return f"{super().__str__()} Pending: {waits}." if waits else super().__str__()


class Unprocessable(APIError):
    """The request is not valid; ``errors`` says where."""


class TooManyRequests(APIError):
    """A limit is reached; ``retry_after`` says when to come back, if the server did."""


class Unavailable(APIError):
    """The server is there and cannot answer now."""


class ConnectionFailed(ClientError):
    """The API could not be reached, or the connection broke before it had answered.

    ``url`` is the API's address, ``reason`` what the network said.
    """

    def __init__(self, url: str, reason: str, *, perhaps_done: bool = True) -> None:
        hint = "" if perhaps_done else ". Start the API (palaver up), or name another with PALAVER_URL or base_url."
        super().__init__(f"no answer from {url}: {reason}{hint}")
        self.url = url
        self.reason = reason
        self.perhaps_done = perhaps_done


class WaitTimeout(ClientError):
    """The run did not end in time. It goes on; wait again, or cancel it.

    ``timeout`` is in seconds; ``status`` is the last one seen, None if the API never answered.
    """

    def __init__(self, run_id: str, timeout: float, status: RunStatus | None) -> None:
        seen = f"its status is {status}" if status else "the API gave no answer"
        super().__init__(f"run {run_id} did not end within {timeout:g} s; {seen}")
        self.run_id = run_id
        self.timeout = timeout
        self.status = status


def error_type(status: int) -> type[APIError]:
    """The class for an HTTP status."""
    if status >= 500:
        return Unavailable
    return {
        400: Unprocessable,
        401: Unauthorized,
        403: Unauthorized,
        404: NotFound,
        409: Conflict,
        410: Conflict,
        412: Conflict,
        413: Unprocessable,
        415: Unprocessable,
        422: Unprocessable,
        429: TooManyRequests,
    }.get(status, APIError)


def _field(error: Mapping[str, Any]) -> str:
    return f"{error.get('pointer') or '/'}: {error.get('message') or error.get('code') or 'is not valid'}"
