"""Calls of tools of an MCP server over HTTP: what becomes of each, whatever the server does. It counts its calls: none
is sent twice."""

from __future__ import annotations

import asyncio
import base64
import gzip
import json
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from features.mcp_client.tests.unit.mcp_server import (
    Behaviour,
    McpServer,
    Message,
    answer,
    error,
    event,
    says,
    serving,
    stream,
    tool,
)
from features.mcp_client.tests.unit.mcp_tools import opened_at
from palaver.errors import RetryableToolError, ToolError, ToolTimeout
from palaver.schemas.content import ImagePart, TextPart
from palaver.secrets.redaction import redact
from palaver.tools import ToolContext
from tests.waiting import PATIENCE

UNKNOWN = "it may or may not have taken effect"
PNG = base64.b64encode(b"\x89PNG and more").decode()


def _with(result: Mapping[str, Any]) -> Behaviour:
    async def behave(server: McpServer, request: web.Request, message: Message) -> web.StreamResponse:
        return answer(message, result)

    return behave


def _status(status: int, body: bytes = b"", **headers: str) -> Behaviour:
    async def behave(server: McpServer, request: web.Request, message: Message) -> web.StreamResponse:
        return web.Response(
            status=status, body=body, headers={name.replace("_", "-"): v for name, v in headers.items()}
        )

    return behave


def _error(code: int, text: str = "no", status: int = 200) -> Behaviour:
    async def behave(server: McpServer, request: web.Request, message: Message) -> web.StreamResponse:
        return error(message, code, text, status)

    return behave


def _events(*more: Mapping[str, Any], ends: bool = False) -> Behaviour:
    """A stream of these, and its answer unless it ends before."""

    async def behave(server: McpServer, request: web.Request, message: Message) -> web.StreamResponse:
        response = await stream(request)
        for each in more:
            await response.write(event(each))
        if not ends:
            await response.write(event({"jsonrpc": "2.0", "id": message["id"], "result": says("streamed")}))
        return response

    return behave


def _raw(
    result: bytes,
    *,
    number: bytes = b"%d",
    version: bytes = b'"jsonrpc":"2.0",',
    around: bytes = b"%b",
    label: str = "application/json",
) -> Behaviour:
    """A result as these bytes."""

    async def behave(server: McpServer, request: web.Request, message: Message) -> web.StreamResponse:
        body = b'{%b"id":%b,"result":%b}' % (version, number % message["id"], result)
        return web.Response(body=around % body, headers={"Content-Type": label})

    return behave


async def _cut(server: McpServer, request: web.Request, message: Message) -> web.StreamResponse:
    assert request.transport is not None
    request.transport.abort()
    return web.Response()


async def _cut_in_the_body(server: McpServer, request: web.Request, message: Message) -> web.StreamResponse:
    response = web.StreamResponse(headers={"Content-Type": "application/json", "Content-Length": "1000"})
    await response.prepare(request)
    await response.write(b'{"jsonrpc": "2.0", ')
    assert request.transport is not None
    request.transport.abort()
    return response


async def _never(server: McpServer, request: web.Request, message: Message) -> web.StreamResponse:
    await asyncio.Event().wait()
    return web.Response()


async def _never_ends(server: McpServer, request: web.Request, message: Message) -> web.StreamResponse:
    response = await stream(request)
    await response.write(event({"jsonrpc": "2.0", "method": "notifications/message", "params": {}}))
    await asyncio.Event().wait()
    return response


async def _floods(server: McpServer, request: web.Request, message: Message) -> web.StreamResponse:
    response = await stream(request)
    note = event({"jsonrpc": "2.0", "method": "notifications/message", "params": {"data": "x" * 1_000_000}})
    while True:
        await response.write(note)


async def _compressed(server: McpServer, request: web.Request, message: Message) -> web.StreamResponse:
    body = gzip.compress(json.dumps({"jsonrpc": "2.0", "id": message["id"], "result": says("x" * 10_000)}).encode())
    return web.Response(body=body, headers={"Content-Encoding": "gzip", "Content-Type": "application/json"})


async def _of_another(server: McpServer, request: web.Request, message: Message) -> web.StreamResponse:
    return answer({"id": message["id"] + 1}, says("of another"))


async def _deep(server: McpServer, request: web.Request, message: Message) -> web.StreamResponse:
    text = f'{{"jsonrpc": "2.0", "id": {message["id"]}, "result": {{"structuredContent": {"[" * 500}{"]" * 500}}}}}'
    return web.Response(text=text, content_type="application/json")


