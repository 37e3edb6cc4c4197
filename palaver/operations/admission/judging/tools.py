"""The tools of an agent: known ones, each named once; and approvals that are about them."""

from __future__ import annotations

from collections.abc import Iterator
from fnmatch import fnmatchcase

from palaver.errors import FieldError
from palaver.operations.admission.faults import Fault, UnknownName
from palaver.operations.catalog import KnownTools
from palaver.schemas.mcp_servers import may_fit
from palaver.schemas.models import AgentSpec


def tool_faults(agent: AgentSpec, known: KnownTools | None) -> Iterator[Fault]:
    """Yield the faults of what an agent says about tools, by those that workers have."""
    yield from _tool_faults(agent, known)
    yield from _client_tool_faults(agent)
    yield from _approval_faults(agent, known)


def _tool_faults(agent: AgentSpec, tools: KnownTools | None) -> Iterator[Fault]:
    before: set[str] = set()
    for index, name in enumerate(agent.tools):
        if tools is not None and name not in tools and name not in agent.subagents:
            yield UnknownName(f"/agent/tools/{index}", "unknown_tool", "is a tool that no worker has", name, tools)
        elif name in before:
            yield FieldError(f"/agent/tools/{index}", "duplicate_tool", "is named before")
        before.add(name)


def _client_tool_faults(agent: AgentSpec) -> Iterator[FieldError]:
    servers, before = frozenset(agent.tools), set[str]()
    for index, tool in enumerate(agent.client_tools):
        where = f"/agent/client_tools/{index}/name"
        if tool.name in servers:
            yield FieldError(where, "duplicate_tool", "is the name of one of the agent's tools: rename it")
        elif tool.name in before:
            yield FieldError(where, "duplicate_tool", "is named before")
        before.add(tool.name)


def _approval_faults(agent: AgentSpec, tools: KnownTools | None) -> Iterator[Fault]:
    """Yield a fault for each pattern that fits no tool: one with a typing error would let calls through without
    approval. Which tools a server of the agent's own has is not known yet."""
    servers = frozenset(agent.tools)
    known = [name for name in agent.tools if tools is None or name in tools or name in agent.subagents]
    approvals = agent.approvals
    require = () if isinstance(approvals.require, str) else approvals.require
    lists = {
        "require": require,
        "exempt": approvals.exempt,
        "exempt_alone": approvals.exempt_alone,
        "second_person": approvals.second_person,
    }
    for field, patterns in lists.items():
        for index, pattern in enumerate(patterns):
            if pattern in servers or any(may_fit(pattern, label) for label in agent.mcp_servers):
                continue
            if not any(fnmatchcase(name, pattern) for name in agent.tools):
                where, why = f"/agent/approvals/{field}/{index}", "fits none of the agent's tools"
                yield UnknownName(where, "unknown_tool", why, pattern, known, own=True)
