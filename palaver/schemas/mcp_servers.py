"""MCP servers of an agent's own: addresses that the operator allows, asked with secrets of the conversation."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Collection, Iterable
from fnmatch import fnmatchcase
from typing import Annotated, Any, Final
from urllib.parse import urlsplit

from pydantic import AfterValidator, Field, StringConstraints, model_validator

from palaver.schemas.endpoints import as_compared, is_listed, listed, listed_host
from palaver.schemas.fields import AtMost, SecretName, Strict
from palaver.vocabulary.addresses import host_and_port, is_ip, never_asked

VARIABLE: Final = "PALAVER_INLINE_MCP_HOSTS"
JOINT: Final = "__"
"""Stands between the label of a server and the name of its tool."""
OF_ALL: Final = f"{JOINT}*"
"""Stands behind it in the pattern that all of its tools fit."""
OF_CONNECTIONS: Final = frozenset({"host", "content-length", "transfer-encoding", "connection", "upgrade", "te"})
"""Headers that say how a request is sent: they are set by the client alone."""
OF_MESSAGES: Final = frozenset(
    {
        *("accept", "accept-encoding", "content-type"),
        *("mcp-method", "mcp-name", "mcp-protocol-version", "mcp-session-id"),
    }
)
"""Headers that say what a request to an MCP server is."""
_LONGEST_NAME: Final = 64
_UNFIT: Final = re.compile(r"[^A-Za-z0-9_-]")
_RESERVED: Final = frozenset({"agent", "palaver"})
"""Labels whose tools would be taken for those of agents, or of this server."""
_PATTERN: Final = "*."
_WILD: Final = re.compile(r"[*?\[]")


def _label(label: str) -> str:
    if JOINT in label or label.endswith("_") or label.lower() in _RESERVED:
        why = f"the label {label!r} is reserved: it has no __ in it, no _ at its end, and is neither"
        raise ValueError(f"{why} {' nor '.join(sorted(_RESERVED))}")
    return label


def _reachable(url: str) -> str:
    compared = as_compared(url)
    host, _ = host_and_port(compared)
    if is_ip(host) and never_asked(host, loopback=True):
        raise ValueError("is an address at which nothing is ever asked")
    return compared


Label = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9][A-Za-z0-9_-]{0,31}$"), AfterValidator(_label)]
HeaderName = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9!#$%&'*+.^_`|~-]{1,128}$")]


class SecretHeader(Strict):
    """A header whose value is a secret of the conversation."""

    secret: SecretName
    """The name of the secret."""
    prefix: Annotated[str, StringConstraints(pattern=r"^[ -~]*$", max_length=100)] = ""
    """In front of it: ``"Bearer "``."""


class OwnMcpServer(Strict):
    """An MCP server of an agent's own, by streamable HTTP. The operator says which hosts are allowed
    (``PALAVER_INLINE_MCP_HOSTS``)."""

    url: Annotated[str, AtMost("base_url"), AfterValidator(_reachable)]
    headers: Annotated[dict[HeaderName, SecretHeader], AtMost("own_headers")] = Field(default={})
    allow: Annotated[tuple[Annotated[str, StringConstraints(max_length=128)], ...], AtMost("own_tools")] | None = None
    """Its tools that are taken, by its own names for them; ``*`` stands for others. All, if it is left out."""
    timeout: Annotated[float, Field(gt=0, le=3600)] = 60.0
    """Seconds that a call may take."""

    @model_validator(mode="before")
    @classmethod
    def _no_command(cls, data: Any) -> Any:
        if isinstance(data, dict) and "command" in data:
            raise ValueError("a command is never started for a request: an operator declares it as [mcp.NAME]")
        return data

    @model_validator(mode="after")
    def _own_headers(self) -> OwnMcpServer:
        if taken := sorted(name for name in self.headers if name.lower() in OF_CONNECTIONS | OF_MESSAGES):
            raise ValueError(f"the header {taken[0]} is of the request itself")
        if len({name.lower() for name in self.headers}) < len(self.headers):
            raise ValueError("has a header twice")
        return self

    @property
    def host(self) -> str:
        """The host, as it is compared."""
        return host_and_port(self.url)[0]

    def is_named_by(self, hosts: Collection[str]) -> bool:
        """Tell whether one of these is its very host: it may be in a network of one's own then."""
        return is_listed(self.url, hosts)

    def allowed_by(self, hosts: Collection[str]) -> bool:
        """Tell whether its host is one of these, or, with TLS and the usual port, one of a pattern's."""
        if self.is_named_by(hosts):
            return True
        (host, port), scheme = host_and_port(self.url), urlsplit(self.url).scheme
        above = host.partition(".")[2]
        return scheme == "https" and port is None and not is_ip(host) and f"{_PATTERN}{above}" in hosts


McpServers = Annotated[dict[Label, OwnMcpServer], AtMost("own_servers")]


def listed_mcp_host(entry: str) -> str:
    """An entry of the list of hosts as it is compared: as `listed_host`, or ``*.DOMAIN`` for each name right below it.

    Raises:
        ValueError: it is none; says why.
    """
    if not entry.startswith(_PATTERN):
        return listed_host(entry)
    if "*" in entry.removeprefix(_PATTERN):
        raise ValueError("has more than the * in front: *.example.com stands for each name right below example.com")
    domain, port = host_and_port(entry.removeprefix(_PATTERN))
    if is_ip(domain) or port is not None or "." not in domain:
        raise ValueError("must be *. and a domain of two names at least, without a port: *.example.com")
    return f"{_PATTERN}{listed(domain, None)}"


def own_label(servers: Iterable[str], tool: str) -> str | None:
    """The label among ``servers`` of the server that a tool of this name would be of; None for another tool."""
    return next((label for label in servers if tool.startswith(f"{label}{JOINT}")), None)


def tool_name(label: str, name: str) -> str:
    """The name under which models call a tool: its server before it, in characters that every provider takes."""
    full = f"{label}{JOINT}{_UNFIT.sub('_', name)}"
    return full if len(full) <= _LONGEST_NAME else marked_name(label, name)


def marked_name(label: str, name: str) -> str:
    """The same with a suffix by which it is told apart from others that would have that name."""
    mark = hashlib.sha256(name.encode()).hexdigest()[:8]
    return f"{label}{JOINT}{_UNFIT.sub('_', name)}"[: _LONGEST_NAME - 9] + f"_{mark}"


def all_of(label: str) -> str:
    """The pattern that all tools of a server fit."""
    return f"{label}{OF_ALL}"


def may_fit(pattern: str, label: str) -> bool:
    """Tell whether a glob may fit a tool of the server: what its tools are is not known."""
    before, own = _WILD.split(pattern, maxsplit=1)[0], f"{label}{JOINT}"
    return before.startswith(own) or (own.startswith(before) and before != pattern)


def covers(pattern: str, label: str) -> bool:
    """Tell whether a glob fits each tool that the server may have."""
    own, before = f"{label}{JOINT}", pattern[:-1]
    return pattern.endswith("*") and any(fnmatchcase(own[:end], before) for end in range(len(own) + 1))
