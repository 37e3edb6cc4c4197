"""Reads an answer in Anthropic's Messages, streamed or not, without doing any I/O: bytes in, deltas and a reply out."""

from __future__ import annotations

from typing import Any, Final

import orjson

from palaver.errors import MalformedResponse, ProviderHTTPError
from palaver.vocabulary.limits import limit_of

from ..answer_reader import EventStreamReader
from ..bounds import Parts
from ..calls import as_text
from ..ends import end_of, is_error, require_no_error
from ..port import PAUSE, WITHHELD, ModelReply
from ..verbatim import elements, entries, members
from .answer_blocks import Block, Blocks

_FIELDS: Final = {
    "text_delta": "text",
    "input_json_delta": "partial_json",
    "thinking_delta": "thinking",
    "signature_delta": "signature",
}
"""The field of a delta with what is new, by its type."""
_KINDS: Final = {"text": "text", "partial_json": "tool_use", "thinking": "thinking", "signature": "thinking"}
"""The kind of a block that has such deltas."""
_THOUGHT: Final = '{"type":"thinking","thinking":"","signature":""}'
_UNANNOUNCED: Final = {"text": "", "partial_json": "", "thinking": _THOUGHT, "signature": _THOUGHT}
"""The beginning of a block that did not begin."""
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

    def _take_in(self, event: dict[str, Any], payload: bytes, name: bytes) -> str:
        """Take in an event, as the base says. One that does not say its type has it as its name."""
        match event.get("type") or name.decode("latin-1"):
            case "content_block_delta":
                try:
                    delta = event["delta"]
                    field = _FIELDS[delta["type"]]
                    return self._delta(self._blocks.at[event["index"]], field, delta[field])
                except (KeyError, TypeError):
                    return self._odd_delta(event, payload)
            case "content_block_start":
                return self._begin(event, payload)
            case "content_block_stop":
                if (block := self._blocks.at.get(self._index(event))) is not None:
                    block.ended = True
            case "message_start":
                message = self._odd.fields(event.get("message"), "message")
                self._identify(message)
                self._count(message.get("usage"))
            case "message_delta":
                delta = self._odd.fields(event.get("delta"), "delta")
                self._stop(delta.get("stop_reason") or event.get("stop_reason"), delta.get("stop_details"))
                self._count(event.get("usage"))
            case "message_stop":
                self.done = True
            case "message":  # all of it in one event
                self.done = True
                return self._take_in_whole(event, payload)
            case "":
                if inner := self._odd.inner(event, payload, "type"):
                    return self._event(inner, name)
                require_no_error(event, payload)
                self._odd.note("an event does not say what it is")
            case "error":
                require_no_error(event, payload)
        return ""

    def _index(self, event: dict[str, Any]) -> int | None:
        index = event.get("index")
        return index if type(index) is int else self._odd.index(index, "index")

    def _begin(self, event: dict[str, Any], payload: bytes) -> str:
        """A block begins, mostly an empty one; answers its text. One that goes on is said to begin twice."""
        index, first = self._index(event), self._odd.fields(event.get("content_block"), "content_block")
        kind = self._odd.text(first.get("type"), "the type of a content block")
        if not kind:
            self._odd.note("a content block does not say what it is")
            return ""
        if kind == "tool_use":
            identity, name = (self._odd.text(first.get(each), f"the {each} of a tool call") for each in ("id", "name"))
            block, _ = self._blocks.begin(index, kind, "", identity)
            # What is given here at once is all of it: pieces follow on an empty one.
            given = members(_first(event, payload))["input"] if first.get("input") else ""
            self._calls.add(block.place, identity=identity, name=name, given=given)
            return ""
        raw = "" if kind == "text" else _first(event, payload)
        block, is_new = self._blocks.begin(index, kind, raw, self._odd.text(first.get("id"), "the id of a block"))
        if kind == "thinking" and is_new and (thoughts := self._odd.text(first.get("thinking"), "thinking")):
            self._thoughts.append(thoughts)
        return self._say_in(block, self._odd.text(first.get("text"), "the text of a block")) if kind == "text" else ""

    def _odd_delta(self, event: dict[str, Any], payload: bytes) -> str:
        """Take in a delta of another type, one that does not say all that it should, or whose block did not begin;
        answers its text."""
        delta, index = self._odd.fields(event.get("delta"), "delta"), self._index(event)
        if delta.get("type") == "citations_delta":
            return self._cite(event, payload)
        kind = delta.get("type")
        field = _FIELDS.get(kind) if isinstance(kind, str) else next((each for each in _KINDS if each in delta), None)
        if field is None:
            return ""
        block = self._blocks.at.get(index)
        if block is None:
            block, _ = self._blocks.begin(index, _KINDS[field], _UNANNOUNCED[field], "")
            self._odd.note("a content block goes on that did not begin")
        return self._delta(block, field, delta.get(field))

    def _delta(self, block: Block, field: str, piece: Any) -> str:
        """Take in more of a block; answers its text."""
        if type(piece) is not str:
            piece = as_text(piece) if field == "partial_json" else self._odd.text(piece, field)
        match field:
            case "text":
                return self._say_in(block, piece)
            case "partial_json" if block.kind == "tool_use":
                self._calls.add(block.place, arguments=piece)
            case "partial_json":
                self._blocks.add(block, "input", piece)
            case "thinking":
                self._thoughts.append(piece)
                self._blocks.add(block, "thinking", piece)
            case "signature":
                self._blocks.add(block, "signature", piece)
        return ""

    def _cite(self, event: dict[str, Any], payload: bytes) -> str:
        """Take in a source of a text, which is sent back with it as it came; answers no text."""
        parts, block = Parts(), self._blocks.at.get(self._index(event))
        parts.admit(event)
        parts.admit(event["delta"])
        if block is not None and isinstance(event["delta"].get("citation"), dict):
            self._blocks.cite(block, [members(members(payload)["delta"])["citation"]])
        return ""

    def _say_in(self, block: Block, text: str) -> str:
        text = self._say(text)
        block.text.append(text)
        return text

    def _take_in_whole(self, document: dict[str, Any], body: bytes) -> str:
        """Take in a message, as the base says."""
        if (error := document.get("error")) and is_error(error):
            raise ProviderHTTPError(200, body)
        self._identify(document)
        self._count(document.get("usage"))
        self._stop(document.get("stop_reason"), document.get("stop_details"))
        content = document.get("content")
        if "stop_reason" not in document and not content:
            if inner := self._odd.inner(document, body, "content"):
                return self._take_in_whole(orjson.loads(inner), inner)
            require_no_error(document, body)
            raise MalformedResponse("the answer has neither content nor a stop reason")
        parts = Parts()
        parts.admit(document)
        if isinstance(content, str):
            content, raws = [{"type": "text", "text": content}], [""]
        else:
            parts.admit(content)
            content = self._odd.entries(content, "content")
            raws = entries(members(body)["content"]) if content else []
        texts = []
        for block, raw in zip(content, raws, strict=True):
            parts.admit(block)
            whole = {"text": block} if isinstance(block, str) else self._odd.fields(block, "a content block")
            texts.append(self._take(whole, raw))
        self._finish = self._finish or ("tool_use" if self._calls else "end_turn")
        return "".join(texts)

    def _take(self, whole: dict[str, Any], raw: str) -> str:
        """A whole block; answers its text."""
        kind = self._odd.text(whole.get("type"), "the type of a content block") or ("text" if "text" in whole else "")
        if not kind:
            return ""
        block, _ = self._blocks.begin(None, kind, raw, "")
        block.ended = True
        if kind == "tool_use":
            identity, name = (self._odd.text(whole.get(each), f"the {each} of a tool call") for each in ("id", "name"))
            given = "" if whole.get("input") is None else members(raw)["input"]
            self._calls.add(block.place, identity=identity, name=name, given=given)
        if kind != "text":
            return ""
        if isinstance(cited := whole.get("citations"), list):
            Parts().admit(cited)
            self._blocks.cite(block, elements(members(raw)["citations"]))
        return self._say_in(block, self._odd.text(whole.get("text"), "the text of a block"))

    def _stop(self, reason: object, details: object) -> None:
        """Take in why the answer ended."""
        self._finish = self._odd.text(reason, "stop_reason") or self._finish
        match details:
            # A remark in another shape spoils no answer.
            case {"explanation": str(text)} | {"category": str(text)}:
                self._explanation = text

    def _count(self, usage: Any) -> None:
        """Take in counts, of which later ones take the place of earlier ones."""
        counts = self._odd.fields(usage, "usage")
        for name in (*_INPUTS, "output_tokens"):
            if (number := counts.get(name)) is not None:
                self._counts[name] = self._odd.count(number, name)
        if details := self._odd.fields(counts.get("output_tokens_details"), "output_tokens_details"):
            self._counts["output_tokens_details"] = self._odd.count(details.get("thinking_tokens"), "thinking_tokens")
        fresh, cached, cache_write = (self._counts.get(name, 0) for name in _INPUTS)
        if self._counts:
            self._count_tokens(
                prompt=fresh + cached + cache_write,
                cached=cached,
                cache_write=cache_write,
                output=self._counts.get("output_tokens", 0),
                reasoning=self._counts.get("output_tokens_details", 0),
            )

    def _kept_so_far(self) -> str:
        """Return the fields that the provider wants back with an answer that was cut off; empty for none."""
        return self._blocks.so_far()

    def _ended(self) -> ModelReply:
        """The reply, as the base says."""
        if not self._finish and (self.done or (self._closed and (self._content or self._calls))):
            self._odd.note("the answer does not say why it ended")
            self._finish = "tool_use" if self._calls else "end_turn"
        if not self._finish:
            raise self._cut_off("the stream ended without a stop reason")
        finish = end_of(self._finish)
        # A limit may have cut the last call off; none of such an answer is made.
        cut = finish in ("length", WITHHELD)
        calls = {} if cut else self._whole_calls(self._blocks.by_index)
        opaque = self._blocks.so_far() if cut else self._blocks.whole({index: call.id for index, call in calls.items()})
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
