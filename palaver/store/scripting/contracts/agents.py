"""Operations on agents that are kept on the server."""

from __future__ import annotations

from palaver.late import dataclass
from palaver.store.redis.keys import Key
from palaver.store.scripting.contracts.declaration import Script
from palaver.store.scripting.contracts.wire import Json


@dataclass(frozen=True, slots=True)
class Kept:
    """This is its newest version."""

    version: int
    new: bool
    """There was no agent of that name."""


@dataclass(frozen=True, slots=True)
class OtherVersion:
    """It has another version than was expected, or is not there: nothing was changed."""

    version: int
    """0: it is not there."""


@dataclass(frozen=True, slots=True)
class TooMany:
    """The tenant has as many as it may."""


@dataclass(frozen=True, slots=True)
class TenantErased:
    """The tenant is erased, or is being: nothing is kept for it."""


@dataclass(frozen=True, slots=True)
class Absent:
    """There is none of that name."""


@dataclass(frozen=True, slots=True)
class Removed:
    """It is gone."""


class KeepAgent(Script[Kept | OtherVersion | TooMany | TenantErased]):
    """Make a version of an agent, unless the newest one is the same."""

    grows = True

    names: Key
    """The agents of the tenant."""
    versions: Key
    """The versions of this one."""
    agent: str
    expected: int | None
    """The version that it must have until now: 0 for none, -1 for any; None if that does not matter."""
    spec: Json
    by: Json
    """The name of the key that asks: a string or null."""


class RemoveAgent(Script[Removed | OtherVersion | Absent]):
    """Forget an agent. Its numbers are not given again for as long as a run may say them."""

    when_full = True

    names: Key
    versions: Key
    agent: str
    expected: int | None
    """As for `KeepAgent`."""
