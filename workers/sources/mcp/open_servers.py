"""The servers of conversations that a process keeps open: so many, and of each tenant its share."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter, OrderedDict
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Final

from palaver.vocabulary.ids import tenant_of
from palaver.vocabulary.limits import count_exceeded, limit_of

from ...connections.lookup_threads import look_ups_of
from .own_server import OwnServer

log = logging.getLogger("palaver.workers.sources.mcp.open_servers")

Key = tuple[str, str]
"""A conversation, and what its agent says of the server."""
_TOLD_EVERY: Final = 64
"""Servers that are closed for others between two lines of the log."""


class OpenServers:
    """Each with its connections. Beyond the most that are kept, those that nobody uses are closed: of the tenant that
    has the most, the one that was used least recently, and of nobody who has no more than an equal share. So whoever
    opens many closes his own."""

    def __init__(self) -> None:
        self._of: OrderedDict[Key, OwnServer] = OrderedDict()
        """The one that was used least recently is first."""
        self._closing: set[asyncio.Task[None]] = set()
        self._closed = 0

    def __len__(self) -> int:
        return len(self._of)

    def get(self, key: Key, make: Callable[[], OwnServer]) -> OwnServer:
        """The server of this key; it is made if none is open."""
        return self._of.get(key) or make()

    @contextmanager
    def using(self, servers: Sequence[tuple[Key, OwnServer]]) -> Iterator[None]:
        """Within the block, these stay open. One that was closed meanwhile is opened again by its first request."""
        with ExitStack() as used:
            for key, server in servers:
                used.enter_context(self._using(key, server))
            self._leave_some()
            yield

    @contextmanager
    def _using(self, key: Key, server: OwnServer) -> Iterator[None]:
        self._of.setdefault(key, server)
        server.users += 1
        try:
            with look_ups_of(tenant_of(key[0])):
                yield
        finally:
            server.users -= 1
            if self._of.get(key) is server:
                self._of.move_to_end(key)
                self._leave_some()
            elif not server.users:
                # Another one took its place.
                self._rest(server)

    def _leave_some(self) -> None:
        while len(self._of) > limit_of("own_open") and (key := self._least_missed()) is not None:
            count_exceeded("own_open")
            if self._closed % _TOLD_EVERY == 0:
                log.info("MCP servers of conversations: %d are open, idle ones are closed for others", len(self._of))
            self._closed += 1
            self._rest(self._of.pop(key))

    def _least_missed(self) -> Key | None:
        """The one to close next; None if all are in use, or within the shares of their tenants."""
        has = Counter(tenant_of(conversation_id) for conversation_id, _ in self._of)
        share = limit_of("own_open") // len(has)
        idle = (key for key, server in self._of.items() if not server.users and has[tenant_of(key[0])] > share)
        return max(idle, key=lambda key: has[tenant_of(key[0])], default=None)

    def _rest(self, server: OwnServer) -> None:
        task = asyncio.create_task(server.accesses.rest())
        self._closing.add(task)
        task.add_done_callback(self._closing.discard)

    async def close(self) -> None:
        """Close all, for good."""
        servers = [*self._of.values()]
        self._of.clear()
        await asyncio.gather(*(server.accesses.close() for server in servers), *self._closing, return_exceptions=True)
