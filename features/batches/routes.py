"""Batches: many runs over a list of inputs, and the table of their results."""

from __future__ import annotations

import csv
import io
from typing import Annotated, Final

import orjson
from pydantic import Field
from starlette.responses import Response

from api.http.answers import answer, answer_text
from api.http.audit import detail
from api.http.headers import JSON, IdempotencyKey, Offers
from api.http.queries import Number, Query
from api.kit.signatures import InPath
from api.native.dialect import NATIVE
from api.native.links import location_of, next_page
from palaver.operations import Backend, Caller
from palaver.operations.admission import AGENT_PROBLEMS
from palaver.schemas.batches import Batch, BatchResult
from palaver.schemas.cells import as_cell
from palaver.schemas.fields import DataModel

from . import keeping
from .bodies import MoreItems, NewBatch

CSV: Final = "text/csv"
JSONL: Final = "application/x-ndjson"
BatchId = Annotated[str, InPath("The batch's id.", look=keeping.read_batch)]


class BatchesQuery(Query):
    """The number of batches, and the place to go on from."""

    limit: Number = Field(default=50, ge=1, le=200, description="Batches on a page.")
    cursor: str | None = Field(default=None, description="`next_cursor` of the page before.")


class ResultsQuery(Query):
    """The number of results, and the place to go on from."""

    limit: Number = Field(default=100, ge=1, le=500, description="Cells that a page looks at.")
    after: Number = Field(default=0, ge=0, le=1_000_000_000, description="`next_after` of the page before.")


class BatchList(DataModel):
    """A page of batches, the newest first."""

    data: list[Batch]
    next_cursor: str | None
    has_more: bool


class ResultList(DataModel):
    """A page of results, in the order of the cells; those that have not ended are left out."""

    data: list[BatchResult]
    next_after: int | None
    has_more: bool


@NATIVE.route(
    "POST",
    "/v1/batches",
    tag="batches",
    scope="runs:submit",
    summary="Run agents over many inputs",
    examples={
        "compare two agents": {
            "agents": [{"model": "fake/tool-1", "name": "a"}, {"model": "fake/tool-2", "name": "b"}],
            "items": [{"input": "How much is 2 + 2?", "expected": "4"}, {"id": "second", "input": "And 3 + 3?"}],
            "repeats": 3,
        },
        "more items come": {"agents": [{"model": "fake/tool-1"}], "complete": False},
    },
    answers={
        201: ("It is there, and begins. `Location` is the batch.", Batch),
        200: ("It was there, by an earlier request with this `Idempotency-Key`.", Batch),
    },
    problems=(
        *AGENT_PROBLEMS, "unknown_price", "empty_input", "unsupported_content", "invalid_history",
        "idempotency_key_reused", "batches_full", "batch_full", "batch_offset", "tenant_erased", "store_nearly_full",
        "not_durable",
    ),
)  # fmt: skip
async def create_batch(backend: Backend, caller: Caller, key: IdempotencyKey, body: NewBatch) -> Response:
    """A run for each item, agent and repeat, `window` of them at a time, in the name of the key that asks. Each is
    checked when it begins; the agents are checked now, too."""
    made, new = await keeping.create_batch(backend, body, caller, key=key)
    detail(batch=made.id, items=made.items)
    return answer(made, 201 if new else 200, location_of(f"/v1/batches/{made.id}"))


@NATIVE.route(
    "GET",
    "/v1/batches",
    tag="batches",
    scope="runs:read",
    summary="List the batches",
    answers={200: ("A page of batches; `Link` has the next.", BatchList)},
    problems=("invalid_cursor",),
)
async def list_batches(backend: Backend, caller: Caller, query: BatchesQuery) -> Response:
    """Batches, the newest first."""
    page, cursor = await keeping.list_batches(backend, caller, limit=query.limit, cursor=query.cursor)
    shown = BatchList(data=page, next_cursor=cursor, has_more=cursor is not None)
    return answer(shown, headers=next_page("/v1/batches", query, cursor=cursor))


@NATIVE.route(
    "GET",
    "/v1/batches/{batch_id}",
    tag="batches",
    scope="runs:read",
    summary="Read a batch",
    answers={200: ("The batch, and how far it is.", Batch)},
    problems=("batch_not_found",),
)
async def read_batch(backend: Backend, caller: Caller, batch_id: BatchId) -> Response:
    """The numbers of runs that have ended, by how, and their cost, for each agent. `tag=batch:ID` lists its runs."""
    return answer(await keeping.read_batch(backend, batch_id, caller))


