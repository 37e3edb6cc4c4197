"""Servers that agents of conversations name themselves (ADR 0123): asked for their list once in a conversation, and by
each process with connections of that conversation alone."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, Final

from palaver.config.settings import Settings
from palaver.errors import ToolError
from palaver.schemas.mcp_servers import JOINT
from palaver.steps.leases import Lease
from palaver.tools import ToolContext, ToolDeclaration
from palaver.vocabulary.limits import count_exceeded, limit_of

from ...connections.lookup_threads import LookupThreads
from ..containment import ToolAnswer
from ..own_servers import KeptLists
from .failures import ENDED, failure_of_call
from .lists import read_list
from .offers import OfferedTool
from .open_servers import Key, OpenServers
from .own_server import WITHIN, OwnServer, stand_in
from .wire import Lost

log = logging.getLogger("palaver.workers.sources.mcp.own_servers")

_AGAIN: Final = 60.0
"""Seconds until a process asks again on its own for a list that did not come."""


class OwnMcpTools:
    """As ``OwnTools``."""

    def __init__(self, own: McpOwnServers, lease: Lease, servers: Mapping[Key, OwnServer]) -> None:
        self._own = own
        self._lease = lease
        self._servers = {server.label: (key, server) for key, server in servers.items()}
        self._unlisted = {stand_in(server.label).name for server in servers.values() if server.listed is None}
        room = limit_of("agent_tools") - len(lease.agent.tools) - len(lease.agent.client_tools) - len(self._unlisted)
        listed = [tool for server in servers.values() for tool in server.tools.declarations]
        if len(listed) > room:
            count_exceeded("agent_tools")
        declared = [*(stand_in(server.label) for server in servers.values() if server.listed is None), *listed]
        self.declarations: Mapping[str, ToolDeclaration] = {
            tool.name: tool for tool in declared[: max(0, room) + len(self._unlisted)]
        }

    async def call(self, declared: ToolDeclaration, arguments: Mapping[str, Any], context: ToolContext) -> ToolAnswer:
        """As ``ToolSource``."""
        key, server = self._servers[declared.name.partition(JOINT)[0]]
        with self._own.open.using(((key, server),)):
            if declared.name in self._unlisted:
                return await self._listed(server, context)
            server.require_allowed()
            return await server.tools.call(declared, arguments, context)

    async def _listed(self, server: OwnServer, context: ToolContext) -> str:
        offer = OfferedTool("tools/list", stand_in(server.label), "", None, {}, {})
        try:
            await self._own.read(server, self._lease, context)
        except TimeoutError:
            raise failure_of_call(Lost(f"it sent no list within {WITHIN:g} s"), server, offer) from None
        except ENDED as error:
            raise failure_of_call(error, server, offer) from error
        return f"{server.label} has these tools now: {', '.join(sorted(server.offers)) or 'none'}"


class McpOwnServers:
    """As ``OwnServers``."""

    def __init__(self, settings: Settings, lists: KeptLists) -> None:
        self._settings = settings
        self._lists = lists
        # Strangers run the servers of these names, and may let them never answer.
        self._names = LookupThreads()
        self.open = OpenServers()

    async def tools_of(self, lease: Lease, context: ToolContext) -> OwnMcpTools:
        """As ``OwnServers``."""
        servers = self._servers(lease)
        with self.open.using(tuple(servers.items())):
            unknown = {server.digest: server for server in servers.values() if server.listed is None}
            if unknown:
                for digest, text in (await self._lists.of(lease.conversation_id, tuple(unknown))).items():
                    unknown.pop(digest).take_told(text)
                await self._ask(tuple(unknown.values()), lease, context)
            return OwnMcpTools(self, lease, servers)

    async def _ask(self, servers: Sequence[OwnServer], lease: Lease, context: ToolContext) -> None:
        now = time.monotonic()
        asked = [server for server in servers if now >= server.not_before]
        ends = await asyncio.gather(*(self.read(server, lease, context) for server in asked), return_exceptions=True)
        for server, error in zip(asked, ends, strict=True):
            if error is None:
                continue
            if not isinstance(error, (*ENDED, TimeoutError, ToolError)):
                raise error
            server.not_before = time.monotonic() + _AGAIN
            # What the server said may be content, and so may its label.
            why = type(error).__name__
            log.warning("run %s: the server at %s sent no list of tools: %s", lease.run_id, server.host, why)

    async def read(self, server: OwnServer, lease: Lease, context: ToolContext) -> None:
        """Ask a server for its list, and keep it.

        Raises:
            TimeoutError: it takes too long.
            NeverSent, RequestRefused, Lost, InvalidAnswer, RpcError: there is none.
            ToolError: it may not be asked, or the conversation lacks a secret.
            StaleLease: the lease is not the newest any more.
        """
        # Waiting for another one who asks counts, too.
        async with asyncio.timeout(WITHIN) as within, server.asking:
            if server.listed is not None:
                return
            server.require_allowed()
            with server.accesses.using(context) as access:
                listed = await access.renewing(partial(read_list, access.connection))
            within.reschedule(None)
            server.take_told(await self._lists.keep(lease, server.digest, server.told(listed)))

    def _servers(self, lease: Lease) -> Mapping[Key, OwnServer]:
        servers = {}
        for label, spec in lease.agent.mcp_servers.items():
            key = lease.conversation_id, f"{label} {spec.model_dump_json()}"
            servers[key] = self.open.get(key, partial(OwnServer, label, spec, self._settings, self._names))
        return servers

    async def close(self) -> None:
        """As ``OwnServers``."""
        await self.open.close()
