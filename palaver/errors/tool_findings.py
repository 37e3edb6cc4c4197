"""Judges what a tool raised: its class, and whether the tool's service may have taken the call."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Final

from palaver.errors import exceptions as ours
from palaver.errors.classification import answer_in, causes_of, classify, precise_classification, telling
from palaver.errors.failure import Failure, ProviderDetails
from palaver.errors.finding import ToolFinding
from palaver.errors.foreign import HTTP_ERROR
from palaver.errors.outages import OutageSign, sign_of_outage
from palaver.errors.response import classify_response
from palaver.errors.services import find_in_tool, is_unsent
from palaver.errors.vocabulary import TOOL_CLASSES, ErrorClass

_C = ErrorClass

_OF_STORE: Final[Mapping[str, ErrorClass]] = {
    "store_unavailable": _C.CONNECTION,
    "broker_unavailable": _C.CONNECTION,
    "store_timeout": _C.TIMEOUT,
    "store_pool_exhausted": _C.TIMEOUT,
    "store_access": _C.AUTHENTICATION,
}
"""The classes of a Redis or a broker that a tool uses. Other words of it are those of a server that fails."""
_OF_MODELS: Final = frozenset((_C.CONTEXT_WINDOW, _C.CONTENT_FILTER))
"""Classes that only a model's call has; a service that says so refuses the request."""
_NOT_TAKEN: Final = frozenset((429, 503))
"""Statuses with which a service says that it has not taken the request."""
_CONFLICT: Final = 409
"""Of a model's provider it is a lock, of any other service the state that it is in."""
_LONGEST_CHAIN: Final = 16
_OWN_POOL: Final = "pool_timeout"
"""The tool's own connections are all in use, which is no fault of the service."""


def find_failure(
    error: BaseException, failed: ours.ToolFailure, errors: Mapping[type[Exception], ErrorClass] | None = None
) -> ToolFinding:
    """Judge what a tool raised. ``failed`` says it to the model, in words that are safe; ``errors`` are the classes
    that the tool itself declares for its exceptions.

    Never raises, whatever the exception does when it is looked at.
    """
    try:
        return _found(error, failed, errors or {})
    except BaseException:
        return ToolFinding(_failure(_C.TOOL_ERROR, str(failed)), sent=True)


def _found(error: BaseException, failed: ours.ToolFailure, errors: Mapping[type[Exception], ErrorClass]) -> ToolFinding:
    message = str(failed)
    declared = next((errors[kind] for kind in type(error).__mro__ if kind in errors), None)
    if declared is not None:
        wait = getattr(error, "retry_after", None)
        failure = _failure(declared, message, retry_after=wait if isinstance(wait, int | float) else None)
        # Who asks for fewer requests has not taken this one.
        return ToolFinding(failure, sent=declared is not _C.RATE_LIMITED)
    if isinstance(error, ours.ToolFailure):
        failure = classify(failed, source="tool")
        # The tool itself says with a RetryableToolError that nothing has happened.
        return ToolFinding(failure, sent=not failure.retryable)
    if not isinstance(error, Exception):
        return ToolFinding(_failure(_C.TOOL_ERROR, message), sent=True)
    alone = not isinstance(error, ExceptionGroup)
    while isinstance(error, ExceptionGroup):
        error = error.exceptions[0]
    chain: list[BaseException] = [error, *causes_of(error, implied=True)]
    cause = telling(error, find_in_tool)
    found = precise_classification(cause, find_in_tool)
    answer = answer_in(cause) if found is None or found is HTTP_ERROR else None
    if answer is not None:
        return _of_answer(cause, answer, message, refused=found is HTTP_ERROR and cause is error and len(chain) == 1)
    unsent = alone and len(chain) < _LONGEST_CHAIN and is_unsent(chain)
    error_class, code = _C.TOOL_ERROR, None
    if found is not None:
        code = found.code
        error_class = found.error_class
        if error_class is _C.STORAGE:
            error_class = _OF_STORE.get(code, _C.PROVIDER_ERROR)
    if error_class not in TOOL_CLASSES or error_class is _C.TOOL_ERROR:
        return ToolFinding(_failure(_C.TOOL_ERROR, message), sent=not unsent)
    failure = _failure(error_class, message, code=code)
    sign = OutageSign(of_model=False, of_request=False) if unsent else sign_of_outage(_at_service(failure, None))
    if code == _OWN_POOL:
        sign = None
    return ToolFinding(failure, sent=not unsent, sign=sign)


