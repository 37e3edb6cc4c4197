# Generated from palaver/client/aio/agents.py by `make twin`: change that file, not this one.
"""Agents on the server: kept under names, which runs say in the place of a whole agent."""

from __future__ import annotations

from collections.abc import Generator, Mapping
from contextlib import closing
from typing import Any

from palaver.client.answers import agent_of, agents_of
from palaver.client.options import wire
from palaver.client.requests import agents
from palaver.client.sync.paging import pages
from palaver.client.sync.transport import ApiTransport
from palaver.schemas.agents import ServerAgent
from palaver.schemas.models import AgentSpec


class Agents:
    """The methods of the client about agents."""

    _transport: ApiTransport

    def put_agent(self, name: str, agent: AgentSpec | Mapping[str, Any], *, version: int | None = None) -> ServerAgent:
        """Keep an agent on the server under a name; one that differs from the newest version becomes a new one. With
        ``version`` only if that is the newest until now, 0: only if there is none of that name.

        Raises:
            Conflict: it has another version, or there are too many agents.
            APIError, ConnectionFailed: it was not kept; `Unprocessable` names the fields.
        """
        return agent_of(self._transport.call(agents.put_agent(name, wire(agent), version)))

    def agent(self, name: str) -> ServerAgent:
        """The agent in its newest version, or that of ``name@version``.

        Raises:
            NotFound: there is no such agent, or no such version (any more).
            APIError, ConnectionFailed: it cannot be had.
        """
        return agent_of(self._transport.call(agents.get_agent(name)))

    def agents(self) -> Generator[ServerAgent, None, None]:
        """The agents by name, each in its newest version, page by page as you iterate.

        Raises:
            APIError, ConnectionFailed: a page cannot be had.
        """
        with closing(pages(self._transport, agents.list_agents)) as agent_pages:
            for page, response in agent_pages:
                yield from agents_of(page, response)

    def delete_agent(self, name: str, *, version: int | None = None) -> None:
        """Remove an agent; runs and conversations that have it go on with it. With ``version`` only if that is the
        newest.

        Raises:
            NotFound: there is none of that name.
            Conflict: it has another version.
            APIError, ConnectionFailed: it may be there still.
        """
        self._transport.call(agents.delete_agent(name, version))
