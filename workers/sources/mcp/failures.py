"""The failure that a call ends with, by how its request ended: what the model reads, and what the step knows of it."""

from __future__ import annotations

from typing import Final

from palaver.errors import ErrorClass, RetryableToolError, ToolError, ToolFailure
from palaver.errors.finding import ToolFinding
from palaver.errors.tool_findings import find_answer, find_lost, find_said, find_unreached

from .offers import OfferedTool
from .server import Server, one_line
from .wire import InvalidAnswer, Lost, NeverSent, NotTried, RequestRefused, RpcError

UNKNOWN: Final = "it may or may not have taken effect"
ENDED: Final = (NeverSent, RequestRefused, Lost, InvalidAnswer, RpcError)
"""The ways in which a request ends without a result."""
_REFUSED: Final = 400
"""The status of a server that refuses without one."""


def failure_of_call(error: Exception, server: Server, offer: OfferedTool) -> ToolFailure:
    """Return the failure of a call of ``offer`` whose request ended so."""
    label, idempotent = server.label, offer.declaration.idempotent
    words = one_line(error, offer.declaration.timeout)
    match error:
        case NeverSent():
            failure: ToolFailure = RetryableToolError(
                f"{label} was not reached: {words}", retry_after=error.retry_after
            )
            return _found(failure, _unsent(error, str(failure)))
        case RequestRefused():
            failure = ToolError(f"{label} did not take the call: {words}")
            status = error.status if error.status >= _REFUSED else _REFUSED
            return _found(failure, find_answer(str(failure), status, sent=False))
        case Lost() if idempotent:
            failure = RetryableToolError(f"{label} did not answer: {words}")
            return _found(failure, _lost(error, str(failure)))
        case Lost():
            failure = ToolError(f"{label} did not answer: {words}: {UNKNOWN}")
            return _found(failure, _lost(error, str(failure)))
        case RpcError():
            failure = ToolError(f"{label} answered with an error: {words} ({error.code})")
            return _found(failure, find_said(str(failure), offer.errors.get(str(error.code))))
    return ToolError(f"{label} did not answer: {words}: {UNKNOWN}")


def _unsent(error: NeverSent, message: str) -> ToolFinding:
    if error.status:
        wait = {} if error.retry_after is None else {"retry-after": str(error.retry_after)}
        return find_answer(message, error.status, headers=wait, sent=False)
    tried = not isinstance(error, NotTried)
    return find_unreached(message, "connect_error", retry_after=error.retry_after, tried=tried)


def _lost(error: Lost, message: str) -> ToolFinding:
    if error.status:
        return find_answer(message, error.status, sent=True)
    return find_lost(message, ErrorClass.CONNECTION, "connection")


def _found(failure: ToolFailure, finding: ToolFinding) -> ToolFailure:
    failure.finding = finding
    return failure
