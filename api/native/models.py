"""Models: what agents may be, and whether workers can ask it now."""

from __future__ import annotations

from pydantic import Field
from starlette.responses import Response

from palaver import operations
from palaver.operations import Backend
from palaver.schemas.fields import DataModel
from palaver.schemas.listed_model import ListedModel

from ..http.answers import answer
from ..http.queries import Number, Query
from .dialect import NATIVE
from .links import next_page


class ModelsQuery(Query):
    """The number of models, and the place to go on from."""

    limit: Number = Field(default=50, ge=1, le=200, description="Models on a page.")
    cursor: str | None = Field(default=None, description="`next_cursor` of the page before.")


class ModelList(DataModel):
    """A page of models, by id."""

    data: list[ListedModel]
    next_cursor: str | None
    has_more: bool


@NATIVE.route(
    "GET",
    "/v1/models",
    scope="runs:read",
    tag="operations",
    summary="List the models",
    answers={200: ("A page of the models that runs may name; `Link` has the next.", ModelList)},
    problems=("invalid_cursor",),
)
async def models(backend: Backend, query: ModelsQuery) -> Response:
    """The models that the providers' tables list or price; `provider/*` stands for any other name, which goes to the
    provider as it is. No provider is asked for this."""
    page = await operations.list_models(backend, limit=query.limit, cursor=query.cursor)
    shown = ModelList(data=[*page.models], next_cursor=page.next_cursor, has_more=page.next_cursor is not None)
    return answer(shown, headers=next_page("/v1/models", query, cursor=page.next_cursor))
