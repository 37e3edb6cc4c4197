"""A server as a process of this one: a line of JSON for each message.

The process belongs to the opener of the channel, and ends with it. It gets the variables that the file names, and
those without which programs do not start.
"""

from __future__ import annotations

import asyncio
import logging
import os
import signal
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Final

import orjson

from workers.sources.companions import companions

from .wire import (
    MAX_BODY,
    Heard,
    InvalidAnswer,
    Lost,
    Message,
    NeverSent,
    answer_to,
    cancelled,
    is_answer,
    is_change,
    read_messages,
    result_of,
)

log = logging.getLogger("palaver.features.mcp_client.stdio_transport")

_PASSED_ON: Final = ("HOME", "LANG", "LC_ALL", "LOGNAME", "PATH", "SHELL", "TERM", "TMPDIR", "TZ", "USER")
"""Variables that every program may see."""
_PATIENCE: Final = 1.0
"""Seconds that the process has to end, once its input has ended and again once it has got SIGTERM."""
_NOISE: Final = 1_000
"""Lines in a row that are no messages, after which a process is no server."""
_PIECE: Final = 64 * 1024
"""Bytes of what it writes that are looked at in one go."""
_UNREAD: Final = 1 << 20
"""Bytes that it has not read, beyond which it gets no answers to questions of its own."""
_LAST_WORDS: Final = 2_000
"""Bytes that are kept of what it writes to standard error."""


