"""A connection to the process: the time that it may take, and the answer to one that is refused.

uvicorn waits for ever for a head, for a client that does not read, and takes on as many connections as there are file
descriptors. ``Bounded`` goes over its protocol class, and adds what costs nothing a request: a timer for each
connection until its first head is here. What is read and written there is in ``http11``.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Awaitable
from contextlib import suppress
from functools import partial
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, Final, cast
from weakref import ref

from starlette.types import Scope

from palaver.vocabulary.limits import KIB, count_exceeded

from ..http.client_connection import CONNECTION
from ..http.problem_json import respond
from ..http.problems import ROOM_AFTER, Problem
from ..http.sockets import has_socket
from .descriptors import LINGERING
from .gate import HASTE, Gate, network_of, process_gate
from .sending import Sending
from .socket_connections import BoundedSocket

if TYPE_CHECKING:
    from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol as _Base
    from uvicorn.protocols.http.httptools_impl import RequestResponseCycle
else:
    _Base = asyncio.Protocol

_PIECE: Final = 16 * KIB
"""Bytes that are read at once: whatever they are, others have the loop soon."""


class Bounded(Sending, _Base):
    """A protocol class over uvicorn's: limits on one connection, and errors of its parser as problems."""

    def __init__(self, *args: Any, gate: Gate | None = None, **named: Any) -> None:
        super().__init__(*args, **named)
        self._gate = gate or process_gate()
        self._counted = self._refused = self._lingers = self.ending = False
        self._address = ""
        self._late: asyncio.TimerHandle | None = None
        """The timer that runs until the head is here; the connection is half-open while there is one."""
        self._end: asyncio.TimerHandle | None = None
        self.under_way: RequestResponseCycle | None = None
        """The request that is answered now, or was last. The newest one that was read, ``cycle``, may have to wait for
        its answer."""
        self._unparsed: Problem | None = None
        """Why nothing is read any more, for when what came before is answered."""
        # No request is to keep its connection: what refers to itself waits for the garbage collector.
        self.app = partial(_serve, self.app, {CONNECTION: ref(self)})

    # The methods that depend on the parser.

    def feed(self, data: bytes) -> None:
        """Take apart what has come."""
        raise NotImplementedError

    def take_held(self) -> bytes:
        """Return what has come behind a request that is answered now, to be fed."""
        raise NotImplementedError

    def has_part_of_a_head(self) -> bool:
        """Tell whether bytes of a request are here, but not its whole head."""
        raise NotImplementedError

    # The life of a connection.

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._address = network_of(self.client[0]) if self.client else ""
        if hasattr(transport, "max_size"):
            transport.max_size = _PIECE
        self._counted = self._gate.enter(self, self.loop.time())
        if self._counted:
            self._await_head()
        else:
            self._refuse(_full())

    def connection_lost(self, exc: Exception | None) -> None:
        self._let_go()
        self._gate.lingering -= self._lingers
        self._lingers = False
        if self._end is not None:
            self._end.cancel()
        self._give_up_requests()
        super().connection_lost(exc)

    def _let_go(self) -> None:
        self._head_is_here()
        if self._counted:
            self._counted = False
            self._gate.leave(self)

    # Heads.

    def data_received(self, data: bytes) -> None:
        if self._refused or self._unparsed is not None:
            # Read all the same: closed with something unread, a connection is reset, and the refusal is lost.
            return
        self._parse(data)

    def _parse(self, data: bytes) -> None:
        before = self.cycle
        self.feed(data)
        if self.cycle is not before:
            self._head_is_here()
            self._gate.spare.pop(self, None)
        elif (before is None or before.response_complete) and self._late is None and self._counted:
            self._await_head()

    def _await_head(self) -> None:
        self._late = self.loop.call_later(self._gate.begin_head(self._address), self._head_is_late)

    def _head_is_here(self) -> None:
        if self._late is not None:
            self._late.cancel()
            self._late = None
            self._gate.end_head(self._address)

    def _head_is_late(self) -> None:
        count_exceeded("head_time")
        self._close(Problem("request_timeout", "The head of the request did not arrive in time."))

    def give_way(self) -> None:
        """End, for another connection: nothing is under way here."""
        self._close(_full())

    def _close(self, why: Problem) -> None:
        # A client that has sent nothing yet would take this for the answer to its next request.
        if self.has_part_of_a_head() and self._may_answer():
            self._refuse(why)
        else:
            self._let_go()
            self.transport.close()

    # Answers.

    async def send_chunk(self, piece: bytes) -> None:
        """Write a piece of the body that has begun and goes on, once the client has taken enough of it."""
        if self.flow.write_paused and self._is_heard():
            await self.flow.drain()
        self.write_chunk(piece)

    def write_chunk(self, piece: bytes) -> bool:
        """Write a piece as the parser's library would; tell whether the client is there, and not behind."""
        if self.flow.write_paused or not self._is_heard():
            return False
        if piece:
            self.transport.write(b"%x\r\n%b\r\n" % (len(piece), piece))
        return True

    def cut(self) -> None:
        """End the connection in the middle of a body, once what was written is sent."""
        if self.under_way is not None:
            self.under_way.disconnected = True
        self.transport.close()

    def _is_heard(self) -> bool:
        return self.under_way is not None and not self.under_way.disconnected

    def on_response_complete(self) -> None:
        waits = bool(self.pipeline)
        super().on_response_complete()
        self.watch_sending()
        if waits or self.transport.is_closing():
            return
        if self._unparsed is not None:
            self._refuse(self._unparsed)
            return
        if self._counted:
            self._gate.spare[self] = self.loop.time()
        if (held := self.take_held()) or self.has_part_of_a_head() or self.cycle.more_body:
            # What is left of a body that was not read has as much time as a head.
            self._parse(held)

    def shutdown(self) -> None:
        """End once work that is under way is done. A client that takes nothing of it now is not waited for.

        Where nothing is under way, a request may be: it is answered, and the answer says that the connection ends.
        """
        self.ending = True
        if self._counted and (self.cycle is None or self.cycle.response_complete):
            self.loop.call_later(HASTE, super().shutdown)
        else:
            super().shutdown()
        self.send_hastily()

    # Refusals.

    def refuse_to_parse(self, why: Problem) -> None:
        """Read no more. If it is a later request that cannot be read, the one before it is answered first."""
        if self.under_way is not None and not self.under_way.response_complete and not self._goes_wrong():
            if self.cycle.more_body:
                self.pipeline.clear()
            self._unparsed = why
        elif self._may_answer():
            self._refuse(why)
        else:
            self._let_go()
            self.transport.close()

    def _goes_wrong(self) -> bool:
        """Tell whether it is the body of the request under way that cannot be read."""
        return self.cycle is self.under_way and self.cycle.more_body

    def _may_answer(self) -> bool:
        """Tell whether an answer may be written that the application knows nothing of."""
        cycle = self.under_way
        return cycle is None or not cycle.response_started or (cycle.response_complete and not self._goes_wrong())

    def _give_up_requests(self) -> None:
        """Let those who answer know that the client is gone."""
        for cycle in (self.under_way, *(cycle for cycle, _ in self.pipeline)):
            if cycle is not None and not cycle.response_complete:
                cycle.disconnected = True
                cycle.message_event.set()
        self.pipeline.clear()

    def _refuse(self, why: Problem) -> None:
        """Answer in place of the application, then end the connection."""
        self._let_go()
        self._refused = True
        self._unset_keepalive_if_required()
        self._give_up_requests()
        self.transport.write(_on_the_wire(why, self.server_state.default_headers))
        if self._gate.lingering == LINGERING or not self.transport.can_write_eof():
            self.transport.close()
            return
        self._lingers = True
        self._gate.lingering += 1
        self._end = self.loop.call_later(HASTE, self.transport.abort)
        with suppress(OSError):  # the other side is gone
            self.transport.write_eof()

    def _should_upgrade(self) -> bool:
        # A server may ignore that it is asked, and uvicorn would log each time.
        return (
            self._get_upgrade() == b"websocket"
            and self.ws_protocol_class is not None
            and has_socket(cast(Scope, self.scope))
        )

    def handle_websocket_upgrade(self) -> None:
        """Hand the connection over, with its place among those that there may be."""
        self._head_is_here()
        self._gate.spare.pop(self, None)
        self._counted = False
        self.ws_protocol_class = partial(BoundedSocket, gate=self._gate)  # type: ignore[assignment]
        super().handle_websocket_upgrade()


def _serve(app: Any, extensions: dict[str, Any], scope: Any, receive: Any, send: Any) -> Awaitable[None]:
    """Have the application serve a request, with what the connection has for it."""
    scope["extensions"] = extensions
    served: Awaitable[None] = app(scope, receive, send)
    return served


def _full() -> Problem:
    why = "The process serves as many clients as it can."
    return Problem("too_many_connections", why, headers={"Retry-After": str(ROOM_AFTER)})


def _on_the_wire(problem: Problem, more: list[tuple[bytes, bytes]]) -> bytes:
    request_id = f"req_{secrets.token_hex(10)}"
    answer = respond(problem, "", request_id)
    headers = [*more, *answer.raw_headers, (b"x-request-id", request_id.encode()), (b"connection", b"close")]
    status = HTTPStatus(answer.status_code)
    return b"HTTP/1.1 %d %b\r\n%b\r\n%b" % (
        *(status.value, status.phrase.encode()),
        b"".join(b"%b: %b\r\n" % header for header in headers),
        bytes(answer.body),
    )
