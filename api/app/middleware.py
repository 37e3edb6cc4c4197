"""The outermost layer: request ids, arrival, access, limits on URL and headers, and the answers to errors.

Every route wants a key, except the probes of dialects and the paths that ``api.http.auth`` names: a route that is
added, mounted or forgotten is closed."""

from __future__ import annotations

import os
import re
import secrets
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from time import monotonic
from typing import Any, Final, Self

from starlette.requests import HTTPConnection
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from palaver.config.settings import Settings
from palaver.late import dataclass
from palaver.operations import Caller, Gap, InvalidKey, LiveKey, LiveToken, StoredKeys, acting_for, is_away, telling
from palaver.operations.live_keys import TokenReader
from palaver.telemetry.logs import bind_log_context, log_context
from palaver.telemetry.traces import Tracing
from palaver.vocabulary.limits import count_exceeded, limit_of

from ..http.access_log import log_request
from ..http.auth import DOCUMENTS, METRICS, QUEUES, CallerKeys, Keys, routed_path, unauthenticated
from ..http.client_connection import connection_of
from ..http.cors import Cors
from ..http.hosts import Hosts, host_of, refuse_open_bind
from ..http.problems import Problem
from ..http.requests import enter_root
from ..kit.dialects import Dialect, dialect_of, respond

_MAX_URL: Final = limit_of("url")
_MAX_HEADERS: Final = limit_of("headers")
_MAX_HEADER_COUNT: Final = limit_of("header_count")
_REQUEST_ID: Final = re.compile(rb"[A-Za-z0-9_.-]{1,64}")
_ONCE: Final = frozenset(
    b"authorization content-encoding content-type host last-event-id mcp-method mcp-name mcp-protocol-version "
    b"mcp-session-id origin sec-fetch-site transfer-encoding x-session-api-key".split()
)
"""Headers that decide something: of two, one program takes the first and another the last."""
REFUSED: Final = 1008
"""The code with which a WebSocket is closed if its opening request is refused."""
_UNTRACED: Final = nullcontext()


@dataclass(frozen=True, slots=True)
class Access:
    """The rules of access, as the settings say: keys and hosts."""

    keys: CallerKeys
    cors: Cors
    hosts: Hosts
    opened: frozenset[str]
    """Paths of documents that need no key."""
    narrow: Mapping[str, Keys]
    """Keys for one path alone, by that path."""
    tracing: Tracing | None = None
    """The way in which submitted runs get their traces; None if tracing is off."""

    @classmethod
    def of(cls, settings: Settings, stored: StoredKeys, foreign: TokenReader | None = None) -> Self:
        """Return the access to an application with these settings.

        Raises:
            ConfigurationError: traces are to be sent, and not as Palaver can; or others get in, and there are no keys.
        """
        refuse_open_bind(settings, settings.host)
        narrow = {METRICS: Keys(settings.metrics_keys), QUEUES: Keys(settings.queues_keys)}
        return cls(
            CallerKeys(settings, stored, foreign),
            Cors(settings),
            Hosts(settings),
            frozenset(DOCUMENTS) if settings.open_docs else frozenset(),
            narrow,
            Tracing.of(os.environ),
        )

    async def admit(
        self, path: str, scope: Scope, headers: dict[bytes, bytes], dialect: Dialect
    ) -> tuple[Caller, LiveKey | LiveToken | None]:
        """Return the caller of a path, as routes are compared with it, and the caller's key if the store has it. A
        socket of a dialect gets its key from the client later.

        Raises:
            Problem, InvalidKey, Refused: the caller may not ask, or not from there.
            StoreUnavailable, IssuerUnavailable: whether the key is valid is not known; so may be what Redis raises.
        """
        probes = path in dialect.probes
        if probes:
            host_of(headers)
        else:
            self.hosts.check(scope, headers)
        key = dialect.key_of(scope, headers)
        opened = probes or path in self.opened or dialect.page(path) is not None
        if opened and self.keys.stores(key):
            # It is answered while Redis is away, too, and waits for no issuer.
            return await self._if_known(key)
        caller, live = await self.keys.caller(key)
        if not caller.trusted and path in self.narrow and not self.narrow[path].none:
            caller = self.narrow[path].caller(key)
        if not caller.trusted and not opened and not dialect.greets(scope):
            raise InvalidKey() if self.keys.stores(key) else unauthenticated()
        return caller, live

    async def _if_known(self, key: bytes | None) -> tuple[Caller, LiveKey | LiveToken | None]:
        try:
            return await self.keys.caller(key, ask_issuer=False)
        except Exception as error:
            if not is_away(error):
                raise
            return Caller(trusted=False), None

    def trace(self, headers: dict[bytes, bytes]) -> AbstractContextManager[None]:
        """Return the context to serve a request in the trace that its headers name: runs that it begins belong to
        it."""
        return _UNTRACED if self.tracing is None else _in_trace(self.tracing, headers)


