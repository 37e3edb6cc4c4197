"""Readers of a provider's error body. They never fail: whatever arrives, another program wrote it."""

from __future__ import annotations

import html
import json
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, TypeVar

from palaver.errors.failure import safe_code
from palaver.errors.headers import REQUEST_ID
from palaver.late import dataclass
from palaver.vocabulary.limits import count_exceeded, limit_of

_T = TypeVar("_T")

_CODE_FIELDS: Final = ("error_code", "code", "reason", "type", "__type", "status")
_TEXT_FIELDS: Final = ("message", "detail", "error", "error_description", "msg", "raw", "title")
_NESTED_FIELDS: Final = (*("error", "innererror", "inner_error", "detail", "details", "errors", "metadata", "message"),)
_MAX_DEPTH: Final = 5
_MAX_PARTS: Final = limit_of("error_parts")
_MAX_WORDS: Final = limit_of("error_words")
_MAX_TEXT: Final = _MAX_WORDS // 2
"""Characters of one text that are judged: another one, outside of it, may be the one that tells."""
_PARAM: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_.\[\]]{0,79}")
_TITLES: Final = tuple(
    re.compile(rf"(?i)<{name}\b[^<>]{{0,200}}>([^<]{{1,1000}})") for name in ("title", "h1", "message")
)
"""Matches the part of a page that says what it is about; the last pattern is for the errors of object stores."""
_ENOUGH: Final = 8 * 1024
"""Characters of a quote that are enough to be cut."""
_BEHIND_LITELLM: Final = re.compile(r"litellm\.[\w.: ]{1,200}? - (?:b['\"])?(?=\{)")
"""The beginning of a message of LiteLLM that quotes an error body, some of them as Python shows bytes."""
_CODE_BEHIND: Final = re.compile(r'"(?:error_code|code|reason|type|status)": ?"([\w.-]{1,64})"')
"""A code in such a body. In a text that this one quotes in its turn, quotation marks have a backslash before them."""
_DURATION: Final = re.compile(r"([0-9]{1,9}(?:\.[0-9]{1,9})?)s")
_AMOUNT: Final = (
    r"([0-9]{1,9}(?:\.[0-9]{1,9})?) ?(ms|millisecond|s|m|h|d)(?:ecs?|econds?|ins?|inutes?|ours?|ays?|s)?(?![a-z])"
)
_IN_WORDS: Final = re.compile(
    rf"(?:again|retry|retrying|wait)(?: in| after)?(?: about)? ((?:{_AMOUNT}(?: and)? ?){{1,4}})"
)
_AMOUNTS: Final = re.compile(_AMOUNT)
_UNITS: Final = {"ms": 0.001, "millisecond": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}


@dataclass(frozen=True, slots=True)
class ErrorBody:
    """The classified parts of an error body. ``text`` and ``quote`` may quote the prompt: match the one, and show the
    other to readers of the run only."""

    codes: tuple[str, ...] = ()
    """Error codes and types in lower case, the most specific first."""
    text: str = ""
    """The provider's own words in lower case."""
    quote: str = ""
    """Its own words for people: its message, and what it repeats of another one's behind it."""
    status: int | None = None
    """An HTTP status repeated in the body, as aggregators put it into a 200."""
    param: str | None = None
    """The request's parameter at fault."""
    request_id: str | None = None
    retry_after: float | None = None
    """Seconds, as Google's ``RetryInfo`` names them, or the message does: "try again in 1m4.5s"."""
    html: bool = False
    """A page of a proxy (or other markup), not an answer of the provider."""


def read_body(body: bytes) -> ErrorBody:
    """Read an error body in the shapes of OpenAI, Anthropic, Google, Azure, FastAPI or plain text.

    Only the fields that name the error are read, so that a prompt quoted elsewhere cannot change the verdict.
    Never raises.
    """
    text = body.decode("utf-8", "replace").lstrip("\ufeff \t\r\n").removeprefix("data:").strip()
    if text[:1] == "<":
        return ErrorBody(html=True, quote=_title(text))
    try:
        document = json.loads(text)
    except (ValueError, RecursionError):
        said = _ends(text, _MAX_WORDS).lower()
        return ErrorBody(text=said, quote=text, retry_after=_wait_in_words(said))
    objects = list(_objects(document, _parts()))
    codes = [code for entry in objects for field in _CODE_FIELDS if (code := safe_code(entry.get(field)))]
    codes = [code for entry in objects for code in _codes_behind(entry.get("message"))] + codes
    codes = [code for code in codes if code != "error"]  # the type of every error object, it tells nothing
    words = [entry[field] for entry in objects for field in _TEXT_FIELDS if isinstance(entry.get(field), str)]
    if isinstance(document, str):
        words.append(document)
    said = _ends("\n".join(_ends(word, _MAX_TEXT) for word in words), _MAX_WORDS).lower()
    asked = _first(_duration(entry.get("retryDelay")) for entry in objects)
    return ErrorBody(
        codes=tuple(dict.fromkeys(codes)),
        text=said,
        quote=_quote(document, objects),
        status=_first(_status(entry) for entry in objects),
        param=_first(_match(_PARAM, entry.get("param")) for entry in objects),
        request_id=_first(_match(REQUEST_ID, entry.get("request_id")) for entry in objects),
        retry_after=_wait_in_words(said) if asked is None else asked,
    )


