"""Reads an OpenAI-compatible answer, streamed or not, without doing any I/O: bytes in, text deltas and a reply out."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import count
from typing import Any, Final

import orjson

from palaver.errors import EmptyCompletion, MalformedResponse, ProviderError, ProviderHTTPError, TruncatedStream
from palaver.ids import safe_call_id
from palaver.models import ToolCall, Usage

_MAX_LINE: Final = 1 << 20
"""Bytes of one line of a stream (FAULTS F44)."""
_MOST_TOKENS: Final = 1_000_000_000
"""Of one call."""
_FINISHES: Final = {
    **dict.fromkeys(("length", "max_tokens", "model_length"), "length"),
    **dict.fromkeys(("content_filter", "refusal", "safety", "sensitive"), "content_filter"),
    **dict.fromkeys(("error", "network_error", "insufficient_system_resource"), "error"),
}
"""What providers call the same ends; any other is an ordinary one."""


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
        """A chunk was read."""
        self._foreign = False
        """There was something that is no event stream."""
        self._error_follows = False
        self.usage = Usage(model_calls=1)
        self.uncounted = False
        """The answer is whole, and the provider did not say what it took."""
        self._counted = False

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
            elif line.strip():
                self._other(line)
        return text

    def _other(self, line: bytes) -> None:
        """A line that is no data: of an event stream, or of something else."""
        if line.startswith(b"event:"):
            self._error_follows = line[6:].strip() == b"error"
        elif line.startswith(b"error:"):  # llama.cpp
            raise ProviderHTTPError(200, line[6:])
        elif line[:1] in (b"<", b"{"):
            raise _something_else()
        elif not line.startswith((b":", b"id:", b"retry:")):
            self._foreign = True

    def _chunk(self, payload: bytes) -> str:
        if not payload:
            return ""
        if payload == b"[DONE]":
            self._done = True
            return ""
        if self._error_follows:
            raise ProviderHTTPError(200, payload)
        try:
            chunk = orjson.loads(payload)
            self._anything = True
            if chunk.get("error"):
                raise ProviderHTTPError(200, payload)
            if chunk.get("usage"):
                self._count(chunk["usage"])
            text = ""
            for choice in chunk.get("choices") or ():
                if choice.get("index", 0) == 0:
                    text += self._delta(choice.get("delta") or {})
                    self._finish = _string(choice.get("finish_reason")) or self._finish
            return text
        except (ValueError, TypeError, AttributeError, KeyError) as error:
            raise MalformedResponse(f"a chunk of the stream cannot be read: {type(error).__name__}") from error

    def _delta(self, delta: dict[str, Any]) -> str:
        for part in delta.get("tool_calls") or ():
            call = self._calls.setdefault(int(part.get("index", len(self._calls))), {"id": [], "name": [], "args": []})
            function = part.get("function") or {}
            if part.get("id") and not call["id"]:
                call["id"].append(_string(part["id"]))
            if function.get("name"):
                call["name"].append(_string(function["name"]))
            if function.get("arguments"):
                call["args"].append(_string(function["arguments"]))
        text = _string(delta.get("content") or delta.get("refusal"))
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
                raise ProviderHTTPError(200, body)
            if document.get("usage"):
                self._count(document["usage"])
            for choice in (document.get("choices") or ())[:1]:
                message = choice["message"]
                calls = message.get("tool_calls") or ()
                self._finish = _string(choice.get("finish_reason")) or "stop"
                return self._delta({**message, "tool_calls": [{**call, "index": i} for i, call in enumerate(calls)]})
            return ""
        except (ValueError, TypeError, AttributeError, KeyError) as error:
            raise MalformedResponse(f"the answer cannot be read: {type(error).__name__}") from error

    def _count(self, usage: dict[str, Any]) -> None:
        tokens = _tokens(usage.get("prompt_tokens"))
        details = usage.get("prompt_tokens_details") or {}
        self._counted = True
        self.usage = Usage(
            model_calls=1,
            input_tokens=tokens,
            cached_tokens=min(tokens, _tokens(details.get("cached_tokens"))),
            output_tokens=_tokens(usage.get("completion_tokens")),
        )

    def reply(self) -> Reply:
        """The whole answer.

        Raises:
            TruncatedStream: the stream ended before the model did.
            EmptyCompletion: it has neither text nor calls.
            MalformedResponse: it is no answer, or contradicts itself.
            ProviderError: the model broke off and says so.
        """
        if self._rest:
            self.feed(b"\n")
        if not self._finish and not (self._done and (self._content or self._calls)):
            if self._foreign and not self._anything:
                raise _something_else()
            if self._done:
                raise EmptyCompletion
            raise TruncatedStream("the stream ended without a finish reason")
        finish = _FINISHES.get(self._finish.lower(), self._finish)
        if finish == "error":
            raise ProviderError("the model broke off with an error")
        content, calls = "".join(self._content), self._tool_calls()
        if not content and not calls and finish not in ("content_filter", "length"):
            raise EmptyCompletion
        if finish == "tool_calls" and not calls:
            raise MalformedResponse("the answer announces tool calls and has none")
        self.uncounted = not self._counted
        return Reply(content, calls, finish or "stop", self.usage)

    def _tool_calls(self) -> tuple[ToolCall, ...]:
        calls: list[ToolCall] = []
        taken: set[str] = set()
        for index in sorted(self._calls):
            parts = self._calls[index]
            call_id = "".join(parts["id"])
            if not safe_call_id(call_id) or call_id in taken:
                # A step is named after its call: some providers repeat ids, or leave them out.
                call_id = next(name for number in count(index) if (name := f"call_{number}") not in taken)
            taken.add(call_id)
            calls.append(ToolCall(id=call_id, name="".join(parts["name"]), arguments="".join(parts["args"]) or "{}"))
        return tuple(calls)


def _tokens(number: Any) -> int:
    """A count as the provider reports it; a nonsensical one must not spoil the sum of the run."""
    return int(min(max(float(number or 0), 0), _MOST_TOKENS))


def _string(value: Any) -> str:
    """Text, or nothing. Raises TypeError for anything else."""
    if value is not None and not isinstance(value, str):
        raise TypeError(f"{type(value).__name__} in place of text")
    return value or ""


def _something_else() -> MalformedResponse:
    return MalformedResponse("the provider answered something else than an event stream")
