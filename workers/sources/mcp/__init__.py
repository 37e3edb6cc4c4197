"""Servers of the Model Context Protocol as a source of tools.

[mcp.github]
url = "https://mcp.example.com/mcp"
headers.Authorization = { env = "GITHUB_TOKEN", prefix = "Bearer " }

[mcp.files]
command = ["mcp-server-files", "/data"]
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Final

from palaver.config.settings import Settings
from palaver.processes.tasks import end

from ..guests import SourceFinding
from ..port import RunBlocking, ToolSource
from .checking import finding
from .refreshing import Refresher
from .section import McpServer
from .server import servers_of
from .source import McpTools

__all__ = ["KIND"]


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
            yield await finding(settings, label, section)


KIND: Final = _Kind()
