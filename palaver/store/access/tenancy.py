"""The tenants that keys may be of."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True, slots=True)
class Tenant:
    """A tenant by its name, and the tag that is in its ids."""

    name: str
    tag: str


class Tenancy(Protocol):
    """The tenants that there are, beside the default one."""

    async def get(self, name: str) -> Tenant | None:
        """Return the tenant of that name."""

    async def by_tag(self, tag: str) -> Tenant | None:
        """Return the tenant of that tag."""


class DefaultTenancy:
    """There is none but the default one."""

    async def get(self, name: str) -> Tenant | None:
        """Return nothing."""
        return None

    async def by_tag(self, tag: str) -> Tenant | None:
        """Return nothing."""
        return None
