"""The MCP servers that an agent names itself: at hosts that the operator allows, under labels that nobody else has."""

from __future__ import annotations

from collections.abc import Iterator

from palaver.errors import FieldError
from palaver.schemas.json_pointers import pointer
from palaver.schemas.mcp_servers import JOINT, VARIABLE
from palaver.schemas.models import AgentSpec

from ..lookup import Known
from ..tree import AgentTree

_CODE = "endpoint_not_allowed"


def server_faults(tree: AgentTree, known: Known) -> Iterator[FieldError]:
    """Yield the faults of the servers of a tree's agent. One below another agent has no secrets for their headers."""
    agent = tree.agent
    for label, server in agent.mcp_servers.items():
        where = pointer(("agent", "mcp_servers", label))
        if not server.allowed_by(known.mcp_hosts):
            allowed = f"it allows: {', '.join(known.mcp_hosts)}" if known.mcp_hosts else "it is not set"
            yield FieldError(f"{where}/url", _CODE, f"is at a host that {VARIABLE} does not allow; {allowed}")
        if (taken := _taken(agent, label, known)) is not None:
            yield FieldError(where, "duplicate_tool", f"is a label before the tool {taken} already: take another one")
    for label in [label for label, server in agent.mcp_servers.items() if server.headers] if tree.place else ():
        why = "are secrets of the conversation of the run, which its runs do not have"
        yield FieldError(f"/agent/mcp_servers/{label}/headers", _CODE, why)


def _taken(agent: AgentSpec, label: str, known: Known) -> str | None:
    """Return a tool that is not the server's and would look as if it were. Rules and approvals go by such names."""
    names = (*agent.tools, *(tool.name for tool in agent.client_tools), *(known.tools or ()))
    return next((name for name in names if name.startswith(f"{label}{JOINT}")), None)
