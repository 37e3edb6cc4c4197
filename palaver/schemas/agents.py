"""Agents on the server: each has a name, and a number for each version of it."""

from __future__ import annotations

from datetime import datetime

from palaver.schemas.fields import DataModel
from palaver.schemas.models import AgentSpec


class NewAgent(AgentSpec):
    """The body of ``PUT /v1/agents/{name}``: an agent, as a run takes it."""


class ServerAgent(DataModel):
    """An agent on the server, in one of its versions."""

    name: str
    version: int
    """1 for the first. A run that names the agent says which version it was."""
    newest: int
    """Its newest version: the one that a name without a version stands for."""
    oldest: int
    """The oldest version that can still be named."""
    agent: AgentSpec
    created_at: datetime
    """The time at which this version came."""
    created_by: str | None
    """The key that brought it, by its name; None without keys."""


def split_reference(reference: str) -> tuple[str, int | None]:
    """``support@7`` as a name and a version; None for the newest one."""
    name, _, version = reference.partition("@")
    return name, int(version) if version else None


def referred(agent: AgentSpec) -> frozenset[str]:
    """Return the names by which an agent on the server is named; none for one that is inline."""
    if agent.version is None or agent.name is None:
        return frozenset()
    return frozenset((agent.name, f"{agent.name}@{agent.version}"))
