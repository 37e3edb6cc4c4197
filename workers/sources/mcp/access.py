"""The credentials with which a server is asked, of the source itself, a tenant or a conversation: each has a connection
of its own, so that no session and no token is another one's.
"""

from __future__ import annotations

import asyncio
import logging
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import TypeVar

from palaver.errors import ConfigurationError, ToolError
from palaver.tools import ToolContext
from palaver.vocabulary.ids import tenant_of

from .connection import McpConnection
from .credentials import Credentials
from .section import McpServer, TenantAccess
from .wire import RequestRefused

log = logging.getLogger("palaver.workers.sources.mcp.access")

T = TypeVar("T")


class ServerAccess:
    """Asks a server as somebody."""

    def __init__(self, credentials: Credentials, connection: McpConnection) -> None:
        self.credentials = credentials
        self.connection = connection
        self.users = 0
        """The calls that it is for at the moment."""

    async def renewing(self, ask: Callable[[], Awaitable[T]]) -> T:
        """Ask, and once more with a new token if the server did not take the request because of the old one."""
        try:
            return await ask()
        except RequestRefused as error:
            if error.status != 401 or not self.credentials.renewed():
                raise
            return await ask()


class Accesses:
    """The accesses to one server. Those of others than the source are made when they are needed."""

    def __init__(
        self, label: str, section: McpServer, connect: Callable[[Credentials], McpConnection], *, most: int
    ) -> None:
        """``most`` connections with secrets of conversations are kept though nobody uses them.

        Raises:
            ConfigurationError: a variable is not set.
        """
        self._most = most
        self._label = label
        self._section = section
        self._connect = connect
        self.own = self._access(Credentials(section))
        self._of_tenants = {tag: self._of_tenant(tag, tenant) for tag, tenant in section.tenants.items()}
        """None for one whose secret is not here: it is not asked for with another's."""
        self._of_conversations: OrderedDict[tuple[str, ...], ServerAccess] = OrderedDict()
        self._closing: set[asyncio.Task[None]] = set()

    def _of_tenant(self, tag: str, tenant: TenantAccess) -> ServerAccess | None:
        try:
            return self._access(Credentials(self._section, tenant))
        except ConfigurationError as error:
            log.error("[mcp.%s.tenants.%s]: nothing is asked for this tenant: %s", self._label, tag, error)
            return None

    def _access(self, credentials: Credentials) -> ServerAccess:
        return ServerAccess(credentials, self._connect(credentials))

    @contextmanager
    def using(self, context: ToolContext) -> Iterator[ServerAccess]:
        """The access for a call, within a block.

        Raises:
            ToolError: the server is not asked for this tenant, or the conversation lacks a secret.
        """
        access = self._of(context)
        access.users += 1
        try:
            yield access
        finally:
            access.users -= 1
            self._leave_idle()

    def _of(self, context: ToolContext) -> ServerAccess:
        # The id of a run says whose it is: nobody else can have said it.
        tag = tenant_of(context.run_id)
        access = self._of_tenants.get(tag) if tag in self._of_tenants or self._section.tenants_only else self.own
        if access is None:
            raise ToolError(f"{self._label} is not asked for this tenant: nothing was called")
        values = access.credentials.of_conversation(context)
        if not values:
            return access
        key = (tag, context.conversation_id, *values.values())
        known = self._of_conversations.pop(key, None)
        known = known or self._access(access.credentials.with_headers(values))
        self._of_conversations[key] = known
        return known

    def _leave_idle(self) -> None:
        """Close those that nobody uses, the oldest first, beyond as many as are kept."""
        idle = [key for key, access in self._of_conversations.items() if not access.users]
        for key in idle[: max(0, len(self._of_conversations) - self._most)]:
            task = asyncio.create_task(self._of_conversations.pop(key).connection.close())
            self._closing.add(task)
            task.add_done_callback(self._closing.discard)

    async def rest(self) -> None:
        """Close all connections; the next request opens its own again."""
        await asyncio.gather(*(access.connection.rest() for access in self._every), *self._closing)

    async def close(self) -> None:
        """Close all."""
        await asyncio.gather(*(access.connection.close() for access in self._every), *self._closing)

    @property
    def _every(self) -> tuple[ServerAccess, ...]:
        return (self.own, *filter(None, self._of_tenants.values()), *self._of_conversations.values())
