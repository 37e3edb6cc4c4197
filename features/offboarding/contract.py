"""The erasure of a tenant, a part at a time.

What is counted is counted where it is erased: a process that goes on with an erasure that broke off counts nothing
twice.
"""

from __future__ import annotations

from typing import Final, Literal

from palaver.late import dataclass
from palaver.store.redis.keys import Key
from palaver.store.scripting.contracts.declaration import Script
from palaver.store.scripting.contracts.replies import Unknown
from palaver.store.scripting.contracts.wire import Json
from palaver.store.sides import Erasable


@dataclass(frozen=True, slots=True)
class Erasing:
    """The tenant is being erased."""

    record: bytes
    """Its record, JSON."""
    begun: bytes
    """The time at which that was asked for first, and by whom; JSON."""


class BeginErasure(Script[Erasing | Unknown]):
    """Mark a tenant in the registry as one that is being erased, unless it is already."""

    when_full = True

    tenants: Key
    tenant: str
    """Its name."""
    tag: str | None
    """The tag that it must have; None for any."""
    begun: Json


@dataclass(frozen=True, slots=True)
class NameFreed:
    """The name is free."""


class EndErasure(Script[NameFreed]):
    """Take a tenant that is erased out of the registry. Its tag stays, so that it is never given again."""

    when_full = True

    tenants: Key
    tenant: str
    """Its name."""
    tag: str


@dataclass(frozen=True, slots=True)
class PartErased:
    """They are gone."""


class EraseKeys(Script[PartErased]):
    """Erase keys, whatever they are."""

    when_full = True

    erasure: Key
    erased_keys: tuple[Erasable, ...]


class EraseRuns(Script[PartErased]):
    """Erase runs that have ended, all of one tenant, with their places in all lists. Others stay, unless they are
    ``broken``."""

    when_full = True

    erasure: Key
    broken: bool
    """Nothing can be done with these, as their records are not as they were written."""
    runs: tuple[str, ...]
    owned: tuple[str, ...]
    """The names of the lists of a tenant that runs are in."""
    shared: tuple[Key, ...]
    """The lists of all tenants that they are in."""


class EraseConversations(Script[PartErased]):
    """Erase conversations, all of one tenant, whose runs are erased, with their logs and their places in all lists."""

    when_full = True

    erasure: Key
    expiring: Key
    conversations: tuple[str, ...]


SharedType = Literal["zset", "hash", "stream"]


@dataclass(frozen=True, slots=True)
class Seen:
    """A page of it was looked through."""

    all: bool
    """True if there is no more."""


@dataclass(frozen=True, slots=True)
class Over:
    """The erasure is done."""


class EraseMembers(Script[Seen | Over]):
    """Look through a page of something that all tenants share, and erase what is the tenant's."""

    when_full = True

    erasure: Key
    shared: Key
    shared_type: SharedType
    tag: str


@dataclass(frozen=True, slots=True)
class Receipt:
    """The receipt, as it was first written."""

    text: bytes
    """JSON."""


class WriteReceipt(Script[Receipt]):
    """Write the receipt of an erasure, and an act of it, unless that was done."""

    when_full = True

    receipt: Key
    acts: Key
    """The acts of the default tenant, which is that of who runs the installation."""
    tag: str
    text: Json
    act: Json | None
    """None if no acts are kept."""
    retention: int
    """Seconds for which acts are kept."""


SCRIPTS: Final = (BeginErasure, EraseRuns, EraseConversations, EraseKeys, EraseMembers, WriteReceipt, EndErasure)
