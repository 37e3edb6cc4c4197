"""``classify`` turns any exception into a ``Failure``: our own exceptions and those of libraries."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from email.message import Message
from typing import Final
from weakref import WeakKeyDictionary

from palaver.errors import exceptions as ours
from palaver.errors.failure import Failure, ProviderDetails
from palaver.errors.foreign import HTTP_ERROR, Classification, find, text_of
from palaver.errors.response import classify_response
from palaver.errors.vocabulary import FACTS, ErrorClass, Source

_C = ErrorClass
Find = Callable[[BaseException], Classification | None]
"""Looks up the facts about an exception by its class."""
_MAX_CAUSES: Final = 16

_OURS: Final[Mapping[type[ours.PalaverError], Classification]] = {
    ours.MalformedResponse: Classification(_C.PROVIDER_ERROR, "bad_model_response"),
    ours.EmptyCompletion: Classification(_C.PROVIDER_ERROR, "empty_completion"),
    ours.TruncatedStream: Classification(_C.CONNECTION, "stream_truncated"),
    # Another attempt would most likely bring as large an answer, and every attempt is paid in full.
    ours.ResponseTooLarge: Classification(
        _C.PROVIDER_ERROR, "response_too_large", retryable=False, user_action="settings"
    ),
    ours.TooManyToolCalls: Classification(
        _C.PROVIDER_ERROR, "too_many_tool_calls", retryable=False, user_action="settings"
    ),
    ours.ToolCallTooLarge: Classification(_C.PROVIDER_ERROR, "tool_call_too_large", retryable=False),
    ours.FirstTokenTimeout: Classification(_C.TIMEOUT, "first_token_timeout"),
    ours.IdleTimeout: Classification(_C.TIMEOUT, "idle_timeout"),
    ours.TotalTimeout: Classification(_C.TIMEOUT, "total_timeout"),
    ours.ProviderError: Classification(_C.PROVIDER_ERROR, "provider_error"),
    ours.RetryableToolError: Classification(_C.TOOL_ERROR, "tool_error", retryable=True),
    ours.ToolError: Classification(_C.TOOL_ERROR, "tool_error"),
    ours.ToolTimeout: Classification(_C.TOOL_TIMEOUT, "tool_timeout"),
    ours.UnknownTool: Classification(_C.INVALID_TOOL_CALL, "unknown_tool"),
    ours.InvalidToolCall: Classification(_C.INVALID_TOOL_CALL, "invalid_arguments"),
    ours.ToolFailure: Classification(_C.TOOL_ERROR, "tool_error"),
    ours.ConfigurationError: Classification(
        _C.INVALID_REQUEST, "configuration", source="engine", user_action="settings"
    ),
    ours.UnknownPrice: Classification(_C.INVALID_REQUEST, "unknown_price", source="engine", user_action="settings"),
    ours.NoWorker: Classification(_C.NO_WORKER, "no_worker", source="engine"),
    ours.StoreUnavailable: Classification(_C.STORAGE, "store_timeout", source="store"),
    ours.NotDurable: Classification(_C.STORAGE, "not_durable", source="store"),
    ours.UnknownRecord: Classification(_C.INTERNAL, "state_lost", source="store"),
    ours.CorruptRecord: Classification(_C.INTERNAL, "corrupt_record", source="store"),
}
"""What our own exceptions are classified as, by the nearest class. All others are meant for callers of the API; when a
step raises one of them, it is an internal error."""

_OF_OURS: Final = (ours.ProviderError, ours.ToolFailure)
"""Our exceptions that a library's exception may wrap."""

_judged: Final[WeakKeyDictionary[ours.ProviderHTTPError, tuple[tuple[str | None, str | None], Failure]]] = (
    WeakKeyDictionary()
)
"""What an error answer was judged to be, with the provider and the model it was judged for. A step judges it several
times, and its words may be long."""

_UNREADABLE: Final = frozenset({"json", "validation", "encoding"})
"""Codes that mean a bug of ours, except when the text was a model's answer."""


def classify(
    exception: BaseException,
    *,
    source: Source = "engine",
    provider: str | None = None,
    model: str | None = None,
) -> Failure:
    """Judge an exception.

    ``source`` says whose work was going on: with "model", an answer that cannot be parsed is the provider's
    error and not ours; with "tool", everything the tool's code raised is a tool error to tell the model, be
    it a failing database or a bug, because only the engine itself speaks for the store and the provider.
    ``provider`` and ``model`` name the call for exceptions that do not carry it.

    A wrapper that says less than its cause is classified by its cause; a group by its first member. An
    exception of another library that carries an HTTP answer is classified by that answer.

    Raises the exception itself where it is not a failure but an order to stop: ``StaleLease``,
    and whatever is no ``Exception`` (``asyncio.CancelledError``, ``KeyboardInterrupt``, …). To answer a
    cancellation with a failure would swallow it.
    """
    while isinstance(exception, ExceptionGroup):
        orders = exception.subgroup(ours.ControlFlow)
        exception = (orders or exception).exceptions[0]
    if isinstance(exception, ours.ControlFlow) or not isinstance(exception, Exception):
        raise exception
    if source == "tool" and not isinstance(exception, ours.ToolFailure | ours.NoWorker):
        return _classify_tool(exception)
    cause = telling(exception)
    if isinstance(cause, ours.PalaverError):
        return _classify_ours(cause, source, provider, model)
    return _classify_foreign(cause, source, provider, model)


