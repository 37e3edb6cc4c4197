"""Access to an API that another application has mounted: the callers are those that the application names."""

from __future__ import annotations

import logging
from dataclasses import replace
from functools import cached_property
from time import monotonic
from typing import Any, Final, Self

from starlette.types import Scope

from palaver.config.mounting import Identity
from palaver.config.settings import Settings
from palaver.errors import Refused, StateConflict
from palaver.operations import Backend, Caller, LiveToken, StoredKeys
from palaver.operations.backend import within_deadline
from palaver.operations.live_keys import TokenReader
from palaver.vocabulary.limits import limit_of

from ..http.auth import unauthenticated
from ..http.hosts import OwnPages, host_of
from ..http.problems import Problem
from ..kit.dialects import Dialect
from .middleware import Access

IDENTITY: Final = "palaver.identity"
"""The key in a scope of what the application says of its caller."""
_LASTS: Final = 900.0
"""Seconds for which a stream or a socket is served without asking again, as with the longest token."""
_REMEMBERED: Final = 60.0
"""Seconds for which the tag of a tenant is known: a name keeps its tag, unless a backup is restored or the tenant is
erased."""
_MOST: Final = limit_of("tenants")
_log: Final = logging.getLogger("palaver.api")


class IdentityAccess(Access):
    """The access of who the application around the API says the caller is. Keys and tokens count for nothing."""

    @classmethod
    def of(cls, settings: Settings, stored: StoredKeys, foreign: TokenReader | None = None) -> Self:
        """Return the access to an application with these settings.

        Raises:
            ConfigurationError: traces are to be sent, and not as Palaver can.
        """
        closed = settings.model_copy(update={"require_keys": True})
        return replace(super().of(closed, stored), hosts=OwnPages(closed))

    def opens(self, path: str, dialect: Dialect) -> bool:
        """Tell whether a path, as routes are compared with it, is for strangers too."""
        return path in dialect.probes or path in self.opened or dialect.page(path) is not None

    async def admit(
        self, path: str, scope: Scope, headers: dict[bytes, bytes], dialect: Dialect
    ) -> tuple[Caller, LiveToken | None]:
        """Return the caller of a path, and until when what takes long is served for it.

        Raises:
            Problem, StateConflict: the caller may not ask, or not from there.
            StoreUnavailable: the tenant is not known; so may be what Redis raises.
        """
        if path in dialect.probes:
            host_of(headers)
        else:
            self.hosts.check(scope, headers)
        identity: Identity | None = scope[IDENTITY]
        if identity is None:
            if self.opens(path, dialect):
                return Caller(trusted=False), None
            raise unauthenticated()
        caller = Caller(
            trusted=True,
            name=identity.user,
            tenant=await self._tenants.tag(scope["app"].state.backend, identity.tenant),
            scopes=frozenset(identity.scopes or ()),
            agents=None if identity.agents is None else frozenset(identity.agents),
            conversation=identity.conversation,
        )
        return caller, LiveToken(caller, monotonic() + _LASTS, None)

    @cached_property
    def _tenants(self) -> _Tenants:
        return _Tenants()


class _Tenants:
    """The tags of tenants by their names, each with the end of the time for which it is known."""

    def __init__(self) -> None:
        self._tags: dict[str, tuple[str, float]] = {}

    async def tag(self, backend: Backend, name: str | None) -> str:
        """Return the tag of the tenant of this name, which is made if there is none."""
        if name is None:
            return ""
        tag, until = self._tags.get(name, ("", 0.0))
        if monotonic() < until:
            return tag
        tag = await within_deadline(_tag(backend.store.tenants, name))
        if len(self._tags) > _MOST:
            self._tags.clear()
        self._tags[name] = tag, monotonic() + _REMEMBERED
        return tag


async def _tag(tenants: Any, name: str) -> str:
    tenant = await tenants.get(name)
    if tenant is None:
        try:
            tenant = await tenants.create(name)
        except StateConflict:
            # Another process was faster; or the tenant is being erased.
            tenant = await tenants.get(name)
        except Refused as why:
            _log.error("the tenant %s that the identity of a caller names cannot be made: %s", name, why.detail)
            raise Problem("unavailable", "There is no room for another tenant.") from why
    if tenant is None:
        raise StateConflict("tenant_erased", None, "the tenant is being erased")
    tag: str = tenant.tag
    return tag
