"""The Model Context Protocol as a dialect: hosts such as Claude Code start and follow runs by tools."""

from __future__ import annotations

from .dialect import MCP

__all__ = ["MCP"]
