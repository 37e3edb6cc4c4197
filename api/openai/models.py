"""The models that requests may name."""

from __future__ import annotations

from typing import Final

from starlette.responses import Response

from .. import operations
from ..answers import answer
from ..operations import Backend, Caller
from .dialect import OPENAI
from .wire import OpenAiModel, OpenAiModelList

_PAGE: Final = 200


@OPENAI.route(
    "GET",
    "/openai/v1/models",
    scope="runs:read",
    tag="openai",
    summary="List models",
    answers={200: ("Agents on the server, and models of providers.", OpenAiModelList)},
)
async def list_models(backend: Backend, caller: Caller) -> Response:
    """Agents come as `agent/NAME`. Of models those are here that tables of providers name, as far as the operator's
    policy and the key let a request have an agent of its own."""
    agents, cursor = list[OpenAiModel](), None
    while True:
        page = await operations.list_agents(backend, caller, limit=_PAGE, cursor=cursor)
        agents += [
            OpenAiModel(id=f"agent/{kept.name}", created=int(kept.created_at.timestamp()), owned_by="palaver")
            for kept in page.agents
        ]
        cursor = page.next_cursor
        if cursor is None:
            break
    models = await operations.nameable_models(backend, caller)
    found = [OpenAiModel(id=model, owned_by=model.partition("/")[0]) for model in models]
    return answer(OpenAiModelList(data=[*agents, *found]))
