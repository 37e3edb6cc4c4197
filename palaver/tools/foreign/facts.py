"""The facts about a tool of another framework."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from palaver.errors import ToolError


@dataclass(frozen=True, slots=True, kw_only=True)
class ForeignTool:
    """A tool as its framework has it. It is as much of a declaration as the framework knows of."""

    name: str
    description: str
    parameters: dict[str, Any]
    """JSON schema of the arguments."""
    call: Callable[..., Any]
    """A function that takes the arguments by their names, and perhaps a ``ToolContext``."""
    risky: bool = False
    """True if the framework would ask for an approval."""
    ends_run: bool = False
    """True if its result would be the agent's answer."""
    timeout: float | None = None
    """Seconds; None if it has none of its own."""


def for_the_model(error: Exception, said_by: str) -> Exception:
    """Return the error as it is, or as a `ToolError` if it is of the framework's class ``said_by``: that is what a tool
    there says to the model."""
    is_said = any(cls.__name__ == said_by for cls in type(error).__mro__)
    return ToolError(str(error)) if is_said else error
