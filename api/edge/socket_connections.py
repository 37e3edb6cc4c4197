"""A connection that has become a WebSocket: it keeps its place in the process, and what it may take is bounded."""

from __future__ import annotations

import asyncio
import logging
from typing import Any, Final, cast

from uvicorn.protocols.utils import ClientDisconnected
from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol
from websockets.frames import CloseCode, Frame
from websockets.protocol import State

from palaver.vocabulary.limits import count_exceeded, limit_of

from ..http.sockets import FRAME, KNOWN, PARTING
from .gate import HASTE, Gate, network_of
from .sending import Sending

_log: Final = logging.getLogger("palaver.api.sockets")
# Below that, uvicorn and websockets write addresses with their query, in which there may be a key. The route writes a
# line of its own.
_log.setLevel(logging.ERROR)
_api_log: Final = logging.getLogger("palaver.api")
_MOST_PINGS: Final = limit_of("socket_pings")
_MOST_PARTS: Final = limit_of("socket_parts")


class BoundedSocket(Sending, WebSocketsSansIOProtocol):
    """A protocol class over uvicorn's. Until its caller is known it is half-open, and the first to give way."""

    def __init__(self, *args: Any, gate: Gate, **named: Any) -> None:
        super().__init__(*args, **named)
        self._gate = gate
        self._counted = True
        self._address = ""
        self._late: asyncio.TimerHandle | None = None
        """The timer that runs until the caller is known."""
        self._pings = 0
        """Pings that came while the client was behind."""
        self.logger = self.conn.logger = _log
        self.conn.debug = False

    # Its place.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Take the place of the connection that it was."""
        super().connection_made(transport)
        self._address = network_of(self.client[0]) if self.client else ""
        self._gate.spare[self] = self.loop.time()
        self._late = self.loop.call_later(self._gate.begin_head(self._address), self._is_late)

    def connection_lost(self, exc: Exception | None) -> None:
        """End: there is room for another connection."""
        self._let_go()
        super().connection_lost(exc)

    def give_way(self) -> None:
        """End, for another connection: the caller of this one is not known."""
        self._let_go()
        self.transport.abort()

    def _let_go(self) -> None:
        self._is_known()
        if self._counted:
            self._counted = False
            self._gate.leave(self)

    # Its caller.

    async def run_asgi(self) -> None:
        """Serve it, and let the route report once its caller is known."""
        extensions = cast(dict[str, Any], self.scope["extensions"])
        extensions[KNOWN] = self._is_known
        await super().run_asgi()
        self._hurry()

    def _is_known(self) -> None:
        if self._late is not None:
            self._late.cancel()
            self._late = None
            self._gate.end_head(self._address)
            self._gate.spare.pop(self, None)

    def _is_late(self) -> None:
        count_exceeded("head_time")
        self.queue.put_nowait({"type": "websocket.disconnect", "code": 1006})
        self._hurry()

    def _hurry(self) -> None:
        """End it soon: its caller will never be known. It hears why, and is not waited for."""
        if self._late is not None:
            self._late.cancel()
            self._late = self.loop.call_later(HASTE, self.transport.abort)

    # What it is sent.

    async def send(self, message: Any) -> None:
        """Send a message; one that is a frame already is written as it is.

        Raises:
            ClientDisconnected: nothing can be sent any more.
        """
        if self.conn.eof_sent:
            # uvicorn has answered: it does at the end of the process, while routes still begin.
            raise ClientDisconnected
        if (frame := message.get(FRAME)) is None:
            await super().send(message)
            return
        await self.writable.wait()
        if self.disconnected or self.conn.state is not State.OPEN:
            raise ClientDisconnected
        self.transport.write(frame)

    def send_500_response(self) -> None:
        """Answer for a route that has not, unless the end of the process did."""
        if not self.conn.eof_sent:
            super().send_500_response()

    # Back-pressure.

    def pause_writing(self) -> None:
        """Note that the client is behind."""
        super().pause_writing()
        self._pings = 0

    def handle_ping(self) -> None:
        """Answer it; but who sends pings and takes no answers would fill the memory of the process."""
        super().handle_ping()
        self._pings += not self.writable.is_set()
        if self._pings > _MOST_PINGS:
            self._end("socket_pings")

    def handle_cont(self, event: Frame) -> None:
        """Take a part of a message; there may be many that hold nothing."""
        super().handle_cont(event)
        if len(self.frames) > _MOST_PARTS:
            self._end("socket_parts")

    def send_receive_event_to_app(self) -> None:
        """Pass a message on, unless it is a text that is none: for uvicorn that is an error with a traceback."""
        if self.curr_msg_data_type == "text" and not self.close_sent:
            try:
                b"".join(self.frames).decode()
            except UnicodeDecodeError:
                self.frames = []
                self.conn.fail(CloseCode.INVALID_DATA, "the text is not UTF-8")
                self.handle_parser_exception()
                return
        super().send_receive_event_to_app()

    def handle_parser_exception(self) -> None:
        """Close it: what came is no WebSocket."""
        super().handle_parser_exception()
        closed = self.conn.close_sent
        _api_log.info("%s: what came is no WebSocket: %s", self._address, closed.reason if closed else "")

    def _end(self, limit: str) -> None:
        if not self.transport.is_closing():
            count_exceeded(limit)
        self.transport.abort()

    def shutdown(self) -> None:
        """End: the process does. The route has heard of it and closes the socket, in a moment."""
        if self.handshake_complete and not self.close_sent:
            self.loop.call_later(PARTING, super().shutdown)
        else:
            super().shutdown()
        self.send_hastily()
