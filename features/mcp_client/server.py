"""One server: its connection, and the tools that are taken from it.

While a process lives, a server's list is read again when the server says that it changed, when it has become old, or
when another process of this machine has read a newer one. One process of a machine asks at a time. However often a
server says that its list changed, it is asked once in a while, and less and less often while each list is another one:
all workers and the store keep what it says.
"""

from __future__ import annotations

import asyncio
import logging
import math
import os
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import partial
from typing import ClassVar, Final

from palaver.config.settings import Settings
from palaver.errors import ConfigurationError
from palaver.secrets.redaction import redact

from .connection import McpConnection
from .credentials import Accesses, Credentials, ServerAccess, environment_of
from .http_transport import HttpChannel
from .offered_tools import OfferedTool, offers_of, visible
from .stdio_transport import StdioChannel
from .tables import McpServer
from .tool_lists import LastList, OfferedList, read_list
from .wire import ENDED, NeverSent, ServerChannel, capabilities

log = logging.getLogger("palaver.features.mcp_client.server")

_MOST_GONE: Final = 64
"""Tools of one server that stay though they are gone."""
_AGAIN: Final = 0.5
"""Seconds until a server is asked again for a list that is not there yet."""
_LOOK: Final = 5.0
"""Seconds between two looks at what other processes have read."""
_APART: Final = 10.0
"""Seconds between two lists that a process asks for, whatever the server says; doubled by each that differs."""
_SLOWEST: Final = 3600.0
"""The most that they become."""
_RETRY: Final = 60.0
"""The same after one that did not come."""


class Server:
    """One server: its connection, and the tools that are taken from it."""

    _KEPT: ClassVar[int] = 32
    """Connections with secrets of conversations that are kept though they are idle."""

    def __init__(self, label: str, section: McpServer, settings: Settings) -> None:
        """Raises:
        ConfigurationError: a variable is not set.
        """
        self.label = label
        self.section = section
        self._environment = environment_of(section)
        self._directory = os.getcwd()
        self.channel: ServerChannel | None = None
        does = capabilities(asks=section.ask_timeout > 0, tasks=section.task_timeout > 0)
        self.accesses = Accesses(
            label,
            section,
            lambda credentials: McpConnection(partial(self._channel, credentials), section.connect_timeout, does),
            most=self._KEPT,
        )
        identity = (
            f"{section.url} {section.command} {self.own.credentials.identity} {sorted(self._environment.items())}"
        )
        self.last_list = LastList(settings.tool_lists, label, identity)
        self.listed: OfferedList | None = None
        """The list that its tools were taken from."""
        self.offers: dict[str, OfferedTool] = {}
        """The tools that are taken, by the names that models use, and some that were and are no more."""
        self.changed = asyncio.Event()
        """Set when the server says that its list changed, or behaves as if it had."""
        self.changed_at = 0.0

    @property
    def own(self) -> ServerAccess:
        """The access of the source itself, which asks for the list."""
        return self.accesses.own

    @property
    def connection(self) -> McpConnection:
        """Its connection."""
        return self.own.connection

    def _channel(self, credentials: Credentials) -> ServerChannel:
        if self.section.command is not None:
            self.channel = StdioChannel(self.section.command, self._environment, self._directory, self.note_change)
        else:
            assert self.section.url is not None
            self.channel = HttpChannel(self.section.url, credentials, self.note_change)
        return self.channel

    def note_change(self) -> None:
        """The list is not as it was."""
        self.changed_at = time.time()
        self.changed.set()

    async def load(self) -> None:
        """Get the list: what was read a moment ago, what the server says, or what it said last."""
        known = self.last_list.read()
        listed = known if known is not None and known.is_fresh else await self._listed(known)
        if listed is None:
            return
        self.take(listed)
        if known is not None and listed is not known:
            self._say_what_changed(known)

    def take(self, listed: OfferedList) -> list[str]:
        """Take the tools of a list that are fit for it; return sentences about the others, which the log has, too."""
        left_out = self._accept(listed)
        for sentence in left_out:
            log.warning("[mcp.%s]: %s", self.label, sentence)
        return left_out

    def _accept(self, listed: OfferedList) -> list[str]:
        offers, left_out = offers_of(self.label, self.section, listed.tools)
        self.listed = listed
        self.offers = {offer.declaration.name: offer for offer in offers}
        return left_out

    def renew(self, listed: OfferedList) -> bool:
        """Take the tools of a newer list; tell whether they are others. One that is no more stays for the runs that
        name it, and its calls are refused."""
        known, before = self.listed, self.offers
        if known is not None and known.tools == listed.tools:
            self.listed = listed
            return False
        self.take(listed)
        gone = [offer if offer.is_gone else offer.gone() for name, offer in before.items() if name not in self.offers]
        for offer in gone[-_MOST_GONE:]:
            self.offers[offer.declaration.name] = offer
        if known is not None:
            self._say_what_changed(known)
        return True

    async def read(self, within: float | None = None) -> OfferedList:
        """Ask the server for its list, ``within`` so many seconds, and remember it.

        Raises:
            TimeoutError: it takes too long.
            NeverSent, RequestRefused, Lost, InvalidAnswer, RpcError: there is none.
        """
        async with asyncio.timeout(self.section.connect_timeout if within is None else within):
            listed = await self.own.renewing(partial(read_list, self.connection))
        self.last_list.write(listed)
        return listed

    async def _listed(self, known: OfferedList | None) -> OfferedList | None:
        until = time.monotonic() + self.section.connect_timeout
        try:
            return await (self.read() if known is not None else self._awaited(until))
        except (*ENDED, TimeoutError) as error:
            reason = one_line(error, self.section.connect_timeout)
        if known is None:
            log.error(
                "[mcp.%s]: there is no list of its tools: %s; they are missing until this worker starts again",
                self.label,
                reason,
            )
        else:
            log.warning("[mcp.%s]: its tools are those that it had last: %s", self.label, reason)
        return known

    async def _awaited(self, until: float) -> OfferedList:
        """The list of a server that may be starting at the same moment as this worker."""
        while True:
            try:
                return await self.read(max(0.0, until - time.monotonic()))
            except NeverSent:
                if time.monotonic() + _AGAIN >= until:
                    raise
            await asyncio.sleep(_AGAIN)

    def _say_what_changed(self, known: OfferedList) -> None:
        before = {offer.name: offer.digest for offer in offers_of(self.label, self.section, known.tools)[0]}
        for offer in self.offers.values():
            if offer.is_gone and offer.name in before:
                log.warning("[mcp.%s]: tool %r is gone: its calls are refused", self.label, offer.name)
            elif before and not offer.is_gone and before.get(offer.name) != offer.digest:
                what = "changed" if offer.name in before else "is new"
                log.warning("[mcp.%s]: tool %r %s: its digest is %s", self.label, offer.name, what, offer.digest)


