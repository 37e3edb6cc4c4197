"""Servers of the Model Context Protocol as a source of tools: those of an operator, and those that an agent names."""

from __future__ import annotations

from typing import Final

from palaver.feature import Feature

FEATURE: Final = Feature(
    __name__, source=("mcp", "source:KIND"), own_servers="conversation_servers:McpOwnServers", limits="limits:LIMITS"
)