def _title(page: str) -> str:
    """Return a page's title, in its own words: it is shown to people instead of the page."""
    match = next(filter(None, (pattern.search(page) for pattern in _TITLES)), None)
    return html.unescape(match.group(1)) if match else ""


def _quote(document: object, objects: Sequence[Mapping[str, Any]]) -> str:
    """The texts of an error, the outermost first, each once: gateways put the one that helps inside of their own."""
    quote = "" if not isinstance(document, str) else document
    for entry in reversed(objects):
        for name in _TEXT_FIELDS:
            text = _unwrapped(entry.get(name)) if len(quote) < _ENOUGH else ""
            if text and name == "msg" and isinstance(place := entry.get("loc"), list):  # FastAPI: where it is wrong
                text = f"{'.'.join(str(part)[:64] for part in place[:16])}: {text}"
            if text and text not in quote:
                quote = f"{quote.rstrip(' .:')}: {text}" if quote else text
    return quote


def _unwrapped(message: object) -> str:
    """A text; of one that is an error body itself, what that one says."""
    if not isinstance(message, str) or message.lstrip()[:1] not in ("{", "["):
        return message.strip() if isinstance(message, str) else ""
    try:
        inner = list(_objects(json.loads(message), _parts()))
    except (ValueError, RecursionError):
        return message.strip()
    texts = (entry[name] for entry in inner for name in _TEXT_FIELDS if isinstance(entry.get(name), str))
    return next((text.strip() for text in texts if text.strip()), message.strip())


def _codes_behind(message: object) -> list[str]:
    """The codes of the error that a LiteLLM proxy quotes, the innermost first."""
    begin = _BEHIND_LITELLM.match(message) if isinstance(message, str) else None
    if begin is None:
        return []
    codes = map(safe_code, _CODE_BEHIND.findall(begin.string, begin.end(), begin.end() + _ENOUGH))
    return [code for code in codes if code][::-1]


def _first(values: Iterator[_T | None]) -> _T | None:
    return next((value for value in values if value is not None), None)


def _parts() -> Iterator[int]:
    """Number the objects and lists of a body that are looked at: each costs up to some hundred microseconds."""
    yield from range(_MAX_PARTS)
    count_exceeded("error_parts")


def _objects(value: Any, parts: Iterator[int], depth: int = 0) -> Iterator[Mapping[str, Any]]:
    """The error objects of a document, the innermost first: the more specific code is nested deeper."""
    if depth > _MAX_DEPTH or not isinstance(value, dict | list) or next(parts, None) is None:
        return
    if isinstance(value, list):
        for entry in value[:16]:
            yield from _objects(entry, parts, depth + 1)
        return
    for field in _NESTED_FIELDS:
        if isinstance(value.get(field), dict | list):
            yield from _objects(value[field], parts, depth + 1)
    yield value


def _ends(text: str, most: int) -> str:
    """The beginning and the end of a text that is longer than ``most``: what it quotes stands between them."""
    if len(text) <= most:
        return text
    count_exceeded("error_words")
    return f"{text[: most // 2]}\n{text[-(most // 2) :]}"


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
    match = _DURATION.fullmatch(value) if isinstance(value, str) else None
    seconds = float(match.group(1)) if match else math.nan
    return seconds if math.isfinite(seconds) else None


def _wait_in_words(text: str) -> float | None:
    """The seconds that a message, in lower case, asks to wait."""
    if (match := _IN_WORDS.search(text)) is None:
        return None
    return sum(float(number) * _UNITS[unit] for number, unit in _AMOUNTS.findall(match[1]))
