"""Reads an answer in Anthropic's Messages, streamed or not, without doing any I/O: bytes in, deltas and a reply out."""

from __future__ import annotations

from typing import Any, Final

import orjson

from palaver.errors import ProviderHTTPError
from palaver.vocabulary.limits import limit_of

from ..bounds import Parts, tokens
from ..calls import text_of
from ..event_stream import EventStreamReader
from ..port import PAUSE, WITHHELD, ModelReply
from ..verbatim import elements, members
from .answer_blocks import Block, Blocks

_OUT_OF_WINDOW: Final = "model_context_window_exceeded"
_FINISHES: Final = {"max_tokens": "length", "refusal": WITHHELD, "pause_turn": PAUSE}
"""Stop reasons of the protocol, with the port's name for the same end; any other is an ordinary end."""
_INPUTS: Final = ("input_tokens", "cache_read_input_tokens", "cache_creation_input_tokens")
"""Parts of the input, each counted apart."""


class MessagesReader(EventStreamReader):
    """An answer of blocks."""

    def __init__(self, *, max_calls: int = limit_of("tool_calls")) -> None:
        super().__init__(max_calls=max_calls)
        self._blocks = Blocks()
        self._counts: dict[str, int] = {}
        self._explanation = ""
        """Why the answer was refused."""

    def _take_in(self, event: dict[str, Any], payload: bytes) -> str:
        """Take in an event, as the base says."""
        match event["type"]:
            case "content_block_delta":
                return self._delta(event["delta"], event["index"])
            case "content_block_start":
                return self._begin(event, payload)
            case "content_block_stop":
                self._blocks.by_index[event["index"]].ended = True
            case "message_start":
                self._identify(event["message"])
                self._count(event["message"].get("usage"))
            case "message_delta":
                self._stop(event["delta"].get("stop_reason"), event["delta"].get("stop_details"))
                self._count(event.get("usage"))
            case "message_stop":
                self.done = True
        return ""

    def _begin(self, event: dict[str, Any], payload: bytes) -> str:
        """A block begins, mostly an empty one; answers its text."""
        index, first = event["index"], event["content_block"]
        kind = text_of(first["type"])
        if kind == "tool_use":
            # What is given here at once is all of it: pieces follow on an empty one.
            arguments = members(_first(event, payload))["input"] if first.get("input") else None
            self._blocks.begin(index, kind, "")
            self._calls.add(index, identity=first.get("id"), name=first.get("name"), arguments=arguments)
            return ""
        raw = "" if kind == "text" else _first(event, payload)
        block = self._blocks.begin(index, kind, raw)
        if kind == "thinking" and (thoughts := text_of(first.get("thinking"))):
            self._thoughts.append(thoughts)
        return self._say_in(block, text_of(first.get("text"))) if kind == "text" else ""

    def _delta(self, delta: dict[str, Any], index: Any) -> str:
        """Take in more of a block; answers its text."""
        block = self._blocks.by_index[index]
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
        block.text.append(text)
        return self._say(text)

    def _take_in_whole(self, document: dict[str, Any], body: bytes) -> str:
        """Take in a message, as the base says."""
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

    def _take(self, index: int, whole: dict[str, Any], raw: str) -> str:
        """A whole block; answers its text."""
        kind = text_of(whole["type"])
        block = self._blocks.begin(index, kind, raw)
        block.ended = True
        if kind == "tool_use":
            arguments = members(raw).get("input")
            self._calls.add(index, identity=whole.get("id"), name=whole.get("name"), arguments=arguments)
        return self._say_in(block, text_of(whole["text"])) if kind == "text" else ""

    def _stop(self, reason: object, details: object) -> None:
        """Take in why the answer ended."""
        self._finish = text_of(reason) or self._finish
        match details:
            # A remark in another shape spoils no answer.
            case {"explanation": str(text)} | {"category": str(text)}:
                self._explanation = text

    def _count(self, usage: dict[str, Any] | None) -> None:
        """Take in counts, of which later ones take the place of earlier ones."""
        counts = usage or {}
        for name in (*_INPUTS, "output_tokens"):
            if (number := counts.get(name)) is not None:
                self._counts[name] = tokens(number)
        if details := counts.get("output_tokens_details"):
            self._counts["output_tokens_details"] = tokens(details.get("thinking_tokens"))
        fresh, cached, cache_write = (self._counts.get(name, 0) for name in _INPUTS)
        if self._counts:
            self._count_tokens(
                prompt=fresh + cached + cache_write,
                cached=cached,
                cache_write=cache_write,
                output=self._counts.get("output_tokens", 0),
                reasoning=self._counts.get("output_tokens_details", 0),
            )

    def opaque_so_far(self) -> str:
        """Return the fields that the provider wants back with an answer that was cut off; empty for none."""
        return self._blocks.so_far()

    def _ended(self) -> ModelReply:
        """The reply, as the base says."""
        if not self._finish:
            raise self._cut_off("the stream ended without a stop reason")
        if self._finish == _OUT_OF_WINDOW:
            raise ProviderHTTPError(200, orjson.dumps({"type": "error", "error": {"type": _OUT_OF_WINDOW}}))
        finish = _FINISHES.get(self._finish, self._finish)
        # A limit may have cut the last call off; none of such an answer is made.
        cut = finish in ("length", WITHHELD)
        calls = {} if cut else self._whole_calls(self._blocks.by_index)
        opaque = self.opaque_so_far() if cut else self._blocks.whole({index: call.id for index, call in calls.items()})
        return self._reply(
            finish,
            calls,
            opaque,
            announced=finish == "tool_use",
            may_be_empty=cut or (finish == PAUSE and bool(opaque)),
            explanation=self._explanation,
        )


def _first(event: dict[str, Any], payload: bytes) -> str:
    """The JSON of a block that begins, as it came."""
    parts = Parts()
    parts.admit(event)
    parts.admit(event["content_block"])
    return members(payload)["content_block"]
