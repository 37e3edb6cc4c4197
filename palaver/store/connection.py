"""Redis as the store speaks to it: the commands in use, with the types that an undecoded connection answers.

redis-py types each reply as the union of whatever any client could give (text or bytes, RESP2 or RESP3), so
that every line that uses one would need a cast. These protocols are the one cast, made where ``Store`` takes
the client.
"""

from __future__ import annotations

from collections.abc import Awaitable, Mapping, Sequence
from typing import Any, Final, Literal, Protocol, TypedDict

from redis.exceptions import ConnectionError

Value = str | int | float | bytes
"""What may be sent."""
Fields = Mapping[bytes, bytes]
"""A hash, or the fields of a stream entry."""
StreamEntry = tuple[bytes, Fields]
"""An entry's id and fields."""


class PubSubMessage(TypedDict):
    """What a subscribed connection hears; ``data`` is a count in confirmations of (un)subscribing."""

    type: str
    channel: bytes
    data: Any


class PubSub(Protocol):
    """A connection that listens."""

    @property
    def subscribed(self) -> bool: ...
    def subscribe(self, *channels: str) -> Awaitable[None]: ...
    def unsubscribe(self, *channels: str) -> Awaitable[None]: ...
    def ping(self) -> Awaitable[object]: ...
    def get_message(self, *, timeout: float | None) -> Awaitable[PubSubMessage | None]: ...
    def aclose(self) -> Awaitable[None]: ...


class Pipeline(Protocol):
    """Commands that are sent at once; ``execute`` answers for all, in order."""

    def __len__(self) -> int: ...
    def delete(self, *names: str) -> object: ...
    def evalsha(self, sha: str, numkeys: int, *keys_and_args: Value) -> object: ...
    def execute_command(self, *args: Value) -> object: ...
    def expire(self, name: str, time: int) -> object: ...
    def hget(self, name: str, key: str) -> object: ...
    def hgetall(self, name: str) -> object: ...
    def hmget(self, name: str, keys: Sequence[str]) -> object: ...
    def hset(self, name: str, *, mapping: Mapping[str, Value]) -> object: ...
    def set(self, name: str, value: Value, ex: int) -> object: ...
    def zadd(self, name: str, mapping: Mapping[str, float]) -> object: ...
    def zcard(self, name: str) -> object: ...
    def zcount(self, name: str, min: Value, max: Value) -> object: ...
    def zrange(
        self,
        name: str,
        start: Value,
        end: Value,
        desc: bool = ...,
        withscores: bool = ...,
        *,
        byscore: bool = ...,
        offset: int | None = ...,
        num: int | None = ...,
    ) -> object: ...
    def zrem(self, name: str, *members: str | bytes) -> object: ...
    def zremrangebyscore(self, name: str, start: Value, end: Value) -> object: ...
    def execute(self, raise_on_error: bool = ...) -> Awaitable[list[Any]]: ...


class Connection(Protocol):
    """A client on a pool of connections."""

    def aclose(self) -> Awaitable[None]: ...
    def eval(self, script: str, numkeys: int, *keys_and_args: Value) -> Awaitable[Any]: ...
    def evalsha(self, sha: str, numkeys: int, *keys_and_args: Value) -> Awaitable[Any]: ...
    def exists(self, name: str) -> Awaitable[int]: ...
    def hget(self, name: str, key: str) -> Awaitable[bytes | None]: ...
    def hgetall(self, name: str) -> Awaitable[Fields]: ...
    def hmget(self, name: str, keys: Sequence[str]) -> Awaitable[list[bytes | None]]: ...
    def info(self, section: str) -> Awaitable[Mapping[str, Any]]: ...
    def ping(self) -> Awaitable[Literal[True]]: ...
    def pipeline(self, transaction: bool) -> Pipeline: ...
    def pubsub(self, *, ignore_subscribe_messages: bool = ...) -> PubSub: ...
    def script_load(self, script: str) -> Awaitable[str]: ...
    def time(self) -> Awaitable[tuple[int, int]]: ...
    def xrange(self, name: str, min: str, max: str, count: int) -> Awaitable[list[StreamEntry]]: ...
    def xrevrange(self, name: str, max: str, min: str, count: int) -> Awaitable[list[StreamEntry]]: ...
    def unlink(self, *names: str) -> Awaitable[int]: ...
    def zrange(self, name: str, start: int, end: int) -> Awaitable[list[bytes]]: ...


SILENCE: Final = 10.0
"""Seconds without a message after which a listener asks whether the server is there, and those it has to answer."""


class Listener:
    """Reads a subscribed connection, and notices when nobody is at its other end.

    A connection that was cut without a word stays silent for ever, and redis-py's health check sends its PING there
    but misses no answer.
    """

    def __init__(self, pubsub: PubSub, silence: float = SILENCE) -> None:
        self._pubsub = pubsub
        self._silence = silence
        self._asked = False

    async def hear(self) -> PubSubMessage | None:
        """The next message; None now and then, in silence.

        Raises:
            ConnectionError: the server answers nothing any more.
        """
        message = await self._pubsub.get_message(timeout=self._silence)
        if message is not None:
            self._asked = False
            return None if message["type"] == "pong" else message
        if self._asked:
            raise ConnectionError("the subscribed connection is dead")
        self._asked = True
        await self._pubsub.ping()
        return None


async def now_ms(connection: Connection) -> int:
    """Redis's clock, the only one that counts: milliseconds since the epoch."""
    seconds, micros = await connection.time()
    return seconds * 1000 + micros // 1000
