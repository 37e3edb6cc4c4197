"""Agents on the server: looked up by their names, and those that the key is for."""

from __future__ import annotations

from palaver.errors import FieldError, Refused, UnknownAgent
from palaver.schemas.agents import referred, split_reference
from palaver.schemas.models import AgentSpec

from ..backend import Backend, Caller, within_deadline


async def kept_agent(reference: str, pointer: str, backend: Backend, caller: Caller) -> AgentSpec:
    """Return the agent on the server that a field at ``pointer`` names.

    Raises:
        Refused: ``unknown_agent``.
        StoreUnavailable: the store took too long.
    """
    name, version = split_reference(reference)
    try:
        kept = await within_deadline(backend.store.agents.get(caller.tenant, name, version))
    except UnknownAgent:
        why = "is not on the server" if version is None else "is not on the server in that version"
        raise Refused.of_faults([FieldError(pointer, "unknown_agent", f"{why}: see GET /v1/agents")]) from None
    return as_it_was(kept.agent)


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
