"""The backend of the use cases: the store and the other ports, made once for each process; and the caller of a
request."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import field
from typing import Final, Protocol, TypeVar, cast

from palaver.config.environment import FromEnvironment
from palaver.config.policy import OperatorPolicy
from palaver.config.providers import Provider
from palaver.config.settings import Settings
from palaver.delivery.publishing import follow_up
from palaver.errors import ErrorClass, NotDurable, StateConflict, StoreUnavailable, classify
from palaver.late import dataclass
from palaver.operations.catalog import Catalog
from palaver.operations.measured import Measured
from palaver.schemas.models import Run
from palaver.steps.leases import Delivery, Settled
from palaver.steps.retry import RetryPolicy
from palaver.store import Store
from palaver.store.redis.reach import NOTHING, Reach
from palaver.store.redis.single_flight import SingleFlight
from palaver.store.scripting.contracts.replies import RefusalCode
from palaver.vocabulary.scopes import Scope

T = TypeVar("T")

_DEADLINE: Final = 2.5
"""Seconds that the store may take: a client hears 503 within three."""

_CROWDED: Final = 10.0
"""Seconds for a read when a thousand requests come at once: some stand in line though the store answers."""
_ATTEMPTS: Final = 5
"""Attempts at a request whose conversation changes between a look at it and the act."""
_READS: Final = 48
"""Shared reads under way at once."""


@dataclass(frozen=True, slots=True)
class Caller:
    """The sender of a request."""

    trusted: bool
    """True if the caller has a key, or if no keys are set."""
    name: str | None = None
    """The name under which its acts are recorded, if it has one: that of the key; of a token with a subject
    ``key/subject``."""
    tenant: str = ""
    """The tag of the tenant that the key is of; empty for the default tenant."""
    scopes: frozenset[Scope] | None = None
    """The scopes that the key is held to; None: all."""
    agents: frozenset[str] | None = None
    """The agents that the key is held to, each ``name`` or ``name@version``; None: any, also inline ones."""
    conversation: str | None = None
    """The conversation that the key is held to; None: any."""
    operator: bool = False
    """True if the key sees all tenants."""
    arrived: float = field(default_factory=time.monotonic)
    """The time of arrival, by the monotonic clock."""

    @property
    def identity(self) -> str | None:
        """The name of the person, where persons are told apart: whose words these are, and who approves what comes of
        them. None if it cannot be known."""
        return self.name

    @property
    def key(self) -> str:
        """The name of the key, also of one that made the token; or of who has a token of an issuer. Empty if it has
        none."""
        name = self.name or ""
        return name if name.startswith("oidc:") else name.partition("/")[0]

    @property
    def sees_installation(self) -> bool:
        """True if it may see what all tenants do together."""
        return self.trusted and (self.operator or not self.tenant)

    @property
    def reach(self) -> Reach:
        """The tenant, or all, whose things it can read and change."""
        return Reach(self.tenant, self.operator) if self.trusted else NOTHING

    @property
    def waited_ms(self) -> int:
        """Whole milliseconds since the arrival."""
        return int((time.monotonic() - self.arrived) * 1000)


class Publishing(Protocol):
    """Sends deliveries to the workers, some time soon; what gets lost is sent again by the sweeper."""

    def publish_soon(self, deliveries: Sequence[Delivery]) -> None: ...

    async def close(self) -> None: ...


class Guest(Protocol):
    """A thing that a dialect keeps in a process, beside the backend."""

    def __init__(self) -> None: ...

    async def close(self) -> None:
        """End, as the process does."""


G = TypeVar("G", bound=Guest)
S = TypeVar("S", bound=FromEnvironment)


@dataclass(frozen=True, slots=True)
class Backend:
    """The ports of the use cases."""

    settings: Settings
    store: Store
    publisher: Publishing
    providers: Mapping[str, Provider]
    catalog: Catalog
    policies: Mapping[str, RetryPolicy]
    policy: OperatorPolicy
    """The operator's rules for runs."""
    measured: Measured
    reads: SingleFlight = field(default_factory=lambda: SingleFlight(_READS))
    """Reads of runs that many may want at the same moment."""
    closing: asyncio.Event = field(default_factory=asyncio.Event)
    """Set once the process is to end: requests that wait are answered then."""
    dialect_settings: Sequence[FromEnvironment] = ()
    """The settings of the dialects that are spoken."""
    _guests: dict[type[Guest], Guest] = field(default_factory=dict)

    def setting(self, kind: type[S]) -> S:
        """Return the settings of a dialect, which it declares. Raises LookupError if it declares none of this kind."""
        for settings in self.dialect_settings:
            if isinstance(settings, kind):
                return settings
        raise LookupError(kind.__name__)

    def guest(self, kind: type[G]) -> G:
        """Return the thing of this kind that a dialect keeps in this process; the first call makes it."""
        guest = self._guests.get(kind)
        if guest is None:
            guest = self._guests[kind] = kind()
        return cast(G, guest)

    async def close(self) -> None:
        """Read no more, and let dialects end what they keep."""
        for guest in self._guests.values():
            await guest.close()
        await self.reads.close()
        await self.catalog.close()
        await self.measured.close()

    async def run(self, run_id: str) -> Run:
        """Return the run as it is now.

        Raises:
            UnknownRun: there is no such run (any more).
            StoreUnavailable: the store took too long.
        """
        try:
            return await self.reads.read_now(
                run_id, lambda: within_deadline(self.store.runs.get(run_id)), patience=_CROWDED
            )
        except TimeoutError:
            raise StoreUnavailable from None

    async def wake_planners(self) -> None:
        """Let workers look at a schedule or a batch that was taken or changed. If that cannot be said, they look at it
        within ten seconds."""
        try:
            await within_deadline(self.store.planning.wake())
        except Exception as error:
            if classify(error).error_class is not ErrorClass.STORAGE:
                raise

    async def follow_up(self, settled: Settled) -> None:
        """Send what a change of a run made due, and start the run of its conversation whose turn has come."""
        await within_deadline(follow_up(self.store, self.publisher.publish_soon, [settled]))


async def durable_reply(answer: Awaitable[T]) -> tuple[T, NotDurable | None]:
    """Return the store's answer, within its time; and, if what was written is not durable yet, the exception to raise
    once the answer is followed up."""
    try:
        return await within_deadline(answer), None
    except NotDurable as unsafe:
        if unsafe.reply is None:
            raise
        return unsafe.reply, unsafe


async def unless_changed(attempt: Callable[[], Awaitable[T]]) -> T:
    """Return the result of ``attempt``, which looks at a conversation and then acts on what it saw. If that is not so
    any more, the attempt is made again, a few times.

    Raises:
        StateConflict: ``conversation_changed`` between the two, each time.
    """
    for _ in range(_ATTEMPTS - 1):
        try:
            return await attempt()
        except StateConflict as conflict:
            if conflict.code != RefusalCode.CONVERSATION_CHANGED:
                raise
    return await attempt()


async def within_deadline(answer: Awaitable[T]) -> T:
    """Return the store's answer, within the time that a client may wait for it.

    Raises:
        StoreUnavailable: the store took too long.
    """
    try:
        async with asyncio.timeout(_DEADLINE):
            return await answer
    except TimeoutError:
        raise StoreUnavailable from None