@NATIVE.route(
    "POST",
    "/v1/batches/{batch_id}/items",
    tag="batches",
    scope="runs:submit",
    summary="Append items to a batch",
    examples={"the last ones": {"offset": 1000, "items": [{"input": "How much is 2 + 2?"}], "complete": True}},
    answers={200: ("They are there, now or since a request before.", Batch)},
    problems=(
        "batch_not_found", "empty_input", "invalid_history", "batch_offset", "batch_full", "store_nearly_full",
        "not_durable", "unsupported_content", "unknown_price", *AGENT_PROBLEMS,
    ),
)  # fmt: skip
async def append_items(backend: Backend, caller: Caller, batch_id: BatchId, body: MoreItems) -> Response:
    """`offset` is the number of items that came before: a part that is sent again changes nothing."""
    return answer(await keeping.append_items(backend, batch_id, body, caller))


@NATIVE.route(
    "GET",
    "/v1/batches/{batch_id}/results",
    tag="batches",
    scope="runs:read",
    summary="Read the results of a batch",
    answers={200: ("A page of results, also as CSV or as lines of JSON; `Link` has the next.", ResultList)},
    problems=("batch_not_found",),
)
async def batch_results(
    backend: Backend,
    caller: Caller,
    kind: Annotated[str, Offers((JSON, JSONL, CSV))],
    batch_id: BatchId,
    query: ResultsQuery,
) -> Response:
    """A row for each run that has ended: `Accept: text/csv` or `application/x-ndjson` for a table."""
    found, behind = await keeping.batch_results(backend, batch_id, caller, after=query.after, limit=query.limit)
    headers = next_page(f"/v1/batches/{batch_id}/results", query, after=behind)
    if kind == CSV:
        return answer_text(_csv(found), CSV, headers)
    if kind == JSONL:
        lines = b"".join(orjson.dumps(each.model_dump(mode="json")) + b"\n" for each in found)
        return answer_text(lines, JSONL, headers)
    return answer(ResultList(data=found, next_after=behind, has_more=behind is not None), headers=headers)


@NATIVE.route(
    "POST",
    "/v1/batches/{batch_id}/cancel",
    tag="batches",
    scope="runs:submit",
    summary="Cancel a batch",
    answers={200: ("Nothing more is begun, and what is under way is cancelled.", Batch)},
    problems=("batch_not_found", "not_durable"),
)
async def cancel_batch(backend: Backend, caller: Caller, batch_id: BatchId) -> Response:
    """One that has ended stays as it is."""
    return answer(await keeping.change_batch(backend, batch_id, "cancel", caller))


@NATIVE.route(
    "POST",
    "/v1/batches/{batch_id}/retry",
    tag="batches",
    scope="runs:submit",
    summary="Begin again what has failed",
    answers={200: ("It goes on, if anything has failed.", Batch)},
    problems=("batch_not_found", "not_durable", "unknown_price", *AGENT_PROBLEMS),
)
async def retry_batch(backend: Backend, caller: Caller, batch_id: BatchId) -> Response:
    """Runs that neither completed nor ended at a limit have another one; after a cancel, the rest is begun, too."""
    return answer(await keeping.change_batch(backend, batch_id, "retry", caller))


@NATIVE.route(
    "DELETE",
    "/v1/batches/{batch_id}",
    tag="batches",
    scope="runs:submit",
    summary="Remove a batch",
    answers={204: ("It is gone. Its runs stay.", None)},
    problems=("batch_not_found", "batch_active", "not_durable"),
)
async def remove_batch(backend: Backend, caller: Caller, batch_id: BatchId) -> Response:
    """Forget a batch that has ended, with its results."""
    await keeping.remove_batch(backend, batch_id, caller)
    return Response(status_code=204)


def _csv(results: list[BatchResult]) -> str:
    text = io.StringIO()
    writer = csv.DictWriter(text, [*BatchResult.model_fields])
    writer.writeheader()
    for each in results:
        row = each.model_dump(mode="json")
        writer.writerow({name: as_cell(value) for name, value in row.items()})
    return text.getvalue()
