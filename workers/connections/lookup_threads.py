"""Look-ups of names in threads of their own."""

from __future__ import annotations

import asyncio
import socket
import threading
from contextlib import suppress
from typing import Any, Final

from aiohttp.abc import AbstractResolver, ResolveResult

_MOST: Final = 256
"""Names that are looked up at once."""
_PATIENCE: Final = 5.0
"""Seconds for which a look-up waits for a place."""
_FLAGS: Final = socket.AI_NUMERICHOST | socket.AI_NUMERICSERV


class LookupsBusy(OSError):
    """A name was not looked up: too many others are, and do not end."""


class LookupThreads(AbstractResolver):
    """Looks each name up in a thread that ends with it, at most ``most`` at once. The loop's own threads are few, and
    others need them: a server of names that never answers would hold them up, with all that this process looks up.

    A thread that is not waited for any more keeps its place until it ends.
    """

    def __init__(self, most: int = _MOST) -> None:
        self._places = asyncio.Semaphore(most)

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_INET
    ) -> list[ResolveResult]:
        """The addresses of ``host``.

        Raises:
            OSError: it has none.
            LookupsBusy: there was no place to look it up.
        """
        try:
            async with asyncio.timeout(_PATIENCE):
                await self._places.acquire()
        except TimeoutError:
            raise LookupsBusy("too many names are being looked up") from None
        loop = asyncio.get_running_loop()
        found: asyncio.Future[list[Any]] = loop.create_future()

        def tell(infos: list[Any], error: OSError | None) -> None:
            self._places.release()
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
            self._places.release()
            raise OSError("no thread to look a name up") from error
        return [
            ResolveResult(hostname=host, host=address[0], port=address[1], family=each, proto=proto, flags=_FLAGS)
            for each, _, proto, _, address in await found
            # Python without IPv6 has such addresses as bytes.
            if isinstance(address[0], str)
        ]

    async def close(self) -> None:
        """Nothing is open."""
