"""Keys of the API."""

from __future__ import annotations

from typing import Annotated, Final

from pydantic import Field
from starlette.responses import Response

from palaver import operations
from palaver.operations import Backend, Caller
from palaver.schemas.api_keys import KeyList, KeyRequest, KeyRotation, MadeKey

from ..http.answers import answer
from ..http.audit import detail
from ..http.queries import Query
from ..kit.signatures import InPath
from .dialect import NATIVE
from .links import location_of

_DEFAULT: Final = KeyRotation.model_construct()
KeyId = Annotated[
    str, InPath("The key's id: what stands between its first two underscores behind `plv`.", look=operations.read_key)
]


class KeysQuery(Query):
    """The tenant whose keys are listed."""

    tenant: str | None = Field(default=None, description="A tenant by its name, for operators; default: your own.")


@NATIVE.route(
    "POST",
    "/v1/keys",
    scope="admin",
    tag="operations",
    summary="Make a key",
    examples={
        "a backend": {"name": "shop", "scopes": ["runs:submit", "runs:read", "runs:act"], "expires_in": 7_776_000},
        "a second person": {"name": "ann", "scopes": ["runs:read", "actions:approve"]},
    },
    answers={201: ("Made. `key` is shown this once; `Location` is the key.", MadeKey)},
    problems=("keys_full", "unknown_tenant", "tenant_erased", "not_durable"),
)
async def create_key(backend: Backend, caller: Caller, body: KeyRequest) -> Response:
    """Never with more rights than the key that asks. Several keys may have one name: what is done with them is recorded
    under it."""
    made = await operations.create_key(backend, body, caller)
    detail(name=body.name, scopes=sorted(made.record.grant.scopes))
    return answer(made.shown(), 201, location_of(f"/v1/keys/{made.record.id}"))


@NATIVE.route(
    "GET",
    "/v1/keys",
    scope="admin",
    tag="operations",
    summary="List keys",
    answers={200: ("The keys, the newest first, without what opens them.", KeyList)},
    problems=("unknown_tenant",),
)
async def list_keys(backend: Backend, caller: Caller, query: KeysQuery) -> Response:
    """The keys of your tenant. One that has expired is listed for 30 days; one that was revoked is not. Keys of
    `PALAVER_API_KEYS` are not among them."""
    return answer(KeyList(data=[*await operations.list_keys(backend, caller, query.tenant)]))


@NATIVE.route(
    "POST",
    "/v1/keys/{api_key_id}/rotate",
    scope="admin",
    tag="operations",
    summary="Replace a key",
    examples={"within an hour": {"overlap": 3600}},
    answers={201: ("The new one. `key` is shown this once; `Location` is the key.", MadeKey)},
    problems=("key_not_found", "keys_full", "tenant_erased", "not_durable"),
)
async def rotate_key(backend: Backend, caller: Caller, api_key_id: KeyId, body: KeyRotation = _DEFAULT) -> Response:
    """Make a key with the same name and rights. The old one stays valid for `overlap` seconds, so that there is time to
    put the new one in its place."""
    made = await operations.rotate_key(backend, api_key_id, body.overlap, caller)
    return answer(made.shown(), 201, location_of(f"/v1/keys/{made.record.id}"))


@NATIVE.route(
    "DELETE",
    "/v1/keys/{api_key_id}",
    scope="admin",
    tag="operations",
    summary="Revoke a key",
    answers={204: ("Within a second it opens nothing any more, at any process.", None)},
    problems=("key_not_found", "not_durable"),
)
async def revoke_key(backend: Backend, caller: Caller, api_key_id: KeyId) -> Response:
    """Its streams and sockets are closed, too."""
    await operations.revoke_key(backend, api_key_id, caller)
    return Response(status_code=204)
