"""The agent of a request: looked up by its name on the server, and one that the key is for."""

from __future__ import annotations

from typing import TypeVar

from palaver.errors import FieldError, Refused, UnknownAgent
from palaver.schemas.agents import referred, split_reference
from palaver.schemas.models import AgentSpec, WithAgent

from ..backend import Backend, Caller, within_deadline

Body = TypeVar("Body", bound=WithAgent)


async def with_named(body: Body, backend: Backend, caller: Caller) -> Body:
    """Return the body with the agent itself in the place of its name.

    Raises:
        Refused: ``unknown_agent``.
        StoreUnavailable: the store took too long.
    """
    if not isinstance(body.agent, str):
        return body
    name, version = split_reference(body.agent)
    try:
        kept = await within_deadline(backend.store.agents.get(caller.tenant, name, version))
    except UnknownAgent:
        why = "is not on the server" if version is None else "is not on the server in that version"
        raise Refused.of_faults([FieldError("/agent", "unknown_agent", f"{why}: see GET /v1/agents")]) from None
    return body.model_copy(update={"agent": as_it_was(kept.agent)})


def as_it_was(agent: AgentSpec) -> AgentSpec:
    """Return an agent that is not described in the request: none of its fields counts as one that the request gives."""
    unsaid = agent.model_copy()
    unsaid.model_fields_set.clear()
    return unsaid


def refuse_other_agents(agent: AgentSpec, caller: Caller) -> None:
    """Check that the caller's key is for this agent.

    Raises:
        Refused: ``agent_not_allowed``.
    """
    if caller.agents is not None and caller.agents.isdisjoint(referred(agent)):
        raise _not_allowed(caller)


def refuse_other_names(name: str, caller: Caller, version: int | None = None) -> None:
    """Check that the caller's key is for the agent of that name, in whichever version or in this one.

    Raises:
        Refused: ``agent_not_allowed``.
    """
    if caller.agents is not None and caller.agents.isdisjoint((name, f"{name}@{version}")):
        raise _not_allowed(caller)


def _not_allowed(caller: Caller) -> Refused:
    names = ", ".join(sorted(caller.agents or ()))
    return Refused("agent_not_allowed", f"This key is for these agents on the server, by their names: {names}.")
