"""Servers that agents of conversations name themselves (ADR 0123): asked for their list once in a conversation, and by
each process with connections of that conversation alone."""

from __future__ import annotations

import asyncio
import hashlib
import logging
import time
from collections import OrderedDict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any, Final

import orjson

from palaver.config.settings import Settings
from palaver.errors import ToolError
from palaver.schemas.mcp_servers import JOINT, VARIABLE, OwnMcpServer
from palaver.steps.leases import Lease
from palaver.tools import ToolContext, ToolDeclaration
from palaver.vocabulary.limits import count_exceeded, limit_of

from ...connections.lookup_threads import LookupThreads
from ..containment import ToolAnswer
from ..own_servers import KeptLists
from ..tables import HeaderFromSecret
from .credentials import Credentials
from .failures import ENDED, failure_of_call
from .http_channel import HttpChannel
from .lists import OfferedList, read_list
from .offers import OfferedTool, allowed, offers_of
from .section import McpServer
from .server import Server
from .source import McpTools
from .wire import Lost, ServerChannel

log = logging.getLogger("palaver.workers.sources.mcp.own_servers")

_WITHIN: Final = 10.0
"""Seconds in which a server has to send its list."""
_AGAIN: Final = 60.0
"""Seconds until a process asks again on its own for a list that did not come."""
_MOST: Final = 256
"""Conversations whose connections are kept though nobody uses them."""
_IDLE: Final = 30.0
"""Seconds without use after which they may be closed for others."""
_TOLD: Final = ("name", "description", "inputSchema")
"""The part of a definition that is kept: nothing else that such a server says of a tool counts."""


class OwnServer(Server):
    """A server of one conversation."""

    def __init__(self, label: str, spec: OwnMcpServer, settings: Settings, names: LookupThreads) -> None:
        super().__init__(label, _section_of(spec), settings)
        self.digest = _digest_of(label, spec)
        self.host = spec.host
        self.is_allowed = spec.allowed_by(settings.inline_mcp_hosts)
        # Who listed the very host knows where it leads; what a pattern fits is somebody else's to point anywhere.
        self._outward = not spec.is_named_by(settings.inline_mcp_hosts)
        self._names = names
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
        taken = stand_in(self.label).name
        offers = offers_of(self.label, self.section, looked_at)[0]
        fit = {offer.name for offer in offers if offer.declaration.name != taken}
        return orjson.dumps([definition for definition in looked_at if definition.get("name") in fit])

    def take_told(self, text: bytes) -> None:
        """Take the tools that are kept. The log has nothing of what a stranger calls them."""
        self._accept(OfferedList(tuple(orjson.loads(text)), time.time()))


class _OwnTools(McpTools):
    """The tools of such servers, which are bounded already, and whose labels never meet."""

    def renew(self) -> None:
        """As ``McpTools``."""
        found = [(server, offer) for server in self._servers for offer in server.offers.values()]
        self._tools = {offer.declaration.name: (server, offer) for server, offer in found}
        self.declarations = tuple(offer.declaration for _, offer in found)


class _Conversation:
    """The servers of one conversation, by what is said of them, and the tools that were made of them last."""

    def __init__(self) -> None:
        self.servers: dict[str, OwnServer] = {}
        self.users = 0
        self.used_at = 0.0
        self._of: tuple[OfferedList | None, ...] = ()
        self._tools = _OwnTools(())

    def tools_of(self, servers: Sequence[OwnServer]) -> _OwnTools:
        """The tools of those whose lists are known."""
        lists = tuple(server.listed for server in servers)
        if len(lists) != len(self._of) or any(one is not other for one, other in zip(lists, self._of, strict=True)):
            self._of, self._tools = lists, _OwnTools(servers)
        return self._tools


