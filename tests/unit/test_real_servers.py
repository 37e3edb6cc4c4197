"""What real servers do otherwise than OpenAI's, played by the model server: each row is one of the page's table."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from palaver.config.providers import Provider
from palaver.errors import ErrorClass, ProviderError, classify
from palaver.schemas.models import AgentSpec, Message, ToolCall
from tests.model_server import ModelServer
from tests.unit.answering import complete
from workers.models.model import ModelPort
from workers.protocols import CHAT_COMPLETIONS, CallSettings, ModelReply, protocol_of

PAGE = Path(__file__).parents[2] / "docs" / "how-to" / "providers.md"
DONE = "data: [DONE]\n\n"
ARGUMENTS = '{"x": 1}'


def chunk(delta: Any = None, finish: str | None = None, **more: Any) -> str:
    choice = {"index": 0, "delta": delta, "finish_reason": finish, **more.pop("choice", {})}
    return f"data: {json.dumps({'id': 'c', 'choices': [choice], **more})}\n\n"


def part(name: str | None = "add", arguments: Any = ARGUMENTS, **more: Any) -> dict[str, Any]:
    function = {key: value for key, value in {"name": name, "arguments": arguments}.items() if value is not None}
    return {"type": "function", "function": function, **more}


def calls(*parts: dict[str, Any]) -> dict[str, Any]:
    return {"role": "assistant", "content": None, "tool_calls": list(parts)}


@dataclass(frozen=True)
class Row:
    """A server, what it does, how that looks on the wire, and what is read."""

    server: str
    does: str
    body: str
    text: str = ""
    calls: tuple[tuple[str, str, str], ...] = ()
    tokens: tuple[int, int] | None = None
    kept: str = ""
    """What is to be sent back unchanged."""
    fails: ErrorClass | None = None
    waits: float | None = None
    """Seconds that the provider asks for."""
    status: int = 200
    headers: dict[str, str] = field(default_factory=lambda: {"Content-Type": "text/event-stream"})


USAGE = {"prompt_tokens": 7, "completion_tokens": 3}
LAST = f"data: {json.dumps({'id': 'c', 'choices': [], 'usage': USAGE})}\n\n"
JSON = {"Content-Type": "application/json"}


def refused(message: str, kind: str, status: int) -> str:
    """An error as LiteLLM writes it."""
    return json.dumps({"error": {"message": message, "type": kind, "param": None, "code": str(status)}})


SPENT = """litellm.RateLimitError: AnthropicException - b'{"type":"error","error":{"type":"rate_limit_error","message":\
"This request would exceed your organization\\'s limit.","details":{"error_code":"enforced_spend_limit_reached"}}}'"""
HIDDEN = '{"type":"redacted_thinking","data":"ZW5j"}'
ROWS = (
    Row("vLLM", "sends the role alone first, and what an answer took in a last chunk without choices",
        chunk({"role": "assistant", "content": ""}) + chunk({"content": "hi"}) + chunk({}, "stop") + LAST + DONE,
        text="hi", tokens=(7, 3)),
    Row("vLLM", "says `\"tool_calls\": null` or `[]` where there are none",
        chunk({"content": "hi", "tool_calls": None}) + chunk({"tool_calls": []}, "stop") + DONE, text="hi"),
    Row("Ollama", "ends calls with `stop`, and may give arguments as an object",
        chunk(calls(part(arguments={"x": 1}, id="call_9", index=0))) + chunk({"content": ""}, "stop") + DONE,
        calls=(("call_9", "add", '{"x":1}'),)),
    Row("Ollama", "may give all calls of an answer the index 0",
        chunk(calls(part(id="a", index=0))) + chunk(calls(part(id="b", index=0))) + chunk({}, "tool_calls") + DONE,
        calls=(("a", "add", ARGUMENTS), ("b", "add", ARGUMENTS))),
    Row("llama.cpp", "leaves ids out, or empty",
        chunk(calls(part(id="", index=0), part(index=1))) + chunk({}, "tool_calls") + DONE,
        calls=(("call00000", "add", ARGUMENTS), ("call00001", "add", ARGUMENTS))),
    Row("llama.cpp", "tells an error in a line of its own, `error: {…}`",
        chunk({"content": "h"}) + 'error: {"code":400,"message":"the request exceeds the available context size",'
        '"type":"exceed_context_size_error"}\n\n', fails=ErrorClass.CONTEXT_WINDOW),
    Row("Azure OpenAI", "begins with a chunk about the prompt's filter, without choices, and judges parts as it goes",
        f"data: {json.dumps({'choices': [], 'prompt_filter_results': [{'prompt_index': 0}]})}\n\n"
        + chunk({"content": "hi"}, choice={"content_filter_results": {"hate": {"filtered": False}}})
        + chunk({}, "stop", choice={"content_filter_offsets": {}}) + DONE, text="hi"),
    Row("OpenRouter", "says that it is still there in comments, `: OPENROUTER PROCESSING`",
        ": OPENROUTER PROCESSING\n\n" * 3 + chunk({"content": "hi"}) + ": OPENROUTER PROCESSING\n\n"
        + chunk({}, "stop") + DONE, text="hi"),
    Row("OpenRouter", "tells an error of the provider behind it in a chunk of a 200",
        chunk({"content": "h"}) + chunk({"content": ""}, "error", error={"code": 429, "message": "Rate limited"}),
        fails=ErrorClass.RATE_LIMITED),
    Row("Gemini", "gives no index, each call in one piece",
        chunk(calls(part(id="a"))) + chunk(calls(part(id="b"))) + chunk({}, "stop") + DONE,
        calls=(("a", "add", ARGUMENTS), ("b", "add", ARGUMENTS))),
    Row("DeepSeek", "sends blank lines and comments while it is busy, before an answer in one piece as well",
        "\n\n\n" + json.dumps({"choices": [{"message": {"content": "hi"}, "finish_reason": "stop"}], "usage": USAGE}),
        text="hi", tokens=(7, 3), headers=JSON),
    Row("DeepSeek", "breaks off with `insufficient_system_resource`",
        chunk({"content": "h"}) + chunk({}, "insufficient_system_resource") + DONE, fails=ErrorClass.PROVIDER_ERROR),
    Row("Mistral", "writes content as a list of chunks, of which some are thoughts",
        chunk({"content": [{"type": "thinking", "thinking": [{"type": "text", "text": "hm"}]}]})
        + chunk({"content": [{"type": "text", "text": "h"}]}) + chunk({"content": "i"}, "stop") + DONE, text="hi"),
    Row("Kimi", "tells what an answer took within the choice",
        chunk({"content": "hi"}) + chunk({}, "stop", choice={"usage": USAGE}) + DONE, text="hi", tokens=(7, 3)),
    Row("LiteLLM", "adds fields of its own, and tells usage beside a choice that says nothing",
        chunk({"content": "hi", "provider_specific_fields": None, "audio": None, "function_call": None})
        + chunk({"content": None, "role": None}, "stop", citations=None) + chunk({}, usage=USAGE) + DONE,
        text="hi", tokens=(7, 3)),
    Row("LiteLLM", "tells an error as an event with a status in words",
        chunk({"content": "h"}) + 'data: {"error": {"message": "litellm.ServiceUnavailable: no", "code": "503"}}\n\n',
        fails=ErrorClass.PROVIDER_ERROR),
    Row("LiteLLM", "passes on what Claude thinks as `thinking_blocks`, in pieces, and wants them back",
        chunk({"content": "", "reasoning_content": "h", "thinking_blocks": [{"type": "thinking", "thinking": "h"}]})
        + chunk({"content": "", "reasoning_content": "m", "thinking_blocks": [{"type": "thinking", "thinking": "m"}]})
        + chunk({"thinking_blocks": [{"type": "thinking", "thinking": "", "signature": "c2ln"}]})
        + chunk({"thinking_blocks": [json.loads(HIDDEN)]}) + chunk({"content": "hi"}) + chunk({}, "stop") + DONE,
        text="hi", kept='{"reasoning_content": "hm", "thinking_blocks":'
        f'[{{"type": "thinking", "thinking": "hm", "signature": "c2ln"}}, {HIDDEN}]}}'),
    Row("LiteLLM", "puts the wait that the provider behind it asks for into `llm_provider-retry-after`",
        refused("litellm.RateLimitError: OpenAIException - Slow down", "throttling_error", 429),
        status=429, headers={**JSON, "llm_provider-retry-after": "7"}, fails=ErrorClass.RATE_LIMITED, waits=7.0),
    Row("LiteLLM", "quotes the error of the provider behind it within a text, as `AnthropicException - b'{…}'`",
        refused(SPENT, "throttling_error", 429), status=429, headers=JSON, fails=ErrorClass.QUOTA_EXHAUSTED),
    Row("LiteLLM", "says `No connected db.` (HTTP 400) to a key that it does not know",
        refused("No connected db.", "no_db_connection", 400), status=400, headers=JSON,
        fails=ErrorClass.AUTHENTICATION),
)  # fmt: skip


