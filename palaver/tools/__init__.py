"""Tools: Python functions that a model may ask for.

from palaver import tool

@tool(idempotent=True, timeout=10)
def weather(city: str, days: int = 1) -> str:
    \"\"\"The weather forecast for a city.\"\"\"
"""

from __future__ import annotations

from palaver.errors import RetryableToolError, ToolError
from palaver.tools.context import ToolContext
from palaver.tools.declaration import Tool, tool
from palaver.tools.declared import ToolDeclaration, ToolSet
from palaver.tools.loading import load_tools

__all__ = [
    "RetryableToolError",
    "Tool",
    "ToolContext",
    "ToolDeclaration",
    "ToolError",
    "ToolSet",
    "load_tools",
    "tool",
]
