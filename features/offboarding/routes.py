"""Tenants that leave: export, and erasure."""

from __future__ import annotations

from typing import Final

from pydantic import Field
from starlette.responses import Response

from api.http.answers import answer
from api.http.audit import detail
from api.http.queries import Query
from api.kit.streams import EventStream
from api.native.dialect import NATIVE
from api.native.tenants import TenantName
from palaver.operations import Backend, Caller
from palaver.schemas.erasures import Erasure

from . import leaving

LINES: Final = "text/x-ndjson"
"""A type of text: generators of clients know what to do with these."""
_EXAMPLE: Final = '{"schema":1,"kind":"conversation","conversation":{…},"cursor":"WzAs…"}\n'


class EraseQuery(Query):
    """The tenant that is meant."""

    tag: str | None = Field(
        default=None,
        max_length=6,
        description="Only the tenant with this tag, as an earlier answer said it: the name may be another's by then.",
    )


class ExportQuery(Query):
    """The place to go on from."""

    cursor: str | None = Field(
        default=None, max_length=1000, description="That of the last whole line that came: go on behind it."
    )


@NATIVE.route(
    "POST",
    "/v1/tenants/{tenant}/erase",
    scope="admin",
    tag="operations",
    summary="Erase a tenant",
    answers={200: ("As far as it is; with `done` this is the receipt.", Erasure)},
    problems=("tenant_not_found", "default_tenant", "operators_only", "not_durable"),
)
async def erase_tenant(backend: Backend, caller: Caller, tenant: TenantName, query: EraseQuery) -> Response:
    """Ask again until `done`: what broke off goes on, for any process. Keys of the tenant open nothing from the first
    request on, nothing is begun for it, and its runs are cancelled. For keys of operators."""
    erasure = await leaving.erase_tenant(backend, tenant, caller, query.tag)
    detail(done=erasure.done)
    return answer(erasure)


@NATIVE.route(
    "GET",
    "/v1/tenants/{tenant}/export",
    scope="admin",
    tag="operations",
    summary="Export a tenant",
    answers={200: ("What it has, a line of JSON each.", None)},
    problems=("tenant_not_found", "invalid_cursor"),
    audited=True,
    also={LINES: {"schema": {"type": "string", "examples": [_EXAMPLE]}}},
)
async def export_tenant(backend: Backend, caller: Caller, tenant: TenantName, query: ExportQuery) -> Response:
    """Conversations with their logs, runs, agents in all versions, usage by day, keys without what opens them, acts.
    The last line is of the kind `end` and counts them: without it something is missing, and a request with the `cursor`
    of the last line brings it. Your own tenant, with the scopes `runs:read` and `usage:read` besides; any one for
    operators."""
    lines = await leaving.export_tenant(backend, tenant, caller, query.cursor)
    return EventStream(lines, backend.closing, media_type=LINES)