LARGE = {"content": [{"type": "text", "text": "x" * (17 << 20)}]}

RESULTS: Mapping[str, tuple[Behaviour, str]] = {
    "text": (_with(says("hello")), "hello"),
    "texts": (_with({"content": [*says("a")["content"], *says("b")["content"]]}), "a\nb"),
    "of the older era": (_with({"content": [{"type": "text", "text": "old"}], "isError": False}), "old"),
    "streamed": (_events(), "streamed"),
    "structured alone": (_with({"content": [], "structuredContent": {"a": 1}}), '{"a": 1}'),
    "structured too": (_with(says('{"a":1}', structuredContent={"a": 1})), '{"a":1}'),
    "structured beside a short text": (
        _with(says("2 rows", structuredContent={"rows": [1, 2]})),
        '2 rows\n{"rows": [1, 2]}',
    ),
    "structured beside a text of it": (
        _with(says("| row |\n|---|\n| 1 |\n| 2 |", structuredContent={"rows": [1, 2]})),
        "| row |\n|---|\n| 1 |\n| 2 |",
    ),
    "structured, wrapped": (_with(says("5", structuredContent={"result": 5})), "5"),
    "structured, item by item": (
        _with({"content": [*says("a")["content"], *says("b")["content"]], "structuredContent": {"result": ["a", "b"]}}),
        "a\nb",
    ),
    "nothing": (_with({"content": []}), ""),
    "a link": (
        _with({"content": [{"type": "resource_link", "uri": "file:///x", "name": "x"}]}),
        "[resource x: file:///x]",
    ),
    "an embedded text": (_with({"content": [{"type": "resource", "resource": {"uri": "a:b", "text": "in"}}]}), "in"),
    "audio": (_with({"content": [{"type": "audio", "data": PNG, "mimeType": "audio/wav"}]}), "[audio is left out"),
    "an unknown part": (_with({"content": [{"type": "hologram"}]}), "[hologram is left out"),
    "a large text": (_with(says("x" * 100_000)), "[cut: 70,000 of 100,000 characters are left out here]"),
    "many parts": (_with({"content": [{"type": "text", "text": "x"}] * 500}), "[cut: the result has 500 parts]"),
    "a large image": (
        _with({"content": [{"type": "image", "data": "A" * (2 << 20), "mimeType": "image/png"}]}),
        "[an image is left out: it has 1,572,864 bytes]",
    ),
    "a request of the server's": (
        _events({"jsonrpc": "2.0", "id": 99, "method": "sampling/createMessage", "params": {}}),
        "streamed",
    ),
    "a text in place of parts": (_with({"content": "x"}), "x"),
    "one part in place of parts": (_with({"content": {"type": "text", "text": "x"}}), "x"),
    "no parts": (_with({"content": None}), ""),
    "a part that is none": (_with({"content": [1, "x", None]}), "[a part is left out: its type is not known]"),
    "an image that is none": (
        _with({"content": [{"type": "image", "data": "?", "mimeType": "image/png"}]}),
        "[an image is left out: it is no base64]",
    ),
    "half of a character": (_raw(rb'{"content":[{"type":"text","text":"cut \ud83d"}],"x":NaN}'), "cut \ufffd"),
    "a number as text": (_raw(b'{"content":[{"type":"text","text":"x"}]}', number=b'"%d"'), "x"),
    "a message without its version": (_raw(b'{"content":[{"type":"text","text":"x"}]}', version=b""), "x"),
    "a list of messages": (_raw(b'{"content":[{"type":"text","text":"x"}]}', around=b"[null,%b]"), "x"),
    "labelled otherwise": (_raw(b'{"content":[{"type":"text","text":"x"}]}', label="Text/Plain"), "x"),
    "a stream labelled as JSON": (
        _raw(b'{"content":[{"type":"text","text":"x"}]}', around=b": hi\n\ndata: null\n\ndata: %b\n\n"),
        "x",
    ),
    "lines that CR ends, and no empty line": (
        _raw(b'{"content":[{"type":"text","text":"x"}]}', around=b"data:\r\rdata: %b", label="TEXT/event-stream"),
        "x",
    ),
    "junk in the stream": (_events({"jsonrpc": "2.0", "method": "notifications/progress", "params": [1]}), "streamed"),
}

