"""Sending to clients: one that takes nothing does not keep its connection."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Final

from palaver.vocabulary.limits import count_exceeded, limit_of

from .gate import HASTE

if TYPE_CHECKING:

    class _Base:
        """Any of uvicorn's protocols."""

        transport: asyncio.Transport
        loop: asyncio.AbstractEventLoop

        def pause_writing(self) -> None: ...
        def resume_writing(self) -> None: ...
        def connection_lost(self, exc: Exception | None) -> None: ...
else:
    _Base = object

_SEND_TIME: Final = float(limit_of("send_time"))


class Sending(_Base):
    """A protocol class over another one: a connection is aborted whose client takes nothing for a while."""

    def __init__(self, *args: Any, **named: Any) -> None:
        super().__init__(*args, **named)
        self._stalled: asyncio.TimerHandle | None = None
        self._unsent = 0.0
        self._send_time = _SEND_TIME

    def pause_writing(self) -> None:
        """Note that the client is behind."""
        super().pause_writing()
        self.watch_sending()

    def resume_writing(self) -> None:
        """Note that the client took something."""
        super().resume_writing()
        self._unsent = float("inf")

    def connection_lost(self, exc: Exception | None) -> None:
        """End: nothing is to be sent any more."""
        if self._stalled is not None:
            self._stalled.cancel()
        super().connection_lost(exc)

    def watch_sending(self) -> None:
        """See that unsent bytes get fewer, if there are any."""
        left = self.transport.get_write_buffer_size()
        if left and self._stalled is None:
            self._unsent = left
            self._stalled = self.loop.call_later(self._send_time, self._look_at_sending)

    def send_hastily(self) -> None:
        """Give slow clients no more time: the process ends."""
        self._send_time = HASTE
        if self._stalled is not None:
            self._stalled.cancel()
            self._stalled = None
        self.watch_sending()

    def _look_at_sending(self) -> None:
        self._stalled = None
        left = self.transport.get_write_buffer_size()
        if left and left >= self._unsent:
            count_exceeded("send_time")
            self.transport.abort()
        elif left:
            self.watch_sending()
