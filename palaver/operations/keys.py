"""Keys of the API: made, listed, rotated and revoked. A key never makes one that may do more than itself."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from palaver.errors import FieldError, Refused
from palaver.operations.admission import refuse
from palaver.operations.backend import Backend, Caller, within_deadline
from palaver.operations.scopes import InsufficientScope
from palaver.schemas.api_keys import KeyInfo, KeyRequest
from palaver.store.access.api_keys import KeyGrant, KeyRecord, NewKey
from palaver.vocabulary import ids
from palaver.vocabulary.scopes import SCOPES


async def create_key(backend: Backend, request: KeyRequest, caller: Caller) -> NewKey:
    """Make a key.

    Raises:
        InsufficientScope: it could do what the caller's key cannot.
        Refused: everything else that is wrong with the request.
        StateConflict: ``keys_full``.
        NotDurable, StoreUnavailable: it was not made, or not safely.
    """
    refuse(_faults(request))
    tag, name = await tenant_of(backend, request.tenant, caller)
    if tag and request.operator:
        raise Refused.of_faults([FieldError("/operator", "value_error", "sees all tenants: leave the tenant out")])
    if request.conversation is not None and ids.tenant_of(request.conversation) != tag:
        raise Refused.of_faults([FieldError("/conversation", "value_error", "is not of the key's tenant")])
    grant = KeyGrant.of(request, tag, name)
    _check_within(caller, grant)
    return await within_deadline(backend.store.api_keys.create(grant, by=caller.name))


async def list_keys(backend: Backend, caller: Caller, tenant: str | None = None) -> Sequence[KeyInfo]:
    """Return the keys of a tenant, the caller's own unless an operator names another one, the newest first.

    Raises:
        Refused: there is no such tenant, for this caller.
    """
    tag, _ = await tenant_of(backend, tenant, caller)
    listed = await within_deadline(backend.store.api_keys.list(tag))
    return [record.shown(used) for record, used in listed if _sees(caller, record)]


async def read_key(backend: Backend, key_id: str, caller: Caller) -> KeyRecord:
    """Return a key. Raises Refused: there is none, for this caller."""
    record = await within_deadline(backend.store.api_keys.get(key_id))
    if not _sees(caller, record):
        raise Refused("key_not_found")
    return record


async def rotate_key(backend: Backend, key_id: str, overlap: int, caller: Caller) -> NewKey:
    """Make a key in the place of another one, which expires after ``overlap`` seconds.

    Raises:
        InsufficientScope: it can do what the caller's key cannot.
        Refused: there is no such key, for this caller.
        StateConflict: ``keys_full``.
        NotDurable, StoreUnavailable: it was not made, or not safely.
    """
    _check_within(caller, (await read_key(backend, key_id, caller)).grant)
    return await within_deadline(backend.store.api_keys.rotate(key_id, overlap=overlap, by=caller.name))


async def revoke_key(backend: Backend, key_id: str, caller: Caller) -> KeyRecord:
    """Forget a key: within a second it opens nothing any more.

    Raises:
        Refused: there is no such key, for this caller.
        NotDurable, StoreUnavailable: it may be valid still.
    """
    await read_key(backend, key_id, caller)
    return await within_deadline(backend.store.api_keys.revoke(key_id))


def _faults(request: KeyRequest) -> Iterator[FieldError]:
    if not request.scopes and not request.operator:
        yield FieldError("/scopes", "missing", f"says what the key may do, of {', '.join(SCOPES)}")
    if request.conversation is not None and not ids.is_id("conv", request.conversation):
        yield FieldError("/conversation", "value_error", "is not the id of a conversation")
    if request.operator and (request.conversation is not None or request.agents is not None):
        yield FieldError("/operator", "value_error", "is for a key that is held to nothing")


async def tenant_of(backend: Backend, name: str | None, caller: Caller) -> tuple[str, str | None]:
    """Return the tag and the name of the tenant that a request names, or of the caller's.

    Raises:
        Refused: ``unknown_tenant``; also where there is one, and it is not the caller's.
    """
    tenants = backend.store.tenants
    if name is None:
        own = await within_deadline(tenants.by_tag(caller.tenant)) if caller.tenant else None
        return caller.tenant, None if own is None else own.name
    named = await within_deadline(tenants.get(name))
    if named is None or (named.tag != caller.tenant and not caller.operator):
        raise Refused.of_faults([FieldError("/tenant", "unknown_tenant", "is not a tenant")])
    return named.tag, named.name if named.tag else None


def _sees(caller: Caller, record: KeyRecord) -> bool:
    """Tell whether there is such a key for the caller: operators' keys are there for operators alone."""
    grant = record.grant
    return caller.operator or (grant.tenant == caller.tenant and not grant.operator)


def _check_within(caller: Caller, grant: KeyGrant) -> None:
    """See that a key can do no more than the caller's."""
    if grant.operator and not caller.operator:
        raise InsufficientScope((), "Only operators have keys that see all tenants.")
    if caller.scopes is not None and (more := grant.scopes - caller.scopes):
        missing = tuple(scope for scope in SCOPES if scope in more)
        raise InsufficientScope(missing, f"Your key has not the scope {', '.join(missing)}.")
    if caller.agents is not None and (grant.agents is None or grant.agents - caller.agents):
        raise InsufficientScope((), "Your key is held to some agents: hold the other one to these.")
