"""Tenants and their caps: operators see and change those of all, everybody else sees his own."""

from __future__ import annotations

from collections.abc import Sequence

from palaver.errors import Refused
from palaver.operations.backend import Backend, Caller, within_deadline
from palaver.schemas.tenants import Caps, CapsChange, TenantInfo
from palaver.store.tenants.tenants import NO_TENANT, Tenant


async def list_tenants(backend: Backend, caller: Caller) -> Sequence[TenantInfo]:
    """Return the tenants, the default one first; to whom is no operator, its own."""
    if not caller.operator:
        return [await _shown(backend, await _own(backend, caller))]
    listed = await within_deadline(backend.store.tenants.list())
    caps = await within_deadline(backend.store.caps.of_all())
    return [_info(tenant, caps.get(tenant.tag, Caps())) for tenant in listed]


async def read_tenant(backend: Backend, name: str, caller: Caller) -> TenantInfo:
    """Return a tenant with its caps.

    Raises:
        Refused: ``tenant_not_found``; also where there is one, and it is not the caller's.
    """
    return await _shown(backend, await known_tenant(backend, name, caller))


async def change_tenant(backend: Backend, name: str, change: CapsChange, caller: Caller) -> TenantInfo:
    """Change caps of a tenant: they hold from then on, for what waits, too.

    Raises:
        Refused: ``tenant_not_found``, as `read_tenant`; ``operators_only``, of one's own.
        NotDurable, StoreUnavailable: they were not changed, or not safely.
    """
    tenant = await known_tenant(backend, name, caller)
    if not caller.operator:
        raise Refused("operators_only", "Caps of tenants are changed with keys of operators.")
    return _info(tenant, await within_deadline(backend.store.caps.change(tenant.tag, change)))


async def known_tenant(backend: Backend, name: str, caller: Caller) -> Tenant:
    """Return the tenant of that name, if there is one for the caller. Who is no operator does not find out about
    others: their names are not looked for.

    Raises:
        Refused: ``tenant_not_found``.
    """
    if caller.operator:
        tenant = await within_deadline(backend.store.tenants.get(name))
    else:
        own = await _own(backend, caller)
        tenant = own if own.name == name else None
    if tenant is None:
        raise Refused("tenant_not_found", NO_TENANT)
    return tenant


async def _own(backend: Backend, caller: Caller) -> Tenant:
    own = await within_deadline(backend.store.tenants.by_tag(caller.tenant))
    if own is None:
        # A key outlives a registry that was restored from before its tenant was made.
        raise Refused("tenant_not_found", NO_TENANT)
    return own


async def _shown(backend: Backend, tenant: Tenant) -> TenantInfo:
    return _info(tenant, await within_deadline(backend.store.caps.get(tenant.tag)))


def _info(tenant: Tenant, caps: Caps) -> TenantInfo:
    return TenantInfo(name=tenant.name, tag=tenant.tag or None, **caps.model_dump())
