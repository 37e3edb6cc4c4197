"""Usage: what models used, and what that cost."""

from __future__ import annotations

import csv
import io
from datetime import date
from typing import Annotated, Final

from pydantic import BeforeValidator, Field
from starlette.responses import Response

from palaver import operations
from palaver.operations import Backend, UsageReport, UsageRow
from palaver.operations.usage import GROUPS, Group
from palaver.schemas.cells import as_cell

from ..http.answers import answer, answer_text
from ..http.headers import JSON, Offers
from ..http.queries import Query
from .dialect import NATIVE
from .filters import names_of

CSV: Final = "text/csv"
_EXAMPLE: Final = "day,model_calls,input_tokens,…\r\n2026-01-31,12,34567,…\r\n"


def _date(text: object) -> object:
    if not isinstance(text, str):
        return text
    try:
        return date.fromisoformat(text)
    except ValueError:
        raise ValueError("must be a date such as 2026-01-31") from None


_Date = Annotated[date | None, BeforeValidator(_date)]
_Groups = Annotated[tuple[Group, ...], BeforeValidator(names_of(GROUPS, "day, tenant, agent, model or key"))]


class UsageQuery(Query):
    """The days, and what is told apart."""

    start: _Date = Field(default=None, description="The first day, in UTC; 30 days before the last one.")
    end: _Date = Field(default=None, description="The last day, in UTC; today.")
    group_by: _Groups = Field(
        default=("day",),
        description="`day`, `tenant`, `agent`, `model`, `key`: a row for each there is of these together.",
    )


@NATIVE.route(
    "GET",
    "/v1/usage",
    tag="operations",
    scope="usage:read",
    summary="Read what models used",
    answers={200: ("The usage, in rows and in all; as `text/csv` the rows alone.", UsageReport)},
    problems=("invalid_time",),
    also={CSV: {"schema": {"type": "string", "examples": [_EXAMPLE]}}},
)
async def usage(backend: Backend, kind: Annotated[str, Offers((JSON, CSV))], query: UsageQuery) -> Response:
    """Counted by the script that settles a step, so no death of a process loses or doubles any. Days are those on which
    a call ended, and stay for `PALAVER_USAGE_RETENTION`, also when their runs are gone."""
    report = await operations.read_usage(backend, query.start, query.end, query.group_by)
    if kind == JSON:
        return answer(report)
    columns = [name for name in UsageRow.model_fields if name not in GROUPS]
    written = io.StringIO()
    rows = csv.writer(written)
    rows.writerow([*report.group_by, *columns])
    rows.writerows([as_cell(getattr(row, name)) for name in (*report.group_by, *columns)] for row in report.data)
    return answer_text(written.getvalue(), CSV)
