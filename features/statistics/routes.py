"""Statistics of the last hour, day or week."""

from __future__ import annotations

from pydantic import Field
from starlette.responses import Response

from api.http.answers import answer
from api.http.queries import Query
from api.native.dialect import NATIVE
from palaver.operations import Backend, Caller

from .report import StatisticsReport, read_statistics
from .windows import WindowName


class StatisticsQuery(Query):
    """The window, and whose they are."""

    window: WindowName = Field(
        default="hour", description="`hour`, minute by minute; `day`, by quarters of an hour; `week`, by two hours."
    )
    tenant: str | None = Field(
        default=None, description="A tenant by its name, for operators; default: your own, an operator's: all together."
    )


@NATIVE.route(
    "GET",
    "/v1/statistics",
    tag="operations",
    scope="usage:read",
    summary="Read what became of runs and steps of late",
    answers={200: ("The spans in which anything happened, and all together.", StatisticsReport)},
    problems=("unknown_tenant",),
)
async def statistics(backend: Backend, caller: Caller, query: StatisticsQuery) -> Response:
    """Counted by the scripts that write what is counted, so no death of a process loses or doubles any. What a span has
    is gone when its window has passed, eight days after the last thing at the latest; runs that are deleted stay
    counted."""
    return answer(await read_statistics(backend, caller, query.window, query.tenant))
