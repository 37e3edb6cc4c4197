"""The request of a call."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any, Final
from urllib.parse import quote, urlencode

import httpx

from palaver.errors import InvalidToolCall
from palaver.tools import ToolContext
from palaver.vocabulary.limits import count_exceeded, limit_of
from workers.sources.tables import HeaderFromSecret

from .tables import HttpSection, HttpTool

_COMMON: Final = {
    "accept": "application/json, text/*;q=0.9, image/*;q=0.5",
    "accept-encoding": "identity",
    "user-agent": "palaver",
}


class Requests:
    """Makes the requests to one service."""

    def __init__(self, section: HttpSection) -> None:
        """Raises:
        ConfigurationError: a secret of the environment is missing, or fits no header.
        """
        self._section = section
        self._base = section.base_url.rstrip("/")
        headers = {name: value for name, value in section.headers.items() if isinstance(value, HeaderFromSecret)}
        self._secrets = {
            name: secret for name, header in headers.items() if (secret := header.of_environment()) is not None
        }
        self._prefixes = {name: header.prefix for name, header in headers.items()}
        self.of_conversations = len(headers) > len(self._secrets)
        """True if calls have secrets of their conversations."""
        self._extensions = {"timeout": httpx.Timeout(None, connect=section.connect_timeout).as_dict()}

    @property
    def secrets(self) -> list[str]:
        """The secrets of the environment that are sent."""
        return list(self._secrets.values())

    def look(self) -> httpx.Request:
        """The request that finds out whether a server answers: it changes nothing, and has no secret of a
        conversation."""
        headers = {name: value for name, value in self._section.headers.items() if isinstance(value, str)}
        headers |= {name: self._prefixes[name] + secret for name, secret in self._secrets.items()}
        return httpx.Request("HEAD", self._base + "/", headers={**_COMMON, **headers}, extensions=self._extensions)

    def of(self, tool: HttpTool, arguments: Mapping[str, Any], context: ToolContext) -> httpx.Request:
        """The request of a call.

        Raises:
            InvalidToolCall: an argument fits no path, or no query.
            ToolError: the conversation lacks a secret.
        """
        path = tool.filled({name: _segment(name, arguments[name]) for name in tool.places})
        rest = {name: value for name, value in arguments.items() if name not in tool.places}
        match tool.sent_in:
            case "query":
                joint = "&" if "?" in path else "?"
                return self._request(tool.method, self._base + path + (joint + _pairs(rest) if rest else ""), context)
            case "form":
                body, kind = _pairs(rest).encode(), "application/x-www-form-urlencoded"
            case "json":
                body, kind = json.dumps(rest, ensure_ascii=False).encode("utf-8", "replace"), "application/json"
        return self._request(tool.method, self._base + path, context, body, kind)

    def moved(self, request: httpx.Request, location: str) -> httpx.Request | None:
        """The same request for the place that an answer led to; None if that is elsewhere."""
        try:
            url = request.url.join(location)
        except (httpx.InvalidURL, ValueError):
            return None
        if (url.scheme, url.netloc) != (request.url.scheme, request.url.netloc) or url.userinfo:
            return None
        return httpx.Request(request.method, url, headers=request.headers, extensions=self._extensions)

    def _request(
        self, method: str, url: str, context: ToolContext, body: bytes | None = None, kind: str | None = None
    ) -> httpx.Request:
        if len(url) > limit_of("url"):
            count_exceeded("url")
            raise InvalidToolCall(f"the arguments make an address of more than {limit_of('url'):,} characters")
        headers = httpx.Headers(_COMMON)
        if kind is not None:
            headers["content-type"] = kind
        if context.traceparent is not None:
            headers["traceparent"] = context.traceparent
        if self._section.idempotency_header:
            headers[self._section.idempotency_header] = context.idempotency_key
        for name, value in self._section.headers.items():
            headers[name] = value if isinstance(value, str) else value.prefix + self._secret(name, value, context)
        return httpx.Request(method, url, headers=headers, content=body, extensions=self._extensions)

    def _secret(self, name: str, header: HeaderFromSecret, context: ToolContext) -> str:
        if (value := self._secrets.get(name)) is not None:
            return value
        return header.of_conversation(context)


def _segment(name: str, value: object) -> str:
    """Return ``value`` as a part of a path that it cannot leave.

    Raises:
        InvalidToolCall: it would be another path, or is no text or number.
    """
    text = _text(name, value)
    if text.strip(".") == "":
        # Nothing at all, "." and ".." are paths of their own: a call for one customer would be one for all of them.
        raise InvalidToolCall(f"{name}: {text!r} is no name of a thing")
    return quote(text, safe="")


def _text(name: str, value: object) -> str:
    match value:
        case bool():
            return "true" if value else "false"
        case str():
            try:
                value.encode()
            except UnicodeEncodeError:
                raise InvalidToolCall(f"{name}: has characters that cannot be sent") from None
            return value
        case int() | float():
            return json.dumps(value)
        case _:
            raise InvalidToolCall(f"{name}: must be a text, a number or a boolean")


def _pairs(arguments: Mapping[str, Any]) -> str:
    """Return the arguments as in a query: a list is several of one name, and what is null is left out."""
    return urlencode([pair for name, value in arguments.items() for pair in _flat(name, value)], quote_via=quote)


def _flat(name: str, value: object) -> Iterator[tuple[str, str]]:
    for one in value if isinstance(value, list) else [value]:
        if one is not None:
            yield name, json.dumps(one) if isinstance(one, dict | list) else _text(name, one)
