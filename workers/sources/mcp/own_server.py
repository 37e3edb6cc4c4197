"""A server that an agent of a conversation names itself, as one process asks it (ADR 0123)."""

from __future__ import annotations

import asyncio
import hashlib
import time
from typing import Any, ClassVar, Final

import orjson

from palaver.config.settings import Settings
from palaver.errors import ToolError
from palaver.schemas.mcp_servers import JOINT, VARIABLE, OwnMcpServer, tool_name
from palaver.tools import ToolDeclaration
from palaver.vocabulary.limits import count_exceeded, limit_of

from ...connections.lookup_threads import LookupThreads
from ..tables import HeaderFromSecret
from .credentials import Credentials
from .http_channel import HttpChannel
from .lists import OfferedList
from .offers import allowed, offers_of
from .section import McpServer
from .server import Server
from .source import McpTools
from .wire import ServerChannel

WITHIN: Final = 10.0
"""Seconds in which a server has to send its list."""
_TOLD: Final = ("name", "description", "inputSchema")
"""The part of a definition that is kept: nothing else that such a server says of a tool counts."""


class OwnServer(Server):
    """A server of one conversation."""

    _KEPT: ClassVar[int] = 1
    """It is asked with the newest value of a secret; who is not done keeps an older one."""

    def __init__(self, label: str, spec: OwnMcpServer, settings: Settings, names: LookupThreads) -> None:
        super().__init__(label, _section_of(spec), settings)
        self.digest = _digest_of(label, spec)
        self.host = spec.host
        self.is_allowed = spec.allowed_by(settings.inline_mcp_hosts)
        # Who listed the very host knows where it leads; what a pattern fits is somebody else's to point anywhere.
        self._outward = not spec.is_named_by(settings.inline_mcp_hosts)
        self._names = names
        self.tools = OwnServerTools((self,))
        """The tools of the list that is kept; none before."""
        self.users = 0
        """The steps that it is for at the moment."""
        self.asking = asyncio.Lock()
        self.not_before = 0.0

    def _channel(self, credentials: Credentials) -> ServerChannel:
        assert self.section.url is not None  # it has no command
        return HttpChannel(self.section.url, credentials, self.note_change, outward=self._outward, names=self._names)

    def require_allowed(self) -> None:
        """Raises:
        ToolError: this worker may not ask it.
        """
        if not self.is_allowed:
            raise ToolError(f"nothing was asked: {VARIABLE} of the worker does not allow the host {self.host}")

    def told(self, listed: OfferedList) -> bytes:
        """The part of a list that is kept, as JSON: no more than may be, and of that the tools that are fit."""
        looked_at: list[dict[str, Any]] = []
        size = 0
        for tool in listed.tools:
            if not isinstance(tool, dict) or not allowed(str(tool.get("name")), self.section.allow):
                continue
            definition = {field: tool[field] for field in _TOLD if field in tool}
            size += len(orjson.dumps(definition))
            too_many, too_large = len(looked_at) >= limit_of("own_tools"), size > limit_of("own_list")
            if too_many or too_large:
                count_exceeded("own_tools" if too_many else "own_list")
                break
            looked_at.append(definition)
        # A tool of the stand-in's name would be called as that: without an approval, and again after a loss.
        taken = stand_in(self.label).name
        offers = offers_of(self.label, self.section, looked_at)[0]
        fit = {offer.name for offer in offers if tool_name(self.label, offer.name) != taken}
        return orjson.dumps([definition for definition in looked_at if definition.get("name") in fit])

    def take_told(self, text: bytes) -> None:
        """Take the tools that are kept. The log has nothing of what a stranger calls them."""
        self._accept(OfferedList(tuple(orjson.loads(text)), time.time()))
        self.tools.renew()


class OwnServerTools(McpTools):
    """The tools of such a server, which are bounded already."""

    def renew(self) -> None:
        """As ``McpTools``."""
        found = [(server, offer) for server in self._servers for offer in server.offers.values()]
        self._tools = {offer.declaration.name: (server, offer) for server, offer in found}
        self.declarations = tuple(offer.declaration for _, offer in found)


def stand_in(label: str) -> ToolDeclaration:
    """The tool that stands in the place of those that nobody knows yet."""
    return ToolDeclaration(
        name=f"{label}{JOINT}list_tools",
        description=f"The server {label} did not say yet which tools it has. This asks it again.",
        parameters={"type": "object", "properties": {}},
        idempotent=True,
        timeout=2 * WITHIN,
    )


def _section_of(spec: OwnMcpServer) -> McpServer:
    """The table that an operator would write for such a server. Its word about its tools does not count."""
    headers = {name: HeaderFromSecret(secret=each.secret, prefix=each.prefix) for name, each in spec.headers.items()}
    return McpServer(
        url=spec.url, headers=headers, allow=spec.allow, timeout=spec.timeout, connect_timeout=WITHIN, plain_http=True,
        risky=True,
    )  # fmt: skip


def _digest_of(label: str, spec: OwnMcpServer) -> str:
    """The digest of which server it is, and of what is taken from it."""
    told = [label, spec.url, sorted(spec.headers), spec.allow]
    return hashlib.sha256(orjson.dumps(told)).hexdigest()[:32]
