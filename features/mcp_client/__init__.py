"""MCP client: tools of servers of the Model Context Protocol, of an operator or named by an agent."""

from __future__ import annotations

from typing import Final

from palaver.feature import Feature

FEATURE: Final = Feature(
    __name__, source=("mcp", "source:KIND"), own_servers="conversation_servers:McpOwnServers", limits="limits:LIMITS"
)
