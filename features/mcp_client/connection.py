"""The connection of a process to one server: found out which era it speaks, made again when it broke, and asked by any
number of calls at once.

One task makes it, the first one that asks for it; calls wait for that task, and one that is cancelled meanwhile leaves
it to the others. After a failure it is not tried for a while: calls are answered with the time to wait.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from functools import partial
from itertools import count
from types import MappingProxyType
from typing import Any, Final

from .http_transport import HttpChannel
from .wire import (
    METHOD_NOT_FOUND,
    MODERN,
    OLDER,
    VERSION_NOT_SUPPORTED,
    Heard,
    InvalidAnswer,
    Lost,
    Message,
    NeverSent,
    NotTried,
    RequestRefused,
    RpcError,
    ServerChannel,
    SessionGone,
    handshake,
    modern_headers,
    modern_meta,
    name_in,
    notification,
    request,
    revision_of,
    versions_in,
)

_PROBE: Final = 0.5
"""Part of that time in which a process has to say whether it knows the newest revision: old ones may say nothing."""
_NOTHING: Final[Mapping[str, Any]] = MappingProxyType({})
_FIRST, _LONGEST = 0.5, 30.0
"""Seconds between two attempts to connect; each time they are doubled."""


class McpConnection:
    """To one server."""

    def __init__(
        self, make_channel: Callable[[], ServerChannel], timeout: float, does: Mapping[str, Any] = _NOTHING
    ) -> None:
        """``timeout`` is in seconds, for all that it takes to connect; ``does`` are the client's capabilities."""
        self._make_channel = make_channel
        self._does = does
        self._timeout = timeout
        self._channel: ServerChannel | None = None
        self._connecting: asyncio.Task[ServerChannel] | None = None
        self._numbers = count(1)
        self._users: Counter[ServerChannel] = Counter()
        """The calls that each channel has."""
        self._modern = False
        self._failures = 0
        self._not_before = 0.0
        self._fault = ""
        """Why it could not be connected to."""
        self._closed = False
        self.server: str = ""
        """The name and version that the server gave itself; for people to see, and nothing else."""

    @property
    def alive(self) -> bool:
        """True while there is a channel."""
        return self._channel is not None and self._channel.alive

    @property
    def revision(self) -> str:
        """The era that is spoken."""
        return MODERN if self._modern else "an older revision"

    async def ask(
        self,
        method: str,
        params: Mapping[str, Any],
        *,
        name: str | None = None,
        param_headers: Mapping[str, str] | None = None,
        meta: Mapping[str, Any] | None = None,
        progress: Heard | None = None,
        sending: Callable[[], None] = lambda: None,
    ) -> Message:
        """Ask the server; return the result. ``sending`` is called once there is a connection.

        Raises:
            NeverSent, RequestRefused: it did not take the request.
            Lost, InvalidAnswer: it may have taken it.
            RpcError: it answered with an error.
        """
        channel = await self._ready()
        sending()
        self._users[channel] += 1
        try:
            asked = partial(self._exchanged, channel, method, params, name, param_headers or {}, meta or {}, progress)
            return await self._taken(channel, asked)
        finally:
            self._users[channel] -= 1
            if not self._users[channel]:
                del self._users[channel]
                if channel is not self._channel:
                    await channel.close()

    async def _taken(self, channel: ServerChannel, asked: Callable[[], Awaitable[Message]]) -> Message:
        """Ask, and once more if the server refuses the revision and names it: it has looked at nothing else."""
        try:
            try:
                return await asked()
            except RpcError as error:
                if error.code != VERSION_NOT_SUPPORTED or not self._modern or MODERN not in versions_in(error):
                    raise
                return await asked()
        except RpcError as error:
            if error.code == VERSION_NOT_SUPPORTED:
                # It is another version of the server by now.
                self._drop(channel)
                raise NeverSent("it speaks another revision by now") from error
            raise

    async def _exchanged(
        self,
        channel: ServerChannel,
        method: str,
        params: Mapping[str, Any],
        name: str | None,
        param_headers: Mapping[str, str],
        meta: Mapping[str, Any],
        progress: Heard | None,
    ) -> Message:
        number = next(self._numbers)
        token = {} if progress is None else {"progressToken": number}
        with_meta = {**params, "_meta": {**(modern_meta(self._does) if self._modern else {}), **token, **meta}}
        headers = {**modern_headers(method, name), **param_headers} if self._modern else {}

        def heard(message: Message) -> None:
            told = message.get("params")
            if progress is None or message.get("method") != "notifications/progress" or not isinstance(told, dict):
                return
            if told.get("progressToken") == number:
                progress(told)

        try:
            answer = await channel.exchange(request(number, method, with_meta), headers, heard)
        except (SessionGone, Lost, InvalidAnswer):
            if not channel.alive:
                self._drop(channel)
            raise
        return dict(answer["result"])

    async def close(self) -> None:
        """End it."""
        self._closed = True
        await self.rest()

    async def rest(self) -> None:
        """Close what is open; the next request connects again."""
        connecting, self._connecting = self._connecting, None
        if connecting is not None:
            connecting.cancel()
            with suppress(asyncio.CancelledError, Exception):
                await connecting
        channels, self._channel = {*self._users, *([self._channel] if self._channel else [])}, None
        await asyncio.gather(*(channel.close() for channel in channels))

    def _drop(self, channel: ServerChannel) -> None:
        """Leave it to the calls that it still has: the last of them closes it."""
        if self._channel is channel:
            self._channel = None

    async def _ready(self) -> ServerChannel:
        if self._channel is not None and self.alive:
            return self._channel
        if self._closed:
            raise NotTried("the worker is ending")
        if self._connecting is None:
            if (left := self._not_before - time.monotonic()) > 0:
                raise NotTried(f"it could not be reached a moment ago: {self._fault}", retry_after=left)
            self._connecting = asyncio.create_task(self._connect())
            self._connecting.add_done_callback(self._connected)
        return await asyncio.shield(self._connecting)

    def _connected(self, task: asyncio.Task[ServerChannel]) -> None:
        self._connecting = None
        if task.cancelled():
            return
        if (fault := task.exception()) is None:
            self._channel, self._failures = task.result(), 0
        else:
            self._fault = str(fault) or type(fault).__name__
            self._not_before = time.monotonic() + min(_LONGEST, _FIRST * 2**self._failures)
            self._failures = min(self._failures + 1, 10)

    async def _connect(self) -> ServerChannel:
        """Raises NeverSent or RequestRefused: nothing of a call was sent yet."""
        if self._channel is not None and self._channel not in self._users:
            await self._channel.close()
        self._channel = None
        try:
            async with asyncio.timeout(self._timeout):
                return await self._negotiated()
        except TimeoutError:
            raise NeverSent(f"it did not answer within {self._timeout:g} s") from None
        except (Lost, InvalidAnswer) as error:
            raise NeverSent(f"it does not get as far as a connection: {error}") from error
        except RpcError as error:
            raise RequestRefused(f"it refuses to connect: {error} ({error.code})") from error

    async def _negotiated(self) -> ServerChannel:
        """A channel to the server, and the era that it speaks."""
        channel = self._make_channel()
        try:
            await channel.open()
            revision = await self._revision(channel)
            if revision != MODERN and not channel.alive:
                # An old one that ended itself at a method that it does not know.
                await channel.close()
                channel = self._make_channel()
                await channel.open()
            self._modern = revision == MODERN or await self._shake_hands(channel, revision)
            return channel
        except BaseException:
            await asyncio.shield(channel.close())
            raise

    async def _revision(self, channel: ServerChannel) -> str:
        """The revision to go on with: one that begins with a handshake unless the server knows the newest one."""
        method = "server/discover"
        asked = request(next(self._numbers), method, {"_meta": modern_meta(self._does)})
        over_http = isinstance(channel, HttpChannel)
        try:
            async with asyncio.timeout(None if over_http else _PROBE * self._timeout):
                answer = await channel.exchange(asked, modern_headers(method, None), _ignore)
        except RpcError as error:
            if versions := versions_in(error):
                return revision_of(versions)
            # Optional over HTTP, where a method that is not there is a page that is not there.
            return MODERN if over_http and error.status == 404 and error.code == METHOD_NOT_FOUND else OLDER[0]
        except RequestRefused as error:
            if error.status in (401, 403) or 300 <= error.status < 400:
                raise
            return OLDER[0]
        except (InvalidAnswer, TimeoutError):
            return OLDER[0]
        except Lost:
            if over_http:
                raise
            return OLDER[0]
        result = answer["result"]
        versions = result.get("supportedVersions")
        self.server = name_in(result)
        return revision_of(versions) if versions and isinstance(versions, list) else OLDER[0]

    async def _shake_hands(self, channel: ServerChannel, revision: str) -> bool:
        """Begin a session, in another revision if the server refuses this one and names it; tell whether that is the
        newest, which has none: it was slow to say so."""
        try:
            answer = await self._begun(channel, revision)
        except RpcError as error:
            if not (versions := versions_in(error)) or (named := revision_of(versions)) == revision:
                raise
            if named == MODERN:
                return True
            answer = await self._begun(channel, named)
        version = answer["result"].get("protocolVersion")
        if version not in OLDER:
            raise RequestRefused(f"it speaks {str(version)[:40]!r}, and none of ours")
        self.server = name_in(answer["result"])
        await channel.notify(notification("notifications/initialized", {}), {})
        return False

    async def _begun(self, channel: ServerChannel, revision: str) -> Message:
        return await channel.exchange(request(next(self._numbers), "initialize", handshake(revision)), {}, _ignore)


def _ignore(_: Message) -> None:
    """A notification has no answer."""
