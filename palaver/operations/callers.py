"""The caller of a request, as it may know itself."""

from __future__ import annotations

from palaver.operations.backend import Backend, Caller, within_deadline
from palaver.schemas.callers import CallerInfo
from palaver.vocabulary.scopes import SCOPES


async def read_caller(backend: Backend, caller: Caller) -> CallerInfo:
    """Return what the caller may do."""
    tenant = await within_deadline(backend.store.tenants.by_tag(caller.tenant))
    return CallerInfo(
        name=caller.name,
        tenant=None if tenant is None else tenant.name,
        operator=caller.operator,
        scopes=tuple(scope for scope in SCOPES if caller.scopes is None or scope in caller.scopes),
        agents=None if caller.agents is None else tuple(sorted(caller.agents)),
        conversation=caller.conversation,
        keyed=backend.settings.keyed,
    )
