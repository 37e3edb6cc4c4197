"""What a provider's error body says. Reading it never fails: whatever arrives, somebody else wrote it."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final, TypeVar

from palaver.errors.failure import safe_code
from palaver.errors.headers import REQUEST_ID

_T = TypeVar("_T")

_CODE_FIELDS: Final = ("code", "reason", "type", "__type", "status")
_TEXT_FIELDS: Final = ("message", "detail", "error", "error_description", "msg", "raw", "title")
_NESTED_FIELDS: Final = (*("error", "innererror", "inner_error", "detail", "details", "errors", "metadata", "message"),)
_MAX_DEPTH: Final = 5
_PARAM: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_.\[\]]{0,79}")
_DURATION: Final = re.compile(r"([0-9]{1,9}(?:\.[0-9]{1,9})?)s")


@dataclass(frozen=True, slots=True)
class ErrorBody:
    """The classified parts of an error body. ``text`` may quote the prompt: match it, never show it."""

    codes: tuple[str, ...] = ()
    """Error codes and types in lower case, the most specific first."""
    text: str = ""
    """The provider's own words in lower case."""
    status: int | None = None
    """An HTTP status repeated in the body, as aggregators put it into a 200."""
    param: str | None = None
    """The request's parameter at fault."""
    request_id: str | None = None
    retry_after: float | None = None
    """Seconds, as Google's ``RetryInfo`` names them."""
    html: bool = False
    """A page of a proxy (or other markup), not an answer of the provider."""


def read_body(body: bytes) -> ErrorBody:
    """Read an error body in the shapes of OpenAI, Anthropic, Google, Azure, FastAPI or plain text.

    Only the fields that name the error are read, so that a prompt quoted elsewhere cannot change the verdict.
    Never raises.
    """
    text = body.decode("utf-8", "replace").lstrip("\ufeff \t\r\n").removeprefix("data:").strip()
    if text[:1] == "<":
        return ErrorBody(html=True)
    try:
        document = json.loads(text)
    except (ValueError, RecursionError):
        return ErrorBody(text=text.lower())
    objects = list(_objects(document))
    codes = [code for entry in objects for field in _CODE_FIELDS if (code := safe_code(entry.get(field)))]
    codes = [code for code in codes if code != "error"]  # the type of every error object, it tells nothing
    words = [entry[field] for entry in objects for field in _TEXT_FIELDS if isinstance(entry.get(field), str)]
    if isinstance(document, str):
        words.append(document)
    return ErrorBody(
        codes=tuple(dict.fromkeys(codes)),
        text="\n".join(words).lower(),
        status=_first(_status(entry) for entry in objects),
        param=_first(_match(_PARAM, entry.get("param")) for entry in objects),
        request_id=_first(_match(REQUEST_ID, entry.get("request_id")) for entry in objects),
        retry_after=_first(_duration(entry.get("retryDelay")) for entry in objects),
    )


def _first(values: Iterator[_T | None]) -> _T | None:
    return next((value for value in values if value is not None), None)


def _objects(value: Any, depth: int = 0) -> Iterator[Mapping[str, Any]]:
    """The error objects of a document, the innermost first: the more specific code is nested deeper."""
    if depth > _MAX_DEPTH:
        return
    if isinstance(value, list):
        for entry in value[:16]:
            yield from _objects(entry, depth + 1)
    elif isinstance(value, dict):
        for field in _NESTED_FIELDS:
            if isinstance(value.get(field), dict | list):
                yield from _objects(value[field], depth + 1)
        yield value


def _status(entry: Mapping[str, Any]) -> int | None:
    for field in ("code", "status", "statusCode", "status_code"):
        value = entry.get(field)
        if isinstance(value, str) and value.isascii() and value.isdecimal() and len(value) == 3:
            value = int(value)
        if isinstance(value, int) and not isinstance(value, bool) and 400 <= value <= 599:
            return value
    return None


def _match(pattern: re.Pattern[str], value: object) -> str | None:
    return value if isinstance(value, str) and pattern.fullmatch(value) else None


def _duration(value: object) -> float | None:
    found = _DURATION.fullmatch(value) if isinstance(value, str) else None
    seconds = float(found.group(1)) if found else math.nan
    return seconds if math.isfinite(seconds) else None
