"""The budget of a worker for what servers offer: whoever sends a list must not keep the worker from starting."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator

from palaver.vocabulary.limits import count_exceeded, limit_of

from .offers import OfferedTool
from .server import Server

log = logging.getLogger("palaver.workers.sources.mcp.budget")


def taken_together(servers: Iterable[Server]) -> Iterator[tuple[Server, OfferedTool]]:
    """Yield the tools that are taken, in the order of the file; those of two servers with one name are nobody's."""
    found = [(server, offer) for server in servers for offer in server.offers.values()]
    names = [offer.declaration.name for _, offer in found]
    number, size = 0, 0
    for server, offer in found:
        declared = offer.declaration
        if names.count(declared.name) > 1:
            log.error("two servers have a tool that would be named %r: it is left out", declared.name)
            continue
        number, size = number + 1, size + len(declared.model_dump_json())
        if number > limit_of("mcp_all_tools") or size > limit_of("mcp_declarations"):
            count_exceeded("mcp_all_tools" if number > limit_of("mcp_all_tools") else "mcp_declarations")
            log.error("servers offer more than a worker takes: [mcp.%s] %r is left out", server.label, offer.name)
            continue
        yield server, offer