FAILURES: Mapping[str, tuple[Behaviour, type[ToolError], str, bool]] = {
    # What it does, the failure, a part of its words, and whether nobody knows if the call had its effect.
    "its tool failed": (_with(says("no such file", isError=True)), ToolError, "no such file", False),
    "it failed without a word": (_with({"content": [], "isError": True}), ToolError, "it says that it failed", False),
    "an error": (_error(-32603, "out of ink"), ToolError, "out of ink (-32603)", False),
    "no such tool": (_error(-32602, "Unknown tool"), ToolError, "Unknown tool (-32602)", False),
    "an error with a status": (_error(-32000, "broken", status=500), ToolError, "broken (-32000)", False),
    "a kind of result that nobody knows": (_with({"resultType": "riddle"}), ToolError, "'riddle'", True),
    "a task": (_with({"resultType": "task"}), ToolError, "made a task of the call", True),
    "a question": (
        _with({"resultType": "input_required", "inputRequests": {"a": {"method": "elicitation/create"}}}),
        ToolError,
        "asks what is no question",
        True,
    ),
    "it wants something": (_with({"resultType": "input_required"}), ToolError, "does not say what", True),
    "the same question again": (
        _with({"resultType": "input_required", "requestState": "s"}),
        ToolError,
        "again and again",
        True,
    ),
    "401": (_status(401), ToolError, "refused the worker's credentials (HTTP 401)", False),
    "403": (_status(403), ToolError, "refused the worker's credentials (HTTP 403)", False),
    "400": (_status(400), ToolError, "refused the request (HTTP 400)", False),
    "elsewhere": (_status(302, Location="http://127.0.0.1:1/"), ToolError, "sends elsewhere (HTTP 302)", False),
    "elsewhere for good": (_status(308, Location="/other"), ToolError, "sends elsewhere (HTTP 308)", False),
    "429": (_status(429, Retry_After="7"), RetryableToolError, "asks to wait (HTTP 429)", False),
    "503": (_status(503), RetryableToolError, "asks to wait (HTTP 503)", False),
    "500": (_status(500, b"<html>"), ToolError, "failed (HTTP 500)", True),
    "502": (_status(502), ToolError, "failed (HTTP 502)", True),
    "accepted and no more": (_status(202), ToolError, "(HTTP 202)", True),
    "a page": (_status(200, b"<html>", Content_Type="text/html"), ToolError, "'text/html'", True),
    "no JSON": (_status(200, b"{", Content_Type="application/json"), ToolError, "no JSON", True),
    "no message": (_status(200, b"[]", Content_Type="application/json"), ToolError, "no JSON-RPC message", True),
    "a number that is none": (
        _status(200, b"NaN", Content_Type="application/json"),
        ToolError,
        "without an answer",
        True,
    ),
    "the answer to another request": (_of_another, ToolError, "answer to another request", True),
    "too large": (_with(LARGE), ToolError, "more than 16,777,216 bytes", True),
    "compressed": (_compressed, ToolError, "compressed", True),
    "a flood": (_floods, ToolError, "more than 16,777,216 bytes", True),
    "a stream without an answer": (_events(ends=True), ToolError, "ended without an answer", True),
    "no answer": (_cut, ToolError, "the connection broke", True),
    "half an answer": (_cut_in_the_body, ToolError, "the connection broke", True),
}


@pytest.mark.parametrize("case", RESULTS)
async def test_a_result_is_shown_to_the_model(case: str, tmp_path: Path) -> None:
    behaviour, expected = RESULTS[case]
    async with serving(McpServer({"t": behaviour})) as server, opened_at(tmp_path, server) as tools:
        result = await tools.call("t", {"a": 1})
        assert isinstance(result, str)
        # A note stands among other text.
        assert expected in result if expected.startswith("[") else result == expected
        assert len(result) < 70_000
        assert server.calls == ["t"]


@pytest.mark.parametrize("case", FAILURES)
async def test_a_call_without_a_result_fails_with_the_truth(case: str, tmp_path: Path) -> None:
    behaviour, kind, words, unknown = FAILURES[case]
    async with serving(McpServer({"t": behaviour})) as server, opened_at(tmp_path, server) as tools:
        failure = await tools.failure("t")
        assert type(failure) is kind
        assert words in str(failure)
        assert (UNKNOWN in str(failure)) is unknown
        assert len(server.calls) == (5 if case == "the same question again" else 1)
        assert str(failure).isprintable()


