"""Requests of workers to the gate of a provider or of one of its models. Times are ms by Redis's clock."""

from __future__ import annotations

from typing import NamedTuple

from palaver.errors import Failure
from palaver.late import dataclass
from palaver.store.redis.provider_keys import ProviderKeys
from palaver.store.scripting.contracts.declaration import Script
from palaver.store.scripting.contracts.wire import Json
from palaver.vocabulary.durations import Seconds


class Rates(NamedTuple):
    """The limits of a provider; None is none."""

    max_in_flight: int | None
    requests: int | None
    """A minute, as the next."""
    tokens: int | None


class Uncounted(NamedTuple):
    """Usage that is yet to be counted."""

    requests: int
    """Less than 0 if no call was made."""
    tokens: int
    """Less than 0 if it took fewer than it was admitted with."""


@dataclass(frozen=True, slots=True)
class Admitted:
    """The call may begin."""

    probes: bool = False
    """It shows whether an outage is over: what became of it must be reported, or it is released."""
    woken: tuple[str, ...] = ()
    """Calls that have a place now, too: promote their steps."""


@dataclass(frozen=True, slots=True)
class Wait:
    """The call may not begin yet."""

    code: str
    """Why: ``outage``, ``cooldown``, ``max_in_flight``, ``requests_per_minute`` or ``tokens_per_minute``; or a cap of
    the tenant."""
    seconds: Seconds
    """Ask again then: this time is the caller's own."""
    failure: Failure | None = None
    """The newest failure of the provider, in an outage."""
    woken: tuple[str, ...] = ()
    of_tenant: bool = False
    """True if it is a cap of the tenant, and no limit of the provider."""


class Admit(Script[Admitted | Wait]):
    """Let a call of a provider begin, or say when to ask again: at a time that is this caller's own."""

    provider: ProviderKeys
    call: str
    lasts: Seconds
    """The place in flight lasts so long unless it is held."""
    limits: Rates
    tokens: int
    """Tokens that the call may take."""
    weight: int
    """The weight of the tenant whose call it is."""
    looks: bool
    """Only asks whether its turn has come; a call that may begin asks again."""


@dataclass(frozen=True, slots=True)
class Released:
    """The place is free."""

    woken: tuple[str, ...]
    """Calls that have a place now."""


class Release(Script[Released]):
    """A call has ended, and those made with it: its place is free, and what they took is known."""

    when_full = True

    provider: ProviderKeys
    call: str
    limits: Rates
    more: Uncounted


@dataclass(frozen=True, slots=True)
class Cooled:
    """The provider cools down."""

    turn: Seconds
    """Until the turn of the call that is to be made again."""


class CoolDown(Script[Cooled]):
    """A provider asked for fewer requests: no call begins for a while, and then calls begin one by one."""

    provider: ProviderKeys
    gate_name: str
    lasts: Seconds
    call: str | None
    """A call that is to be made again."""
    weight: int
    """The weight of the tenant whose call it is."""


@dataclass(frozen=True, slots=True)
class Counted:
    """It may have been chance."""


@dataclass(frozen=True, slots=True)
class IsOut:
    """Only one probe at a time calls, and the call that failed waits behind all others."""

    seconds: Seconds
    """Until it is to ask again."""
    woken: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class FailsAlone:
    """It is an outage as far as is known: no call was answered since the step's first attempt. No other step waits."""

    seconds: Seconds
    """Until it is to ask again."""


class ReportFailure(Script[Counted | IsOut | FailsAlone]):
    """A call failed as in an outage. Enough of them in a row, and it is one."""

    provider: ProviderKeys
    gate_name: str
    call: str
    counts_as: str
    """Failures that count as the same are one."""
    weight: int
    """The weight of the tenant whose call it is."""
    answered: Seconds | None
    """Since the worker had its last answer; None if it had none."""
    alone: Seconds | None
    """Since the step's first attempt, if it failed often enough for an outage, but counts once; else None."""
    error: Json


@dataclass(frozen=True, slots=True)
class Answered:
    """It is known."""

    woken: tuple[str, ...]
    """Calls whose turn is near, because the outage is over."""


class ReportAnswer(Script[Answered]):
    """A call was answered: what failed before says nothing any more."""

    provider: ProviderKeys
    gate_name: str
    call: str
    answered: Seconds
    """Since then."""


@dataclass(frozen=True, slots=True)
class PlacesRenewed:
    """The places last longer."""


class RenewPlaces(Script[PlacesRenewed]):
    """Prolong the places of calls that are still in flight. An expired place is not restored: another call may have
    it."""

    when_full = True

    provider: ProviderKeys
    lasts: Seconds
    calls: tuple[str, ...]
