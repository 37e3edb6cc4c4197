"""What workers ask the gate of a provider. Times are ms by Redis's clock."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from palaver.store.contracts.declaration import Script
from palaver.store.keys import ProviderKeys


class Rates(NamedTuple):
    """The limits of a provider; None is none."""

    max_in_flight: int | None
    requests: int | None
    """A minute, as the next."""
    tokens: int | None


class Uncounted(NamedTuple):
    """What is yet to be counted."""

    requests: int
    tokens: int
    """Less than 0 if it took fewer than it was admitted with."""


@dataclass(frozen=True, slots=True)
class Admitted:
    """The call may begin."""

    woken: tuple[str, ...]
    """Calls that have a place now, too."""


@dataclass(frozen=True, slots=True)
class Wait:
    """The call may not begin yet."""

    why: str
    """cooldown | requests_per_minute | tokens_per_minute | max_in_flight"""
    ms: int
    woken: tuple[str, ...]


class Admit(Script[Admitted | Wait]):
    """Let a call of a provider begin, or say when to ask again: at a time that is this caller's own."""

    provider: ProviderKeys
    call: str
    lasts_ms: int
    """The place in flight lasts so long unless it is held."""
    limits: Rates
    tokens: int
    """That the call may take."""


@dataclass(frozen=True, slots=True)
class Released:
    """The place is free."""

    woken: tuple[str, ...]
    """Calls that have a place now."""


class Release(Script[Released]):
    """A call has ended, and those made with it: its place is free, and what they took is known."""

    provider: ProviderKeys
    call: str
    limits: Rates
    more: Uncounted


@dataclass(frozen=True, slots=True)
class Cooled:
    """The provider cools down."""

    ends_ms: int
    """Until the cool-down ends."""
    turn_ms: int
    """Until the turn of the call that is to be made again."""


class CoolDown(Script[Cooled]):
    """A provider asked for fewer requests: no call begins for a while, and then calls begin one by one."""

    provider: ProviderKeys
    provider_name: str
    ms: int
    call: str | None
    """A call that is to be made again."""


@dataclass(frozen=True, slots=True)
class PlacesRenewed:
    """The places last longer."""


class RenewPlaces(Script[PlacesRenewed]):
    """Prolong the places of calls that are still in flight. An expired place is not restored: another call may have
    it."""

    provider: ProviderKeys
    ms: int
    calls: tuple[str, ...]