@contextmanager
def _in_trace(tracing: Tracing, headers: dict[bytes, bytes]) -> Iterator[None]:
    with tracing.request(headers.get(b"traceparent", b"").decode("latin-1")) as parent:
        if parent is not None:
            bind_log_context(trace_id=parent.trace_id)
        yield


class Middleware:
    """ASGI middleware around the routes."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one connection."""
        if scope["type"] not in {"http", "websocket"}:
            await self._app(scope, receive, send)
            return
        headers = dict(scope["headers"])
        request_id = request_id_of(headers.get(b"x-request-id"))
        path, app_state = routed_path(scope), scope["app"].state
        state = scope.setdefault("state", {})
        dialect = dialect_of(path, app_state.dialects)
        state.update(request_id=request_id, dialect=dialect, caller=Caller(trusted=False))
        enter_root(scope)
        began, status, arrived_at = False, 0, monotonic()
        connection, head = connection_of(scope), None
        access: Access = app_state.access
        allowed = access.cors.headers(headers)
        gap = Gap()

        async def send_with_id(message: Message) -> None:
            nonlocal began, status, head
            if message["type"] in {"http.response.start", "websocket.http.response.start"}:
                began, status = True, message["status"]
                message["headers"] = [*message["headers"], (b"x-request-id", request_id.encode()), *allowed]
                if gap.missing:
                    message["headers"].append((b"palaver-incomplete", b"parts=%d" % len(gap.missing)))
                if connection is not None and b"content-length" in dict(message["headers"]):
                    head = message
                    return
            elif connection is not None and head is not None:
                start, head = head, None
                if not message.get("more_body"):
                    await connection.send_answer(start, message.get("body", b""))
                    return
                await send(start)
            began = began or message["type"] in {"websocket.accept", "websocket.close"}
            await send(message)

        with log_context(request=request_id):
            try:
                _check_limits(scope, headers)
                preflight = access.cors.preflight(scope, headers)
                if preflight is not None:
                    access.hosts.check(scope, headers)
                    await preflight(scope, receive, send_with_id)
                    return
                if not scope["app"].speaks(dialect):
                    await scope["app"].learn(dialect)
                caller, live = await access.admit(path, scope, headers, dialect)
                state["caller"] = caller
                with access.keys.held(live), acting_for(caller), access.trace(headers), telling(gap):
                    await self._app(scope, receive, send_with_id)
            except Exception as error:
                answer = respond(error, HTTPConnection(scope))
                if began:
                    return
                if scope["type"] == "websocket" and "websocket.http.response" not in scope.get("extensions", {}):
                    await send({"type": "websocket.close", "code": REFUSED})
                else:
                    await answer(scope, receive, send_with_id)
            finally:
                if status:
                    log_request(scope, status, state["caller"].name, monotonic() - arrived_at)


def request_id_of(header: bytes | None) -> str:
    """Return the client's request id, if it is one that may enter a log; else a new one."""
    if header is not None and _REQUEST_ID.fullmatch(header):
        return header.decode()
    return f"req_{secrets.token_hex(10)}"


def _check_limits(scope: Scope, headers: dict[bytes, Any]) -> None:
    if len(scope.get("raw_path") or b"") + len(scope["query_string"]) > _MAX_URL:
        count_exceeded("url")
        raise Problem("uri_too_long", f"At most {_MAX_URL} bytes.")
    size = sum([len(name) + len(value) for name, value in scope["headers"]])
    if size > _MAX_HEADERS or len(scope["headers"]) > _MAX_HEADER_COUNT:
        count_exceeded("headers" if size > _MAX_HEADERS else "header_count")
        raise Problem("headers_too_large", f"At most {_MAX_HEADER_COUNT} headers of {_MAX_HEADERS} bytes together.")
    # Servers disagree about what such a request is, or where its body ends: behind a proxy it may smuggle another in.
    if len(headers) < len(scope["headers"]):
        names = [name for name, _ in scope["headers"]]
        if twice := next((name for name in _ONCE if names.count(name) > 1), None):
            raise _malformed(f"{twice.decode().title()} more than once.")
    if b"transfer-encoding" in headers:
        if b"content-length" in headers:
            raise _malformed("Content-Length and Transfer-Encoding together.")
        if headers[b"transfer-encoding"].lower() != b"chunked" or scope.get("http_version") == "1.0":
            raise _malformed("Transfer-Encoding can be chunked, in HTTP/1.1, and nothing else.")


def _malformed(detail: str) -> Problem:
    return Problem("malformed_request", detail, headers={"Connection": "close"})
