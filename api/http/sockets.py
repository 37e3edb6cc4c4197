"""WebSockets: their callers, the answers to strangers, and the ends of sockets.

A socket is accepted before anybody knows whose it is: clients send their key in the first frame, or in the query of the
address. Without one they get nothing.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from contextlib import suppress
from time import monotonic
from typing import Final

from starlette.responses import Response
from starlette.routing import WebSocketRoute
from starlette.types import Scope as AsgiScope
from starlette.websockets import WebSocket, WebSocketDisconnect
from websockets.frames import Frame, Opcode

from palaver.errors import ErrorClass, NoRoom, Refused, UnknownConversation, UnknownRun, classify
from palaver.late import dataclass
from palaver.operations import (
    Backend,
    Caller,
    InsufficientScope,
    LiveKey,
    LiveToken,
    acting_for,
    is_away,
    key_ended,
    refuse_held,
    require_scope,
)
from palaver.processes.tasks import end
from palaver.processes.turns import Turns
from palaver.vocabulary.limits import limit_of
from palaver.vocabulary.scopes import Scope

from .access_log import log_request
from .auth import CallerKeys, routed_path
from .requests import backend_of, caller_of

_log: Final = logging.getLogger("palaver.api")
_PATIENCE: Final = float(limit_of("head_time"))
"""Seconds for a key in the first frame."""
PARTING: Final = 5.0
"""Seconds that a handler has when the process ends, to leave something to the next one."""
KNOWN: Final = "palaver.known"
"""The name of a function in the extensions of a scope, to call as soon as the caller of a socket is known.
``api.edge.connections`` puts it there."""
FRAME: Final = "palaver.frame"
"""The key of a whole frame in a message to a client."""
_routes: Final[list[WebSocketRoute]] = []


@dataclass(frozen=True, slots=True)
class CloseCodes:
    """Codes of RFC 6455, and those of a dialect from 4000 on. Normal ones are not among them: to a client, nothing that
    it watches has ended."""

    unauthenticated: int
    unknown: int
    forbidden: int = 1008
    """The key of the caller is not for this."""
    restarting: int = 1012
    failed: int = 1011
    no_room: int = 1013


SocketHandler = Callable[[Backend, WebSocket], Awaitable[None]]
"""Serves an accepted socket of a trusted caller until the client goes. Raises what use cases raise."""
KeyInFrame = Callable[[str], bytes | None]
"""The key that a first frame brings."""


def socket_route(
    path: str, handler: SocketHandler, key_in: KeyInFrame, codes: CloseCodes, scope: Scope, *, keeps_to: bool
) -> WebSocketRoute:
    """Return the route of a socket; ``has_socket`` knows it from then on. Keys need the ``scope`` for it. A key that is
    held to one conversation is not for it, unless the handler ``keeps_to`` that."""

    async def endpoint(socket: WebSocket) -> None:
        if backend_of(socket).closing.is_set():
            # A client that was sent away comes back at once, and is to meet another process, or none.
            with suppress(OSError):
                # It has gone, or the server has answered it: that ends, too.
                await socket.send_denial_response(Response(status_code=503))
            return
        await turns_of(socket).take()
        try:
            await socket.accept()
        except OSError:
            # The client has gone while it waited for its turn: in a burst, very many do.
            return
        caller, live, keys = caller_of(socket), None, socket.app.state.access.keys
        if not caller.trusted:
            try:
                caller, live = await _greeted(socket, keys, key_in)
            except Refused:
                await _close(socket, codes.forbidden)
                return
            except Exception as error:
                if not is_away(error):
                    raise
                await _close(socket, codes.failed)
                return
            socket.scope["state"]["caller"] = caller
            if not caller.trusted:
                # Those that came together have waited in vain together.
                await turns_of(socket).take()
        log_request(socket.scope, 101, caller.name, monotonic() - caller.arrived)
        if not caller.trusted:
            await _close(socket, codes.unauthenticated)
            return
        try:
            require_scope(caller, scope)
            if not keeps_to:
                refuse_held(caller)
        except InsufficientScope:
            await _close(socket, codes.forbidden)
            return
        tell = socket.scope.get("extensions", {}).get(KNOWN)
        if tell is not None:
            tell()
        with keys.held(live), acting_for(caller):
            await _serve(backend_of(socket), socket, handler, codes)

    route = WebSocketRoute(path, endpoint, name=handler.__name__)
    _routes.append(route)
    return route


def turns_of(socket: WebSocket) -> Turns:
    """Return the turns of the loop that all sockets of the process share."""
    turns: Turns = socket.app.state.turns
    return turns


def text_frame(text: bytes) -> bytes:
    """Return a text as a frame, for any number of sockets: a server masks none, and compresses none here."""
    return Frame(Opcode.TEXT, text).serialize(mask=False)


async def send_frame(socket: WebSocket, frame: bytes) -> None:
    """Send a text that is a frame already. ``api.edge.connections`` writes it as it is."""
    await socket.send({"type": "websocket.send", FRAME: frame})


def has_socket(scope: AsgiScope) -> bool:
    """Tell whether there is a socket at the path of a request."""
    path = routed_path(scope)
    return any(route.path_regex.match(path) for route in _routes)


async def _greeted(
    socket: WebSocket, keys: CallerKeys, key_in: KeyInFrame
) -> tuple[Caller, LiveKey | LiveToken | None]:
    try:
        async with asyncio.timeout(_PATIENCE):
            return await keys.caller(key_in(await socket.receive_text()))
    except (TimeoutError, WebSocketDisconnect, KeyError):
        return Caller(trusted=False), None


async def _serve(backend: Backend, socket: WebSocket, handler: SocketHandler, codes: CloseCodes) -> None:
    pump = asyncio.create_task(_pumped(backend, socket, handler, codes))
    heard = asyncio.create_task(_hear(socket))
    ended = key_ended.get()
    endings = [asyncio.create_task(event.wait()) for event in (backend.closing, ended) if event is not None]
    try:
        await asyncio.wait([pump, heard, *endings], return_when=asyncio.FIRST_COMPLETED)
        if not heard.done():
            code = pump.result() if pump.done() else codes.restarting
            if ended is not None and ended.is_set():
                code = codes.unauthenticated
            # Before the client hears of it, and comes back.
            pump.cancel()
            await asyncio.wait([pump], timeout=PARTING)
            await _close(socket, code)
    finally:
        await end(pump, heard, *endings)


async def _pumped(backend: Backend, socket: WebSocket, handler: SocketHandler, codes: CloseCodes) -> int:
    """Run the handler to its end. Return the code to close with."""
    try:
        await handler(backend, socket)
    except (UnknownConversation, UnknownRun):
        return codes.unknown
    except NoRoom:
        return codes.no_room
    except WebSocketDisconnect:
        return codes.failed
    except Exception as error:
        stored = classify(error).error_class is ErrorClass.STORAGE
        _log.warning("a socket broke: %s", type(error).__name__, exc_info=None if stored else error)
        return codes.failed
    return codes.restarting


async def _hear(socket: WebSocket) -> None:
    """Read what the client sends, to notice that it goes. Keys are sent again where none is needed; there is no
    more."""
    while (await socket.receive())["type"] != "websocket.disconnect":
        pass


async def _close(socket: WebSocket, code: int) -> None:
    try:
        await socket.close(code)
    except (RuntimeError, WebSocketDisconnect):
        _log.debug("the client of a socket went first")
