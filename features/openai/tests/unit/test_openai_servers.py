"""MCP servers that requests for responses name, by OpenAI's own client."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from typing import Any

import orjson
import pytest

from features.openai.servers import servers_of
from features.openai.tests.unit.openai_world import CALCULATOR, MODEL, OpenAiWorld, kinds, serving_openai
from palaver.schemas.models import AgentSpec, Message
from palaver.steps.verdicts import Continue
from tests.unit.api_world import SETTINGS, call

TOKEN = "token-of-a-user-91c3"
WIKI: Mapping[str, Any] = {
    "type": "mcp",
    "server_label": "wiki",
    "server_url": "https://mcp.wiki.example/mcp",
    "server_description": "Pages.",
    "authorization": TOKEN,
}


@pytest.fixture
async def there() -> AsyncIterator[OpenAiWorld]:
    async with serving_openai(settings=SETTINGS.model_copy(update={"inline_mcp_hosts": ("mcp.wiki.example",)})) as made:
        yield made


async def test_a_server_is_the_agents_own_and_its_token_a_secret(there: OpenAiWorld) -> None:
    tools: Any = [{**WIKI, "headers": {"X-Team": "seven"}, "allowed_tools": ["read.page"]}, CALCULATOR]
    response = await there.client.responses.create(model=MODEL, input="look", tools=tools, background=True)
    run = await there.run_of(response)
    (server,) = run["agent"]["mcp_servers"].values()
    assert server["url"] == WIKI["server_url"]
    assert server["allow"] == ["read.page"]
    headers = {name: header["secret"] for name, header in server["headers"].items()}
    assert headers == {"X-Team": "mcp.wiki.1", "Authorization": "mcp.wiki.2"}
    opened = await there.api.store.vault.opened(run["conversation_id"])
    assert opened == {"mcp.wiki.1": "seven", "mcp.wiki.2": TOKEN}
    told = next(tool for tool in response.to_dict()["tools"] if tool["server_label"] == "wiki")
    assert (told["server_url"], told["allowed_tools"], told["require_approval"]) == (
        WIKI["server_url"],
        ["read.page"],
        "always",
    )
    shown = await there.api.client.get(f"/v1/runs/{run['id']}")
    for text in (response.to_json(), shown.text):
        assert TOKEN not in text
        assert "seven" not in text


async def test_its_calls_carry_its_label_and_wait_unless_they_are_waived(there: OpenAiWorld) -> None:
    client = there.client.responses
    first = await client.create(model=MODEL, input="look", tools=[WIKI], background=True)
    opened = call("c1", "approval", "wiki__read_page")
    message = Message(role="assistant", content="", tool_calls=(opened.call,))
    lease = await there.claimed(first)
    await there.api.store.steps.settle(lease, Continue(message, calls=(opened,), risky=("c1",)))
    waiting = await client.retrieve(first.id)
    (request,) = waiting.output
    assert (request.type, request.server_label, request.name) == ("mcp_approval_request", "wiki", "read_page")
    said: Any = [{"type": "mcp_approval_response", "approval_request_id": request.id, "approve": True}]
    second = await client.create(model=MODEL, previous_response_id=first.id, input=said, background=True)
    await there.api.client.post(f"/v1/runs/{second.metadata['palaver_run_id']}/cancel")
    ended = await client.retrieve(second.id)
    (made,) = [item for item in ended.output if item.type == "mcp_call"]
    assert (made.server_label, made.name, made.approval_request_id) == ("wiki", "read_page", request.id)


async def test_one_that_waits_for_nobody_is_shown_as_it_begins(there: OpenAiWorld) -> None:
    tools: Any = [{**WIKI, "require_approval": "never"}]
    response = await there.client.responses.create(model=MODEL, input="look", tools=tools, background=True)
    assert response.to_dict()["tools"][0]["require_approval"] == "never"
    await there.ask(response, call("c1", tool="wiki__read_page"))
    await there.client.responses.cancel(response.id)
    events = [event async for event in await there.client.responses.retrieve(response.id, stream=True)]
    assert "mcp_call.in_progress" in kinds(events)
    (made,) = events[-1].response.output
    assert (made.type, made.server_label, made.name) == ("mcp_call", "wiki", "read_page")


def held(approval: Any, **agent: Any) -> AgentSpec:
    """An agent beside whose tools a request names a server, with that word about approvals."""
    servers = servers_of([WIKI if approval is None else {**WIKI, "require_approval": approval}])
    return AgentSpec.model_validate_json(orjson.dumps(servers.held_to({"model": MODEL, **servers.options, **agent})))


@pytest.mark.parametrize(
    ("approval", "waits", "free"),
    [
        (None, ["read_page", "write"], []),
        ("always", ["read_page", "write"], []),
        ("never", [], ["read_page", "write"]),
        ({"never": {"tool_names": ["read.page"]}}, ["write"], ["read_page"]),
        ({"always": {"tool_names": ["write"]}}, ["write", "read_page"], []),
    ],
)
@pytest.mark.parametrize("require", ["never", "risky", "always", None])
def test_approvals_are_asked_for_as_the_request_says(
    approval: Any, waits: list[str], free: list[str], require: str | None
) -> None:
    own = {"tools": ["calculator"], **({} if require is None else {"approvals": {"require": require}})}
    approvals = held(approval, **own).approvals
    for name in waits:
        assert approvals.ask(f"wiki__{name}", risky=True, alone=True)
    for name in free:
        assert not approvals.ask(f"wiki__{name}", risky=True, alone=True)
    # What the agent says of its own tools stays so.
    for risky in (True, False):
        before = AgentSpec.model_validate_json(orjson.dumps({"model": MODEL, **own})).approvals
        assert approvals.ask("calculator", risky=risky, alone=True) == before.ask("calculator", risky=risky, alone=True)


@pytest.mark.parametrize(
    ("tool", "code", "param", "why"),
    [
        ({**WIKI, "server_url": "https://elsewhere.example/mcp"}, "endpoint_not_allowed", "tools.wiki.url",
         "PALAVER_INLINE_MCP_HOSTS does not allow"),
        ({"type": "mcp", "server_label": "mail", "connector_id": "connector_gmail"}, "unsupported_option",
         "tools.0.connector_id", "name an MCP server by its server_url"),
        ({"type": "mcp", "server_label": "mail"}, "unsupported_option", "tools.0.server_url", "only 'palaver'"),
        ({**WIKI, "allowed_tools": {"read_only": True}}, "unsupported_option", "tools.0.allowed_tools.read_only",
         "does not count"),
        ({**WIKI, "headers": {"Authorization": "x"}}, "unsupported_option", "tools.0.authorization", "give one of"),
        ({**WIKI, "require_approval": "perhaps"}, "validation_error", "tools.0.require_approval", "must be always"),
        ({**WIKI, "server_label": "agent"}, "validation_error", "tools.agent", "reserved"),
    ],
)  # fmt: skip
async def test_what_cannot_be_is_refused_with_a_sentence(
    there: OpenAiWorld, tool: Any, code: str, param: str, why: str
) -> None:
    import openai

    with pytest.raises(openai.BadRequestError) as refused:
        await there.client.responses.create(model=MODEL, input="look", tools=[tool])
    assert (refused.value.code, refused.value.param) == (code, param), refused.value
    assert why in refused.value.message
    assert TOKEN not in refused.value.message


async def test_two_of_one_label_and_those_of_a_chat_are_refused(there: OpenAiWorld) -> None:
    import openai

    twice: Any = [WIKI, {**WIKI, "server_url": "https://mcp.wiki.example/other"}]
    with pytest.raises(openai.BadRequestError, match="another server of the request"):
        await there.client.responses.create(model=MODEL, input="look", tools=twice)
    messages: Any = [{"role": "user", "content": "look"}]
    with pytest.raises(openai.BadRequestError, match="which only a response has"):
        await there.client.chat.completions.create(model=MODEL, messages=messages, tools=[WIKI])


async def test_without_a_key_that_seals_there_are_no_headers() -> None:
    import openai

    bare = SETTINGS.model_copy(update={"inline_mcp_hosts": ("mcp.wiki.example",), "secret_key": ()})
    async with serving_openai(settings=bare) as there:
        with pytest.raises(openai.BadRequestError) as refused:
            await there.client.responses.create(model=MODEL, input="look", tools=[WIKI])
        assert refused.value.code == "no_secret_key"
        open_one: Any = {name: value for name, value in WIKI.items() if name != "authorization"}
        assert (await there.client.responses.create(model=MODEL, input="look", tools=[open_one], background=True)).id


async def test_a_call_that_comes_back_in_an_input_has_the_name_that_the_model_had(there: OpenAiWorld) -> None:
    echoed: Any = [
        {"type": "message", "role": "user", "content": "look"},
        {
            "type": "mcp_call",
            "id": "mcp_1",
            "server_label": "wiki",
            "name": "read.page",
            "arguments": "{}",
            "output": "a",
        },
        {"type": "message", "role": "user", "content": "again"},
    ]
    response = await there.client.responses.create(model=MODEL, input=echoed, tools=[WIKI], background=True)
    run = await there.run_of(response)
    kept = (await there.api.client.get(f"/v1/conversations/{run['conversation_id']}/messages")).json()["data"]
    assert [made["name"] for message in kept for made in message.get("tool_calls", ())] == ["wiki__read_page"]
