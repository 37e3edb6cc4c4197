"""A client whose users share one connection: what they ask travels together, and is answered in that order.

redis-py lends a connection to each command. The loan, the waiting for that one answer and the packing in Python cost
more than Redis does, and a command whose user goes away takes its connection along. Here a command is some bytes to
write, and a place in the line of those who wait for an answer.

The pool is still there: for what keeps a connection waiting or busy, and for everything while the shared connection is
not there or breaks. It repeats each command once if need be, and every command of the store bears that.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Mapping, Sequence
from contextlib import suppress
from contextvars import Context
from typing import Any, Final

from hiredis import PushNotification, pack_command
from redis._parsers.hiredis import NOT_ENOUGH_DATA
from redis.asyncio import Redis
from redis.asyncio.client import Pipeline
from redis.asyncio.connection import AbstractConnection
from redis.exceptions import ConnectionError, ReadOnlyError, RedisError

from palaver.processes.tasks import end
from palaver.store.redis.channel_connection import ChannelConnection
from palaver.store.redis.pool import Pool
from palaver.vocabulary.limits import KIB

_ALONE: Final = frozenset({"WAIT", "WAITAOF"})
"""Commands that keep their connection waiting: others behind them would wait as well."""
_LONG: Final = 64 * KIB
"""Bytes from which on a question travels on a connection of its own: the renewal of a lease may be behind it."""
_WITH_SCRIPT: Final = frozenset({"EVAL", "SCRIPT LOAD"})
"""Commands with the text of a script behind them, however long that is: it comes once for each, and what is to be
settled may wait for it where no connection can be opened."""
_PATIENCE: Final = 5.0
"""Seconds in which nothing comes, though a command waits, after which the connection counts as dead, as those of the
pool do."""


class SharedClient(Redis):
    """redis-py's client on such a connection, and on its pool. For one event loop."""

    connection_pool: Pool
    _line: _Line | None = None
    _keeping: asyncio.Task[None] | None = None

    async def execute_command(self, *args: Any, **options: Any) -> Any:
        """The answer to a command, as redis-py reads it."""
        answers = await self.ask([args])
        if answers is None:
            return await super().execute_command(*args, **options)  # type: ignore[no-untyped-call]
        answer = self.understood(args[0], answers[0], options)
        if isinstance(answer, Exception):
            raise answer
        return answer

    def pipeline(self, transaction: bool = True, shard_hint: str | None = None) -> Pipeline:
        """Commands that travel together."""
        if transaction:
            return super().pipeline(transaction, shard_hint)
        return _SharedPipeline(self, shard_hint)

    def channels(self) -> ChannelConnection:
        """A connection that hears channels, of its own."""
        return ChannelConnection(self.connection_pool.make_connection)

    async def ask(self, commands: Sequence[Sequence[Any]]) -> list[Any] | None:
        """The raw answers to commands, errors among them; None where it is the pool that has to ask."""
        if self._line is None:
            if self._keeping is None or self._keeping.done():
                # Not in the context of this request: it lives longer.
                self._keeping = asyncio.create_task(self._keep(), context=Context())
            return None
        if any(command[0] in _ALONE for command in commands):
            return None
        questions = _packed(commands)
        if sum(map(len, questions)) - sum(len(words[1]) for words in commands if words[0] in _WITH_SCRIPT) > _LONG:
            return None
        try:
            answers = await self._line.ask(questions)
        except ConnectionError:
            return None
        if any(isinstance(answer, ReadOnlyError) for answer in answers):
            # Nothing was done. Its name may lead to another server by now: the pool connects anew.
            if self._line is not None:
                self._line.leave()
            await self.connection_pool.forget_idle()
            return None
        # Such as that the server still reads its data: redis-py asks again then.
        return None if any(isinstance(answer, ConnectionError) for answer in answers) else answers

    def understood(self, name: Any, answer: Any, options: Mapping[str, Any]) -> Any:
        """A raw answer as redis-py reads it; an error stays one."""
        read = self.response_callbacks.get(name)
        if read is None or isinstance(answer, Exception):
            return answer
        return read(answer, **{name: value for name, value in options.items() if name != "keys"})

    async def aclose(self, close_connection_pool: bool | None = None) -> None:
        """Give the connections back."""
        if self._keeping is not None:
            await end(self._keeping)
        await super().aclose(close_connection_pool)

    async def _keep(self) -> None:
        """Have a shared connection, until it breaks."""
        connection = self.connection_pool.make_connection()  # type: ignore[no-untyped-call]
        try:
            await connection.connect()
            self._line = _Line(connection)
            await self._line.over
            # Before those whose questions were on it ask there: a renewal has no time to wait twice.
            await self.connection_pool.forget_idle()
        except (RedisError, OSError):
            # The next command asks by the pool, and says what is wrong if that has no other answer.
            pass
        finally:
            self._line = None
            with suppress(RedisError, OSError):
                await connection.disconnect(nowait=True)


