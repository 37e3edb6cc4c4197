"""The tools of an MCP server, opened as a worker opens them."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from features.mcp_client.tests.unit.mcp_server import McpServer
from palaver.errors import ToolFailure
from palaver.tools import ToolContext
from tests.unit.declared_tools import tools_of_file
from workers.sources import Toolbox
from workers.sources.containment import ToolAnswer


class OpenedTools:
    """A toolbox with the tools of one server, which is named ``s``."""

    def __init__(self, tools: Toolbox) -> None:
        self.box = tools

    @property
    def names(self) -> list[str]:
        """Its tools, by the names that models use."""
        return [declared.name for declared in self.box.declarations]

    async def call(
        self, name: str, arguments: dict[str, Any] | None = None, context: ToolContext | None = None
    ) -> ToolAnswer:
        """Call a tool of the server."""
        return await self.box.call(f"s__{name}", arguments or {}, context or ToolContext())

    async def failure(self, name: str, arguments: dict[str, Any] | None = None) -> ToolFailure:
        """The failure of a call that has one."""
        try:
            result = await self.call(name, arguments)
        except ToolFailure as failure:
            return failure
        raise AssertionError(f"it answered {str(result)[:200]!r}")


@asynccontextmanager
async def opened(folder: Path, table: str, others: str = "") -> AsyncIterator[OpenedTools]:
    """Open the tools of ``[mcp.s]`` with the lines of ``table``."""
    async with tools_of_file(folder, f"[mcp.s]\n{table}\n{others}", beside=()) as tools:
        yield OpenedTools(tools)


@asynccontextmanager
async def opened_at(folder: Path, server: McpServer, table: str = "") -> AsyncIterator[OpenedTools]:
    """The same of a server with a URL."""
    async with opened(folder, f'url = "{server.url}"\n{table}') as tools:
        yield tools
