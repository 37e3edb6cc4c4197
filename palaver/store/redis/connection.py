"""Redis as the store speaks to it: the commands in use, with the types that an undecoded connection answers.

redis-py types each reply as the union of whatever any client could give (text or bytes, RESP2 or RESP3), so
that every line that uses one would need a cast. These protocols are the one cast, made where ``Store`` takes
the client.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Iterator, Mapping, Sequence
from typing import Any, Final, Literal, Protocol, TypedDict, TypeVar

from redis.exceptions import ConnectionError, NoPermissionError, OutOfMemoryError, ResponseError

T = TypeVar("T")
Value = str | int | float | bytes
"""A value that may be sent."""
Fields = Mapping[bytes, bytes]
"""A hash, or the fields of a stream entry."""
StreamEntry = tuple[bytes, Fields]
"""An entry's id and fields."""


class PubSubMessage(TypedDict):
    """A message on a subscribed connection; ``data`` is a count in confirmations of (un)subscribing."""

    type: str
    channel: bytes
    data: Any


class PubSub(Protocol):
    """A connection that listens."""

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
    def get(self, name: str) -> object: ...
    def hdel(self, name: str, key: str) -> object: ...
    def hget(self, name: str, key: str) -> object: ...
    def hgetall(self, name: str) -> object: ...
    def hmget(self, name: str, keys: Sequence[str]) -> object: ...
    def hset(self, name: str, *, mapping: Mapping[str, Value]) -> object: ...
    def info(self, section: str) -> object: ...
    def set(self, name: str, value: Value, ex: int) -> object: ...
    def time(self) -> object: ...
    def zadd(self, name: str, mapping: Mapping[str, float], *, lt: bool = ...) -> object: ...
    def zcard(self, name: str) -> object: ...
    def zcount(self, name: str, min: Value, max: Value) -> object: ...
    def zlexcount(self, name: str, min: str, max: str) -> object: ...
    def zrange(
        self,
        name: str,
        start: Value,
        end: Value,
        desc: bool = ...,
        withscores: bool = ...,
        *,
        byscore: bool = ...,
        bylex: bool = ...,
        offset: int | None = ...,
        num: int | None = ...,
    ) -> object: ...
    def zrem(self, name: str, *members: str | bytes) -> object: ...
    def zremrangebyscore(self, name: str, start: Value, end: Value) -> object: ...
    def execute(self, raise_on_error: bool = ...) -> Awaitable[list[Any]]: ...


class Connection(Protocol):
    """A client on a pool of connections."""

    def aclose(self) -> Awaitable[None]: ...
    def client_list(self, *, client_id: Sequence[int]) -> Awaitable[list[Mapping[str, str]]]: ...
    def eval(self, script: str, numkeys: int, *keys_and_args: Value) -> Awaitable[Any]: ...
    def evalsha(self, sha: str, numkeys: int, *keys_and_args: Value) -> Awaitable[Any]: ...
    def exists(self, name: str) -> Awaitable[int]: ...
    def get(self, name: str) -> Awaitable[bytes | None]: ...
    def hget(self, name: str, key: str) -> Awaitable[bytes | None]: ...
    def hgetall(self, name: str) -> Awaitable[Fields]: ...
    def hmget(self, name: str, keys: Sequence[str]) -> Awaitable[list[bytes | None]]: ...
    def info(self, section: str) -> Awaitable[Mapping[str, Any]]: ...
    def ping(self) -> Awaitable[Literal[True]]: ...
    def pipeline(self, transaction: bool) -> Pipeline: ...
    def pubsub(self, *, ignore_subscribe_messages: bool = ...) -> PubSub: ...
    def pubsub_numsub(self, *channels: str) -> Awaitable[list[tuple[bytes, int]]]: ...
    def script_load(self, script: str) -> Awaitable[str]: ...
    def set(
        self, name: str, value: Value, *, ex: int | None = ..., nx: bool = ..., xx: bool = ...
    ) -> Awaitable[bool | None]: ...
    def time(self) -> Awaitable[tuple[int, int]]: ...
    def xdel(self, name: str, *ids: bytes) -> Awaitable[int]: ...
    def xrange(self, name: str, min: str, max: str, count: int) -> Awaitable[list[StreamEntry]]: ...
    def xrevrange(self, name: str, max: str, min: str, count: int) -> Awaitable[list[StreamEntry]]: ...
    def unlink(self, *names: str) -> Awaitable[int]: ...
    def zrange(self, name: str, start: int, end: int) -> Awaitable[list[bytes]]: ...
    def zscore(self, name: str, value: str) -> Awaitable[float | None]: ...


MOST_ARGUMENTS: Final = 3_999
"""Words of a request, the command's name among them: some managed services refuse more."""
_PORTION: Final = 3_000
_ABSENT: Final = re.compile(r"unknown (sub)?command|unsupported|not supported", re.IGNORECASE)
_CLOSED: Final = re.compile(r"not allowed(?!.*transaction)|disabled|not permitted", re.IGNORECASE)
"""The words in which servers, managed ones among them, say that they have no such command, or do not allow it."""
SILENCE: Final = 10.0
"""Seconds without a message after which a listener asks whether the server is there, and those it has to answer."""


class Listener:
    """Reads a subscribed connection, and notices when its other end is gone.

    A connection that was cut without a word stays silent for ever, and redis-py's health check sends its PING there
    but misses no answer.
    """

    def __init__(self, pubsub: PubSub, silence: float = SILENCE) -> None:
        self._pubsub = pubsub
        self._silence = silence
        self._pinged = False

    async def hear(self) -> PubSubMessage | None:
        """The next message; None now and then, in silence.

        Raises:
            ConnectionError: the server answers nothing any more.
        """
        message = await self._pubsub.get_message(timeout=self._silence)
        if message is not None:
            self._pinged = False
            return None if message["type"] == "pong" else message
        if self._pinged:
            raise ConnectionError("the subscribed connection is dead")
        self._pinged = True
        await self._pubsub.ping()
        return None


async def now_ms(connection: Connection) -> int:
    """Redis's clock, the only one that counts: milliseconds since the epoch."""
    seconds, micros = await connection.time()
    return seconds * 1000 + micros // 1000


def portions(things: Sequence[T], at_once: int = _PORTION) -> Iterator[Sequence[T]]:
    """Things of which a process may have any number, so many at once: as many as a request has room for, or fewer."""
    for begin in range(0, len(things), at_once):
        yield things[begin : begin + at_once]


def text(value: Any) -> str:
    """Return a word of an answer, decoded or not."""
    return value.decode(errors="replace") if isinstance(value, bytes) else str(value)


def fields_of(answer: Any) -> dict[str, str]:
    """Read an answer that is a map, or a list of names and values where a client does not know it."""
    pairs = answer.items() if isinstance(answer, Mapping) else zip(answer[::2], answer[1::2], strict=False)
    return {text(name): text(value) for name, value in pairs}


def is_absent(error: Exception) -> bool:
    """Tell whether the server says that it has no such command."""
    return isinstance(error, ResponseError) and _ABSENT.search(str(error)) is not None


def is_closed(error: Exception) -> bool:
    """Tell whether the server says that this user, or no user, may use a command: whatever state it is in."""
    if isinstance(error, OutOfMemoryError) or str(error).startswith("MISCONF"):
        return False
    return isinstance(error, NoPermissionError) or (
        isinstance(error, ResponseError) and _CLOSED.search(str(error)) is not None
    )
