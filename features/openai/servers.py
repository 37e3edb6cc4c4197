"""MCP servers that a request for a response names, as servers of the agent's own: what would have to be hidden becomes
secrets of the conversation."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import field
from typing import Any, Final

from palaver.errors import FieldError, Refused
from palaver.late import dataclass
from palaver.schemas.actions import Approvals
from palaver.schemas.fields import UNFIT_FOR_HEADERS, fits_a_header
from palaver.schemas.mcp_servers import JOINT, OwnMcpServer, all_of, tool_name

from .items import SERVER

_CODE: Final = "unsupported_option"
_SIGNED_IN: Final = "authorization"
_CONNECTOR: Final = "is a service of OpenAI's, which nobody here can ask: name an MCP server by its server_url"
_NO_URL: Final = f"is missing: only {SERVER!r} is known here without one"
_READ_ONLY: Final = "cannot be gone by: what a server says of its tools does not count here; give tool_names"


@dataclass(slots=True)
class RequestServers:
    """The servers, as the fields of a spec have them, with the secrets that come with them."""

    servers: dict[str, dict[str, Any]] = field(default_factory=dict)
    exempt: list[str] = field(default_factory=list)
    """Patterns of their tools whose calls need no approval."""
    secrets: dict[str, str] = field(default_factory=dict)

    @property
    def options(self) -> dict[str, Any]:
        """The fields of an agent that they are."""
        return {"mcp_servers": self.servers} if self.servers else {}

    def held_to(self, agent: dict[str, Any]) -> dict[str, Any]:
        """Return the fields of an agent that has these servers, and asks for approvals of their calls as the request
        says, whatever it says of those of its other tools."""
        if not self.servers:
            return agent
        approvals = dict(agent.get("approvals") or {})
        exempt = [*approvals.get("exempt", ()), *self.exempt]
        if approvals.get("require") == "never":
            approvals["require"] = [all_of(label) for label in self.servers]
            exempt += agent.get("tools", ())
        return {**agent, "approvals": {**approvals, "exempt": [*dict.fromkeys(exempt)]}}


def server_tool(label: str, server: OwnMcpServer, approvals: Approvals) -> dict[str, Any]:
    """Return a server that an agent names as a tool of a response. Its headers are secrets, and not told."""
    before = f"{label}{JOINT}"
    never = [name.removeprefix(before) for name in approvals.exempt if name.startswith(before)]
    waived = approvals.require == "never" or all_of(label) in approvals.exempt
    return {
        "type": "mcp",
        "server_label": label,
        "server_url": server.url,
        "allowed_tools": None if server.allow is None else list(server.allow),
        "headers": None,
        "require_approval": "never" if waived else {"never": {"tool_names": never}} if never else "always",
    }


def is_elsewhere(tool: Mapping[str, Any]) -> bool:
    """Tell whether a tool of a request is an MCP server that is not this one."""
    return tool.get("type") == "mcp" and (tool.get("server_label") != SERVER or "server_url" in tool)


def servers_of(tools: Sequence[Mapping[str, Any]]) -> RequestServers:
    """Return the servers that are among the tools of a request.

    Raises:
        Refused: one cannot be asked for it, and why.
    """
    found = RequestServers()
    for place, tool in enumerate(tools):
        if is_elsewhere(tool):
            _add(found, tool, f"/tools/{place}")
    return found


def _add(found: RequestServers, tool: Mapping[str, Any], where: str) -> None:
    label, url = tool.get("server_label"), tool.get("server_url")
    if tool.get("connector_id") is not None:
        raise _refused(f"{where}/connector_id", _CONNECTOR)
    if not isinstance(label, str):
        raise Refused.at(f"{where}/server_label", "must be a text")
    if not isinstance(url, str):
        raise _refused(f"{where}/server_url", _NO_URL)
    if label in found.servers:
        raise _refused(f"{where}/server_label", "is that of another server of the request")
    headers = dict[str, dict[str, str]]()
    for number, (name, prefix, value) in enumerate(_headers(tool, where), 1):
        secret = f"mcp.{re.sub(r'[^A-Za-z0-9_.-]', '_', label)[:32]}.{number}"
        found.secrets[secret] = value
        headers[name] = {"secret": secret, "prefix": prefix}
    server: dict[str, Any] = {"url": url, "headers": headers}
    if (allowed := tool.get("allowed_tools")) is not None:
        server["allow"] = _named(allowed, f"{where}/allowed_tools")
    found.servers[label] = server
    found.exempt += _exempt(label, tool.get("require_approval"), f"{where}/require_approval")


def _headers(tool: Mapping[str, Any], where: str) -> Iterator[tuple[str, str, str]]:
    """Yield the headers: the name of each, and its value in two parts, the second of which is the secret."""
    headers, token = tool.get("headers") or {}, tool.get(_SIGNED_IN)
    if not isinstance(headers, dict):
        raise Refused.at(f"{where}/headers", "must be an object")
    for name, value in headers.items():
        if not isinstance(value, str) or not fits_a_header(value):
            raise _refused(f"{where}/headers", f"{name[:64]}: {UNFIT_FOR_HEADERS}")
        if token is not None and name.lower() == _SIGNED_IN:
            raise _refused(f"{where}/{_SIGNED_IN}", "is among the headers, too: give one of them")
        yield name, "", value
    if token is None:
        return
    if not isinstance(token, str) or not fits_a_header(token):
        raise _refused(f"{where}/{_SIGNED_IN}", UNFIT_FOR_HEADERS)
    yield "Authorization", "Bearer ", token


def _named(filtered: Any, where: str) -> list[str]:
    """Return the tools that a list, or an object with one, names."""
    if isinstance(filtered, dict):
        if filtered.get("read_only") is not None:
            raise _refused(f"{where}/read_only", _READ_ONLY)
        filtered = filtered.get("tool_names")
    if not isinstance(filtered, list) or not all(isinstance(name, str) for name in filtered):
        raise Refused.at(where, "must name tools")
    return filtered


def _exempt(label: str, approval: Any, where: str) -> list[str]:
    """Return patterns of the tools whose calls need no approval: as with OpenAI, all calls wait without a word."""
    match approval:
        case None | "always":
            return []
        case "never":
            return [all_of(label)]
        case dict():
            if approval.get("always") is not None:
                _named(approval["always"], f"{where}/always")
            never = approval.get("never")
            return [] if never is None else [tool_name(label, name) for name in _named(never, f"{where}/never")]
    raise Refused.at(where, "must be always, never, or an object of them")


def _refused(where: str, why: str) -> Refused:
    return Refused.of_faults([FieldError(where, _CODE, why)])