@pytest.fixture
async def port() -> AsyncIterator[ModelPort]:
    async with ModelServer() as server:
        made = ModelPort({"fake": Provider(base_url=server.base_url)})
        yield made
        await made.close()


async def answer(port: ModelPort, row: Row) -> ModelReply:
    agent = AgentSpec(model="fake/raw")
    given = json.dumps({"status": row.status, "headers": row.headers, "body": row.body})
    asked = CHAT_COMPLETIONS.message(Message(role="user", content=f"[[raw {given}]]"))
    return await complete(port, agent, CHAT_COMPLETIONS.body(agent, [asked], [], CallSettings()), max_calls=8)


@pytest.mark.parametrize("row", ROWS, ids=[f"{row.server}: {row.does[:30]}" for row in ROWS])
async def test_its_answers_are_read(port: ModelPort, row: Row) -> None:
    if row.fails is not None:
        with pytest.raises(ProviderError) as caught:
            await answer(port, row)
        failure = classify(caught.value, source="model")
        assert (failure.error_class, failure.retry_after) == (row.fails, row.waits)
        return
    reply = await answer(port, row)
    assert reply.content == row.text
    assert tuple((call.id, call.name, call.arguments) for call in reply.tool_calls) == row.calls
    assert json.loads(reply.opaque or "null") == json.loads(row.kept or "null")
    if row.tokens:
        assert (reply.usage.input_tokens, reply.usage.output_tokens) == row.tokens


