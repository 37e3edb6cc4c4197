"""Reads an answer in Anthropic's Messages, streamed or not, without doing any I/O: bytes in, deltas and a reply out."""

from __future__ import annotations

from typing import Any, Final

import orjson

from palaver.errors import EmptyCompletion, MalformedResponse, ProviderHTTPError
from palaver.schemas.models import Usage
from palaver.secrets.redaction import hide
from palaver.vocabulary.limits import most

from ..bounds import Parts, check_stored, parsed, tokens
from ..calls import text_of
from ..event_stream import EventStreamReader
from ..port import PAUSE, WITHHELD, ModelReply
from ..verbatim import elements, members
from .kept import Block, Blocks

_OUT_OF_WINDOW: Final = "model_context_window_exceeded"
_FINISHES: Final = {"max_tokens": "length", "refusal": WITHHELD, "pause_turn": PAUSE}
"""What the port calls the same ends; any other is an ordinary one."""
_INPUTS: Final = ("input_tokens", "cache_read_input_tokens", "cache_creation_input_tokens")
"""Parts of the input, each counted apart."""


class Answer(EventStreamReader):
    """An answer of blocks."""

    def __init__(self, *, max_calls: int = most("tool_calls")) -> None:
        super().__init__(max_calls=max_calls)
        self._blocks = Blocks()
        self._counts: dict[str, int] = {}
        self._explanation = ""
        """Why the answer was refused."""

    def _event(self, payload: bytes) -> str:
        """Take in an event; answers its text. The name of an event stands in it, too."""
        if not payload or payload == b"[DONE]":  # of proxies
            return ""
        try:
            event = parsed(payload)
            self._anything = True
            if event.get("error"):
                raise ProviderHTTPError(200, payload)
            match event["type"]:
                case "content_block_delta":
                    return self._delta(event["delta"], event["index"])
                case "content_block_start":
                    return self._begin(event, payload)
                case "content_block_stop":
                    self._blocks.found[event["index"]].ended = True
                case "message_start":
                    self._identify(event["message"])
                    self._count(event["message"].get("usage"))
                case "message_delta":
                    self._stop(event["delta"].get("stop_reason"), event["delta"].get("stop_details"))
                    self._count(event.get("usage"))
                case "message_stop":
                    self.done = True
            return ""
        except (ValueError, TypeError, AttributeError, KeyError) as error:
            raise MalformedResponse(f"an event of the stream cannot be read: {type(error).__name__}") from error

    def _begin(self, event: dict[str, Any], payload: bytes) -> str:
        """A block begins, mostly an empty one; answers its text."""
        index, first = event["index"], event["content_block"]
        kind = text_of(first["type"])
        if kind == "tool_use":
            # What is given here at once is all of it: pieces follow on an empty one.
            given = members(_first(event, payload))["input"] if first.get("input") else None
            self._blocks.begin(index, kind, "")
            self._calls.add(index, identity=first.get("id"), name=first.get("name"), arguments=given)
            return ""
        raw = "" if kind == "text" else _first(event, payload)
        block = self._blocks.begin(index, kind, raw)
        if kind == "thinking" and (thoughts := text_of(first.get("thinking"))):
            self._thoughts.append(thoughts)
        return self._say_in(block, text_of(first.get("text"))) if kind == "text" else ""

    def _delta(self, delta: dict[str, Any], index: Any) -> str:
        """Take in more of a block; answers its text."""
        block = self._blocks.found[index]
        match delta["type"]:
            case "text_delta":
                return self._say_in(block, text_of(delta["text"]))
            case "input_json_delta" if block.kind == "tool_use":
                self._calls.add(index, arguments=delta["partial_json"])
            case "input_json_delta":
                self._blocks.add(block, "input", text_of(delta["partial_json"]))
            case "thinking_delta":
                self._thoughts.append(thoughts := text_of(delta["thinking"]))
                self._blocks.add(block, "thinking", thoughts)
            case "signature_delta":
                self._blocks.add(block, "signature", text_of(delta["signature"]))
        return ""

    def _say_in(self, block: Block, text: str) -> str:
        block.said.append(text)
        return self._say(text)

    def read(self, body: bytes) -> str:
        """Take in a whole answer that was not streamed; answers its text.

        Raises:
            MalformedResponse: it is no message.
            ResponseTooLarge, TooManyToolCalls, ToolCallTooLarge: something of it is longer than may be.
            ProviderHTTPError: it is an error.
        """
        try:
            document = parsed(body)
            self._anything = self.done = True
            if document.get("error"):
                raise ProviderHTTPError(200, body)
            self._identify(document)
            self._count(document.get("usage"))
            self._stop(document["stop_reason"], document.get("stop_details"))
            self._finish = self._finish or "end_turn"
            texts, parts = [], Parts()
            parts.admit(document)
            parts.admit(document["content"])
            raws = elements(members(body)["content"])
            for index, (block, raw) in enumerate(zip(document["content"], raws, strict=True)):
                parts.admit(block)
                texts.append(self._take(index, block, raw))
            return "".join(texts)
        except (ValueError, TypeError, AttributeError, KeyError) as error:
            raise MalformedResponse(f"the answer cannot be read: {type(error).__name__}") from error

    def _take(self, index: int, found: dict[str, Any], raw: str) -> str:
        """A whole block; answers its text."""
        kind = text_of(found["type"])
        block = self._blocks.begin(index, kind, raw)
        block.ended = True
        if kind == "tool_use":
            arguments = members(raw).get("input")
            self._calls.add(index, identity=found.get("id"), name=found.get("name"), arguments=arguments)
        return self._say_in(block, text_of(found["text"])) if kind == "text" else ""

    def _stop(self, reason: object, details: object) -> None:
        """Take in why the answer ended."""
        self._finish = text_of(reason) or self._finish
        match details:
            # A remark in another shape spoils no answer.
            case {"explanation": str(said)} | {"category": str(said)}:
                self._explanation = said

    def _count(self, usage: dict[str, Any] | None) -> None:
        """Take in counts, of which later ones take the place of earlier ones."""
        said = usage or {}
        for name in (*_INPUTS, "output_tokens"):
            if (number := said.get(name)) is not None:
                self._counts[name] = tokens(number)
        if details := said.get("output_tokens_details"):
            self._counts["output_tokens_details"] = tokens(details.get("thinking_tokens"))
        fresh, cached, cache_write = (self._counts.get(name, 0) for name in _INPUTS)
        output = self._counts.get("output_tokens", 0)
        self.usage = Usage(
            model_calls=1,
            input_tokens=fresh + cached + cache_write,
            cached_tokens=cached,
            cache_write_tokens=cache_write,
            output_tokens=output,
            reasoning_tokens=min(output, self._counts.get("output_tokens_details", 0)),
        )

    def opaque_so_far(self) -> str:
        """What the provider wants back with an answer that was cut off; empty for nothing."""
        return self._blocks.so_far()

    def reply(self) -> ModelReply:
        """The whole answer, without secrets of this process.

        Raises:
            TruncatedStream: the stream ended before the model did.
            EmptyCompletion: it has neither text nor calls.
            MalformedResponse: it is no answer, or contradicts itself.
            ResponseTooLarge: it would be too large as JSON.
            ProviderHTTPError: the conversation does not fit into the model's window any more.
        """
        self._take_in_the_rest()
        if not self._finish:
            raise self._cut_off("the stream ended without a stop reason")
        if self._finish == _OUT_OF_WINDOW:
            raise ProviderHTTPError(200, orjson.dumps({"type": "error", "error": {"type": _OUT_OF_WINDOW}}))
        finish = _FINISHES.get(self._finish, self._finish)
        content = hide("".join(self._content))
        # A limit may have cut the last call off; none of such an answer is made.
        cut = finish in ("length", WITHHELD)
        calls = {} if cut else self._calls.whole()
        if not all(self._blocks.found[index].ended for index in calls):
            raise MalformedResponse("a tool call of the answer has no end")
        opaque = self.opaque_so_far() if cut else self._blocks.whole({index: call.id for index, call in calls.items()})
        if not content and not calls and not cut and not (finish == PAUSE and opaque):
            raise EmptyCompletion
        if finish == "tool_use" and not calls:
            raise MalformedResponse("the answer announces tool calls and has none")
        check_stored(self._length + self._calls.length, content, tuple(calls.values()))
        self.uncounted = not self._counts
        return ModelReply(
            content, tuple(calls.values()), finish, self.usage, opaque, self._id, self._model, self._explanation
        )


def _first(event: dict[str, Any], payload: bytes) -> str:
    """The JSON of a block that begins, as it came."""
    parts = Parts()
    parts.admit(event)
    parts.admit(event["content_block"])
    return members(payload)["content_block"]
