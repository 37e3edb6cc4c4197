"""Answers of services: the part that a model gets, and the failures that the others are, or that none came."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import suppress
from typing import Final, NoReturn

import aiohttp
import httpx

from palaver.errors import ConfigurationError, ErrorClass, RetryableToolError, ToolError, ToolFailure
from palaver.errors.headers import retry_after
from palaver.errors.sentences import IN_DOUBT
from palaver.errors.tool_findings import find_answer, find_lost, find_unreached
from palaver.incoming.lenient_json import read_json
from palaver.schemas.content import IMAGE_TYPES, ImagePart, media_type
from palaver.schemas.json_pointers import names_in
from palaver.vocabulary.limits import count_exceeded, limit_of

from .tables import HttpTool

_NOT_SENT: Final = (aiohttp.ClientConnectorError, aiohttp.ConnectionTimeoutError, aiohttp.InvalidURL)
"""The request did not leave: no address, no connection, no TLS."""
_NOT_DONE: Final = frozenset({425, 429, 503})
"""Statuses of a service that did nothing, and may be asked again."""
_TEXTS: Final = ("application/json", "application/xml", "application/javascript", "application/x-www-form-urlencoded")
_HEADS: Final = ("content-type", "content-length", "last-modified", "etag")
"""Headers that the model gets as the answer to a ``HEAD``."""
_SHOWN: Final = 1_500
"""Characters of an error's body that the model sees."""


async def answer_of(
    tool: HttpTool, response: httpx.Response, errors: Mapping[str, ErrorClass], *, idempotent: bool
) -> object:
    """The model's part of an answer. ``errors`` are the classes that the file has for statuses.

    Raises:
        RetryableToolError: the service did nothing, or may do it twice, and is to be asked again.
        ToolError: it refused, failed, or answered with what cannot be shown.
        httpx.HTTPError: the answer broke off.
    """
    if 200 <= response.status_code < 300:
        if tool.method == "HEAD":
            return _head_of(response)
        body, whole = await _read(response, limit_of("http_answer"))
        return _shown(tool, response, body, whole=whole)
    body = b""
    with suppress(httpx.HTTPError):  # the status says enough
        body, _ = await _read(response, 4 * _SHOWN)
    refusal = _refusal(response, body, idempotent=idempotent)
    declared = errors.get(str(response.status_code))
    if declared is not None or response.status_code >= 400:
        refusal.finding = find_answer(
            str(refusal),
            response.status_code,
            body,
            response.headers,
            sent=response.status_code not in _NOT_DONE,
            declared=declared,
        )
    raise refusal


def unanswered(error: Exception, *, idempotent: bool) -> ToolFailure:
    """The failure of a request that got no whole answer."""
    causes = tuple(_causes(error))
    if wrong := next((cause for cause in causes if isinstance(cause, ConfigurationError)), None):
        return ToolError(str(wrong))
    reason = next((type(cause).__name__ for cause in reversed(causes)), type(error).__name__)
    if any(isinstance(cause, _NOT_SENT) for cause in causes):
        failure = RetryableToolError(f"the service could not be reached ({reason}): nothing was sent")
        failure.finding = find_unreached(str(failure), "connect_error")
        return failure
    broken = f"connection to the service broke before its answer was here ({reason})"
    lost = RetryableToolError(f"the {broken}") if idempotent else ToolError(f"The {broken}.{IN_DOUBT}")
    lost.finding = find_lost(str(lost), ErrorClass.CONNECTION, "connection")
    return lost


def _causes(error: BaseException | None) -> Iterator[BaseException]:
    while error is not None:
        yield error
        error = error.__cause__ or error.__context__


async def _read(response: httpx.Response, most: int) -> tuple[bytes, bool]:
    """Return the body, and whether it is all of it: of a longer one the first bytes."""
    body = bytearray()
    async for piece in response.aiter_bytes():
        body += piece
        if len(body) > most:
            return bytes(body[:most]), False
    return bytes(body), True


def _refusal(response: httpx.Response, body: bytes, *, idempotent: bool) -> ToolError:
    status = response.status_code
    said = _decoded(response, body)[:_SHOWN].strip()
    sentence = f"the service answered HTTP {status}" + (f": {said}" if said else "")
    if status in _NOT_DONE or (status >= 500 and idempotent):
        return RetryableToolError(sentence, retry_after=retry_after(response.headers))
    if status >= 500:
        return ToolError(f"The service answered HTTP {status}.{IN_DOUBT}" + (f" It said: {said}" if said else ""))
    if 300 <= status < 400:
        return ToolError(f"the service answered HTTP {status}: it leads elsewhere, and is not followed")
    return ToolError(sentence)


def _shown(tool: HttpTool, response: httpx.Response, body: bytes, *, whole: bool) -> object:
    kind = media_type(response.headers.get("content-type", ""))
    if not body:
        return f"HTTP {response.status_code}, without content"
    if tool.answer:
        return _selected(tool.answer, response, body, whole=whole)
    if kind in IMAGE_TYPES:
        if not whole:
            _too_large(response)
        return ImagePart.of(body, kind)
    if not kind or kind.startswith("text/") or kind in _TEXTS or kind.endswith(("+json", "+xml")):
        text = _decoded(response, body)
        if not whole:
            count_exceeded("http_answer")
        return text if whole else f"{text}\n[cut: the answer is longer]"
    raise ToolError(f"the service answered HTTP {response.status_code} with {kind:.100}, which cannot be shown")


def _selected(pointer: str, response: httpx.Response, body: bytes, *, whole: bool) -> object:
    if not whole:
        _too_large(response)
    try:
        value = read_json(body)
    except ValueError:
        raise ToolError(f"the service answered HTTP {response.status_code} with what is no JSON") from None
    for name in names_in(pointer):
        try:
            value = value[int(name)] if isinstance(value, list) else value[name]
        except (KeyError, IndexError, ValueError, TypeError):
            raise ToolError(f"the service answered HTTP {response.status_code}, without {pointer}") from None
    return value


def _too_large(response: httpx.Response) -> NoReturn:
    count_exceeded("http_answer")
    most = limit_of("http_answer")
    raise ToolError(f"the service answered HTTP {response.status_code} with more than {most:,} bytes")


def _decoded(response: httpx.Response, body: bytes) -> str:
    try:
        return body.decode(response.charset_encoding or "utf-8", "replace")
    except LookupError:
        return body.decode("utf-8", "replace")


def _head_of(response: httpx.Response) -> dict[str, object]:
    said = {name: response.headers[name] for name in _HEADS if name in response.headers}
    return {"status": response.status_code, **said}
