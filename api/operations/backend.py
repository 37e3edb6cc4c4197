"""What the use cases work with: the store and the other ports, made once for each process, and who asks."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, Protocol, TypeVar, cast

from pydantic_settings import BaseSettings

from palaver.config.providers import Provider
from palaver.config.settings import Settings
from palaver.delivery.publishing import follow_up
from palaver.errors import NotDurable, StoreUnavailable
from palaver.schemas.models import Run
from palaver.steps.leases import Delivery, Settled
from palaver.steps.retry import RetryPolicy
from palaver.store import Store
from palaver.store.redis.single_flight import SingleFlight

from .catalog import Catalog
from .measured import Measured

T = TypeVar("T")

_DEADLINE: Final = 2.5
"""Seconds that the store may take: a client hears 503 within three."""

_CROWDED: Final = 10.0
"""The same where a thousand ask at once, and some stand in line though the store answers."""
_READS: Final = 48
"""Shared reads under way at once."""


@dataclass(frozen=True, slots=True)
class Caller:
    """Who asks."""

    trusted: bool
    """With a key, or there are none."""
    name: str | None = None
    """Of the key, if it has one."""
    arrived: float = field(default_factory=time.monotonic)
    """When, by the clock that counts on."""

    @property
    def waited_ms(self) -> int:
        """Whole milliseconds since then."""
        return int((time.monotonic() - self.arrived) * 1000)


class Publishing(Protocol):
    """Sends deliveries to the workers, some time soon; what gets lost is sent again by the sweeper."""

    def publish_soon(self, deliveries: Sequence[Delivery]) -> None: ...

    async def close(self) -> None: ...


class Guest(Protocol):
    """A thing that a dialect keeps in a process, beside the backend."""

    def __init__(self) -> None: ...

    async def close(self) -> None:
        """Called when the process ends."""


G = TypeVar("G", bound=Guest)
S = TypeVar("S", bound=BaseSettings)


@dataclass(frozen=True, slots=True)
class Backend:
    """The ports of the API."""

    settings: Settings
    store: Store
    publisher: Publishing
    providers: Mapping[str, Provider]
    catalog: Catalog
    policies: Mapping[str, RetryPolicy]
    measured: Measured
    reads: SingleFlight = field(default_factory=lambda: SingleFlight(_READS))
    """Reads of runs that many may want at the same moment."""
    closing: asyncio.Event = field(default_factory=asyncio.Event)
    """Set when the process is told to end: whoever waits answers now."""
    dialect_settings: Sequence[BaseSettings] = ()
    """Those of the dialects that are spoken."""
    _guests: dict[type[Guest], Guest] = field(default_factory=dict)

    def setting(self, kind: type[S]) -> S:
        """The settings of a dialect, which it declares. Raises LookupError if it does not."""
        for each in self.dialect_settings:
            if isinstance(each, kind):
                return each
        raise LookupError(kind.__name__)

    def guest(self, kind: type[G]) -> G:
        """A thing that a dialect keeps in this process, made when it is first asked for."""
        kept = self._guests.get(kind)
        if kept is None:
            kept = self._guests[kind] = kind()
        return cast(G, kept)

    async def close(self) -> None:
        """Read no more, and let dialects end what they keep."""
        for guest in self._guests.values():
            await guest.close()
        await self.reads.close()
        await self.catalog.close()
        await self.measured.close()

    async def run(self, run_id: str) -> Run:
        """The run as it is now.

        Raises:
            UnknownRun: there is no such run (any more).
            StoreUnavailable: the store took too long.
        """
        try:
            async with asyncio.timeout(_CROWDED):
                return await self.reads.read_now(run_id, lambda: within_deadline(self.store.runs.get(run_id)))
        except TimeoutError:
            raise StoreUnavailable from None

    async def follow_up(self, settled: Settled) -> None:
        """Send what a change of a run made due, and start the run of its conversation whose turn has come."""
        await within_deadline(follow_up(self.store, self.publisher.publish_soon, [settled]))


async def durable_reply(answer: Awaitable[T]) -> tuple[T, NotDurable | None]:
    """Return the store's answer, within its time, and the exception to raise once that is followed up if it is not
    durable."""
    try:
        return await within_deadline(answer), None
    except NotDurable as unsafe:
        if unsafe.reply is None:
            raise
        return unsafe.reply, unsafe


async def within_deadline(answer: Awaitable[T]) -> T:
    """The store's answer, within the time that a client may be kept waiting for it.

    Raises:
        StoreUnavailable: the store took too long.
    """
    try:
        async with asyncio.timeout(_DEADLINE):
            return await answer
    except TimeoutError:
        raise StoreUnavailable from None
