"""The same for the routes of OpenAI's dialect."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, Final

from palaver.schemas.models import AgentSpec
from palaver.vocabulary.limits import KIB, limit_of
from tests.cost.ai_sdk_requests import EVERY as OTHERS
from tests.cost.requests import Ask, Case, fields, submitted
from tests.unit.api_world import World

_ROOT: Final = "/openai/v1"
_MODEL: Final = "fake/tool-20"
_VALUES: Final = 9_000
"""Fields of a body, about as many values as there may be."""


def _create(body: Callable[[int], dict[str, Any]]) -> Callable[[World, int], Awaitable[Ask]]:
    async def prepare(api: World, n: int) -> Ask:
        return Ask(f"{_ROOT}/responses", {"model": _MODEL, "background": True, "input": "x", **body(n)})

    return prepare


def _chat(body: Callable[[int], dict[str, Any]]) -> Callable[[World, int], Awaitable[Ask]]:
    async def prepare(api: World, n: int) -> Ask:
        # One that is taken on would be waited for.
        return Ask(f"{_ROOT}/chat/completions", {"model": "nobody/at-all", **body(n)})

    return prepare


def _of_run(path: str) -> Callable[[World, int], Awaitable[Ask]]:
    """A request about a response with so many messages in its input."""

    async def prepare(api: World, n: int) -> Ask:
        run = await submitted(api, n)
        return Ask(_ROOT + path.format(run["id"].replace("run_", "resp_"), run["conversation_id"]))

    return prepare


async def _ended(api: World, n: int) -> Ask:
    run = await api.submit(input=_messages(n))
    await api.finish(run)
    return Ask(f"{_ROOT}/responses/{run['id'].replace('run_', 'resp_')}")


async def _changed(api: World, n: int) -> Ask:
    run = await submitted(api)
    return Ask(f"{_ROOT}/conversations/{run['conversation_id']}", {"metadata": {"a": "x" * n}})


async def _added(api: World, n: int) -> Ask:
    run = await submitted(api)
    items = [{"role": "user", "content": "x"} for _ in range(n)]
    return Ask(f"{_ROOT}/conversations/{run['conversation_id']}/items", {"items": items})


async def _model(api: World, n: int) -> Ask:
    return Ask(f"{_ROOT}/models/fake/{'m' * n}")


async def _models(api: World, n: int) -> Ask:
    for k in range(n):
        await api.store.agents.keep("", f"agent.{k}", AgentSpec(model="fake/echo"))
    return Ask(f"{_ROOT}/models")


def _messages(n: int) -> list[dict[str, str]]:
    return [{"role": "user", "content": "x"} for _ in range(n)]


async def _begun(api: World, n: int) -> Ask:
    return Ask(f"{_ROOT}/conversations", {"items": _messages(n)})


async def _referring(api: World, n: int) -> Ask:
    """A request that refers to each message of the input of a run."""
    run = await submitted(api, n)
    items = (await api.client.get(f"{_ROOT}/responses/{run['id'].replace('run_', 'resp_')}/input_items")).json()["data"]
    before, _, newest = items[0]["id"].rpartition("_i")
    ids = (f"{before}_i{int(newest) - number}" for number in range(n))
    references = [{"type": "item_reference", "id": item_id} for item_id in ids]
    return Ask(f"{_ROOT}/responses", {"model": _MODEL, "background": True, "input": references})


_MOST: Final = limit_of("input_messages")
_COUNTED: Final = 96
"""Messages that are counted: each run with them is made three times."""


def _case(route: str, what: str, prepare: Callable[[World, int], Awaitable[Ask]]) -> Case:
    return Case(route, what, _MOST, prepare, counted_at=_COUNTED)


EVERY: Final = (
    Case(f"POST {_ROOT}/responses", "unknown fields", _VALUES, _create(fields)),
    _case(f"POST {_ROOT}/responses", "items", _create(lambda n: {"input": _messages(n)})),
    _case(f"POST {_ROOT}/responses", "references", _referring),
    Case(f"POST {_ROOT}/responses", "characters", 64 * KIB, _create(lambda n: {"input": "x" * n})),
    _case(f"POST {_ROOT}/chat/completions", "messages", _chat(lambda n: {"messages": _messages(n)})),
    _case(f"GET {_ROOT}/responses/{{response_id}}", "messages of its input", _of_run("/responses/{0}")),
    _case(
        f"GET {_ROOT}/responses/{{response_id}}/input_items",
        "messages of its input",
        _of_run("/responses/{0}/input_items"),
    ),
    _case(f"POST {_ROOT}/responses/{{response_id}}/cancel", "messages of its input", _of_run("/responses/{0}/cancel")),
    _case(f"DELETE {_ROOT}/responses/{{response_id}}", "messages of its input", _ended),
    _case(f"POST {_ROOT}/conversations", "items", _begun),
    _case(f"GET {_ROOT}/conversations/{{conversation_id}}", "messages", _of_run("/conversations/{1}")),
    Case(f"POST {_ROOT}/conversations/{{conversation_id}}", "characters of metadata", 512, _changed),
    _case(f"DELETE {_ROOT}/conversations/{{conversation_id}}", "messages", _of_run("/conversations/{1}")),
    _case(
        f"GET {_ROOT}/conversations/{{conversation_id}}/items",
        "messages",
        _of_run("/conversations/{1}/items?limit=100"),
    ),
    _case(f"POST {_ROOT}/conversations/{{conversation_id}}/items", "items", _added),
    _case(
        f"GET {_ROOT}/conversations/{{conversation_id}}/items/{{item_id}}",
        "messages",
        _of_run("/conversations/{1}/items/msg_3"),
    ),
    Case(f"GET {_ROOT}/models", "agents", 48, _models),
    Case(f"GET {_ROOT}/models/{{model_id}}", "characters", 200, _model),
    *OTHERS,
)
"""With those of all others. The last one is the cheapest."""
