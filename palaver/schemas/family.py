"""Runs that calls of other runs begin: an agent that is a tool of another one."""

from __future__ import annotations

from typing import Final

from palaver.schemas.fields import DataModel
from palaver.vocabulary.lifecycle import RunStatus

AGENT_TOOL: Final = "agent:"
"""Stands before the name of an agent on the server among the tools of another one."""
INLINE_TOOL: Final = "agent_"
"""Stands before the name of an agent in the names that models have for agents."""
_LONGEST: Final = 64
"""Characters of a tool's name at every provider."""


class ParentRun(DataModel):
    """The run whose call began a run."""

    run_id: str
    step: str
    """The step of the call: ``3/call_id``."""
    depth: int
    """1 below a run that no call began."""


class ChildRun(DataModel):
    """A run that a call began."""

    run_id: str
    step: str
    """The step of the call: ``3/call_id``."""
    agent: str
    """The agent, by its name."""
    status: RunStatus | None = None
    """Its status once it has ended; None while it goes on."""
    pending_actions: int = 0
    """Calls that wait for a decision or a client's output, in it and below it."""


def tool_name(agent: str) -> str:
    """Return the name that models have for the agent ``agent``."""
    return f"{INLINE_TOOL}{agent.replace('.', '_')}"[:_LONGEST]
