"""A connection that has become a WebSocket: it keeps its place in the process, and what it may take is bounded."""

from __future__ import annotations

import logging
from typing import Any, Final

from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol

from .gate import Gate
from .sending import Sending

_log: Final = logging.getLogger("palaver.api.sockets")
# Below that, uvicorn and websockets write addresses with their query, in which there may be a key. The route writes a
# line of its own.
_log.setLevel(logging.ERROR)


class BoundedSocket(Sending, WebSocketsSansIOProtocol):
    """Over uvicorn's protocol class."""

    def __init__(self, *args: Any, gate: Gate, **named: Any) -> None:
        super().__init__(*args, **named)
        self._gate = gate
        self.logger = self.conn.logger = _log
        self.conn.debug = False

    def connection_lost(self, exc: Exception | None) -> None:
        """It is over: there is room for another one."""
        self._gate.leave(self)
        super().connection_lost(exc)

    def give_way(self) -> None:
        """It is never idle: the gate does not ask."""
        self.transport.abort()

    def shutdown(self) -> None:
        """End: the process does."""
        super().shutdown()
        self.send_hastily()