class _SharedPipeline(Pipeline):
    """Commands that travel together, on the shared connection."""

    def __init__(self, client: SharedClient, shard_hint: str | None) -> None:
        super().__init__(client.connection_pool, client.response_callbacks, False, shard_hint)
        self._client = client

    async def execute(self, raise_on_error: bool = True) -> list[Any]:
        """The answers, as redis-py reads them. Raises the first error among them if it should."""
        stack = self.command_stack
        answers = await self._client.ask([args for args, _ in stack]) if stack else None
        if answers is None:
            return await super().execute(raise_on_error)
        self.command_stack = []
        results = [
            self._client.understood(args[0], answer, options)
            for (args, options), answer in zip(stack, answers, strict=True)
        ]
        if raise_on_error:
            self.raise_first_error(stack, results)
        return results


class _SentBatch:
    """Commands that were sent together, and the waiters for their answers."""

    __slots__ = ("answers", "at", "count", "done")

    def __init__(self, count: int, done: asyncio.Future[list[Any]], at: float) -> None:
        self.count, self.done, self.at = count, done, at
        self.answers: list[Any] = []


class _Line(asyncio.Protocol):
    """The questions on a connection that redis-py has made, and that has no other user.

    It leans on two attributes of redis-py 8.1, held by tests/contract/test_shared_client.py: the writer of a
    connection, and its parser's reader, which makes redis-py's errors and has its own word for
    that there is no whole answer.
    """

    def __init__(self, connection: AbstractConnection) -> None:
        self._loop = asyncio.get_running_loop()
        made: Any = connection
        self._transport: asyncio.Transport = made._writer.transport
        self._reader: Any = made._parser._reader
        self._waiting: deque[_SentBatch] = deque()
        self._unsent: list[bytes] = []
        self._looking: asyncio.TimerHandle | None = None
        self._heard_at = self._loop.time()
        self.over: asyncio.Future[None] = self._loop.create_future()
        self._transport.set_protocol(self)

    def ask(self, questions: Sequence[bytes]) -> asyncio.Future[list[Any]]:
        """The answers to packed commands. It raises ConnectionError if the connection breaks first."""
        done: asyncio.Future[list[Any]] = self._loop.create_future()
        if self.over.done():
            done.set_exception(ConnectionError("the shared connection is gone"))
            return done
        if not self._unsent:
            # All commands of this turn of the loop are one write.
            self._loop.call_soon(self._send)
        self._unsent += questions
        self._waiting.append(_SentBatch(len(questions), done, self._loop.time()))
        if self._looking is None:
            self._look_in(_PATIENCE)
        return done

    def leave(self) -> None:
        """End the connection at once."""
        self._transport.abort()

    def data_received(self, data: bytes) -> None:
        """Answers have come."""
        self._heard_at = self._loop.time()
        self._reader.feed(data)
        while (answer := self._reader.gets()) is not NOT_ENOUGH_DATA:
            if isinstance(answer, PushNotification):
                continue
            question = self._waiting[0]
            question.answers.append(answer)
            if len(question.answers) == question.count:
                self._waiting.popleft()
                if not question.done.done():
                    question.done.set_result(question.answers)

    def connection_lost(self, exc: Exception | None) -> None:
        """End it; it is unknown what became of the commands that were sent."""
        if self._looking is not None:
            self._looking.cancel()
        if not self.over.done():
            self.over.set_result(None)
        for question in self._waiting:
            if not question.done.done():
                question.done.set_exception(ConnectionError("the shared connection broke"))
        self._waiting.clear()

    def _send(self) -> None:
        self._transport.write(b"".join(self._unsent))
        self._unsent.clear()

    def _look_in(self, seconds: float) -> None:
        self._looking = self._loop.call_later(seconds, self._look)

    def _look(self) -> None:
        """Give up a connection on which nothing came in time, though there was a question."""
        self._looking = None
        if self._waiting:
            left = max(self._waiting[0].at, self._heard_at) + _PATIENCE - self._loop.time()
            if left > 0:
                self._look_in(left)
            else:
                self.leave()


def _packed(commands: Sequence[Sequence[Any]]) -> Sequence[bytes]:
    # redis-py names some commands by two words, which travel apart.
    return [pack_command((*name.split(), *args)) for name, *args in commands]
