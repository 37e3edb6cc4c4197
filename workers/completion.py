"""Reads an OpenAI-compatible answer, streamed or not, without doing any I/O: bytes in, text deltas and a reply out."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import orjson

from palaver.errors import EmptyCompletion, MalformedResponse, ProviderHTTPError, TruncatedStream
from palaver.ids import safe_call_id
from palaver.models import ToolCall, Usage

_MAX_LINE: Final = 1 << 20
"""Bytes of one line of a stream (FAULTS F44)."""
_ERROR_STATUS: Final = {"rate_limit_error": 429, "rate_limit_exceeded": 429, "overloaded_error": 529}


@dataclass(frozen=True, slots=True)
class Reply:
    """What the model answered."""

    content: str
    tool_calls: tuple[ToolCall, ...]
    finish_reason: str
    usage: Usage


class Completion:
    """Puts an answer together. ``feed`` it the bytes of a stream as they come; ask for the ``reply`` at the end.

    Any split of the bytes gives the same reply.
    """

    def __init__(self) -> None:
        self._rest = b""
        self._content: list[str] = []
        self._calls: dict[int, dict[str, list[str]]] = {}
        self._finish = ""
        self._done = False
        self._anything = False
        self.usage = Usage(model_calls=1)

    def feed(self, data: bytes) -> str:
        """Take in bytes of the stream; answers the text that they bring.

        Raises:
            MalformedResponse: it is no event stream of JSON chunks.
            ProviderHTTPError: the provider reported an error in the stream.
        """
        lines = (self._rest + data if self._rest else data).split(b"\n")
        self._rest = lines.pop()
        if len(self._rest) > _MAX_LINE:
            raise MalformedResponse("a line of the stream is longer than 1 MiB")
        text = ""
        for line in lines:
            if line.startswith(b"data:"):
                text += self._chunk(line[5:].strip())
            elif line[:1] in (b"<", b"{"):
                raise MalformedResponse("the provider answered something else than an event stream")
        return text

    def _chunk(self, payload: bytes) -> str:
        if not payload:
            return ""
        if payload == b"[DONE]":
            self._done = True
            return ""
        try:
            chunk = orjson.loads(payload)
            self._anything = True
            if chunk.get("error"):
                raise _reported(chunk["error"], payload)
            if chunk.get("usage"):
                self._count(chunk["usage"])
            text = ""
            for choice in chunk.get("choices") or ():
                if choice.get("index", 0) == 0:
                    text += self._delta(choice.get("delta") or {})
                    self._finish = choice.get("finish_reason") or self._finish
            return text
        except (ValueError, TypeError, AttributeError, KeyError) as error:
            raise MalformedResponse(f"a chunk of the stream cannot be read: {type(error).__name__}") from error

    def _delta(self, delta: dict[str, Any]) -> str:
        for part in delta.get("tool_calls") or ():
            call = self._calls.setdefault(int(part.get("index", len(self._calls))), {"id": [], "name": [], "args": []})
            function = part.get("function") or {}
            if part.get("id") and not call["id"]:
                call["id"].append(part["id"])
            if function.get("name"):
                call["name"].append(function["name"])
            if function.get("arguments"):
                call["args"].append(function["arguments"])
        text = delta.get("content") or delta.get("refusal") or ""
        if not isinstance(text, str):
            raise TypeError("content is not text")
        if text:
            self._content.append(text)
        return text

    def read(self, body: bytes) -> str:
        """Take in a whole answer that was not streamed; answers its text.

        Raises:
            MalformedResponse: it is no chat completion.
        """
        try:
            document = orjson.loads(body)
            self._anything = self._done = True
            if document.get("error"):
                raise _reported(document["error"], body)
            self._count(document.get("usage") or {})
            for choice in (document.get("choices") or ())[:1]:
                message = choice["message"]
                calls = message.get("tool_calls") or ()
                self._finish = choice.get("finish_reason") or "stop"
                return self._delta({**message, "tool_calls": [{**call, "index": i} for i, call in enumerate(calls)]})
            return ""
        except (ValueError, TypeError, AttributeError, KeyError) as error:
            raise MalformedResponse(f"the answer cannot be read: {type(error).__name__}") from error

    def _count(self, usage: dict[str, Any]) -> None:
        self.usage = Usage(
            model_calls=1,
            input_tokens=int(usage.get("prompt_tokens") or 0),
            output_tokens=int(usage.get("completion_tokens") or 0),
        )

    def reply(self) -> Reply:
        """The whole answer.

        Raises:
            TruncatedStream: the stream ended before the model did.
            EmptyCompletion: it has neither text nor calls.
        """
        if self._rest.startswith(b"data:"):
            self._chunk(self._rest[5:].strip())
            self._rest = b""
        if not self._finish and not (self._done and (self._content or self._calls)):
            if self._done:
                raise EmptyCompletion
            began = "ended without a finish reason" if self._anything else "was empty"
            raise TruncatedStream(f"the stream {began}")
        content, calls = "".join(self._content), self._tool_calls()
        if not content and not calls and self._finish not in ("content_filter", "length"):
            raise EmptyCompletion
        return Reply(content, calls, self._finish or "stop", self.usage)

    def _tool_calls(self) -> tuple[ToolCall, ...]:
        calls: list[ToolCall] = []
        taken: set[str] = set()
        for index in sorted(self._calls):
            parts = self._calls[index]
            call_id = "".join(parts["id"])
            if not safe_call_id(call_id) or call_id in taken:
                # A step is named after its call: some providers repeat ids, or leave them out.
                call_id = f"call_{index}"
            taken.add(call_id)
            calls.append(ToolCall(id=call_id, name="".join(parts["name"]), arguments="".join(parts["args"]) or "{}"))
        return tuple(calls)


def _reported(error: Any, payload: bytes) -> ProviderHTTPError:
    """An error that came with status 200: judged like the status it should have had."""
    kind = error.get("type") or error.get("code") if isinstance(error, dict) else None
    status = error.get("status") if isinstance(error, dict) else None
    return ProviderHTTPError(status if isinstance(status, int) else _ERROR_STATUS.get(str(kind), 500), payload)
