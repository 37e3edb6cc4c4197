"""Looks up names of hosts that a stranger may have chosen to lead astray, for connections to what was looked up and to
nothing else."""

from __future__ import annotations

import socket

from aiohttp.abc import AbstractResolver, ResolveResult
from aiohttp.resolver import DefaultResolver

from palaver.errors import ConfigurationError
from palaver.vocabulary.addresses import is_inner, leads_within, never_asked


class GuardedResolver(AbstractResolver):
    """Leaves out addresses at which nothing is ever asked. Its answers are what is connected to, so a name that leads
    elsewhere a moment later does not lead there."""

    def __init__(
        self,
        place: str = "the agent's endpoint",
        *,
        outward: bool = False,
        names: AbstractResolver | None = None,
    ) -> None:
        """``place`` is what a sentence calls the address. ``outward`` leaves out those of private networks, too, unless
        the name itself says that it leads there. ``names`` looks them up."""
        self._names = names or DefaultResolver()
        self._place = place
        self._outward = outward

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_INET
    ) -> list[ResolveResult]:
        """The addresses of ``host``.

        Raises:
            ConfigurationError: it has no other than those.
            OSError: it has none.
        """
        resolved = await self._names.resolve(host, port, family)
        here = host == "localhost" or host.endswith(".localhost")
        allowed = [address for address in resolved if not never_asked(address["host"], loopback=here)]
        if resolved and not allowed:
            raise ConfigurationError(
                f"the host of {self._place} leads to an address at which nothing is asked by a name: one of this "
                "machine, or of those where clouds keep keys"
            )
        if self._outward and not leads_within(f"//{host}"):
            outer = [address for address in allowed if not is_inner(address["host"])]
            if allowed and not outer:
                raise ConfigurationError(f"the host of {self._place} leads into a private network")
            return outer
        return allowed

    async def close(self) -> None:
        """Look nothing up any more."""
        await self._names.close()
