"""Operations on the registry of tenants."""

from __future__ import annotations

from palaver.late import dataclass
from palaver.store.redis.keys import Key
from palaver.store.scripting.contracts.declaration import Script
from palaver.store.scripting.contracts.wire import Json


@dataclass(frozen=True, slots=True)
class Added:
    """It is there now."""


@dataclass(frozen=True, slots=True)
class NameTaken:
    """Another tenant has that name."""


@dataclass(frozen=True, slots=True)
class TagTaken:
    """Another tenant has that tag."""


@dataclass(frozen=True, slots=True)
class TooManyTenants:
    """There are as many as there may be."""


class CreateTenant(Script[Added | NameTaken | TagTaken | TooManyTenants]):
    """Add a tenant."""

    grows = True

    tenants: Key
    tenant: str
    """Its name."""
    tag: str
    record: Json
