"""Station 1: the agent of a request is expanded. What it names on the server is put in the place of the name, for it
and for all that it has as tools (ADR 0097), in one pass."""

from __future__ import annotations

import re
from collections.abc import Collection
from dataclasses import replace
from typing import Any, Final, TypeVar

from palaver.errors import FieldError, Refused, UnknownAgent
from palaver.operations.admission.tree import AgentTree
from palaver.operations.backend import Backend, Caller, within_deadline
from palaver.schemas.actions import ClientTool
from palaver.schemas.agents import split_reference
from palaver.schemas.family import AGENT_TOOL, INLINE_TOOL, tool_name
from palaver.schemas.models import AgentSpec, Subagent, Submission, WithAgent
from palaver.store.reading.records import agent_json
from palaver.vocabulary.limits import count_exceeded, limit_of

Body = TypeVar("Body", bound=WithAgent)
_INLINE_NAME: Final = re.compile(rf"{INLINE_TOOL}[A-Za-z0-9_-]{{1,58}}")


async def expand(body: Body, backend: Backend, caller: Caller) -> tuple[Body, AgentTree | None]:
    """Return the body with the agent itself in the place of its name, and the tree of its agents; None if it has no
    agent.

    Raises:
        Refused: ``unknown_agent``, or what is wrong with the tree.
        StoreUnavailable: the store took too long.
    """
    extra = body.client_tools if isinstance(body, Submission) else ()
    if body.agent is None:
        if extra:
            raise Refused.at("/client_tools", "go with an agent, and the request names none")
        return body, None
    if isinstance(body.agent, str):
        agent, writer = await _kept_agent(body.agent, "/agent", backend, caller)
        tree = await expand_agent(agent, agent.name, backend, caller)
        tree = replace(tree, writers=tree.writers | {writer})
    else:
        tree = await expand_agent(body.agent, body.agent.name, backend, caller)
    if extra:
        tree = replace(tree, agent=_with_client_tools(tree.agent, extra))
    return body if tree.agent is body.agent else body.model_copy(update={"agent": tree.agent}), tree


async def expand_agent(agent: AgentSpec, name: str | None, backend: Backend, caller: Caller) -> AgentTree:
    """Return the tree of the agent of that name, with the agents among its tools in their versions of now.

    Raises:
        Refused: one of them is unknown, is below itself, or they are too many.
        StoreUnavailable: the store took too long.
    """
    expansion = _Expansion(backend, caller)
    whole = await expansion.expanded(agent, (name or "(this one)",))
    if whole.subagents and len(agent_json(whole).encode()) > limit_of("agent_tree"):
        count_exceeded("agent_tree")
        why = f"has agents of more than {limit_of('agent_tree')} bytes together, as JSON"
        raise Refused.at("/agent/tools", why)
    return AgentTree(whole, backend.providers, writers=frozenset({caller.identity or "", *expansion.writers}))


def as_it_was(agent: AgentSpec) -> AgentSpec:
    """Return an agent that is not described in the request: none of its fields counts as one that the request gives."""
    unsaid = agent.model_copy()
    unsaid.model_fields_set.clear()
    return unsaid


