"""In whose name runs are that were ordered for later: the bearer of a key, with the rights that it has by then."""

from __future__ import annotations

from palaver.errors import Refused
from palaver.operations.backend import Backend, Caller, within_deadline
from palaver.operations.live_keys import key_ended, key_of_request
from palaver.operations.scopes import refuse_held
from palaver.schemas.bearers import Bearer
from palaver.store.redis.reach import Reach, within


def bearer_of_order(caller: Caller) -> Bearer:
    """Return what is remembered of the caller of the present request.

    Raises:
        InsufficientScope: the key is held to one conversation, and these runs have others.
    """
    refuse_held(caller)
    if key_of_request.get() is not None:
        kind = "stored"
    elif key_ended.get() is not None:
        kind = "token"
    else:
        kind = "none" if caller.name is None else "listed"
    return Bearer(
        name=caller.name,
        scopes=None if caller.scopes is None else tuple(sorted(caller.scopes)),
        agents=None if caller.agents is None else tuple(sorted(caller.agents)),
        kind=kind,
        operator=caller.operator,
    )


async def caller_now(backend: Backend, tenant: str, bearer: Bearer) -> Caller:
    """Return the bearer as a caller of now, for runs of this tenant. A key is known by its name: the holder who rotates
    it goes on. A token of then gives the rights that it gave.

    Raises:
        Refused: ``invalid_token``, no such key is valid any more.
        StoreUnavailable: the store took too long.
    """
    scopes = None if bearer.scopes is None else frozenset(bearer.scopes)
    agents = None if bearer.agents is None else frozenset(bearer.agents)
    match bearer.kind:
        case "stored":
            seconds = (await within_deadline(backend.store.runs.now())).timestamp()
            for record in await within_deadline(backend.store.api_keys.granted(tenant)):
                grant = record.grant
                valid = record.expires_at is None or record.expires_at > seconds
                allowed = "runs:submit" in grant.scopes and grant.conversation is None
                if valid and allowed and grant.name == bearer.name:
                    return Caller(True, grant.name, tenant, grant.scopes, grant.agents)
            raise _gone(bearer)
        case "listed":
            if not any(key.name == bearer.name for key in backend.settings.api_keys):
                raise _gone(bearer)
        case "none":
            # Ordered with a key that has no name, or when the API wanted none.
            settings = backend.settings
            if settings.keyed and all(key.name is not None for key in settings.api_keys):
                raise _gone(bearer)
    return Caller(True, bearer.name, tenant, scopes, agents)


async def run_begun_before(backend: Backend, tenant: str, bearer: Bearer, key: str) -> str | None:
    """Return the run that was submitted under this key in the name of the bearer, who may not do so any more: the
    client that did it died before it wrote that down. None if there is none.

    Raises:
        StoreUnavailable: the store took too long.
    """
    with within(Reach(tenant)):
        return await within_deadline(backend.store.runs.begun_with([key], by=bearer.name))


def _gone(bearer: Bearer) -> Refused:
    which = "without a name" if bearer.name is None else f"of the name {bearer.name}"
    return Refused("invalid_token", f"No key {which} is valid any more and may submit runs: put it again with another.")
