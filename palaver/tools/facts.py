"""The facts about a tool that its signature says, or the framework that it is of."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from pydantic import BaseModel

from palaver.late import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolFacts:
    """As much of a declaration as is known without anybody's word."""

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
    arguments: type[BaseModel] | None = None
    """The arguments as the signature has them; None: the schema is all that is known of them."""
    context_parameter: str | None = None
    """The parameter that takes the ``ToolContext``, as the signature has it."""
