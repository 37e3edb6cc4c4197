"""What the routes work with: the store and the other ports, made once for each process."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, Protocol, TypeVar, cast

from starlette.requests import Request

from api.problems import unavailable
from palaver.follow_up import follow_up
from palaver.leases import Delivery, Settled
from palaver.models import Run
from palaver.providers import Provider
from palaver.retry import RetryPolicy
from palaver.settings import Settings
from palaver.store import Store
from palaver.store.sharing import Sharing
from palaver.tools import Registry

T = TypeVar("T")

_PATIENCE: Final = 2.5
"""Seconds that the store may take: a client hears 503 within three."""

_CROWDED: Final = 10.0
"""The same where a thousand ask at once, and some stand in line though the store answers."""
_READS: Final = 48
"""Shared reads under way at once."""


class Publishing(Protocol):
    """Sends deliveries to the workers, some time soon; what gets lost is sent again by the sweeper."""

    def publish_soon(self, deliveries: Sequence[Delivery]) -> None: ...

    def close(self) -> None: ...


@dataclass(frozen=True, slots=True)
class Backend:
    """The ports of the API."""

    settings: Settings
    store: Store
    publisher: Publishing
    providers: Mapping[str, Provider]
    tools: Registry
    policies: Mapping[str, RetryPolicy]
    reads: Sharing = field(default_factory=lambda: Sharing(_READS))
    """Reads of runs that many may want at the same moment."""
    closing: asyncio.Event = field(default_factory=asyncio.Event)
    """Set when the process is told to end: whoever waits answers now."""

    async def run(self, run_id: str) -> Run:
        """The run as it is now.

        Raises:
            UnknownRun: there is no such run (any more).
            Problem: ``unavailable``, the store took too long.
        """
        try:
            async with asyncio.timeout(_CROWDED):
                return await self.reads.read(run_id, lambda: prompt(self.store.runs.get(run_id)))
        except TimeoutError:
            raise unavailable() from None

    async def follow_up(self, settled: Settled) -> None:
        """Send what a change of a run made due, and start the run of its conversation whose turn has come."""
        await prompt(follow_up(self.store, self.publisher.publish_soon, [settled]))


def backend(request: Request) -> Backend:
    """The backend of the application that serves ``request``."""
    return cast(Backend, request.app.state.backend)


async def prompt(answer: Awaitable[T]) -> T:
    """The store's answer, within the time that a client may be kept waiting for it.

    Raises:
        Problem: ``unavailable``, the store took too long.
    """
    try:
        async with asyncio.timeout(_PATIENCE):
            return await answer
    except TimeoutError:
        raise unavailable() from None
