"""Agents on the server: kept, read, listed and removed by name."""

from __future__ import annotations

from palaver.errors import Refused
from palaver.late import dataclass
from palaver.operations.admission import admit_agent, refuse_other_names
from palaver.operations.backend import Backend, Caller, within_deadline
from palaver.schemas.agents import NewAgent, ServerAgent
from palaver.vocabulary.limits import count_exceeded, limit_of


@dataclass(frozen=True, slots=True)
class AgentPage:
    """A page of agents by name, and the cursor of the next page; None on the last one."""

    agents: tuple[ServerAgent, ...]
    next_cursor: str | None


async def keep_agent(
    backend: Backend, name: str, body: NewAgent, caller: Caller, *, expected: int | None = None
) -> tuple[ServerAgent, bool]:
    """Make an agent the newest version of the agent of that name, and say whether it is the first. One that is as the
    newest version makes none. ``expected`` is as for ``Agents.keep``.

    Raises:
        Refused: everything that is wrong with it, or ``agent_not_allowed``.
        StateConflict: ``agent_changed``, ``agents_full``.
        NoRoom, NotDurable, StoreUnavailable: it was not kept, or not safely.
    """
    await admit_agent(name, body, backend, caller)
    agents = backend.store.agents
    return await within_deadline(agents.keep(caller.tenant, name, body, by=caller.identity, expected=expected))


async def read_agent(backend: Backend, name: str, version: int | None, caller: Caller) -> ServerAgent:
    """Return an agent in that version, or in its newest one.

    Raises:
        Refused: ``agent_not_allowed``.
        UnknownAgent: there is no such agent, or not that version of it (any more).
    """
    refuse_other_names(name, caller, version)
    return await within_deadline(backend.store.agents.get(caller.tenant, name, version))


async def list_agents(backend: Backend, caller: Caller, *, limit: int, cursor: str | None) -> AgentPage:
    """Return a page of the caller's agents that its key is for, each in its newest version. The cursor is the name
    behind which it begins.

    Raises:
        Refused: ``invalid_cursor``.
    """
    if len(cursor or "") > limit_of("cursor"):
        count_exceeded("cursor")
        raise Refused("invalid_cursor", "The cursor is longer than any that a list of agents gave.")
    listed = await within_deadline(backend.store.agents.list(caller.tenant, after=cursor or "", limit=limit))
    shown = tuple(agent for agent in listed.agents if caller.agents is None or agent.name in caller.agents)
    return AgentPage(shown, listed.last if listed.more else None)


async def remove_agent(backend: Backend, name: str, caller: Caller, *, expected: int | None = None) -> None:
    """Forget an agent. Runs and conversations that have it go on with it.

    Raises:
        Refused: ``agent_not_allowed``.
        UnknownAgent: there is none of that name.
        StateConflict: ``agent_changed``.
        NotDurable, StoreUnavailable: it may be there still.
    """
    refuse_other_names(name, caller)
    await within_deadline(backend.store.agents.remove(caller.tenant, name, expected=expected))
