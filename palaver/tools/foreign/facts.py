"""The facts about a tool of another framework."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any


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