class Refresher:
    """Keeps the list of one server fresh."""

    def __init__(self, server: Server, renewed: Callable[[], None]) -> None:
        """``renewed`` is called when its tools may be others."""
        self._server = server
        self._renewed = renewed
        self._not_before = time.monotonic() + _APART
        self._apart = _APART
        self._differed_at = -math.inf
        self._is_away = False

    async def run(self) -> None:
        """Look, again and again."""
        while True:
            with suppress(TimeoutError):
                async with asyncio.timeout(_LOOK):
                    await self._server.changed.wait()
            rest = max(0.0, self._not_before - time.monotonic())
            await asyncio.sleep(min(_LOOK, rest) if self._server.changed.is_set() else 0)
            try:
                await self.look()
            except Exception:
                # The list of a stranger: whatever is wrong with it, the next one may be better.
                log.exception("[mcp.%s]: its list is not read again", self._server.label)
                self._not_before = time.monotonic() + _RETRY

    async def look(self) -> None:
        """Take the list that another process has read, or ask for it if it is time."""
        server = self._server
        known = server.last_list.read_if_new()
        if known is not None:
            if known.read_at >= server.changed_at:
                server.changed.clear()
            self._take(known)
        if not self._is_due() or time.monotonic() < self._not_before:
            return
        with server.last_list.turn() as is_ours:
            if is_ours:
                await self._ask()
            else:
                self._not_before = time.monotonic() + _LOOK

    def _is_due(self) -> bool:
        if self._server.changed.is_set():
            return True
        # A process is not started for its list: it says itself when that changed.
        asks = self._server.section.url is not None or self._server.connection.alive
        return asks and self._server.listed is not None and self._server.listed.is_old

    async def _ask(self) -> None:
        self._server.changed.clear()
        self._not_before = time.monotonic() + _APART
        try:
            listed = await self._server.read()
        except (*ENDED, TimeoutError) as error:
            self._not_before = time.monotonic() + _RETRY
            if not self._is_away:
                reason = one_line(error, self._server.section.connect_timeout)
                log.warning("[mcp.%s]: its list is not read again: %s", self._server.label, reason)
            self._is_away = True
            return
        self._is_away = False
        self._take(listed)

    def _take(self, listed: OfferedList) -> None:
        if not self._server.renew(listed):
            self._apart = _APART
            return
        now = time.monotonic()
        was_quiet = now - self._differed_at > 2 * _SLOWEST
        self._apart = _APART if was_quiet else min(2 * self._apart, _SLOWEST)
        self._differed_at = now
        self._not_before = max(self._not_before, now + self._apart)
        self._renewed()


def servers_of(settings: Settings, sections: Mapping[str, McpServer]) -> list[Server]:
    """The servers of these tables whose secrets are here: others are left to workers that have them."""
    servers = []
    for label, section in sections.items():
        try:
            servers.append(Server(label, section, settings))
        except ConfigurationError as error:
            log.error("[mcp.%s] is left out: %s", label, error)
    return servers


def one_line(error: BaseException, timeout: float) -> str:
    """The reason of a failure in a line, without secrets."""
    if isinstance(error, TimeoutError):
        return f"it did not answer within {timeout:g} s"
    return redact(" ".join(visible(str(error)).split()))[:500] or type(error).__name__