async def test_a_server_says_how_long_to_wait(tmp_path: Path) -> None:
    async with serving(McpServer({"t": _status(429, Retry_After="7")})) as server, opened_at(tmp_path, server) as tools:
        failure = await tools.failure("t")
        assert isinstance(failure, RetryableToolError)
        assert failure.retry_after == 7


@pytest.mark.parametrize("behaviour", [_cut, _status(500), _events(ends=True)], ids=["cut", "500", "ended"])
async def test_an_idempotent_call_that_was_lost_may_be_made_again(behaviour: Behaviour, tmp_path: Path) -> None:
    table = "tools.t.idempotent = true"
    async with serving(McpServer({"t": behaviour})) as server, opened_at(tmp_path, server, table) as tools:
        assert type(await tools.failure("t")) is RetryableToolError
        assert server.calls == ["t"]


async def test_a_result_with_an_image_has_parts(tmp_path: Path) -> None:
    content = [{"type": "text", "text": "see"}, {"type": "image", "data": PNG, "mimeType": "image/png"}]
    async with serving(McpServer({"t": _with({"content": content})})) as server, opened_at(tmp_path, server) as tools:
        assert await tools.call("t") == (
            TextPart(type="text", text="see"),
            ImagePart(type="image", url=f"data:image/png;base64,{PNG}"),
        )


@pytest.mark.parametrize("written", ["{}\r\n", "\n{}", "{}\n"], ids=["as MIME", "before", "behind"])
@pytest.mark.parametrize("padded", [True, False], ids=["padded", "not padded"])
async def test_an_image_may_have_line_breaks(written: str, padded: bool, tmp_path: Path) -> None:
    data = PNG if padded else PNG.rstrip("=")
    lines = "".join(written.format(data[at : at + 6]) for at in range(0, len(data), 6))
    content = [{"type": "image", "data": lines, "mimeType": "image/png"}]
    async with serving(McpServer({"t": _with({"content": content})})) as server, opened_at(tmp_path, server) as tools:
        assert await tools.call("t") == (ImagePart(type="image", url=f"data:image/png;base64,{PNG}"),)


async def test_a_structured_result_is_what_the_tool_declares(tmp_path: Path) -> None:
    server = McpServer({"t": _with({"structuredContent": {"sum": "x"}, "content": []})})
    server.listed = [tool("t", outputSchema={"type": "object", "properties": {"sum": {"type": "integer"}}})]
    async with serving(server), opened_at(tmp_path, server) as tools:
        assert "not what its own schema says" in str(await tools.failure("t"))


async def test_a_result_nested_too_deep_is_no_result(tmp_path: Path) -> None:
    async with serving(McpServer({"t": _deep})) as server, opened_at(tmp_path, server) as tools:
        assert "nested deeper" in str(await tools.failure("t"))


async def test_progress_is_shown_and_a_flood_of_it_is_thinned(tmp_path: Path) -> None:
    async def behave(server: McpServer, request: web.Request, message: Message) -> web.StreamResponse:
        token = message["params"]["_meta"]["progressToken"]
        response = await stream(request)
        for number in range(2_000):
            params = {"progressToken": token, "progress": number, "total": 2_000, "message": "some\u202e work"}
            await response.write(event({"jsonrpc": "2.0", "method": "notifications/progress", "params": params}))
        other = {"progressToken": "other", "progress": 1}
        await response.write(event({"jsonrpc": "2.0", "method": "notifications/progress", "params": other}))
        await response.write(event({"jsonrpc": "2.0", "id": message["id"], "result": says("done")}))
        return response

    seen: list[tuple[str, float | None]] = []
    context = ToolContext(report=lambda text, fraction: seen.append((text, fraction)))
    async with serving(McpServer({"t": behave})) as server, opened_at(tmp_path, server) as tools:
        begun = time.monotonic()
        assert await tools.call("t", context=context) == "done"
        assert seen[0] == ("some work", 0.0)
        assert len(seen) <= 1 + 2 * (time.monotonic() - begun)


@pytest.mark.parametrize("behaviour", [_never, _never_ends], ids=["silent", "streaming"])
async def test_a_call_that_takes_too_long_ends_at_both_ends(behaviour: Behaviour, tmp_path: Path) -> None:
    server = McpServer({"t": behaviour})
    async with serving(server), opened_at(tmp_path, server, "timeout = 0.3") as tools:
        failure = await tools.failure("t")
        assert type(failure) is ToolTimeout
        assert str(failure) == f"s__t took longer than 0.3 s: {UNKNOWN}"
        await asyncio.wait_for(server.dropped.wait(), PATIENCE)


