"""Servers of the Model Context Protocol as a source of tools.

[mcp.github]
url = "https://mcp.example.com/mcp"
headers.Authorization = { env = "GITHUB_TOKEN", prefix = "Bearer " }

[mcp.files]
command = ["mcp-server-files", "/data"]
"""

from __future__ import annotations

from .source import KIND

__all__ = ["KIND"]
