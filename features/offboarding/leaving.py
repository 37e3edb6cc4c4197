"""Tenants that leave: what one has is exported, and erased."""

from __future__ import annotations

import time
from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Final

from palaver.errors import Refused
from palaver.operations.backend import Backend, Caller, within_deadline
from palaver.operations.scopes import InsufficientScope, require_scope
from palaver.operations.tenants import known_tenant
from palaver.schemas.erasures import Erasure

from .erasures import Erasures
from .exports import Exports
from .slices import erase_in_slices

_TIME: Final = 10.0
"""Seconds after which no further slice is begun: a client or a proxy gives up after 30 or 60."""


async def erase_tenant(backend: Backend, name: str, caller: Caller, tag: str | None = None) -> Erasure:
    """Erase what a tenant has, for 10 seconds at most; with a ``tag`` only the one that has it. The answer says whether
    there is more.

    Raises:
        Refused: ``tenant_not_found``, ``default_tenant``, ``operators_only``.
        NotDurable, StoreUnavailable: it may be less far than it seems.
    """
    if not caller.operator:
        await known_tenant(backend, name, caller)
        raise Refused("operators_only", "A tenant is erased with the key of an operator.")
    until = time.monotonic() + _TIME
    async with aclosing(erase_in_slices(backend.store.part(Erasures), name, tag=tag, by=caller.name)) as slices:
        while True:
            report = await within_deadline(anext(slices))
            if report.done or time.monotonic() > until or backend.closing.is_set():
                return report


async def export_tenant(
    backend: Backend, name: str, caller: Caller, cursor: str | None = None
) -> AsyncGenerator[bytes, None]:
    """Return all that a tenant has, as lines of JSON: the caller's own, or, for operators, any.

    Raises:
        Refused: ``tenant_not_found``, ``invalid_cursor``.
        InsufficientScope: the key does not reach all that comes.
    """
    tenant = await known_tenant(backend, name, caller)
    for scope in ("runs:read", "usage:read"):
        require_scope(caller, scope)
    if caller.agents is not None:
        raise InsufficientScope((), "The key is held to some agents, and an export has all.")
    return Exports(backend.store, backend.settings).begin(tenant, cursor)