async def test_a_cancelled_call_lets_the_server_stop(tmp_path: Path) -> None:
    async with serving(McpServer({"t": _never})) as server, opened_at(tmp_path, server) as tools:
        task = asyncio.create_task(tools.call("t"))
        await asyncio.wait_for(server.called.wait(), PATIENCE)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await asyncio.wait_for(server.dropped.wait(), PATIENCE)


async def test_the_request_says_who_asks_and_what(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("THE_TOKEN", "a-secret-of-some-length")
    table = 'headers.Authorization = { env = "THE_TOKEN", prefix = "Bearer " }'
    context = ToolContext(traceparent="00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01")
    async with serving(McpServer({"t": _with(says("it is a-secret-of-some-length"))})) as server:
        async with opened_at(tmp_path, server, table) as tools:
            assert redact(str(await tools.call("t", {"a": 1}, context))) == "it is [redacted]"
        head, message = server.heads[-1], server.requests[-1]
        assert head["Authorization"] == "Bearer a-secret-of-some-length"
        assert (head["MCP-Protocol-Version"], head["Mcp-Method"], head["Mcp-Name"]) == ("2026-07-28", "tools/call", "t")
        assert message["params"]["arguments"] == {"a": 1}
        meta = message["params"]["_meta"]
        assert meta["io.modelcontextprotocol/protocolVersion"] == "2026-07-28"
        assert meta["io.modelcontextprotocol/clientInfo"]["name"] == "palaver"
        assert meta["traceparent"] == context.traceparent
        assert "a-secret" not in json.dumps(message)


async def test_parameters_that_are_headers_are_sent_as_such_and_looked_up_once_more(tmp_path: Path) -> None:
    def listed(header: str) -> list[Any]:
        properties = {"region": {"type": "string", "x-mcp-header": header}, "n": {"type": "integer"}}
        return [tool("t", inputSchema={"type": "object", "properties": properties})]

    async def behave(server: McpServer, request: web.Request, message: Message) -> web.StreamResponse:
        server.listed = listed("Place")
        if request.headers.get("Mcp-Param-Place") != "=?base64?w5xiZXI=?=":
            return error(message, -32020, "header mismatch", 400)
        return answer(message, says("there"))

    server = McpServer({"t": behave}, listed=listed("Region"))
    async with serving(server), opened_at(tmp_path, server) as tools:
        assert await tools.call("t", {"region": "Über", "n": 1}) == "there"
        assert server.methods[-3:] == ["tools/call", "tools/list", "tools/call"]
        server.behaviours["t"] = _error(-32020, status=400)
        assert "(-32020)" in str(await tools.failure("t", {"region": "a"}))
        assert len(server.calls) == 4


async def test_a_server_may_carry_its_own_state_through_the_client(tmp_path: Path) -> None:
    async def behave(server: McpServer, request: web.Request, message: Message) -> web.StreamResponse:
        if message["params"].get("requestState") != "first":
            return answer(message, {"resultType": "input_required", "requestState": "first"})
        return answer(message, says("second"))

    async with serving(McpServer({"t": behave})) as server, opened_at(tmp_path, server) as tools:
        assert await tools.call("t") == "second"


@pytest.mark.slow
async def test_a_hundred_calls_at_once_have_their_own_answers(tmp_path: Path) -> None:
    async with serving(McpServer(listed=[tool("t")])) as server, opened_at(tmp_path, server) as tools:
        results = await asyncio.gather(*(tools.call("t", {"n": number}) for number in range(100)))
        assert [json.loads(str(result)) for result in results] == [{"n": number} for number in range(100)]


async def test_an_answer_that_is_no_http_is_lost(tmp_path: Path) -> None:
    async def junk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"SSH-2.0-OpenSSH\r\n\r\n")
        writer.close()

    async with serving(McpServer(listed=[tool("t")])) as server, opened_at(tmp_path, server):
        pass
    listening = await asyncio.start_server(junk, "127.0.0.1", int(server.url.split(":")[2].split("/")[0]))
    async with listening, opened_at(tmp_path, server) as tools:
        failure = await tools.failure("t")
        assert type(failure) is RetryableToolError
        assert "no HTTP" in str(failure)
