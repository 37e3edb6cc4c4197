"""Request bodies: their type, their size, and the time that they may take."""

from __future__ import annotations

import asyncio
from typing import Final, TypeVar

from pydantic import BaseModel
from starlette.requests import ClientDisconnect, Request

from palaver.vocabulary.limits import KIB, count_exceeded, limit_of

from .problems import Problem
from .requests import backend_of
from .strict_json import parse
from .validation import validate

M = TypeVar("M", bound=BaseModel)

_PATIENCE: Final = limit_of("body_time")
"""Seconds for a whole body."""
_LARGE: Final = 16 * KIB
"""Bytes of a body that take more than a millisecond to read."""


async def read_body(request: Request, model: type[M]) -> M:
    """Return the JSON body as a ``model``.

    Raises:
        Refused: the faults of it.
    """
    raw = await _read(request)
    _check_type(request)
    if not raw.strip():
        raise Problem("malformed_json", "The body is empty.")
    return await _validated(request, model, raw)


async def read_optional_body(request: Request, model: type[M]) -> M:
    """Return the JSON body as a ``model``; its defaults when there is none.

    Raises:
        Refused: the faults of it.
    """
    raw = await _read(request)
    if not raw and not _of_a_page(request):
        return model()
    _check_type(request)
    if not raw:
        return model()
    return await _validated(request, model, raw)


async def _validated(request: Request, model: type[M], raw: bytes) -> M:
    value = parse(raw)
    await _let_others(raw)
    body = validate(model, raw, value, backend_of(request).providers)
    await _let_others(raw)
    return body


async def _let_others(raw: bytes) -> None:
    """Give others a turn on the loop after a large body: the next part may take as long as the last."""
    if len(raw) > _LARGE:
        await asyncio.sleep(0)


def _of_a_page(request: Request) -> bool:
    """Tell whether a browser says that a page sent the request. It asks us before it sends JSON for another site's
    page, and not where there is no type."""
    return "origin" in request.headers or "sec-fetch-site" in request.headers


def _check_type(request: Request) -> None:
    kind, _, parameters = request.headers.get("content-type", "").partition(";")
    charset = parameters.strip().lower().replace('"', "")
    if kind.strip().lower() != "application/json" or charset not in {"", "charset=utf-8", "charset=utf8"}:
        raise Problem("unsupported_media_type", "Send JSON in UTF-8 with Content-Type: application/json.")


async def _read(request: Request) -> bytes:
    limit = backend_of(request).settings.max_body
    if request.headers.get("content-encoding", "identity").lower() != "identity":
        raise Problem("unsupported_media_type", "Send the body without Content-Encoding.")
    declared = request.headers.get("content-length", "")
    if declared.isdecimal() and int(declared[:20]) > limit:
        raise _too_large(limit, f"this one has {int(declared[:20])}")
    chunks: list[bytes] = []
    size = 0
    try:
        async with asyncio.timeout(_PATIENCE):
            async for chunk in request.stream():
                size += len(chunk)
                if size > limit:
                    raise _too_large(limit, "this one has more")
                chunks.append(chunk)
    except TimeoutError:
        count_exceeded("body_time")
        raise Problem("request_timeout", headers={"Connection": "close"}) from None
    except ClientDisconnect:
        raise Problem("malformed_request", "The body broke off.") from None
    return b"".join(chunks)


def _too_large(limit: int, size: str) -> Problem:
    count_exceeded("body")
    detail = f"A body has at most {limit} bytes here (PALAVER_MAX_BODY); {size}."
    return Problem("payload_too_large", detail, headers={"Connection": "close"})
