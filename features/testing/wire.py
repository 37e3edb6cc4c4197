"""Answers of a provider in place of a connection: OpenAI's chat completions, as bytes, to the engine's own reader."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

import httpx
import orjson

from palaver.config.providers import Provider
from workers.connections.transport import AiohttpTransport, ResponseStream
from workers.models.late_port import LateModelPort
from workers.models.model import ModelPort

from .model import ScriptedFailure, ScriptedModel, ScriptedTurn

_HEAD: Final = {"id": "chatcmpl-scripted", "created": 0}
_BYTES_A_TOKEN: Final = 4


class ScriptedPort(LateModelPort):
    """Asks the model of a test, whichever provider an agent names."""

    def __init__(self, providers: Mapping[str, Provider], model: ScriptedModel) -> None:
        super().__init__(providers)
        self._transport = _Transport(model)

    async def port(self) -> ModelPort:
        """Return a port to all providers that are known by now."""
        return _Port(self._providers, self._transport)


class _Port(ModelPort):
    def __init__(self, providers: Mapping[str, Provider], transport: AiohttpTransport) -> None:
        super().__init__(providers)
        self._transport = transport

    def _connected(self, *, guarded: bool) -> AiohttpTransport:
        return self._transport


class _Transport(AiohttpTransport):
    """Has no session, and connects to nothing."""

    def __init__(self, model: ScriptedModel) -> None:
        self._model = model
        self._calls = 0

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        """Answer as the script says. Raises httpx.RequestError where it says so."""
        body: dict[str, Any] = orjson.loads(await request.aread())
        match answer := self._model.answer(body):
            case ScriptedFailure(status="connection"):
                raise httpx.ConnectError(answer.message)
            case ScriptedFailure(status="timeout"):
                raise httpx.ReadTimeout(answer.message)
            case ScriptedFailure(status=int() as status):
                error = {"message": answer.message, "type": "error", "param": None, "code": answer.code}
                wait = {} if answer.retry_after is None else {"retry-after": f"{answer.retry_after:g}"}
                return httpx.Response(status, headers=wait, stream=_Stream([orjson.dumps({"error": error})]))
            case ScriptedFailure():
                return httpx.Response(200, stream=_Stream(_events(body, ScriptedTurn("It goes"), 0), breaks=True))
        before, self._calls = self._calls, self._calls + len(answer.calls)
        written = _events if body.get("stream") else _document
        return httpx.Response(200, stream=_Stream(written(body, answer, before)))

    async def aclose(self) -> None:
        """There is nothing to close."""


class _Stream(ResponseStream):
    """Bytes that are there, in place of a connection's."""

    def __init__(self, pieces: list[bytes], *, breaks: bool = False) -> None:
        self._pieces = pieces[:2] if breaks else pieces
        self._breaks = breaks

    @property
    def ended(self) -> bool:
        """True if all of it was read."""
        return not self._pieces

    async def __anext__(self) -> bytes:
        """The next piece. Raises httpx.ReadError where it breaks off."""
        if self._pieces:
            return self._pieces.pop(0)
        if self._breaks:
            raise httpx.ReadError("scripted failure")
        raise StopAsyncIteration

    async def aclose(self) -> None:
        """Take no more of it."""


def _document(body: Mapping[str, Any], turn: ScriptedTurn, before: int) -> list[bytes]:
    message = {"role": "assistant", "content": turn.text or None, "tool_calls": [*_calls(turn, before)] or None}
    choice = {"index": 0, "message": message, "finish_reason": _finish_reason(turn)}
    whole = {**_HEAD, "object": "chat.completion", "model": body["model"], "choices": [choice]}
    return [orjson.dumps({**whole, "usage": _usage(body, turn)})]


def _events(body: Mapping[str, Any], turn: ScriptedTurn, before: int) -> list[bytes]:
    def event(choices: list[dict[str, Any]], usage: object = None) -> bytes:
        head = {**_HEAD, "object": "chat.completion.chunk", "model": body["model"]}
        return b"data: %b\n\n" % orjson.dumps({**head, "choices": choices, "usage": usage})

    def delta(finish_reason: str | None = None, **fields: Any) -> bytes:
        return event([{"index": 0, "delta": fields, "finish_reason": finish_reason}])

    events = [delta(role="assistant", content="")]
    if turn.text:
        events.append(delta(content=turn.text))
    events += [delta(tool_calls=[{"index": i, **call}]) for i, call in enumerate(_calls(turn, before))]
    return [*events, delta(_finish_reason(turn)), event([], _usage(body, turn)), b"data: [DONE]\n\n"]


def _calls(turn: ScriptedTurn, before: int) -> Iterator[dict[str, Any]]:
    """Yield its calls, with ids that none had before."""
    for number, (tool, arguments) in enumerate(turn.calls, before + 1):
        function = {"name": tool, "arguments": orjson.dumps(arguments).decode()}
        yield {"id": f"call_{number}", "type": "function", "function": function}


def _finish_reason(turn: ScriptedTurn) -> str:
    return turn.finish_reason or ("tool_calls" if turn.calls else "stop")


def _usage(body: Mapping[str, Any], turn: ScriptedTurn) -> dict[str, int]:
    said = len(turn.text) + sum(len(orjson.dumps(arguments)) for _, arguments in turn.calls)
    asked, answered = turn.tokens or (len(orjson.dumps(body)) // _BYTES_A_TOKEN, max(1, said // _BYTES_A_TOKEN))
    return {"prompt_tokens": asked, "completion_tokens": answered, "total_tokens": asked + answered}
