"""Tenants that leave: what one has is exported, and erased."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator
from contextlib import suppress
from typing import Final

from palaver.errors import Refused
from palaver.schemas.erasures import Erasure
from palaver.store.offboarding.erasures import NO_TENANT
from palaver.store.tenants.tenants import Tenant

from .backend import Backend, Caller, within_deadline
from .scopes import InsufficientScope, require_scope

_TIME: Final = 10.0
"""Seconds after which no further slice is begun: a client or a proxy gives up after 30 or 60."""
_PAUSE: Final = 0.2
"""Seconds between two slices while workers let go of runs, or old requests are answered."""


async def erase_tenant(backend: Backend, name: str, caller: Caller, tag: str | None = None) -> Erasure:
    """Erase what a tenant has, for 10 seconds at most; with a ``tag`` only the one that has it. The answer says whether
    there is more.

    Raises:
        Refused: ``tenant_not_found``, ``default_tenant``, ``operators_only``.
        NotDurable, StoreUnavailable: it may be less far than it seems.
    """
    if not caller.operator:
        await _own(backend, name, caller)
        raise Refused("operators_only", "A tenant is erased with the key of an operator.")
    until, before = time.monotonic() + _TIME, None
    while True:
        report = await within_deadline(backend.store.erasures.erase(name, tag=tag, by=caller.name))
        if report.done or time.monotonic() > until or backend.closing.is_set():
            return report
        if report == before:
            with suppress(TimeoutError):
                await asyncio.wait_for(backend.closing.wait(), _PAUSE)
        before, tag = report, report.tag


async def export_tenant(
    backend: Backend, name: str, caller: Caller, cursor: str | None = None
) -> AsyncGenerator[bytes, None]:
    """Return all that a tenant has, as lines of JSON: the caller's own, or, for operators, any.

    Raises:
        Refused: ``tenant_not_found``, ``invalid_cursor``.
        InsufficientScope: the key does not reach all that comes.
    """
    tenant = await (_known(backend, name) if caller.operator else _own(backend, name, caller))
    for scope in ("runs:read", "usage:read"):
        require_scope(caller, scope)
    if caller.agents is not None:
        raise InsufficientScope((), "The key is held to some agents, and an export has all.")
    return backend.store.exports.begin(tenant, cursor)


async def _known(backend: Backend, name: str) -> Tenant:
    tenant = await within_deadline(backend.store.tenants.get(name))
    if tenant is None:
        raise Refused("tenant_not_found", NO_TENANT)
    return tenant


async def _own(backend: Backend, name: str, caller: Caller) -> Tenant:
    """Return the caller's tenant, if it has that name. Another one is like one that is not there."""
    own = await within_deadline(backend.store.tenants.by_tag(caller.tenant))
    if own is None or own.name != name:
        raise Refused("tenant_not_found", NO_TENANT)
    return own
