"""A place that a store is copied from or to: one server, or the masters of a cluster; and a sentence for each of its
errors."""

from __future__ import annotations

import os
import secrets
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from typing import Any, Final, Self

from redis.exceptions import (
    AuthenticationError,
    BusyLoadingError,
    ConnectionError,
    MovedError,
    NoPermissionError,
    OutOfMemoryError,
    ReadOnlyError,
    RedisError,
    ResponseError,
    TimeoutError,
)

from palaver.config.brokers import user_of
from palaver.config.clusters import is_cluster
from palaver.errors import Refused, StoreUnavailable
from palaver.store.redis.connection import is_absent, is_closed
from palaver.store.redis.pools import client_of

from .values import Command

NAME: Final = "palaver-store-copy"
"""The beginning of the names of connections, as servers list them."""
RIGHTS: Final = "~* +@read +@write +@connection +info +time +cluster|slots"
_PATIENCE: Final = 30.0
_PAGE: Final = 500
"""Keys that a server is to look at for a page."""
_PRESENT: Final = ("no such key", "equal or smaller")
"""Words of answers that say that a key has gone, or that an entry is there: its command was sent a second time."""


class CopyPlace:
    """The source, or the target, as ``role`` says."""

    def __init__(self, role: str, url: str) -> None:
        self.role = role
        self.clustered = is_cluster(url)
        self.own = f"{NAME}-{os.getpid()}-{secrets.token_hex(4)}"
        """The name of its connections."""
        self._user = user_of(url) or "the default user"
        try:
            self._client: Any = client_of(url, seconds=_PATIENCE, name=self.own)
            if not self.clustered:
                self._client.connection_pool.make_connection()
        except (TypeError, ValueError) as error:
            # Without its words: they may hold a password.
            raise self._refused("has an option in its address that is none: see what stands behind ?") from error

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._client.aclose()

    @property
    def database(self) -> str:
        """The number of its database."""
        return str(self._client.connection_pool.connection_kwargs.get("db") or 0)

    async def ask(self, commands: Sequence[Command]) -> list[Any]:
        """Return the answers to commands; None where a key is not there.

        Raises:
            Refused: one of them cannot be carried out.
            StoreUnavailable: no server answers.
        """
        if not commands:
            return []
        pipeline = self._client.pipeline(transaction=False)
        for command in commands:
            pipeline.execute_command(*command)
        return [self._told(answer) for answer in await self._answer(pipeline.execute, False)]

    async def of_each(self, *command: Any) -> list[Any]:
        """Return the answer of each master to a command. Raises as `ask`."""
        return [await self._answer(master.execute_command, *command) for master in await self._masters()]

    async def may_see(self, *command: Any) -> list[Any] | None:
        """Return the same; None where the server does not tell it, or not to this user."""
        try:
            return await self.of_each(*command)
        except Refused as refused:
            if is_closed(refused.__cause__) or is_absent(refused.__cause__):  # type: ignore[arg-type]
                return None
            raise

    async def names(self) -> AsyncIterator[list[bytes]]:
        """Yield the names of all keys, page after page; some may come twice. Raises as `ask`."""
        for master in await self._masters():
            cursor: int | None = None
            while cursor != 0:
                cursor, names = await self._answer(master.execute_command, "SCAN", cursor or 0, "COUNT", _PAGE)
                yield names

    async def _masters(self) -> list[Any]:
        return await self._answer(self._client.masters) if self.clustered else [self._client]

    async def _answer(self, asking: Callable[..., Any], *words: Any) -> Any:
        try:
            return await asking(*words)
        except (RedisError, OSError) as error:
            raise self._explained(error) from error

    def _told(self, answer: Any) -> Any:
        if not isinstance(answer, Exception):
            return answer
        if isinstance(answer, ResponseError) and any(words in str(answer) for words in _PRESENT):
            return None
        raise self._explained(answer) from answer

    def _explained(self, error: Exception) -> Refused | StoreUnavailable:
        said = " ".join(str(error).split())[:200]
        if "cluster support disabled" in said:
            return self._refused("is no cluster: write redis://HOST:PORT/0")
        if isinstance(error, OutOfMemoryError):
            return self._refused("has no memory left: raise its maxmemory, and begin again; what is there stays")
        if isinstance(error, NoPermissionError) or (isinstance(error, ResponseError) and is_closed(error)):
            return self._refused(f"does not let {self._user} do that ({said}): log in as one who has {RIGHTS}")
        if isinstance(error, AuthenticationError):
            return self._refused(f"does not take the login of {self._user}: see both in the address")
        if isinstance(error, ReadOnlyError):
            return self._refused("is a replica, and takes nothing: name its primary")
        if isinstance(error, MovedError):
            return self._refused("is one server of a cluster: write redis+cluster://HOST:PORT,HOST:PORT/0")
        if isinstance(error, BusyLoadingError | ConnectionError | TimeoutError | OSError):
            why = said or type(error).__name__
            return StoreUnavailable(
                f"the {self.role} does not answer ({why}): see its address, or begin again when it does"
            )
        if isinstance(error, ResponseError) and is_absent(error):
            return self._refused(f"has not all commands that are needed ({said}): Redis 7.0 and Valkey have them")
        return self._refused(f"answers {said or type(error).__name__}")

    def _refused(self, sentence: str) -> Refused:
        return Refused("copy_refused", f"the {self.role} {sentence}")


def number_of(told: Mapping[str, Any], name: str) -> int:
    """Return a number of an answer to INFO; 0 where it is not told."""
    return int(told.get(name, 0) or 0)
