"""The servers of a file as one source: workers open it, steps call its tools, ``palaver tools check`` looks at each."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping
from contextlib import asynccontextmanager
from typing import Any, Final

from palaver.config.settings import Settings
from palaver.errors import ConfigurationError, ToolError, ToolTimeout
from palaver.processes.tasks import end
from palaver.tools import ToolContext, ToolDeclaration
from palaver.vocabulary.limits import count_exceeded, limit_of
from workers.sources.containment import ToolAnswer, failing, presented, timed_out
from workers.sources.guests import SourceFinding, ToolsOfFile
from workers.sources.port import RunBlocking, ToolSource
from workers.sources.services import described

from .calls import RemoteCall, failure_of_call
from .offered_tools import OfferedTool, offers_of
from .server import Refresher, Server, one_line, servers_of
from .stdio_transport import StdioChannel
from .tables import McpServer
from .wire import ENDED, UNKNOWN, NeverSent, RequestRefused

log = logging.getLogger("palaver.features.mcp_client.source")

_NOBODYS: Final = (None, None)


class McpTools(ToolsOfFile):
    """The source of all tools of these servers."""

    def __init__(self, servers: Iterable[Server]) -> None:
        """Take what fits together: a name that two servers have is left out."""
        self._servers = tuple(servers)
        self._tools: dict[str, tuple[Server, OfferedTool]] = {}
        self.declarations: tuple[ToolDeclaration, ...] = ()
        self.renew()

    def renew(self) -> None:
        """Take what the servers have by now."""
        self._tools = {offer.declaration.name: (server, offer) for server, offer in _taken_together(self._servers)}
        self.declarations = tuple(offer.declaration for _, offer in self._tools.values())

    async def call(self, declared: ToolDeclaration, arguments: Mapping[str, Any], context: ToolContext) -> ToolAnswer:
        """As ``ToolSource``: ask the server that has it."""
        server, offer = self._tools.get(declared.name, _NOBODYS)
        if server is None or offer is None or (offer.is_gone and context.left is None):
            what = "nothing was called" if context.left is None else UNKNOWN
            raise ToolError(f"{declared.name} is no longer there: {what}")
        call = RemoteCall(server, offer, declared, arguments, context)
        try:
            async with asyncio.timeout(declared.timeout):
                with failing(declared, asyncio.current_task()):
                    result = await call.result()
            return presented(declared, result)
        except TimeoutError:
            if not call.sent:
                late = NeverSent(f"it did not answer within {declared.timeout:g} s")
                raise failure_of_call(late, server, offer) from None
            raise ToolTimeout(f"{timed_out(declared.name, declared.timeout)}: {UNKNOWN}") from None


def _taken_together(servers: Iterable[Server]) -> Iterator[tuple[Server, OfferedTool]]:
    """Yield the tools that are taken, in the order of the file; those of two servers with one name are left out. They
    have a budget: a server with a long list must not keep the worker from starting."""
    found = [(server, offer) for server in servers for offer in server.offers.values()]
    names = [offer.declaration.name for _, offer in found]
    number, size = 0, 0
    for server, offer in found:
        declared = offer.declaration
        if names.count(declared.name) > 1:
            log.error("two servers have a tool that would be named %r: it is left out", declared.name)
            continue
        number, size = number + 1, size + len(declared.model_dump_json())
        if number > limit_of("mcp_all_tools") or size > limit_of("mcp_declarations"):
            count_exceeded("mcp_all_tools" if number > limit_of("mcp_all_tools") else "mcp_declarations")
            log.error("servers offer more than a worker takes: [mcp.%s] %r is left out", server.label, offer.name)
            continue
        yield server, offer


class _Kind:
    """As ``SourceKind``."""

    section = McpServer

    @asynccontextmanager
    async def open(
        self, settings: Settings, sections: Mapping[str, McpServer], run_blocking: RunBlocking | None
    ) -> AsyncIterator[ToolSource]:
        """Read the list of each server; connections that calls need are made when they need them."""
        servers = servers_of(settings, sections)
        try:
            await asyncio.gather(*(server.load() for server in servers))
            tools = McpTools(servers)
            refreshing = [asyncio.create_task(Refresher(server, tools.renew).run()) for server in servers]
            try:
                yield tools
            finally:
                await end(*refreshing)
        finally:
            await asyncio.gather(*(server.accesses.close() for server in servers))

    async def check(self, settings: Settings, sections: Mapping[str, McpServer]) -> AsyncIterator[SourceFinding]:
        """Ask each server for its list."""
        for label, section in sections.items():
            yield await _finding(settings, label, section)


async def _finding(settings: Settings, label: str, section: McpServer) -> SourceFinding:
    """Ask the server for its list, whatever is remembered of it."""
    table = f"mcp.{label}"
    try:
        server = Server(label, section, settings)
    except ConfigurationError as error:
        return SourceFinding(
            table, ok=False, found=str(error), advice="Set the variable, or name it in PALAVER_TOOL_ENV."
        )
    try:
        listed = await server.read()
    except (*ENDED, TimeoutError) as error:
        found = f"It gives no list of its tools: {one_line(error, section.connect_timeout)}."
        return SourceFinding(table, ok=False, found=found, advice=_advice(server, error))
    finally:
        await server.accesses.close()
    left_out = server.take(listed)
    named = server.connection.server or "a server without a name"
    found = f"{named}, {server.connection.revision}: {len(server.offers)} of {len(listed.tools)} tools."
    sentences = (f"{sentence[:1].upper()}{sentence[1:]}." for sentence in left_out)
    accepting = ""
    if section.pin:
        unpinned = section.model_copy(update={"pin": False})
        pins = {offer.name: offer.digest for offer in offers_of(label, unpinned, listed.tools)[0]}
        changed = {name: digest for name, digest in pins.items() if section.pins.get(name) != digest}
        lines = ", ".join(f'"{name}" = "{digest}"' for name, digest in changed.items())
        accepting = f"Look at what changed and accept it under [mcp.{label}.pins]: {lines}" if changed else ""
    return SourceFinding(
        table,
        ok=not accepting,
        found=" ".join(
            [found, *sentences, *described({offer.name: offer.declaration for offer in server.offers.values()})]
        ),
        tools=tuple(sorted(server.offers)),
        advice=accepting,
    )


def _advice(server: Server, error: Exception) -> str:
    if isinstance(server.channel, StdioChannel) and server.channel.last_words:
        words = server.channel.last_words.decode("utf-8", "replace")
        return f"Its last words: {one_line(Exception(words), 0)}"
    if isinstance(error, RequestRefused) and error.status in (401, 403):
        return "Look at the secrets that its headers name."
    return "See that it runs, and that it is reached from here."


KIND: Final = _Kind()
