"""Tools of other frameworks, known by their classes.

A framework is a row in ``_FRAMEWORKS`` and a module that reads its tools. What they declare is taken as it is. Nothing
of any framework is imported here.
"""

from __future__ import annotations

from importlib import import_module
from typing import Final

from palaver.tools.facts import ToolFacts

__all__ = ["foreign_tool"]

_FRAMEWORKS: Final = {
    ("langchain_core", "BaseTool"): "langchain",
    ("pydantic_ai", "Tool"): "pydantic_ai",
    ("agents", "FunctionTool"): "openai_agents",
}
"""The module here for a class of tools, by its package and name. The last package is the OpenAI Agents SDK."""


def foreign_tool(value: object) -> ToolFacts | None:
    """Return the facts about ``value`` if it is a tool of one of the frameworks; None if it is not, or is turned off.

    Raises:
        ConfigurationError: it needs what only its framework has.
    """
    for cls in type(value).__mro__:
        if (name := _FRAMEWORKS.get((cls.__module__.partition(".")[0], cls.__name__))) is not None:
            framework = import_module(f"{__name__}.{name}")
            made: ToolFacts | None = framework.foreign_tool(value)
            return made
    return None
