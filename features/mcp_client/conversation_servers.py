"""Servers that agents of conversations name themselves (ADR 0111): asked for their list once in a conversation, and by
each process with connections of that conversation alone. A process keeps so many open, and of each tenant its share."""

from __future__ import annotations

import asyncio
import hashlib
import logging
import time
from collections import Counter, OrderedDict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import Any, ClassVar, Final

import orjson

from palaver.config.settings import Settings
from palaver.errors import ToolError
from palaver.schemas.mcp_servers import JOINT, VARIABLE, OwnMcpServer, tool_name
from palaver.steps.leases import Lease
from palaver.tools import ToolContext, ToolDeclaration
from palaver.vocabulary.ids import tenant_of
from palaver.vocabulary.limits import count_exceeded, limit_of
from workers.connections.lookup_threads import LookupThreads
from workers.sources.containment import ToolAnswer
from workers.sources.port import KeptLists
from workers.sources.tables import HeaderFromSecret

from .calls import failure_of_call
from .credentials import Credentials
from .http_transport import HttpChannel
from .offered_tools import OfferedTool, allowed, offers_of
from .server import Server
from .source import McpTools
from .tables import McpServer
from .tool_lists import OfferedList, read_list
from .wire import ENDED, Lost, ServerChannel

log = logging.getLogger("palaver.features.mcp_client.conversation_servers")

_Key = tuple[str, str]
"""A conversation, and what its agent says of the server."""
_WITHIN: Final = 10.0
"""Seconds in which a server has to send its list."""
_TOLD: Final = ("name", "description", "inputSchema")
"""The part of a definition that is kept: nothing else that such a server says of a tool counts."""
_AGAIN: Final = 60.0
"""Seconds until a process asks again on its own for a list that did not come."""
_TOLD_EVERY: Final = 64
"""Servers that are closed for others between two lines of the log."""


class OwnServer(Server):
    """A server of one conversation."""

    _KEPT: ClassVar[int] = 1
    """It is asked with the newest value of a secret; who is not done keeps an older one."""

    def __init__(self, label: str, spec: OwnMcpServer, settings: Settings, names: LookupThreads) -> None:
        super().__init__(label, _section_of(spec), settings)
        self.digest = _digest_of(label, spec)
        self.host = spec.host
        self.is_allowed = spec.allowed_by(settings.inline_mcp_hosts)
        # Who listed the very host knows where it leads; what a pattern fits its owner may point anywhere.
        self._outward = not spec.is_named_by(settings.inline_mcp_hosts)
        self._names = names
        self.tools = OwnServerTools((self,))
        """The tools of the list that is kept; none before."""
        self.users = 0
        """The steps that it is for at the moment."""
        self.asking = asyncio.Lock()
        self.not_before = 0.0

    def _channel(self, credentials: Credentials) -> ServerChannel:
        assert self.section.url is not None  # it has no command
        return HttpChannel(self.section.url, credentials, self.note_change, outward=self._outward, names=self._names)

    def require_allowed(self) -> None:
        """Raises:
        ToolError: this worker may not ask it.
        """
        if not self.is_allowed:
            raise ToolError(f"nothing was asked: {VARIABLE} of the worker does not allow the host {self.host}")

    def told(self, listed: OfferedList) -> bytes:
        """The part of a list that is kept, as JSON: no more than may be, and of that the tools that are fit."""
        looked_at: list[dict[str, Any]] = []
        size = 0
        for tool in listed.tools:
            if not isinstance(tool, dict) or not allowed(str(tool.get("name")), self.section.allow):
                continue
            definition = {field: tool[field] for field in _TOLD if field in tool}
            size += len(orjson.dumps(definition))
            too_many, too_large = len(looked_at) >= limit_of("own_tools"), size > limit_of("own_list")
            if too_many or too_large:
                count_exceeded("own_tools" if too_many else "own_list")
                break
            looked_at.append(definition)
        # A tool of the stand-in's name would be called as that: without an approval, and again after a loss.
        taken = _stand_in(self.label).name
        offers = offers_of(self.label, self.section, looked_at)[0]
        fit = {offer.name for offer in offers if tool_name(self.label, offer.name) != taken}
        return orjson.dumps([definition for definition in looked_at if definition.get("name") in fit])

    def take_told(self, text: bytes) -> None:
        """Take the tools that are kept. The log has nothing of what a stranger calls them."""
        self._accept(OfferedList(tuple(orjson.loads(text)), time.time()))
        self.tools.renew()


