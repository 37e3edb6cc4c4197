"""Look-ups of names in threads of their own."""

from __future__ import annotations

import asyncio
import socket
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from contextvars import ContextVar
from typing import Any, Final

from aiohttp.abc import AbstractResolver, ResolveResult

_MOST: Final = 256
"""Names that are looked up at once."""
_OF_ONE_TENANT: Final = 32
_OF_ONE_NAME: Final = 2
_PATIENCE: Final = 5.0
"""Seconds for which somebody waits for a place."""
_FLAGS: Final = socket.AI_NUMERICHOST | socket.AI_NUMERICSERV

_tenant: ContextVar[str] = ContextVar("tenant", default="")


class LookupsBusy(OSError):
    """A name was not looked up: others of the same tenant, or of the same name, are, and do not end."""


@contextmanager
def look_ups_of(tenant: str) -> Iterator[None]:
    """Within the block, names are looked up for the tenant of this tag."""
    before = _tenant.set(tenant)
    try:
        yield
    finally:
        _tenant.reset(before)


class _Shares:
    """Places, of which there are so many for each of those who want some."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._places: dict[str, asyncio.Semaphore] = {}
        self._wanted: Counter[str] = Counter()
        """The places that each has or waits for: who wants none is forgotten."""

    async def take(self, whose: str) -> None:
        places = self._places.setdefault(whose, asyncio.Semaphore(self._most))
        self._wanted[whose] += 1
        try:
            await places.acquire()
        except BaseException:
            self._leave(whose)
            raise

    def give_back(self, whose: str) -> None:
        self._places[whose].release()
        self._leave(whose)

    def _leave(self, whose: str) -> None:
        self._wanted[whose] -= 1
        if not self._wanted[whose]:
            del self._wanted[whose], self._places[whose]


class LookupThreads(AbstractResolver):
    """Looks each name up in a thread that ends with it. The loop's own threads are few, and others need them: a server
    of names that never answers would hold them up, with all that this process looks up.

    Nobody waits for a thread that is left behind. It keeps its place until it ends, of the share of its tenant
    (`look_ups_of`), and of that of its name: who has many such names, or one, leaves places for others.
    """

    def __init__(self, most: int = _MOST) -> None:
        self._all = _Shares(most)
        self._of_tenants = _Shares(_OF_ONE_TENANT)
        self._of_names = _Shares(_OF_ONE_NAME)

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_INET
    ) -> list[ResolveResult]:
        """The addresses of ``host``.

        Raises:
            OSError: it has none.
            LookupsBusy: there was no place to look it up.
        """
        give_back = await self._place(host)
        loop = asyncio.get_running_loop()
        found: asyncio.Future[list[Any]] = loop.create_future()

        def tell(infos: list[Any], error: OSError | None) -> None:
            give_back()
            if found.done():
                return
            if error is None:
                found.set_result(infos)
            else:
                found.set_exception(error)

        def look_up() -> None:
            infos, fault = list[Any](), None
            try:
                infos = socket.getaddrinfo(host, port, family, socket.SOCK_STREAM, flags=socket.AI_ADDRCONFIG)
            except OSError as error:
                fault = error
            except UnicodeError:
                fault = OSError("this is no name of a host")
            # The loop may be closed by then.
            with suppress(RuntimeError):
                loop.call_soon_threadsafe(tell, infos, fault)

        try:
            threading.Thread(target=look_up, name="look-up of a name", daemon=True).start()
        except RuntimeError as error:
            give_back()
            raise OSError("no thread to look a name up") from error
        return [
            ResolveResult(hostname=host, host=address[0], port=address[1], family=each, proto=proto, flags=_FLAGS)
            for each, _, proto, _, address in await found
            # Python without IPv6 has such addresses as bytes.
            if isinstance(address[0], str)
        ]

    async def _place(self, host: str) -> Callable[[], None]:
        """Wait for a place; return what gives it back."""
        wanted = ((self._of_names, host), (self._of_tenants, _tenant.get()), (self._all, ""))
        try:
            async with asyncio.timeout(_PATIENCE):
                with ExitStack() as taken:
                    for shares, whose in wanted:
                        await shares.take(whose)
                        taken.callback(shares.give_back, whose)
                    return taken.pop_all().close
        except TimeoutError:
            raise LookupsBusy("too many names are being looked up that nobody finds") from None

    async def close(self) -> None:
        """Nothing is open."""