class _Expansion:
    """The pass over an agent and those below it."""

    def __init__(self, backend: Backend, caller: Caller) -> None:
        self._backend = backend
        self._caller = caller
        self._size = 0
        self.writers: set[str] = set()
        """Those who wrote the agents of the server that it found."""

    async def expanded(self, agent: AgentSpec, path: tuple[str, ...], place: str = "") -> AgentSpec:
        """Return an agent with what it names in the place of the names. ``path`` leads to it, and ``place`` is where
        the request names that."""
        below: dict[str, Subagent] = {}
        tools: list[str] = []
        _check_inline(agent, place)
        for index, tool in enumerate(agent.tools):
            where, called = place or f"/agent/tools/{index}", tool
            if tool in agent.subagents:
                below[called] = await self._inline(called, agent.subagents[tool], below, path, where)
            elif tool.startswith(AGENT_TOOL):
                name, _ = split_reference(reference := tool.removeprefix(AGENT_TOOL))
                called = tool_name(name)
                below[called] = await self._named(reference, name, called, below, path, where)
            tools.append(called)
        changes: dict[str, Any] = {"tools": tuple(tools), "subagents": below} if below else {}
        if isinstance(agent.retry, str) and agent.retry in self._backend.policies:
            changes["retry"] = self._backend.policies[agent.retry].dump()
        return _changed(agent, changes) if changes else agent

    async def _named(
        self, reference: str, name: str, called: str, before: Collection[str], path: tuple[str, ...], where: str
    ) -> Subagent:
        """Return an agent that is on the server, with those below it."""
        if name in path:
            raise Refused.at(where, f"leads to itself: {' > '.join((*path, name))}")
        self._count(path, where)
        if called in before:
            raise Refused.of_faults([FieldError(where, "duplicate_tool", f"is another agent that is {called}")])
        kept, writer = await _kept_agent(reference, where, self._backend, self._caller)
        self.writers.add(writer)
        return Subagent(agent=await self.expanded(kept, (*path, name), where))

    async def _inline(
        self, called: str, subagent: Subagent, before: Collection[str], path: tuple[str, ...], where: str
    ) -> Subagent:
        """Return an agent that stands in the request itself, with those below it. No other agent leads to it."""
        if called in before:
            raise Refused.of_faults([FieldError(where, "duplicate_tool", "is named before")])
        self._count(path, where)
        agent = subagent.agent
        if agent.endpoint is not None and agent.endpoint.api_key is not None:
            why = f"{called}: /agent/endpoint/api_key is for the conversation of the run, which its runs do not have"
            raise Refused.of_faults([FieldError(where, "endpoint_not_allowed", why)])
        named = agent if agent.name else agent.model_copy(update={"name": called.removeprefix(INLINE_TOOL)})
        return Subagent(agent=await self.expanded(named, (*path, f"({called})"), where), budget=subagent.budget)

    def _count(self, path: tuple[str, ...], where: str) -> None:
        self._size += 1
        if len(path) > limit_of("subagent_depth"):
            count_exceeded("subagent_depth")
            levels = f"has agents at more than {limit_of('subagent_depth')} levels: {' > '.join(path)}"
            raise Refused.at(where, levels)
        if self._size > limit_of("subagents"):
            count_exceeded("subagents")
            raise Refused.at(where, f"has more than {limit_of('subagents')} agents at all levels")


async def _kept_agent(reference: str, pointer: str, backend: Backend, caller: Caller) -> tuple[AgentSpec, str]:
    """Return the agent on the server that a field at ``pointer`` names, and who wrote that version.

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
    return as_it_was(kept.agent), kept.created_by or ""


def _check_inline(agent: AgentSpec, place: str) -> None:
    """Check the names of the agents that stand in an agent itself."""
    for called in agent.subagents:
        where = place or f"/agent/subagents/{called[:64]}"
        if not _INLINE_NAME.fullmatch(called):
            why = f"the name {called[:64]!r} is not {INLINE_TOOL} and 1 to 58 letters, digits, _ and -"
            raise Refused.at(where, why)
        if called not in agent.tools:
            raise Refused.at(where, f"{called} is not among the tools of its agent, so it could not be called")


def _with_client_tools(agent: AgentSpec, extra: tuple[ClientTool, ...]) -> AgentSpec:
    names = {tool.name for tool in agent.client_tools}
    added = tuple(tool for tool in extra if tool.name not in names)
    if not added:
        return agent
    if len(agent.client_tools) + len(added) > limit_of("agent_tools"):
        count_exceeded("agent_tools")
        raise Refused.at("/client_tools", f"are more than {limit_of('agent_tools')} with those of the agent")
    return _changed(agent, {"client_tools": (*agent.client_tools, *added)})


def _changed(agent: AgentSpec, changes: dict[str, Any]) -> AgentSpec:
    """Return the agent with other values of these fields. It gives what it gave before, and no more."""
    changed = agent.model_copy(update=changes)
    changed.model_fields_set.intersection_update(agent.model_fields_set)
    return changed
