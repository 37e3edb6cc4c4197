"""JSON-RPC as the Model Context Protocol has it, in its two eras, and how a request ends without a result.

The revision 2026-07-28 has no handshake: each request says its version and what the client can do. Before it there were
``initialize`` and a session. A ``ServerChannel`` carries messages and knows nothing of either.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Final, Protocol

from palaver.incoming.event_stream import Event
from palaver.incoming.lenient_json import read_json
from palaver.version import __version__
from palaver.vocabulary.limits import limit_of

Message = dict[str, Any]
"""A JSON-RPC message."""
Heard = Callable[[Message], None]
"""Takes a notification that the server sends before its answer."""

MODERN: Final = "2026-07-28"
OLDER: Final = ("2025-11-25", "2025-06-18", "2025-03-26", "2024-11-05")
"""The revisions with a handshake, the newest first."""
MAX_BODY: Final = limit_of("mcp_body")

INTERNAL_ERROR: Final = -32603
METHOD_NOT_FOUND: Final = -32601
INVALID_PARAMS: Final = -32602
HEADER_MISMATCH: Final = -32020
VERSION_NOT_SUPPORTED: Final = -32022

_PARTS: Final = frozenset(("method", "result", "error"))
"""What a message has one of, at least."""
_CLIENT: Final = {"name": "palaver", "version": __version__}
_TOOLS_CHANGED: Final = "notifications/tools/list_changed"
_META: Final = "io.modelcontextprotocol/"
_PLAIN: Final = re.compile(r"[!-~]([ -~]*[!-~])?")
_CODED: Final = re.compile(r"=\?base64\?.*\?=", re.DOTALL)


class NeverSent(Exception):
    """The server did not take the request: it was not reached, or refused to look at it now."""

    def __init__(self, reason: str, *, retry_after: float | None = None, status: int = 0) -> None:
        super().__init__(reason)
        self.retry_after = retry_after
        self.status = status
        """The status of HTTP with which it refused; 0 if it was not reached."""


class NotTried(NeverSent):
    """The server was not asked: this process ends, or waits until it asks again."""


class RequestRefused(Exception):
    """The server did not take the request, and will not take the same one later either."""

    def __init__(self, reason: str, *, status: int = 0) -> None:
        super().__init__(reason)
        self.status = status


class Lost(Exception):
    """The request was sent, and its answer did not come."""

    def __init__(self, reason: str, *, status: int = 0) -> None:
        super().__init__(reason)
        self.status = status
        """The status of HTTP with which the server failed; 0 if it did not say anything."""


class SessionGone(NeverSent):
    """The server does not know the session any more, so it looked no further."""


class InvalidAnswer(Exception):
    """The server answered with what is no answer; the request may have had its effect."""


class NoJSON(InvalidAnswer):
    """The server sent what is no JSON."""


class RpcError(Exception):
    """The server answered with an error."""

    def __init__(self, code: int, message: str, data: object = None, *, status: int = 200) -> None:
        super().__init__(message)
        self.code = code
        self.data = data
        self.status = status
        """The status of HTTP."""


ENDED: Final = (NeverSent, RequestRefused, Lost, InvalidAnswer, RpcError)
"""The ways in which a request ends without a result."""
UNKNOWN: Final = "it may or may not have taken effect"
"""All that is known then of one that was sent."""


class ServerChannel(Protocol):
    """Carries messages to a server and back."""

    @property
    def alive(self) -> bool:
        """False once it carries nothing any more."""

    async def open(self) -> None:
        """Get ready.

        Raises:
            NeverSent: it cannot be.
        """

    async def exchange(self, request: Message, headers: Mapping[str, str], heard: Heard) -> Message:
        """Send a request; return its answer, which has a ``result``. Cancelled, it tells the server so.

        Raises:
            NeverSent, RequestRefused, Lost, InvalidAnswer, RpcError: there is no result.
        """

    async def notify(self, message: Message, headers: Mapping[str, str]) -> None:
        """Send a message that has no answer. Raises as ``exchange``."""

    async def close(self) -> None:
        """End it; takes a second or two at most."""


def request(number: int, method: str, params: Mapping[str, Any]) -> Message:
    """A request."""
    return {"jsonrpc": "2.0", "id": number, "method": method, "params": dict(params)}


def notification(method: str, params: Mapping[str, Any]) -> Message:
    """A message without an answer."""
    return {"jsonrpc": "2.0", "method": method, "params": dict(params)}


def cancelled(number: int) -> Message:
    """The notification that an answer is not awaited any more."""
    return notification("notifications/cancelled", {"requestId": number, "reason": "nobody waits for it any more"})


def capabilities(*, asks: bool, tasks: bool) -> dict[str, Any]:
    """The capabilities of this client for servers of the newest revision: it puts questions to persons, and waits for
    tasks."""
    asking: dict[str, Any] = {"elicitation": {"form": {}, "url": {}}} if asks else {}
    return {**asking, **({"extensions": {f"{_META}tasks": {}}} if tasks else {})}


def modern_meta(does: Mapping[str, Any]) -> dict[str, Any]:
    """The part of each request that says who asks, and what it ``does`` for servers."""
    return {
        f"{_META}protocolVersion": MODERN,
        f"{_META}clientInfo": _CLIENT,
        f"{_META}clientCapabilities": dict(does),
    }


def modern_headers(method: str, name: str | None) -> dict[str, str]:
    """The headers of a request, which repeat a part of it for who routes."""
    headers = {"MCP-Protocol-Version": MODERN, "Mcp-Method": method}
    return headers if name is None else {**headers, "Mcp-Name": header_value(name)}


def handshake(revision: str) -> dict[str, Any]:
    """The parameters of ``initialize``."""
    return {"protocolVersion": revision, "capabilities": {}, "clientInfo": _CLIENT}


def revision_of(versions: list[Any]) -> str:
    """The newest revision in a server's list that this client speaks.

    Raises:
        RequestRefused: there is none.
    """
    for known in (MODERN, *OLDER):
        if known in versions:
            return known
    named = ", ".join(repr(str(each)[:40]) for each in versions[:5])
    raise RequestRefused(f"it speaks {named or 'no revision'}, and none of ours: {MODERN}, {', '.join(OLDER)}")


def name_in(result: Mapping[str, Any]) -> str:
    """The name and version that a server gives itself with a result, in printable characters."""
    meta = result.get("_meta")
    info = result.get("serverInfo") or (meta.get(f"{_META}serverInfo") if isinstance(meta, dict) else None)
    if not isinstance(info, dict):
        return ""
    words = (str(info.get(field, ""))[:60] for field in ("name", "version"))
    return " ".join("".join(char for char in word if char.isprintable()) for word in words).strip()


def versions_in(error: RpcError) -> list[Any]:
    """The revisions that a server names as it refuses one; empty if it names none, or refuses something else."""
    named = error.data.get("supported") if isinstance(error.data, dict) else None
    refuses = error.code in (VERSION_NOT_SUPPORTED, INVALID_PARAMS)
    return named if refuses and isinstance(named, list) else []


def header_value(text: str) -> str:
    """``text`` as a header carries it."""
    if _PLAIN.fullmatch(text) and not _CODED.fullmatch(text):
        return text
    return f"=?base64?{base64.b64encode(text.encode('utf-8', 'replace')).decode()}?="


def read_messages(data: bytes) -> list[Message]:
    """The messages in JSON: one, or several in a list, as a revision had it. What is none is passed over.

    Raises:
        InvalidAnswer: there is none.
    """
    try:
        value = read_json(data)
    except ValueError:
        raise NoJSON("it sent what is no JSON") from None
    entries = value if isinstance(value, list) else [value]
    messages = [entry for entry in entries if isinstance(entry, dict) and not _PARTS.isdisjoint(entry)]
    if not messages:
        raise InvalidAnswer("it sent what is no JSON-RPC message")
    return messages


def messages_of(events: Iterable[Event]) -> Iterator[Message]:
    """Yield the messages in events. One that is empty, or null, or words says nothing.

    Raises:
        InvalidAnswer: one that was to be a message is no JSON: it may have been the answer.
    """
    for data, _, _ in events:
        try:
            yield from read_messages(data)
        except NoJSON:
            if data.lstrip().startswith((b"{", b"[")):
                raise
        except InvalidAnswer:
            continue


def is_answer(message: Message, number: int) -> bool:
    """Tell whether it answers the request of this number; an error may have no number."""
    if "method" in message:
        return False
    known = message.get("id")
    return (known in (number, str(number)) and known is not True) or (known is None and "error" in message)


def is_change(message: Message) -> bool:
    """Tell whether the server says that its list of tools changed."""
    return message.get("method") == _TOOLS_CHANGED


def result_of(message: Message, *, status: int = 200) -> Message:
    """The answer itself, if it has a result.

    Raises:
        RpcError: it has an error.
        InvalidAnswer: it has neither.
    """
    error = message.get("error")
    if error is not None:
        told = error if isinstance(error, dict) else {"message": error}
        code, text = told.get("code"), told.get("message")
        if not isinstance(code, int):
            code = INTERNAL_ERROR
        raise RpcError(code, text if isinstance(text, str) else "it does not say why", told.get("data"), status=status)
    if not isinstance(message.get("result"), dict):
        raise InvalidAnswer("it sent an answer without a result")
    return message


def answer_to(message: Message) -> Message | None:
    """The answer to a request of the server's: it may ask whether the client is there, and for nothing else. None if
    the message is no request."""
    if "id" not in message or "method" not in message:
        return None
    if message["method"] == "ping":
        return {"jsonrpc": "2.0", "id": message["id"], "result": {}}
    error = {"code": METHOD_NOT_FOUND, "message": "this client does nothing for servers"}
    return {"jsonrpc": "2.0", "id": message["id"], "error": error}
