"""Limits of servers of the Model Context Protocol. Each group stands behind a limit of the core on the page."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Final

from palaver.vocabulary.limits import KIB, MIB, Limit, limit_rows

LIMITS: Final[Mapping[str, Sequence[Limit]]] = MappingProxyType(
    {
        "tool_error": limit_rows(
            "Tools",
            ("mcp_pages", "pages of an MCP server's list of tools", 20, "pages", "the others are left out"),
            ("mcp_tools", "tools of one MCP server", 256, "tools", "the others are left out"),
            ("mcp_list", "list of an MCP server's tools, as JSON", MIB, "bytes", "the others are left out"),
            ("mcp_definition", "definition of an MCP server's tool", 64 * KIB, "bytes", "the tool is left out"),
            ("mcp_depth", "levels of such a definition", 32, "levels", "the tool is left out"),
        ),
        "own_list": limit_rows(
            "Tools",
            (
                "own_open",
                "agents' MCP servers that a worker keeps open",
                256,
                "servers",
                "idle ones of the one that has most go",
            ),
        ),
        "own_lists": limit_rows(
            "Tools",
            ("mcp_all_tools", "tools of all MCP servers of a worker", 400, "tools", "the others are left out"),
            (
                "mcp_declarations",
                "declarations of all MCP tools of a worker, as JSON",
                192 * KIB,
                "bytes",
                "the others are left out",
            ),
            ("mcp_body", "answer of an MCP server, with all that it sends before", 16 * MIB, "bytes", "`tool_error`"),
            ("mcp_state", "state of a call that an MCP server gives back", 64 * KIB, "bytes", "`tool_error`"),
            ("mcp_questions", "questions of an MCP server in one call", 8, "questions", "`tool_error`"),
            ("mcp_form", "form of a question, as JSON", 16 * KIB, "bytes", "`tool_error`"),
            ("mcp_fields", "fields of the form of a question", 32, "fields", "`tool_error`"),
        ),
        "question_answer": limit_rows(
            "Tools",
            ("mcp_message", "text of a question", 4_000, "characters", "cut"),
        ),
    }
)
