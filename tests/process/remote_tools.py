"""A tool source of a guest: what a server far away offers, as JSON schemas. The server is in this process."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

from palaver.config.settings import Settings
from palaver.errors import RetryableToolError, ToolError
from palaver.tools import ToolContext, ToolDeclaration
from palaver.tools.schemas import fitting
from workers.sources.containment import ToolAnswer, contained
from workers.sources.port import RunBlocking, ToolSource


class ServerError(Exception):
    """How this server fails: in its own way, which nothing in Palaver knows."""

    def __init__(self, status: int) -> None:
        super().__init__(f"status {status}")
        self.status = status


class Server:
    """What would be on the other end of a connection."""

    offers = (
        ToolDeclaration(
            name="look_up",
            description="Look something up.",
            parameters={
                "type": "object",
                "properties": {"key": {"type": "string", "maxLength": 20}, "x-count": {"type": "integer"}},
                "required": ["key"],
                "additionalProperties": False,
            },
            idempotent=True,
            timeout=0.5,
        ),
        ToolDeclaration(name="remove", description="Remove something.", risky=True, timeout=5),
    )

    async def answer(self, name: str, arguments: Mapping[str, Any]) -> object:
        """The answer to a request."""
        await asyncio.sleep(0)
        match arguments.get("key"):
            case "gone":
                raise ServerError(410)
            case "full":
                raise ServerError(503)
            case "slow":
                await asyncio.Event().wait()
        return {"name": name, **arguments}


class RemoteTools:
    """The tools of a server."""

    name = "the server"

    def __init__(self, server: Server) -> None:
        self._server = server
        self.declarations = server.offers

    def check(self, declared: ToolDeclaration, text: str) -> dict[str, Any]:
        """By the schema: there is nothing else of the tool here."""
        return fitting(declared, text)

    async def call(self, declared: ToolDeclaration, arguments: Mapping[str, Any], context: ToolContext) -> ToolAnswer:
        """Ask the server."""
        return await contained(declared, partial(self._ask, declared.name, arguments))

    async def _ask(self, name: str, arguments: Mapping[str, Any]) -> object:
        try:
            return await self._server.answer(name, arguments)
        except ServerError as error:
            if error.status == 503:
                raise RetryableToolError("the server is full", retry_after=1) from error
            raise ToolError(f"the server no longer has it ({error.status})") from error


@asynccontextmanager
async def remote_tools(settings: Settings, run_blocking: RunBlocking | None) -> AsyncIterator[ToolSource]:
    """Connect to the server."""
    yield RemoteTools(Server())
