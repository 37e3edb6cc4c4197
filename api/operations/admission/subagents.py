"""The agents of a request: looked up by their names on the server, with all that they have as tools (ADR 0113)."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import chain
from typing import Final, TypeVar

from palaver.errors import FieldError, Refused
from palaver.schemas.actions import ClientTool
from palaver.schemas.agents import split_reference
from palaver.schemas.family import AGENT_TOOL, INLINE_TOOL, tool_name
from palaver.schemas.models import AgentSpec, Budget, Subagent, Submission, WithAgent
from palaver.store.reading.records import agent_json
from palaver.vocabulary.limits import count_exceeded, limit_of

from ..backend import Backend, Caller
from . import money, own_servers, spec
from .agents import kept_agent
from .resolution import look_up
from .spec import UnknownName

Body = TypeVar("Body", bound=WithAgent)
_INLINE_NAME: Final = re.compile(rf"{INLINE_TOOL}[A-Za-z0-9_-]{{1,58}}")


async def with_named(body: Body, backend: Backend, caller: Caller) -> Body:
    """Return the body with the agent itself in the place of its name, and the agents that it has as tools within it.

    Raises:
        Refused: ``unknown_agent``, or what is wrong with these agents.
        StoreUnavailable: the store took too long.
    """
    extra = body.client_tools if isinstance(body, Submission) else ()
    if body.agent is None:
        if extra:
            raise _refused("/client_tools", "go with an agent, and the request names none")
        return body
    named = await kept_agent(body.agent, "/agent", backend, caller) if isinstance(body.agent, str) else body.agent
    agent = _with_client_tools(await with_subagents(named, backend, caller, named.name), extra)
    return body if agent is body.agent else body.model_copy(update={"agent": agent})


def _with_client_tools(agent: AgentSpec, extra: tuple[ClientTool, ...]) -> AgentSpec:
    names = {tool.name for tool in agent.client_tools}
    added = tuple(tool for tool in extra if tool.name not in names)
    if not added:
        return agent
    if len(agent.client_tools) + len(added) > limit_of("agent_tools"):
        count_exceeded("agent_tools")
        raise _refused("/client_tools", f"are more than {limit_of('agent_tools')} with those of the agent")
    return _changed(agent, client_tools=(*agent.client_tools, *added))


async def with_subagents(agent: AgentSpec, backend: Backend, caller: Caller, name: str | None) -> AgentSpec:
    """Return the agent of that name with the agents among its tools, in their versions of now, and those among theirs.

    Raises:
        Refused: one of them is unknown, is below itself, or they are too many.
        StoreUnavailable: the store took too long.
    """
    tree = _Tree(backend, caller)
    whole = await tree.grown(agent, (name or "(this one)",), None)
    if whole is not agent and len(agent_json(whole).encode()) > limit_of("agent_tree"):
        count_exceeded("agent_tree")
        raise _refused("/agent/tools", f"has agents of more than {limit_of('agent_tree')} bytes together, as JSON")
    return whole


class _Tree:
    """An agent and those below it, while they are looked up."""

    def __init__(self, backend: Backend, caller: Caller) -> None:
        self._backend = backend
        self._caller = caller
        self._size = 0

    async def grown(self, agent: AgentSpec, path: tuple[str, ...], pointer: str | None) -> AgentSpec:
        """Return an agent with those below it; the same if it has none. ``path`` leads to it, and ``pointer`` to where
        the request names that."""
        below: dict[str, Subagent] = {}
        tools: list[str] = []
        _check_inline(agent, pointer)
        for index, tool in enumerate(agent.tools):
            where = pointer or f"/agent/tools/{index}"
            if tool in agent.subagents:
                if tool in below:
                    raise Refused.of_faults([FieldError(where, "duplicate_tool", "is named before")])
                below[tool] = await self._inline(tool, agent.subagents[tool], path, where)
                tools.append(tool)
                continue
            if not tool.startswith(AGENT_TOOL):
                tools.append(tool)
                continue
            reference = tool.removeprefix(AGENT_TOOL)
            name, _ = split_reference(reference)
            called = tool_name(name)
            if name in path:
                raise _refused(where, f"leads to itself: {' > '.join((*path, name))}")
            self._count(path, where)
            if called in below:
                raise Refused.of_faults([FieldError(where, "duplicate_tool", f"is another agent that is {called}")])
            kept = await kept_agent(reference, where, self._backend, self._caller)
            below[called] = Subagent(agent=await self.grown(kept, (*path, name), where))
            tools.append(called)
        if not below:
            return agent
        return _changed(agent, tools=tuple(tools), subagents=below)

    async def _inline(self, called: str, subagent: Subagent, path: tuple[str, ...], where: str) -> Subagent:
        """Return an agent that stands in the request itself, with those below it. Nobody else leads to it."""
        self._count(path, where)
        agent = subagent.agent
        if agent.endpoint is not None and agent.endpoint.api_key is not None:
            why = f"{called}: /agent/endpoint/api_key is for the conversation of the run, which its runs do not have"
            raise Refused.of_faults([FieldError(where, "endpoint_not_allowed", why)])
        named = agent if agent.name else agent.model_copy(update={"name": called.removeprefix(INLINE_TOOL)})
        return subagent.model_copy(update={"agent": await self.grown(named, (*path, f"({called})"), where)})

    def _count(self, path: tuple[str, ...], where: str) -> None:
        self._size += 1
        if len(path) > limit_of("subagent_depth"):
            count_exceeded("subagent_depth")
            raise _refused(where, f"has agents at more than {limit_of('subagent_depth')} levels: {' > '.join(path)}")
        if self._size > limit_of("subagents"):
            count_exceeded("subagents")
            raise _refused(where, f"has more than {limit_of('subagents')} agents at all levels")


def _check_inline(agent: AgentSpec, pointer: str | None) -> None:
    """Check the names of the agents that stand in an agent itself."""
    for called in agent.subagents:
        where = pointer or f"/agent/subagents/{called[:64]}"
        if not _INLINE_NAME.fullmatch(called):
            raise _refused(where, f"the name {called[:64]!r} is not {INLINE_TOOL} and 1 to 58 letters, digits, _ and -")
        if called not in agent.tools:
            raise _refused(where, f"{called} is not among the tools of its agent, so nobody could call it")


async def faults_below(agent: AgentSpec | None, budget: Budget | None, backend: Backend) -> list[FieldError]:
    """Return the faults of the agents below one, at the place of the tool that leads to them.

    Raises:
        StoreUnavailable: it is not known yet whether their tools are there.
    """
    found: list[FieldError] = []
    for index, tool in enumerate(() if agent is None else agent.tools):
        if agent is not None and tool in agent.subagents:
            found += await _faults_of(agent.subagents[tool], budget, f"/agent/tools/{index}", backend)
    return found


async def _faults_of(subagent: Subagent, budget: Budget | None, pointer: str, backend: Backend) -> list[FieldError]:
    agent = subagent.agent
    known = await look_up(agent, backend)
    found = []
    budgets = chain.from_iterable(money.faults(each, known.models) for each in (budget, subagent.budget))
    for fault in (*spec.faults(agent, known), *own_servers.faults(agent, known), *_secret_headers(agent), *budgets):
        own = fault.as_fault() if isinstance(fault, UnknownName) else fault
        found.append(FieldError(pointer, own.code, f"the agent {agent.name}: {own.pointer} {own.message}"))
    for each in agent.subagents.values():
        found += await _faults_of(each, budget, pointer, backend)
    return found


def _secret_headers(agent: AgentSpec) -> Iterator[FieldError]:
    for label, server in agent.mcp_servers.items():
        if server.headers:
            why = "are secrets of the conversation of the run, which its runs do not have"
            yield FieldError(f"/agent/mcp_servers/{label}/headers", "endpoint_not_allowed", why)


def with_policies(agent: AgentSpec, backend: Backend) -> AgentSpec:
    """Return the agent with retry policies in the place of their names, its own and those below it."""
    changes: dict[str, object] = {}
    if isinstance(agent.retry, str):
        changes["retry"] = backend.policies[agent.retry].dump()
    below = {
        name: subagent.model_copy(update={"agent": with_policies(subagent.agent, backend)})
        for name, subagent in agent.subagents.items()
    }
    if any(below[name].agent is not subagent.agent for name, subagent in agent.subagents.items()):
        changes["subagents"] = below
    return _changed(agent, **changes) if changes else agent


def all_of(agent: AgentSpec) -> Iterator[AgentSpec]:
    """Yield an agent and all below it."""
    yield agent
    for subagent in agent.subagents.values():
        yield from all_of(subagent.agent)


def _changed(agent: AgentSpec, **fields: object) -> AgentSpec:
    """Return the agent with other values of these fields. It gives what it gave before, and no more."""
    changed = agent.model_copy(update=fields)
    changed.model_fields_set.intersection_update(agent.model_fields_set)
    return changed


def _refused(pointer: str, why: str) -> Refused:
    return Refused.at(pointer, why)
