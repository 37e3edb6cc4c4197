"""The hosts at which agents may have MCP servers of their own, looked up from here."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Final

from palaver.config.settings import Settings
from palaver.schemas.mcp_servers import VARIABLE
from palaver.store.server.findings import Finding
from palaver.vocabulary.addresses import host_and_port, is_ip

from ..connections.lookup_threads import LookupThreads

_WITHIN: Final = 5.0
_MEANS: Final = "has hosts that cannot be found from here: the servers there are not asked"
_ADVICE: Final = f"correct {VARIABLE}, or see to the names where workers run"


def look_at_mcp_hosts(settings: Settings) -> Finding:
    """Look up the hosts that are listed by name. What a pattern fits comes with a request, and is looked up then."""
    hosts = settings.inline_mcp_hosts
    lost = asyncio.run(_lost([host for host in hosts if "*" not in host]))
    if lost:
        return Finding("mcp", "hosts", "warning", f"unknown: {', '.join(lost)}", _MEANS, _ADVICE)
    sealed = "" if settings.secret_key else "; without PALAVER_SECRET_KEY their servers have no headers"
    return Finding("mcp", "hosts", "ok", f"agents' own servers: {', '.join(hosts)}{sealed}")


async def _lost(listed: Sequence[str]) -> list[str]:
    names = LookupThreads()
    found = await asyncio.gather(*(_is_found(names, entry) for entry in listed))
    return [entry for entry, there in zip(listed, found, strict=True) if not there]


async def _is_found(names: LookupThreads, entry: str) -> bool:
    host, _ = host_and_port(entry)
    if is_ip(host):
        return True
    try:
        async with asyncio.timeout(_WITHIN):
            return bool(await names.resolve(host))
    except (OSError, TimeoutError):
        return False
