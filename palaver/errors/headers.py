"""Readers of providers' headers: how long to wait, and the number of the request in their logs."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Final

_NUMBER: Final = re.compile(r"[+-]?[0-9]{1,32}(\.[0-9]{0,32})?([eE][+-]?[0-9]{1,3})?")
_BEHIND_LITELLM: Final = "llm_provider-"
REQUEST_ID: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:/+=-]{0,127}")
"""Matches a text that may pass for a request's number: it is shown."""
_REQUEST_ID_HEADERS: Final = ("x-request-id", "request-id", "x-amzn-requestid", "apim-request-id", "cf-ray")


def retry_after(headers: Mapping[str, str], now: datetime | None = None) -> float | None:
    """Seconds to wait as ``retry-after-ms`` or ``Retry-After`` (seconds or HTTP date) ask for.

    The milliseconds win: who sends both means the finer one. None without the headers or with junk in them,
    0 for a time that has passed. An HTTP date is classified by the ``Date`` of the same answer, as this machine's
    clock may be wrong; without one by ``now``, the clock unless given, taken as UTC if it has no zone. Never raises.
    RFC 9110, 6.6.1 and 10.2.3; ``retry-after-ms`` is sent by OpenAI and Azure. A LiteLLM proxy puts a prefix before
    what the provider behind it says; what the proxy says itself goes first.
    """
    for prefix in ("", _BEHIND_LITELLM):
        wait = _wait(headers, prefix, now)
        if wait is not None:
            return wait
    return None


def _wait(headers: Mapping[str, str], prefix: str, now: datetime | None) -> float | None:
    milliseconds = _seconds(_header(headers, f"{prefix}retry-after-ms"))
    if milliseconds is not None:
        return milliseconds / 1000
    text = _header(headers, f"{prefix}retry-after")
    seconds = _seconds(text)
    if seconds is not None:
        return seconds
    then = _date(text)
    if then is None:
        return None
    sent = _date(_header(headers, "date")) or _utc(now or datetime.now(UTC))
    return max((then - sent).total_seconds(), 0.0)


def request_id(headers: Mapping[str, str]) -> str | None:
    """The provider's number of the request, None if it sent none that is fit to show. Never raises."""
    texts = (_header(headers, name) for name in _REQUEST_ID_HEADERS)
    return next((text for text in texts if text is not None and REQUEST_ID.fullmatch(text)), None)


def asks_for_no_retry(headers: Mapping[str, str]) -> bool:
    """Tell whether ``x-should-retry``, as OpenAI and Anthropic send it, says that another try is in vain. Never
    raises."""
    said = (_header(headers, f"{prefix}x-should-retry") for prefix in ("", _BEHIND_LITELLM))
    return next((text.lower() == "false" for text in said if text), False)


def _header(headers: Mapping[str, str], name: str) -> str | None:
    for key, value in headers.items():
        if isinstance(key, str) and key.lower() == name and isinstance(value, str):
            return value.strip()
    return None


def _seconds(text: str | None) -> float | None:
    if text is None or not _NUMBER.fullmatch(text):
        return None
    number = float(text)
    return max(number, 0.0) if math.isfinite(number) else None


def _date(text: str | None) -> datetime | None:
    if not text or len(text) > 64:
        return None
    try:
        return _utc(parsedate_to_datetime(text))
    except (ValueError, TypeError, IndexError, OverflowError):
        # The parser of e-mail dates lets all of these out on junk.
        return None


def _utc(moment: datetime) -> datetime:
    return moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment
