"""Reads an answer in OpenAI's Responses, streamed or not, without doing any I/O: bytes in, deltas and a reply out."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from palaver.errors import ProviderHTTPError
from palaver.vocabulary.limits import limit_of

from ..bounds import Parts, tokens
from ..calls import text_of
from ..event_stream import EventStreamReader
from ..port import WITHHELD, ModelReply
from ..verbatim import elements, members
from .answer_items import Item, Items, phase_of
from .items import PLAIN

_FINISHES: Final = dict.fromkeys(("content_filter", "refusal"), WITHHELD)
"""Reasons of the protocol for an incomplete answer, with the port's name for the same end; any other is a limit."""
_ECHOES: Final = (b'{"type":"response.in_progress"', b'{"type":"response.queued"')
"""Events that repeat the request and say nothing else."""


class ResponsesReader(EventStreamReader):
    """An answer of items."""

    def __init__(self, *, max_calls: int = limit_of("tool_calls")) -> None:
        super().__init__(max_calls=max_calls)
        self._items = Items()
        self._named: dict[str, int] = {}
        """The places of items that have only names."""
        self._refused = False
        """The model says that it will not answer."""

    def _event(self, payload: bytes) -> str:
        """Take in an event, as the base says."""
        return "" if payload.startswith(_ECHOES) else super()._event(payload)

    def _take_in(self, event: dict[str, Any], payload: bytes) -> str:
        """Take in an event, as the base says."""
        match event["type"]:
            case "response.output_text.delta":
                return self._say_in(self._items.by_index[self._place(event)], text_of(event["delta"]))
            case "response.refusal.delta":
                self._refused = True
                return self._say_in(self._items.by_index[self._place(event)], text_of(event["delta"]))
            case "response.function_call_arguments.delta":
                self._argue(self._place(event), event["delta"])
            case "response.reasoning_summary_text.delta" | "response.reasoning_text.delta":
                self._think(self._items.by_index[self._place(event)], text_of(event["delta"]))
            case "response.reasoning_summary_part.added" if event["summary_index"]:
                self._think(self._items.by_index[self._place(event)], "\n\n")
            case "response.output_item.added":
                self._begin(self._place(event), event["item"])
            case "response.output_item.done":
                parts = Parts()
                parts.admit(event)
                raw = "" if event["item"]["type"] in PLAIN else members(payload)["item"]
                return self._take(self._place(event), event["item"], raw, parts)
            case "response.completed" | "response.incomplete" | "response.failed":
                Parts().admit(event)
                return self._end(event["response"], lambda: members(payload)["response"])
            case "error":
                raise ProviderHTTPError(200, payload)
        return ""

    def _place(self, event: dict[str, Any]) -> Any:
        """Return the index of the item that an event is about. llama.cpp does not number its items, and names them."""
        if "output_index" in event:
            return event["output_index"]
        name = text_of(event.get("item_id") or event["item"]["id"])
        return self._named.setdefault(name, len(self._named))

    def _begin(self, index: Any, first: dict[str, Any]) -> Item:
        """An item begins. What stands in it at once comes again."""
        item = self._items.begin(index, text_of(first["type"]))
        item.phase = phase_of(first)
        if item.kind == "function_call":
            self._calls.add(index, identity=first.get("call_id"), name=first.get("name"))
        return item

    def _take(self, index: Any, whole: dict[str, Any], raw: str, parts: Parts) -> str:
        """An item that is whole; answers what of its text did not come in pieces."""
        for name in ("content", "summary"):
            parts.admit(whole.get(name))
        item = self._items.by_index.get(index) or self._begin(index, whole)
        if item.ended or item.kind != whole["type"]:
            raise ValueError("an item ends as another one, or twice")
        item.ended = True
        item.phase = phase_of(whole) or item.phase
        match item.kind:
            case "message":
                self._refused = self._refused or any(part["type"] == "refusal" for part in whole["content"])
                text = "".join(text_of(part.get("text") or part.get("refusal")) for part in whole["content"])
                return "" if item.length else self._say_in(item, text)
            case "function_call":
                if not item.argued and whole.get("arguments"):
                    self._argue(index, whole["arguments"])
            case _:
                self._items.keep(item, raw)
                if not item.thought:
                    thoughts = whole.get("summary") or whole.get("content") or ()
                    self._think(item, "\n\n".join(text_of(part["text"]) for part in thoughts))
        return ""

    def _argue(self, index: int, text: str) -> None:
        item = self._items.by_index[index]
        if item.kind != "function_call":
            raise ValueError("arguments of something else than a call")
        item.argued = True
        self._calls.add(index, arguments=text)

    def _think(self, item: Item, text: str) -> None:
        item.thought = True
        if text:
            self._thoughts.append(text)

    def _say_in(self, item: Item, text: str) -> str:
        if item.kind != "message":
            raise ValueError("text of something else than a message")
        item.length += len(text)
        return self._say(text)

    def _take_in_whole(self, document: dict[str, Any], body: bytes) -> str:
        """Take in a response, as the base says."""
        text = self._end(document, lambda: body)
        self._thoughts.clear()
        return text

    def _end(self, response: dict[str, Any], raw: Any) -> str:
        """The answer is over; ``raw`` gives its JSON. Answers the text of one whose items did not come before."""
        self._identify(response)
        self._count(response.get("usage"))
        if response.get("error") or response.get("status") == "failed":
            Parts().admit(response)
            raise ProviderHTTPError(200, f'{{"error":{members(raw()).get("error", "null")}}}'.encode())
        texts = []
        if not self._items.by_index:
            parts = Parts()
            parts.admit(response)
            parts.admit(items := response["output"])
            raws = elements(members(raw())["output"])
            for index, (item, text) in enumerate(zip(items, raws, strict=True)):
                texts.append(self._take(index, item, text, parts))
        self._finish = "end"
        if response.get("status") == "incomplete":
            reason = text_of((response.get("incomplete_details") or {}).get("reason"))
            self._finish = _FINISHES.get(reason, "length")
        self.done = True
        return "".join(texts)

    def _count(self, usage: Mapping[str, Any] | None) -> None:
        if not usage:
            return
        read, made = usage.get("input_tokens_details") or {}, usage.get("output_tokens_details") or {}
        self._count_tokens(
            prompt=tokens(usage.get("input_tokens")),
            cached=tokens(read.get("cached_tokens")),
            cache_write=tokens(read.get("cache_write_tokens")),
            output=tokens(usage.get("output_tokens")),
            reasoning=tokens(made.get("reasoning_tokens")),
        )

    def opaque_so_far(self) -> str:
        """Return the fields that the provider wants back with an answer that was cut off; empty for none."""
        return self._items.so_far()

    def _ended(self) -> ModelReply:
        """The reply, as the base says."""
        if not self._finish:
            raise self._cut_off("the stream ended before the response was completed")
        finish = WITHHELD if self._refused else self._finish
        # A limit may have cut the last call off; none of such an answer is made.
        calls = {} if finish in ("length", WITHHELD) else self._whole_calls(self._items.by_index)
        opaque = self._items.whole({index: call.id for index, call in calls.items()})
        ending = "tool_calls" if calls else "stop" if finish == "end" else finish
        return self._reply(ending, calls, opaque, may_be_empty=finish != "end")
