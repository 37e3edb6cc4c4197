"""HTTP/1.1 as this process reads and writes it: httptools takes requests apart, and an answer is one write."""

from __future__ import annotations

import asyncio
from typing import Any, Final
from urllib.parse import unquote

import httptools
from starlette.types import Message
from uvicorn.protocols.http.flow_control import FlowControl
from uvicorn.protocols.http.httptools_impl import (
    HEADER_RE,
    HEADER_VALUE_RE,
    STATUS_LINE,
    HttpToolsProtocol,
    RequestResponseCycle,
)

from palaver.vocabulary.limits import KIB, count_exceeded, limit_of

from ..http.problems import Problem
from .connections import Bounded

_HEAD: Final = limit_of("url") + limit_of("headers") + 8 * KIB
"""Bytes without an end at which a head is given up unread, as are trailers and what stands beside the size of a chunk.
The limits on the parts of a head are checked once it is whole."""
_VERSIONS: Final = ("1.0", "1.1")
_END: Final = b"\r\n\r\n"
"""The end of a head; a body may have it, too."""


class _ReadingInTurn(FlowControl):
    """uvicorn's flow control, which reads no further while something that was read has to wait."""

    rests = False

    def resume_reading(self) -> None:
        if not self.rests:
            super().resume_reading()