class OwnMcpTools:
    """As ``OwnTools``."""

    def __init__(self, own: McpOwnServers, lease: Lease, conversation: _Conversation, servers: list[OwnServer]) -> None:
        self._own = own
        self._lease = lease
        self._conversation = conversation
        self._tools = conversation.tools_of(servers)
        self._servers = {server.label: server for server in servers}
        self._unlisted = {stand_in(server.label).name: server for server in servers if server.listed is None}
        room = limit_of("agent_tools") - len(lease.agent.tools) - len(lease.agent.client_tools) - len(self._unlisted)
        declared = [*(stand_in(server.label) for server in self._unlisted.values()), *self._tools.declarations]
        if len(self._tools.declarations) > room:
            count_exceeded("agent_tools")
        self.declarations: Mapping[str, ToolDeclaration] = {
            tool.name: tool for tool in declared[: max(0, room) + len(self._unlisted)]
        }

    async def call(self, declared: ToolDeclaration, arguments: Mapping[str, Any], context: ToolContext) -> ToolAnswer:
        """As ``ToolSource``."""
        server = self._unlisted.get(declared.name)
        with self._own.using(self._conversation):
            if server is not None:
                return await self._listed(server, context)
            self._servers[declared.name.partition(JOINT)[0]].require_allowed()
            return await self._tools.call(declared, arguments, context)

    async def _listed(self, server: OwnServer, context: ToolContext) -> str:
        offer = OfferedTool("tools/list", stand_in(server.label), "", None, {}, {})
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
        self._of: OrderedDict[str, _Conversation] = OrderedDict()
        self._closing: set[asyncio.Task[None]] = set()

    async def tools_of(self, lease: Lease, context: ToolContext) -> OwnMcpTools:
        """As ``OwnServers``."""
        conversation = self._conversation(lease.conversation_id)
        with self.using(conversation):
            servers = self._servers(conversation, lease)
            unknown = {server.digest: server for server in servers if server.listed is None}
            if unknown:
                for digest, text in (await self._lists.of(lease.conversation_id, tuple(unknown))).items():
                    unknown.pop(digest).take_told(text)
                await self._ask(tuple(unknown.values()), lease, context)
            return OwnMcpTools(self, lease, conversation, servers)

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

    def _conversation(self, conversation_id: str) -> _Conversation:
        conversation = self._of.setdefault(conversation_id, _Conversation())
        self._of.move_to_end(conversation_id)
        return conversation

    def _servers(self, conversation: _Conversation, lease: Lease) -> list[OwnServer]:
        servers = []
        for label, spec in lease.agent.mcp_servers.items():
            said = f"{label} {spec.model_dump_json()}"
            if said not in conversation.servers:
                conversation.servers[said] = OwnServer(label, spec, self._settings, self._names)
            servers.append(conversation.servers[said])
        return servers

    @contextmanager
    def using(self, conversation: _Conversation) -> Iterator[None]:
        """Within the block, the connections of the conversation stay open."""
        conversation.users += 1
        try:
            yield
        finally:
            conversation.users -= 1
            conversation.used_at = time.monotonic()
            self._leave_idle()

    def _leave_idle(self) -> None:
        """Close those that nobody uses, the oldest first, beyond as many as are kept."""
        beyond, now = len(self._of) - _MOST, time.monotonic()
        if beyond <= 0:
            return
        for conversation_id, conversation in list(self._of.items())[:beyond]:
            if not conversation.users and now - conversation.used_at > _IDLE:
                del self._of[conversation_id]
                self._close(conversation)

    def _close(self, conversation: _Conversation) -> None:
        for server in conversation.servers.values():
            task = asyncio.create_task(server.accesses.close())
            self._closing.add(task)
            task.add_done_callback(self._closing.discard)

    async def close(self) -> None:
        """As ``OwnServers``."""
        for conversation in self._of.values():
            self._close(conversation)
        self._of.clear()
        await asyncio.gather(*self._closing, return_exceptions=True)


def stand_in(label: str) -> ToolDeclaration:
    """The tool that stands in the place of those that nobody knows yet."""
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
