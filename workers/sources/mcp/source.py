"""The tools of servers of the Model Context Protocol, as steps call them."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from typing import Any, Final

from palaver.errors import ToolError, ToolTimeout
from palaver.tools import ToolContext, ToolDeclaration

from ..containment import ToolAnswer, failing, presented, timed_out
from ..guests import ToolsOfFile
from .budget import taken_together
from .calls import RemoteCall
from .failures import UNKNOWN, failure_of_call
from .offers import OfferedTool
from .server import Server
from .wire import NeverSent

_NOBODYS: Final = (None, None)


class McpTools(ToolsOfFile):
    """The source of all tools of these servers."""

    def __init__(self, servers: Iterable[Server]) -> None:
        """Take what fits together: a name that two servers have is nobody's."""
        self._servers = tuple(servers)
        self._tools: dict[str, tuple[Server, OfferedTool]] = {}
        self.declarations: tuple[ToolDeclaration, ...] = ()
        self.renew()

    def renew(self) -> None:
        """Take what the servers have by now."""
        self._tools = {offer.declaration.name: (server, offer) for server, offer in taken_together(self._servers)}
        self.declarations = tuple(offer.declaration for _, offer in self._tools.values())

    async def call(self, declared: ToolDeclaration, arguments: Mapping[str, Any], context: ToolContext) -> ToolAnswer:
        """As ``ToolSource``: ask the server that has it."""
        server, offer = self._tools.get(declared.name, _NOBODYS)
        if server is None or offer is None or (offer.is_gone and context.left is None):
            what = "nothing was called" if context.left is None else UNKNOWN
            raise ToolError(f"{declared.name} is no longer there: {what}")
        call = RemoteCall(server, offer, declared, arguments, context)
        try:
            async with asyncio.timeout(declared.timeout):
                with failing(declared, asyncio.current_task()):
                    result = await call.result()
            return presented(declared, result)
        except TimeoutError:
            if not call.sent:
                late = NeverSent(f"it did not answer within {declared.timeout:g} s")
                raise failure_of_call(late, server, offer) from None
            raise ToolTimeout(f"{timed_out(declared.name, declared.timeout)}: {UNKNOWN}") from None