def _classify_ours(error: ours.PalaverError, source: Source, provider: str | None, model: str | None) -> Failure:
    if isinstance(error, ours.ToolFailure) and error.finding is not None:
        return error.finding.failure
    if isinstance(error, ours.ProviderHTTPError):
        return _judge(error, error.provider or provider, error.model or model)
    found = next((_OURS[kind] for kind in type(error).__mro__ if kind in _OURS), None)
    if found is None or found.error_class is _C.INTERNAL:
        return _internal(error, found, source)
    at = _provider(provider, model)
    if isinstance(error, ours.ProviderError):
        at = _provider(error.provider or provider, error.model or model, error.status, error.request_id)
    return Failure.of(
        found.error_class,
        text_of(error),
        code=found.code,
        source=found.source,
        retryable=found.retryable,
        user_action=found.user_action,
        retry_after=error.retry_after if isinstance(error, ours.RetryableToolError) else None,
        provider=at if FACTS[found.error_class].source == "model" else None,
    )


def _judge(error: ours.ProviderHTTPError, provider: str | None, model: str | None) -> Failure:
    asked_for = (provider, model)
    judged_for, failure = _judged.get(error, (None, None))
    if failure is None or judged_for != asked_for:
        failure = classify_response(
            error.status or 0, error.body, error.headers, provider=provider, model=model, request=error.request_id
        )
        _judged[error] = (asked_for, failure)
    return failure


def _classify_tool(error: Exception) -> Failure:
    found = precise_classification(telling(error))
    late = found is not None and found.error_class is _C.TIMEOUT
    says = text_of(error)
    name = type(error).__name__
    return Failure.of(
        _C.TOOL_TIMEOUT if late else _C.TOOL_ERROR,
        f"{name}: {says}" if says else name,
        code="tool_timeout" if late else "tool_error",
    )


def _classify_foreign(error: Exception, source: Source, provider: str | None, model: str | None) -> Failure:
    found = precise_classification(error)
    answer = answer_in(error) if found is None or found is HTTP_ERROR else None
    if answer is not None:
        status, body, headers = answer
        return classify_response(status, body, headers, provider=provider, model=model, source=source)
    if found is not None and source == "model" and found.code in _UNREADABLE:
        found = Classification(_C.PROVIDER_ERROR, "bad_model_response", "The answer could not be read.")
    if found is None or found.error_class is _C.INTERNAL:
        return _internal(error, found, source)
    return Failure.of(
        found.error_class,
        found.sentence,
        code=found.code,
        source=found.source or source,
        retryable=found.retryable,
        user_action=found.user_action,
        provider=None if found.source else _provider(provider, model),
    )


def _internal(error: Exception, found: Classification | None, source: Source) -> Failure:
    """The failure names the exception's class and not its message, which may quote anything."""
    return Failure.of(
        _C.INTERNAL,
        f"{FACTS[_C.INTERNAL].sentence} ({type(error).__name__})",
        code=found.code if found else "internal",
        source=(found.source if found else None) or source,
    )


def telling(error: Exception, find: Find = find) -> Exception:
    """Return the exception to classify: this one, or its nearest known cause if this one is unknown."""
    found = find(error)
    if found is HTTP_ERROR:
        # aiohttp reports a parser error as an answer with status 400.
        return next((cause for cause in causes_of(error) if find(cause) not in (None, HTTP_ERROR)), error)
    if found is not None or isinstance(error, ours.PalaverError) or answer_in(error) is not None:
        return error
    return next((cause for cause in causes_of(error) if isinstance(cause, _OF_OURS) or find(cause)), error)


def precise_classification(error: Exception, find: Find = find) -> Classification | None:
    """Return the classification of an exception, or of its cause where that is more precise."""
    own = find(error)
    if own is None or not own.vague:
        return own
    known = (found for found in map(find, causes_of(error, implied=True)) if found and not found.vague)
    cause = next(known, own)
    both_late = own.error_class is _C.TIMEOUT and cause.error_class is _C.TIMEOUT
    return own if both_late or cause.error_class is _C.INTERNAL else cause


def causes_of(error: Exception, *, implied: bool = False) -> Iterator[Exception]:
    """Yield the causes of an exception, nearest first; ``implied`` follows exceptions it was raised amidst, too."""
    seen = {id(error)}
    waiting = [error]
    while waiting and len(seen) <= _MAX_CAUSES:
        current = waiting.pop(0)
        following: list[BaseException | None] = [current.__cause__]
        if implied and current.__cause__ is None:
            following.append(current.__context__)  # also a suppressed one: httpcore raises its wrappers so
        if isinstance(current, ExceptionGroup):
            following.extend(current.exceptions)
        for cause in following:
            if isinstance(cause, Exception) and id(cause) not in seen:
                seen.add(id(cause))
                waiting.append(cause)
                yield cause


def answer_in(error: Exception) -> tuple[int, bytes, Mapping[str, str]] | None:
    """Return status, body and headers if the exception stands for an HTTP answer, as httpx's and aiohttp's do."""
    response = attribute_of(error, "response")
    if response is None:  # One of requests' is false if it is an error.
        response = error
    status = attribute_of(response, "status_code") or attribute_of(response, "status")
    if not isinstance(status, int) or not 100 <= status <= 599:
        return None
    body = attribute_of(response, "content")
    headers = attribute_of(response, "headers")
    if isinstance(headers, Message):  # of the standard library's urllib
        headers = dict(headers.items())
    return (
        status,
        body[: ours.MAX_BODY] if isinstance(body, bytes) else b"",
        headers if isinstance(headers, Mapping) else {},
    )


def attribute_of(thing: object, name: str) -> object:
    """Return an attribute of a foreign object; None if it cannot give it, as httpx for a body that was not read."""
    try:
        return getattr(thing, name, None)
    except Exception:
        return None


def _provider(
    name: str | None, model: str | None, status: int | None = None, request_id: str | None = None
) -> ProviderDetails | None:
    return ProviderDetails(name, model, status, request_id) if name else None