class StdioChannel:
    """A process with messages on its standard input and output."""

    def __init__(
        self, command: Sequence[str], environment: Mapping[str, str], directory: str, changed: Callable[[], None]
    ) -> None:
        """``changed`` is called when the server says that its list of tools did."""
        passed_on = {name: os.environ[name] for name in _PASSED_ON if name in os.environ}
        self._command = tuple(command)
        self._environment = {**passed_on, **environment}
        self._directory = directory
        self._changed = changed
        self._process: asyncio.subprocess.Process | None = None
        self._tasks: list[asyncio.Task[None]] = []
        self._waiting: dict[int, tuple[asyncio.Future[Message], Heard]] = {}
        self._ended: Exception | None = None
        self._noise = 0
        self.last_words = b""
        """The end of what it wrote to standard error."""

    @property
    def alive(self) -> bool:
        """As ``ServerChannel``."""
        return self._process is not None and self._ended is None

    async def open(self) -> None:
        """As ``ServerChannel``: start the process."""
        try:
            self._process = await asyncio.create_subprocess_exec(
                *self._command,
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.PIPE,
                env=self._environment,
                cwd=self._directory,
                limit=_PIECE,
                start_new_session=True,
            )
        except OSError as error:
            raise NeverSent(f"it does not start: {error.strerror or type(error).__name__}") from error
        companions.add(self._process.pid)
        self._tasks = [asyncio.create_task(self._read()), asyncio.create_task(self._read_errors())]

    async def exchange(self, request: Message, headers: Mapping[str, str], heard: Heard) -> Message:
        """As ``ServerChannel``."""
        number = request["id"]
        future: asyncio.Future[Message] = asyncio.get_running_loop().create_future()
        self._waiting[number] = future, heard
        try:
            await self._write(request)
            return result_of(await future)
        except asyncio.CancelledError:
            if self.alive and request["method"] not in ("initialize", "server/discover"):
                self._put(cancelled(number))
            raise
        finally:
            del self._waiting[number]
            if future.done() and not future.cancelled():
                # Unless it is looked at, asyncio logs it as an error.
                future.exception()

    async def notify(self, message: Message, headers: Mapping[str, str]) -> None:
        """As ``ServerChannel``."""
        await self._write(message)

    async def close(self) -> None:
        """As ``ServerChannel``: end the process, and all that it started."""
        process, self._process = self._process, None
        if process is None:
            return
        self._end(Lost("the connection is closed"))
        try:
            assert process.stdin is not None
            process.stdin.close()
            for number in (None, signal.SIGTERM):
                if number is not None:
                    _signal_all(process.pid, number)
                with suppress(TimeoutError):
                    async with asyncio.timeout(_PATIENCE):
                        await process.wait()
                    break
        finally:
            _signal_all(process.pid, signal.SIGKILL)
            companions.discard(process.pid)
            for task in self._tasks:
                task.cancel()
            await asyncio.gather(*self._tasks, return_exceptions=True)
            await process.wait()
            # What is read no further is not closed by its end; asyncio's process has no method for it.
            process._transport.close()  # type: ignore[attr-defined]

    def _put(self, message: Message) -> None:
        assert self._process is not None
        assert self._process.stdin is not None
        self._process.stdin.write(orjson.dumps(message) + b"\n")

    def _has_room(self) -> bool:
        """False if the process does not read what it is sent."""
        assert self._process is not None
        assert self._process.stdin is not None
        return self._process.stdin.transport.get_write_buffer_size() < _UNREAD

    async def _write(self, message: Message) -> None:
        if self._process is None or self._ended is not None:
            raise NeverSent("its process has ended")
        self._put(message)
        try:
            assert self._process.stdin is not None
            await self._process.stdin.drain()
        except (OSError, RuntimeError) as error:
            raise Lost("its process has ended") from error

    async def _read(self) -> None:
        assert self._process is not None
        assert self._process.stdout is not None
        stdout, reason = self._process.stdout, Lost("its process has ended")
        begun: list[bytes] = []
        size = 0
        try:
            while piece := await stdout.read(_PIECE):
                rest, end, more = piece.partition(b"\n")
                begun.append(rest)
                size += len(rest)
                if size > MAX_BODY:
                    raise InvalidAnswer(f"it sent a line of more than {MAX_BODY:,} bytes")
                if end:
                    lines = [b"".join(begun), *more.split(b"\n")]
                    begun = [lines.pop()]
                    size = len(begun[0])
                    self._take_lines(lines)
                # Whatever comes, others have their turn.
                await asyncio.sleep(0)
            self._take_lines([b"".join(begun)])
            self._end(reason)
        except InvalidAnswer as error:
            self._end(error)
        except OSError:
            self._end(reason)

    def _take_lines(self, lines: Sequence[bytes]) -> None:
        said = [*filter(None, lines)]
        self._note_noise(len(lines) - len(said))
        for line in said:
            self._take(line)

    def _note_noise(self, lines: int) -> None:
        """Raises InvalidAnswer if, with these, lines that are no messages are too many in a row."""
        self._noise += lines
        if self._noise > _NOISE:
            raise InvalidAnswer("it writes lines that are no messages")

    def _take(self, line: bytes) -> None:
        try:
            messages = read_messages(line)
        except InvalidAnswer:
            # Many servers print where they should not.
            self._note_noise(1)
            return
        self._noise = 0
        for message in messages:
            self._take_message(message)

    def _take_message(self, message: Message) -> None:
        for number, (future, _) in self._waiting.items():
            if is_answer(message, number) and message.get("id") is not None:
                if not future.done():
                    future.set_result(message)
                return
        if (reply := answer_to(message)) and self._has_room():
            self._put(reply)
        if is_change(message):
            self._changed()
        for _, heard in self._waiting.values():
            heard(message)

    async def _read_errors(self) -> None:
        assert self._process is not None
        assert self._process.stderr is not None
        while piece := await self._process.stderr.read(4096):
            self.last_words = (self.last_words + piece)[-_LAST_WORDS:]

    def _end(self, reason: Exception) -> None:
        """Answer everybody who waits: nothing more comes."""
        self._ended = self._ended or reason
        for future, _ in self._waiting.values():
            if not future.done():
                future.set_exception(reason)


def _signal_all(group: int, number: int) -> None:
    """Send a signal to a process and all that it started, as far as they stayed in its group."""
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(group, number)
