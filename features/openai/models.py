"""The models that requests may name."""

from __future__ import annotations

from typing import Annotated, Final

from starlette.responses import Response

from api.http.answers import answer
from api.kit.signatures import InPath
from palaver import operations
from palaver.operations import Backend, Caller
from palaver.schemas.agents import ServerAgent

from .agents import ON_SERVER, kept_agent, reference_of, unknown_agent
from .dialect import OPENAI
from .wire import OpenAiModel, OpenAiModelList

_PAGE: Final = 200

ModelInPath = Annotated[str, InPath("The model's id, which may have slashes: `agent/support`, `fake/tool-20`.")]


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
        agents += [_of_agent(f"{ON_SERVER}{kept.name}", kept) for kept in page.agents]
        cursor = page.next_cursor
        if cursor is None:
            break
    models = await operations.nameable_models(backend, caller)
    return answer(OpenAiModelList(data=[*agents, *map(_of_provider, models)]))


@OPENAI.route(
    "GET",
    "/openai/v1/models/{model_id:path}",
    scope="runs:read",
    tag="openai",
    summary="Retrieve a model",
    answers={200: ("An agent on the server, or a model of a provider.", OpenAiModel)},
    problems=("agent_not_found", "agent_not_allowed"),
)
async def retrieve_model(backend: Backend, caller: Caller, model_id: ModelInPath) -> Response:
    """Whatever a request may name as its `model`, with this id: also a version of an agent, and a model of a provider
    that its table does not name."""
    reference = reference_of(model_id)
    if reference is not None:
        return answer(_of_agent(model_id, await kept_agent(reference, backend, caller)))
    if not await operations.is_nameable(backend, model_id, caller):
        raise unknown_agent()
    return answer(_of_provider(model_id))


def _of_agent(model_id: str, kept: ServerAgent) -> OpenAiModel:
    return OpenAiModel(id=model_id, created=int(kept.created_at.timestamp()), owned_by="palaver")


def _of_provider(model_id: str) -> OpenAiModel:
    return OpenAiModel(id=model_id, owned_by=model_id.partition("/")[0])
