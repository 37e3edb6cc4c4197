"""Tenants and their caps."""

from __future__ import annotations

from typing import Annotated

from starlette.responses import Response

from palaver import operations
from palaver.operations import Backend, Caller
from palaver.schemas.tenants import CapsChange, TenantInfo, TenantList

from ..http.answers import answer
from ..http.audit import detail
from ..kit.signatures import InPath
from .dialect import NATIVE

TenantName = Annotated[
    str, InPath("The tenant's name; `default` for the one that is always there.", look=operations.read_tenant)
]


@NATIVE.route(
    "GET",
    "/v1/tenants",
    scope="admin",
    tag="operations",
    summary="List tenants",
    answers={200: ("The tenants by name, each with its caps.", TenantList)},
    problems=("tenant_not_found",),
)
async def list_tenants(backend: Backend, caller: Caller) -> Response:
    """All of them for operators; for everybody else the own one."""
    return answer(TenantList(data=[*await operations.list_tenants(backend, caller)]))


@NATIVE.route(
    "GET",
    "/v1/tenants/{tenant}",
    scope="admin",
    tag="operations",
    summary="Read a tenant",
    answers={200: ("The tenant with its caps.", TenantInfo)},
    problems=("tenant_not_found",),
)
async def read_tenant(backend: Backend, caller: Caller, tenant: TenantName) -> Response:
    """Your own, or with an operator's key any."""
    return answer(await operations.read_tenant(backend, tenant, caller))


@NATIVE.route(
    "PATCH",
    "/v1/tenants/{tenant}",
    scope="admin",
    tag="operations",
    summary="Change the caps of a tenant",
    examples={
        "a share, and money": {"weight": 3, "max_in_flight": 10, "max_queued": 1000, "usd_per_day": 25},
        "no cap on a month any more": {"usd_per_month": None},
    },
    answers={200: ("They hold from now on, for what waits, too.", TenantInfo)},
    problems=("tenant_not_found", "operators_only", "not_durable"),
)
async def change_tenant(backend: Backend, caller: Caller, tenant: TenantName, body: CapsChange) -> Response:
    """With a key of an operator. What is left out stays as it is; null takes a cap away."""
    changed = await operations.change_tenant(backend, tenant, body, caller)
    detail(**{name: getattr(body, name) for name in sorted(body.model_fields_set)})
    return answer(changed)
