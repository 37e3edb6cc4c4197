"""Acts with keys of the store: who did what."""

from __future__ import annotations

from pydantic import Field
from starlette.responses import Response

from palaver import operations
from palaver.operations import Backend, Caller
from palaver.schemas.audit import AuditPage
from palaver.vocabulary.limits import limit_of

from ..http.answers import answer
from ..http.queries import Number, Query
from .dialect import NATIVE
from .filters import Moment


class AuditQuery(Query):
    """The acts to read."""

    tenant: str | None = Field(default=None, description="A tenant by its name, for operators; default: your own.")
    after: str = Field(
        default="",
        max_length=40,
        json_schema_extra={"pattern": "^([0-9]{1,16}-[0-9]{1,16})?$"},
        description="Only those behind the one of this id.",
    )
    since: Moment | None = Field(default=None, description="Not those before.")
    limit: Number = Field(default=100, ge=1, le=limit_of("audit_page"), description="Acts on a page.")


@NATIVE.route(
    "GET",
    "/v1/audit",
    scope="admin",
    tag="operations",
    summary="Read who did what",
    answers={200: ("A page, the oldest first; `next_after` is where to go on.", AuditPage)},
    problems=("invalid_cursor", "unknown_tenant"),
)
async def read_audit(backend: Backend, caller: Caller, query: AuditQuery) -> Response:
    """Acts that changed something with a key of the store or a token of one, exports, and all acts with an operator's
    key, reads too, the same one once in ten minutes. Kept for `PALAVER_AUDIT_RETENTION`."""
    page = await operations.read_audit(
        backend, caller, tenant=query.tenant, after=query.after, since=query.since, limit=query.limit
    )
    return answer(page)
