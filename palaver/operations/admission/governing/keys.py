"""The agents that a caller's key is for."""

from __future__ import annotations

from palaver.errors import Refused
from palaver.operations.backend import Backend, Caller, within_deadline
from palaver.schemas.agents import referred
from palaver.schemas.models import AgentSpec


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


async def check_heard(conversation_id: str, backend: Backend, caller: Caller) -> None:
    """Check that the caller's key is for the agent that hears what is said in a conversation now.

    Raises:
        Refused: ``agent_not_allowed``.
        UnknownConversation, StoreUnavailable: its agent cannot be looked at.
    """
    if caller.agents is None:
        return
    conversation = await within_deadline(backend.store.runs.conversation(conversation_id))
    hears = conversation.agent
    if conversation.active_run is not None:
        hears = (await within_deadline(backend.store.runs.get(conversation.active_run))).agent
    if hears is not None:
        refuse_other_agents(hears, caller)


def _not_allowed(caller: Caller) -> Refused:
    names = ", ".join(sorted(caller.agents or ()))
    return Refused("agent_not_allowed", f"This key is for these agents on the server, by their names: {names}.")
