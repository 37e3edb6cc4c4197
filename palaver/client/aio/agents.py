"""Agents on the server: kept under names, which runs say in the place of a whole agent."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing
from typing import Any

from palaver.client.aio.paging import pages
from palaver.client.aio.transport import ApiTransport
from palaver.client.answers import agent_of, agents_of
from palaver.client.options import wire
from palaver.client.requests import agents
from palaver.schemas.agents import ServerAgent
from palaver.schemas.models import AgentSpec


class AsyncAgents:
    """The methods of the client about agents."""

    _transport: ApiTransport

    async def put_agent(
        self, name: str, agent: AgentSpec | Mapping[str, Any], *, version: int | None = None
    ) -> ServerAgent:
        """Keep an agent on the server under a name; one that differs from the newest version becomes a new one. With
        ``version`` only if that is the newest until now, 0: only if there is none of that name.

        Raises:
            Conflict: it has another version, or there are too many agents.
            APIError, ConnectionFailed: it was not kept; `Unprocessable` names the fields.
        """
        return agent_of(await self._transport.call(agents.put_agent(name, wire(agent), version)))

    async def agent(self, name: str) -> ServerAgent:
        """The agent in its newest version, or that of ``name@version``.

        Raises:
            NotFound: there is no such agent, or no such version (any more).
            APIError, ConnectionFailed: it cannot be had.
        """
        return agent_of(await self._transport.call(agents.get_agent(name)))

    async def agents(self) -> AsyncGenerator[ServerAgent, None]:
        """The agents by name, each in its newest version, page by page as you iterate.

        Raises:
            APIError, ConnectionFailed: a page cannot be had.
        """
        async with aclosing(pages(self._transport, agents.list_agents)) as agent_pages:
            async for page, response in agent_pages:
                for agent in agents_of(page, response):
                    yield agent

    async def delete_agent(self, name: str, *, version: int | None = None) -> None:
        """Remove an agent; runs and conversations that have it go on with it. With ``version`` only if that is the
        newest.

        Raises:
            NotFound: there is none of that name.
            Conflict: it has another version.
            APIError, ConnectionFailed: it may be there still.
        """
        await self._transport.call(agents.delete_agent(name, version))
