"""The cases of the MCP server in tests of the core."""

from __future__ import annotations

from typing import Final

PROBES: Final = ("/.well-known/oauth-protected-resource/mcp",)