def test_the_page_has_every_row() -> None:
    page = PAGE.read_text()
    assert [row.does for row in ROWS if f"| {row.server} | {row.does} |" not in page] == []


def test_a_call_that_comes_in_pieces_without_an_index_is_one() -> None:
    reader = CHAT_COMPLETIONS.reader(max_calls=8)
    pieces = part(arguments='{"x"', id="a"), part(name=None, arguments=": 1}")
    reader.feed("".join(chunk(calls(each)) for each in pieces).encode())
    reader.feed(chunk({}, "tool_calls").encode())
    assert [(call.id, call.arguments) for call in reader.reply().tool_calls] == [("a", ARGUMENTS)]


def _turn(provider: Provider, *ids: str, opaque: str = "") -> list[dict[str, Any]]:
    asked = Message(role="assistant", tool_calls=tuple(ToolCall(id=each, name="add") for each in ids))
    results = [Message(role="tool", call_id=each, name="add", content="2") for each in ids]
    return [json.loads(text) for text in protocol_of(provider).turn(asked, results, opaque)]


def test_mistral_is_sent_ids_that_it_takes_whoever_made_them() -> None:
    mistral = Provider(base_url="http://127.0.0.1:1/v1", short_call_ids=True)
    asks, first, second = _turn(mistral, "call_abc-1", "AbcDef123")
    ids = [call["id"] for call in asks["tool_calls"]]
    assert [first["tool_call_id"], second["tool_call_id"]] == ids
    assert all(each.isalnum() and len(each) == 9 for each in ids)
    assert ids[1] == "AbcDef123", "its own stay as they are"
    assert _turn(mistral, "call_abc-1", "AbcDef123")[0] == asks, "the same each time, for its cache"


def test_kimi_gets_its_own_ids_back_which_cannot_name_a_step() -> None:
    reader = CHAT_COMPLETIONS.reader(max_calls=8)
    given = ("functions.add:0", "functions.add:1")
    parts = [part(id=each, index=index) for index, each in enumerate(given)]
    reader.feed((chunk(calls(*parts)) + chunk({}, "tool_calls")).encode())
    reply = reader.reply()
    ours = [call.id for call in reply.tool_calls]
    assert ours == ["call00000", "call00001"]
    here = Provider(base_url="http://127.0.0.1:1/v1")
    asks, first, second = _turn(here, *ours, opaque=reply.opaque)
    assert tuple(call["id"] for call in asks["tool_calls"]) == given
    assert (first["tool_call_id"], second["tool_call_id"]) == given
    assert [call["id"] for call in _turn(here, *ours)[0]["tool_calls"]] == ours, "another one is sent the log's"


def test_a_limit_is_called_as_the_provider_wants_it() -> None:
    agent = AgentSpec(model="fake/echo", max_output_tokens=5)
    for newer, name in ((False, "max_tokens"), (True, "max_completion_tokens")):
        settings = CallSettings(max_completion_tokens=newer)
        body = json.loads(CHAT_COMPLETIONS.body(agent, [], [], settings))
        assert {key for key in body if key.startswith("max_")} == {name}
