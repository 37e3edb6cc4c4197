"""Agents on the server: runs name them in the place of a whole agent."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field
from starlette.responses import Response

from palaver import operations
from palaver.operations import Backend, Caller
from palaver.operations.admission import AGENT_PROBLEMS
from palaver.schemas.agents import NewAgent, ServerAgent, split_reference
from palaver.schemas.fields import DataModel

from ..http.answers import answer
from ..http.headers import ExpectedVersion
from ..http.queries import Number, Query
from ..kit.signatures import NAME_PATTERN, REFERENCE_PATTERN, InPath, read_name, read_reference
from .dialect import NATIVE
from .links import location_of, next_page

Name = Annotated[str, InPath("The agent's name.", read=read_name, pattern=NAME_PATTERN)]
Reference = Annotated[
    str, InPath("The agent's name, or `name@version`.", read=read_reference, pattern=REFERENCE_PATTERN)
]


class AgentsQuery(Query):
    """The number of agents, and the place to go on from."""

    limit: Number = Field(default=50, ge=1, le=200, description="Agents on a page.")
    cursor: str | None = Field(default=None, description="`next_cursor` of the page before.")


class AgentList(DataModel):
    """A page of agents, by name."""

    data: list[ServerAgent]
    next_cursor: str | None
    has_more: bool


@NATIVE.route(
    "PUT",
    "/v1/agents/{name}",
    tag="agents",
    scope="agents:write",
    summary="Keep an agent on the server",
    examples={
        "smallest": {"model": "fake/tool-20", "tools": ["calculator"]},
        "with approvals by a second person": {
            "model": "fake/tool-20",
            "instructions": "Help customers with their orders.",
            "tools": ["calculator"],
            "approvals": {"require": ["calculator"], "second_person": ["calculator"]},
        },
    },
    answers={
        200: ("It is the newest version; `ETag` is its number. One that is equal makes no new version.", ServerAgent),
        201: ("There was no agent of that name. `Location` is the agent.", ServerAgent),
    },
    problems=(*AGENT_PROBLEMS, "agent_changed", "agents_full", "tenant_erased", "store_nearly_full", "not_durable"),
)
async def keep_agent(
    backend: Backend, caller: Caller, name: Name, expected: ExpectedVersion, body: NewAgent
) -> Response:
    """An agent as runs take it, under a name. Each different one is a new version; a run says which version it has."""
    kept, new = await operations.keep_agent(backend, name, body, caller, expected=expected)
    return _answer(kept, 201 if new else 200, location_of(f"/v1/agents/{name}") if new else {})


@NATIVE.route(
    "GET",
    "/v1/agents",
    tag="agents",
    scope="runs:read",
    summary="List the agents",
    answers={200: ("A page of agents, each in its newest version; `Link` has the next.", AgentList)},
    problems=("invalid_cursor",),
)
async def list_agents(backend: Backend, caller: Caller, query: AgentsQuery) -> Response:
    """Agents by name. A page may be short, even empty, where the key is for some agents alone."""
    page = await operations.list_agents(backend, caller, limit=query.limit, cursor=query.cursor)
    shown = AgentList(data=[*page.agents], next_cursor=page.next_cursor, has_more=page.next_cursor is not None)
    return answer(shown, headers=next_page("/v1/agents", query, cursor=page.next_cursor))


@NATIVE.route(
    "GET",
    "/v1/agents/{name}",
    tag="agents",
    scope="runs:read",
    summary="Read an agent",
    answers={200: ("The agent in its newest version, or in the one that is named.", ServerAgent)},
    problems=("agent_not_found", "agent_not_allowed"),
)
async def read_agent(backend: Backend, caller: Caller, name: Reference) -> Response:
    """`support`, or `support@7` for a version; the last 100 are kept."""
    return _answer(await operations.read_agent(backend, *split_reference(name), caller))


@NATIVE.route(
    "DELETE",
    "/v1/agents/{name}",
    tag="agents",
    scope="agents:write",
    summary="Remove an agent",
    answers={204: ("It is gone. Runs and conversations that have it go on with it.", None)},
    problems=("agent_not_found", "agent_not_allowed", "agent_changed", "not_durable"),
)
async def remove_agent(backend: Backend, caller: Caller, name: Name, expected: ExpectedVersion) -> Response:
    """Forget an agent. A later one of that name goes on with its numbers: a version never means two agents."""
    await operations.remove_agent(backend, name, caller, expected=expected)
    return Response(status_code=204)


def _answer(agent: ServerAgent, status: int = 200, headers: dict[str, str] | None = None) -> Response:
    return answer(agent, status, {"ETag": f'"{agent.version}"', **(headers or {})})