class OwnServerTools(McpTools):
    """The tools of such a server, which are bounded already."""

    def renew(self) -> None:
        """As ``McpTools``."""
        found = [(server, offer) for server in self._servers for offer in server.offers.values()]
        self._tools = {offer.declaration.name: (server, offer) for server, offer in found}
        self.declarations = tuple(offer.declaration for _, offer in found)


class OpenServers:
    """Each with its connections. Beyond the most that are kept, idle ones are closed: of the tenant that
    has the most, the one that was used least recently, and of none that has no more than an equal share. So a tenant
    that opens many closes his own."""

    def __init__(self) -> None:
        self._of: OrderedDict[_Key, OwnServer] = OrderedDict()
        """The one that was used least recently is first."""
        self._closing: set[asyncio.Task[None]] = set()
        self._closed = 0

    def __len__(self) -> int:
        return len(self._of)

    def get(self, key: _Key, make: Callable[[], OwnServer]) -> OwnServer:
        """The server of this key; it is made if none is open."""
        return self._of.get(key) or make()

    @contextmanager
    def using(self, servers: Sequence[tuple[_Key, OwnServer]]) -> Iterator[None]:
        """Within the block, these stay open. One that was closed meanwhile is opened again by its first request."""
        with ExitStack() as used:
            for key, server in servers:
                used.enter_context(self._using(key, server))
            self._leave_some()
            yield

    @contextmanager
    def _using(self, key: _Key, server: OwnServer) -> Iterator[None]:
        self._of.setdefault(key, server)
        server.users += 1
        try:
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

    def _least_missed(self) -> _Key | None:
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


class OwnMcpTools:
    """The tools of the servers that an agent names itself: an `OwnTools`."""

    def __init__(self, own: McpOwnServers, lease: Lease, servers: Mapping[_Key, OwnServer]) -> None:
        self._own = own
        self._lease = lease
        self._servers = {server.label: (key, server) for key, server in servers.items()}
        self._unlisted = {_stand_in(server.label).name for server in servers.values() if server.listed is None}
        room = limit_of("agent_tools") - len(lease.agent.tools) - len(lease.agent.client_tools) - len(self._unlisted)
        listed = [tool for server in servers.values() for tool in server.tools.declarations]
        if len(listed) > room:
            count_exceeded("agent_tools")
        declared = [*(_stand_in(server.label) for server in servers.values() if server.listed is None), *listed]
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
        offer = OfferedTool("tools/list", _stand_in(server.label), "", None, {}, {})
        try:
            await self._own.read(server, self._lease, context)
        except TimeoutError:
            raise failure_of_call(Lost(f"it sent no list within {_WITHIN:g} s"), server, offer) from None
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
        async with asyncio.timeout(_WITHIN) as within, server.asking:
            if server.listed is not None:
                return
            server.require_allowed()
            with server.accesses.using(context) as access:
                listed = await access.renewing(partial(read_list, access.connection))
            within.reschedule(None)
            server.take_told(await self._lists.keep(lease, server.digest, server.told(listed)))

    def _servers(self, lease: Lease) -> Mapping[_Key, OwnServer]:
        servers = {}
        for label, spec in lease.agent.mcp_servers.items():
            key = lease.conversation_id, f"{label} {spec.model_dump_json()}"
            servers[key] = self.open.get(key, partial(OwnServer, label, spec, self._settings, self._names))
        return servers

    async def close(self) -> None:
        """As ``OwnServers``."""
        await self.open.close()


def _stand_in(label: str) -> ToolDeclaration:
    """The tool that stands in the place of those that are not known yet."""
    return ToolDeclaration(
        name=f"{label}{JOINT}list_tools",
        description=f"The server {label} did not say yet which tools it has. This asks it again.",
        parameters={"type": "object", "properties": {}},
        idempotent=True,
        timeout=2 * _WITHIN,
    )


def _section_of(spec: OwnMcpServer) -> McpServer:
    """The table that an operator would write for such a server. Its word about its tools does not count."""
    headers = {name: HeaderFromSecret(secret=each.secret, prefix=each.prefix) for name, each in spec.headers.items()}
    return McpServer(
        url=spec.url, headers=headers, allow=spec.allow, timeout=spec.timeout, connect_timeout=_WITHIN, plain_http=True,
        risky=True,
    )  # fmt: skip


def _digest_of(label: str, spec: OwnMcpServer) -> str:
    """The digest of which server it is, and of what is taken from it."""
    told = [label, spec.url, sorted(spec.headers), spec.allow]
    return hashlib.sha256(orjson.dumps(told)).hexdigest()[:32]
