"""The port to MCP servers that an agent names itself: their tools are one conversation's, and in no worker's set
(ADR 0123). The module that asks them is imported with the first of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from importlib import import_module
from typing import Any, Final, Protocol

from palaver.config.settings import Settings
from palaver.steps.leases import Lease
from palaver.tools import ToolContext, ToolDeclaration

from .containment import ToolAnswer

_MODULE: Final = ".mcp.own_servers"


class KeptLists(Protocol):
    """The lists of tools that conversations keep, each by a digest of which server it is of."""

    async def of(self, conversation_id: str, servers: Sequence[str]) -> Mapping[str, bytes]:
        """The lists of these servers that a conversation has."""

    async def keep(self, lease: Lease, server: str, text: bytes) -> bytes:
        """Keep one; return the one that was kept first."""


class OwnTools(Protocol):
    """The tools of the servers of one agent, for one attempt."""

    @property
    def declarations(self) -> Mapping[str, ToolDeclaration]:
        """By the names that the model has for them. In the place of tools that nobody knows yet there is one that asks
        for them."""

    async def call(self, declared: ToolDeclaration, arguments: Mapping[str, Any], context: ToolContext) -> ToolAnswer:
        """As ``ToolSource``."""


class OwnServers(Protocol):
    """The servers of all conversations that a process works for."""

    async def tools_of(self, lease: Lease, context: ToolContext) -> OwnTools:
        """The tools for the lease's agent. A server without a list is asked for it, within its time; ``context`` says
        as whom. One that does not answer holds up nobody.

        Raises:
            StaleLease: a list cannot be kept: the lease is not the newest any more.
            UnknownConversation: the conversation is gone.
        """

    async def close(self) -> None:
        """Close all connections."""


def open_own_servers(settings: Settings, lists: KeptLists) -> OwnServers:
    """Open them: nothing is asked yet."""
    opened: OwnServers = import_module(_MODULE, __package__).McpOwnServers(settings, lists)
    return opened