class Http11(Bounded, HttpToolsProtocol):
    """The protocol class of this process: ``uvicorn --http api.edge.http11:Http11``."""

    flow: _ReadingInTurn

    def __init__(self, *args: Any, **named: Any) -> None:
        super().__init__(*args, **named)
        self._in_head = False
        self._unfinished = 0
        """Bytes of the head that is not whole, or since the last one of a body."""
        self._line = b""
        """What a head begins in, until its first line was checked; the end of a body may stand before it."""
        self._before = 0
        """Bytes of that body. One in chunks ends with a piece that is fed."""
        self._held = b""
        """What has come behind a request that is answered now: one piece, as nothing is read then."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self.flow = _ReadingInTurn(transport)

    # Requests.

    def feed(self, data: bytes) -> None:
        """Take apart what has come, up to the end of the request that has to be answered first.

        The parser cannot be stopped at the end of a request. So it is fed with no more than one end of a head at once:
        at most one further request begins, and waits with its answer.
        """
        self._unset_keepalive_if_required()
        try:
            while data and not self._has_to_wait():
                end = data.find(_END)
                piece, data = (data, b"") if end < 0 else (data[: end + len(_END)], data[end + len(_END) :])
                data = self._fed(piece) + data
        except httptools.HttpParserError:
            self.refuse_to_parse(Problem("malformed_request", "It is not HTTP as RFC 9112 has it."))
            return
        if data:
            self._held, self.flow.rests = data, True
            self.flow.pause_reading()
        elif self._unfinished > _HEAD:
            count_exceeded("headers")
            self.refuse_to_parse(Problem("headers_too_large"))

    def _has_to_wait(self) -> bool:
        cycle = self.cycle
        return cycle is not None and not cycle.response_complete and not cycle.more_body

    def take_held(self) -> bytes:
        """Return what has come behind a request that is answered now, to be fed."""
        held, self._held, self.flow.rests = self._held, b"", False
        if held:
            self.flow.resume_reading()
        return held

    def _fed(self, data: bytes) -> bytes:
        """Feed the parser. Return what is to be fed next, before what comes."""
        self._unfinished += len(data)
        if not self._in_head:
            self._line, self._before = data, 0
        elif self._line:
            self._line += data
        try:
            self.parser.feed_data(data)
        except httptools.HttpParserUpgrade as asked:
            if self._should_upgrade():
                self.handle_websocket_upgrade()
            else:
                return self._as_if_not_asked() + data[asked.args[0] :]
        if not self._in_head:
            self._line = b""
        return b""

    def _as_if_not_asked(self) -> bytes:
        """Return the head of a request for another protocol, which is not spoken here, without that.

        To the parser what stands behind it is that protocol's; to its sender, it is a body.
        """
        asked = (self.parser.get_method(), self.url, self.parser.get_http_version().encode())
        self.parser = httptools.HttpRequestParser(self)
        self.parser.set_dangerous_leniencies(lenient_data_after_close=True)
        lines = (b"%b: %b" % header for header in self.headers if header[0] != b"upgrade")
        return b"\r\n".join((b"%b %b HTTP/%b" % asked, *lines, _END[2:]))

    def on_message_begin(self) -> None:
        """Note that a head has begun."""
        self._in_head = True
        super().on_message_begin()

    def on_header(self, name: bytes, value: bytes) -> None:
        """Take a header. Trailers, which come behind a body, are dropped."""
        if self._in_head:
            self._check_line()
            super().on_header(name, value.rstrip(b" \t"))

    def on_headers_complete(self) -> None:
        """Begin the request, unless it is for no host or for several, which the parser lets pass (RFC 9112, 3.2)."""
        self._check_line()
        self._in_head, self._unfinished = False, 0
        version, hosts = self.parser.get_http_version(), sum(name == b"host" for name, _ in self.headers)
        if version not in _VERSIONS or hosts > 1 or (hosts == 0 and version == "1.1"):
            raise ValueError("no request of HTTP/1.1")
        place = self.url.partition(b"://")[2].partition(b"/")[0] if self.url[:1] not in b"/*" else None
        if self.parser.get_method() == b"CONNECT" or place not in (None, dict(self.headers).get(b"host")):
            raise ValueError("no proxy")
        if self.parser.should_upgrade():
            # Whether it may is a question of the path, which uvicorn reads later.
            self.scope["path"] = self.root_path + unquote(httptools.parse_url(self.url).path.decode("ascii"))
            if not self._should_upgrade():
                return
        super().on_headers_complete()

    def _check_line(self) -> None:
        """Check the first line of a head, once: the parser lets pass several blanks in it, and a fragment."""
        if not self._line:
            return
        line = b"%b %b HTTP/%b\r\n" % (self.parser.get_method(), self.url, self.parser.get_http_version().encode())
        as_said = self._line.startswith(line, self._before)
        # Empty lines may come before it.
        if b"#" in self.url or not (as_said or self._line[self._before :].lstrip(b"\r\n").startswith(line)):
            raise ValueError("no request line of HTTP/1.1")
        self._line = b""

    def on_body(self, body: bytes) -> None:
        """Take a piece of the body."""
        self._unfinished = 0
        self._before += len(body)
        super().on_body(body)

    def on_message_complete(self) -> None:
        """Note that the body is whole, also if its request was answered before."""
        if not self.parser.should_upgrade():
            super().on_message_complete()
            self.cycle.more_body = False

    def _start_asgi_task(self, cycle: RequestResponseCycle, app: Any) -> None:
        self.under_way = cycle
        cycle.keep_alive = cycle.keep_alive and not self.ending
        super()._start_asgi_task(cycle, app)

    def has_part_of_a_head(self) -> bool:
        """Tell whether bytes of a request are here, but not its whole head."""
        return self._in_head

    # Answers.

    async def send_answer(self, start: Message, body: bytes) -> None:
        """Write an answer as uvicorn does, in one piece: each write costs more than the rest of it."""
        cycle = self.under_way
        assert cycle is not None, "an answer is one to a request"
        if self.flow.write_paused and not cycle.disconnected:
            await self.flow.drain()
        if cycle.disconnected:
            return
        cycle.response_started, cycle.waiting_for_100_continue = True, False
        headers = [*cycle.default_headers, *start["headers"]]
        if not cycle.keep_alive:
            headers.append((b"connection", b"close"))
        names, values = zip(*headers, strict=True)
        if HEADER_RE.search(b"".join(names)) or HEADER_VALUE_RE.search(b"".join(values)):
            raise RuntimeError(f"no headers of an answer, one of {b', '.join(names)!r}")
        pieces = [STATUS_LINE[start["status"]]]
        pieces += [b"%b: %b\r\n" % header for header in headers]
        pieces += (b"\r\n", b"" if cycle.scope["method"] == "HEAD" else body)
        self.transport.write(b"".join(pieces))
        cycle.response_complete = True
        cycle.message_event.set()
        if not cycle.keep_alive:
            self.transport.close()
        cycle.on_response()