def _of_answer(
    error: Exception, answer: tuple[int, bytes, Mapping[str, str]], message: str, *, refused: bool
) -> ToolFinding:
    """The facts about an answer of the tool's service. It may be the only one that was asked, and refuse the request:
    behind a redirect there was another one."""
    status, body, headers = answer
    redirected = getattr(getattr(error, "response", error), "history", ())
    taken = not (refused and status in _NOT_TAKEN and not redirected)
    return find_answer(message, status, body, headers, sent=taken)


def find_answer(
    message: str,
    status: int,
    body: bytes = b"",
    headers: Mapping[str, str] = MappingProxyType({}),
    *,
    sent: bool,
    declared: ErrorClass | None = None,
) -> ToolFinding:
    """The facts about an answer of HTTP that is no success. ``sent`` if the request may have been taken; ``declared``
    is the class that its author, who knows the service, has for it."""
    answer = classify_response(status, body, headers, source="tool")
    error_class = answer.error_class
    if error_class in _OF_MODELS or error_class not in TOOL_CLASSES or status == _CONFLICT:
        error_class = _C.INVALID_REQUEST
    error_class = declared or error_class
    # Not the service's own code, which may be about one customer: others that wait for the service are told this one.
    failure = _failure(error_class, message, code=f"http_{status}", retry_after=answer.retry_after)
    sign = sign_of_outage(_at_service(failure, status))
    return ToolFinding(
        failure,
        # Who asks for fewer requests has not taken this one.
        sent=sent and declared is not _C.RATE_LIMITED,
        sign=None if sign is None else replace(sign, of_model=False),
        answered=sign is None,
    )


def find_said(message: str, declared: ErrorClass | None) -> ToolFinding:
    """The facts about a service that answered with an error of its own, which is ``declared`` to be of a class."""
    return ToolFinding(
        _failure(declared or _C.TOOL_ERROR, message), sent=declared is not _C.RATE_LIMITED, answered=True
    )


def find_unreached(message: str, code: str, *, retry_after: float | None = None, tried: bool = True) -> ToolFinding:
    """The facts about a service that was not reached: nothing was sent. It was not even ``tried`` if a process waits
    until it tries again, or ends."""
    failure = _failure(_C.CONNECTION, message, code=code, retry_after=retry_after)
    return ToolFinding(failure, sent=False, sign=OutageSign(of_model=False, of_request=False) if tried else None)


def find_lost(message: str, error_class: ErrorClass, code: str) -> ToolFinding:
    """The facts about a service that took a request, perhaps, and gave no answer."""
    failure = _failure(error_class, message, code=code)
    sign = sign_of_outage(_at_service(failure, None))
    return ToolFinding(failure, sent=True, sign=sign)


def _failure(
    error_class: ErrorClass, message: str, *, code: str | None = None, retry_after: float | None = None
) -> Failure:
    """A failed call of this class: the run goes on, and its policy says whether it is tried again."""
    failure = Failure.of(
        error_class,
        message,
        code=code,
        source="tool",
        retryable=False,
        user_action="none",
        retry_after=retry_after,
    )
    return replace(failure, recoverable=True)


def _at_service(failure: Failure, status: int | None) -> Failure:
    return replace(failure, provider=ProviderDetails("tool", http_status=status))
