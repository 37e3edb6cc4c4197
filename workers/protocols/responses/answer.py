"""Reads an answer in OpenAI's Responses, streamed or not, without doing any I/O: bytes in, deltas and a reply out."""

from __future__ import annotations

from typing import Any, Final

import orjson

from palaver.errors import ProviderHTTPError
from palaver.vocabulary.limits import limit_of

from ..answer_reader import EventStreamReader
from ..bounds import Parts
from ..calls import as_text
from ..ends import is_error, require_no_error
from ..port import WITHHELD, ModelReply
from ..verbatim import entries, members
from .answer_items import Item, Items, phase_of
from .items import PLAIN

_FINISHES: Final = dict.fromkeys(("content_filter", "refusal"), WITHHELD)
"""Reasons of the protocol for an incomplete answer, with the port's name for the same end; any other is a limit."""
_ENDS: Final = frozenset(f"response.{end}" for end in ("completed", "done", "incomplete", "failed", "cancelled"))


class ResponsesReader(EventStreamReader):
    """An answer of items."""

    _ECHOES = (b'{"type":"response.in_progress"', b'{"type":"response.queued"')

    def __init__(self, *, max_calls: int = limit_of("tool_calls")) -> None:
        super().__init__(max_calls=max_calls)
        self._items = Items()
        self._refused = False
        """The model says that it will not answer."""

    def _take_in(self, event: dict[str, Any], payload: bytes, name: bytes) -> str:
        """Take in an event, as the base says. One that does not say its type has it as its name."""
        match event.get("type") or name.decode("latin-1"):
            case "response.output_text.delta":
                return self._say_in(self._item(event, "message"), self._text(event, "delta"))
            case "response.refusal.delta":
                self._refused = True
                return self._say_in(self._item(event, "message"), self._text(event, "delta"))
            case "response.function_call_arguments.delta":
                self._calls.add(self._item(event, "function_call").place, arguments=as_text(event.get("delta")))
            case "response.reasoning_summary_text.delta" | "response.reasoning_text.delta":
                self._think(self._item(event, "reasoning"), self._text(event, "delta"))
            case "response.reasoning_summary_part.added" if event.get("summary_index"):
                self._think(self._item(event, "reasoning"), "\n\n")
            case "response.output_item.added":
                item = self._odd.fields(event.get("item"), "item")
                self._begin(self._index(event), item, self._text(item, "type") or "message")
            case "response.output_item.done":
                parts = Parts()
                parts.admit(event)
                item = self._odd.fields(event.get("item"), "item")
                raw = "" if item.get("type") in PLAIN else members(payload)["item"]
                return self._take(self._index(event), item, raw, parts)
            case "response.output_text.done" | "response.refusal.done":
                return self._end_part(event, event)
            case "response.content_part.done":
                part = self._odd.fields(event.get("part"), "part")
                return self._end_part(event, part) if part.get("type") in ("output_text", "refusal") else ""
            case "response.function_call_arguments.done":
                # What came in pieces is said again.
                self._calls.add(self._item(event, "function_call").place, given=as_text(event.get("arguments")))
            case str(kind) if kind in _ENDS:
                Parts().admit(event)
                response = self._odd.fields(event.get("response"), "response")
                return self._end(response, lambda: members(payload)["response"], kind.removeprefix("response."))
            case "error" | "response.error":
                raise ProviderHTTPError(200, payload)
            case "":
                if event.get("object") == "response":  # all of it in one event
                    return self._end(event, lambda: payload)
                if inner := self._odd.inner(event, payload, "type"):
                    return self._event(inner, name)
                require_no_error(event, payload)
                self._odd.note("an event does not say what it is")
        return ""

    def _end_part(self, event: dict[str, Any], part: dict[str, Any]) -> str:
        """A part of a message is whole; answers its text, if nothing of it came in pieces."""
        item, index = self._item(event, "message"), self._odd.index(event.get("content_index"), "content_index") or 0
        self._refused = self._refused or bool(part.get("refusal"))
        if index < item.parts:
            return ""
        text, came = self._text(part, "text") or self._text(part, "refusal"), item.length > item.whole
        item.parts, item.whole = index + 1, item.whole + len(text)
        return "" if came else self._say_in(item, text)

    def _text(self, where: dict[str, Any], name: str) -> str:
        text = where.get(name)
        return text if type(text) is str else self._odd.text(text, name)

    def _index(self, event: dict[str, Any]) -> int | str | None:
        """Return the index of the item that an event is about, or its name: llama.cpp does not number its items. None
        if the event says neither."""
        index = event.get("output_index")
        if type(index) is int or (index := self._odd.index(index, "output_index")) is not None:
            return index
        item = event.get("item")
        name = event.get("item_id") or (item.get("id") if isinstance(item, dict) else None)
        return name if isinstance(name, str) and name else None

    def _item(self, event: dict[str, Any], kind: str) -> Item:
        """Return the item of this kind that an event is about; it begins with this event if that was not said."""
        try:
            item = self._items.known[event["output_index"]]
            if item.kind == kind and not self._items.alike:
                return item
        except (KeyError, TypeError):
            pass
        index = self._index(event)
        if (known := self._items.named(self._items.at(index, kind), event.get("item_id"), kind)) is not None:
            return known
        self._odd.note("an item goes on that did not begin")
        return self._begin(index, {"id": event.get("item_id")}, kind)

    def _begin(self, index: int | str | None, first: dict[str, Any], kind: str) -> Item:
        """An item begins. What stands in it at once comes again."""
        item = self._items.begin(index, kind, self._text(first, "id"))
        item.phase = phase_of(first)
        if kind == "function_call":
            self._call(item, first)
        return item

    def _call(self, item: Item, fields: dict[str, Any]) -> None:
        """Take in what a call says at once: at its beginning, at its end, or at both."""
        identity, name = self._text(fields, "call_id"), self._text(fields, "name")
        self._calls.add(item.place, identity=identity, name=name, given=as_text(fields.get("arguments")))

    def _take(self, index: int | str | None, whole: dict[str, Any], raw: str, parts: Parts) -> str:
        """An item that is whole; answers what of its text did not come in pieces."""
        for name in ("content", "summary"):
            parts.admit(whole.get(name))
        kind = self._text(whole, "type")
        if not kind:
            self._odd.note("an item does not say what it is")
            return ""
        identity = self._text(whole, "id")
        item = self._items.named(self._items.at(index, kind), identity, kind)
        if item is not None and item.ended and identity == item.identity:
            self._odd.note("an item ends twice")
            return ""
        if item is None or item.ended:
            item = self._items.begin(index, kind, identity)
        item.ended, item.identity = True, identity
        item.phase = phase_of(whole) or item.phase
        match kind:
            case "message":
                content = self._entries_of(whole, "content")
                self._refused = self._refused or any(part.get("type") == "refusal" for part in content)
                text = "".join(self._text(part, "text") or self._text(part, "refusal") for part in content)
                return "" if item.length else self._say_in(item, text)
            case "function_call":
                self._call(item, whole)
            case _:
                self._items.keep(item, raw)
                if not item.thought:
                    thoughts = self._entries_of(whole, "summary") or self._entries_of(whole, "content")
                    self._think(item, "\n\n".join(self._text(part, "text") for part in thoughts))
        return ""

    def _entries_of(self, item: dict[str, Any], name: str) -> list[dict[str, Any]]:
        """The parts of an item: a text is one."""
        if isinstance(text := item.get(name), str):
            return [{"text": text}]
        return [self._odd.fields(part, f"a part of {name}") for part in self._odd.entries(text, name)]

    def _think(self, item: Item, text: str) -> None:
        if text:
            item.thought = True
            self._thoughts.append(text)

    def _say_in(self, item: Item, text: str) -> str:
        text = self._say(text)
        item.length += len(text)
        return text

    def _take_in_whole(self, document: dict[str, Any], body: bytes) -> str:
        """Take in a response, as the base says."""
        if document.get("output") is None:
            if inner := self._odd.inner(document, body, "output"):
                return self._take_in_whole(orjson.loads(inner), inner)
            require_no_error(document, body)
        text = self._end(document, lambda: body)
        self._thoughts.clear()
        return text

    def _end(self, response: dict[str, Any], raw: Any, status: str = "") -> str:
        """The answer is over; ``raw`` gives its JSON, and the event its ``status``, where the answer does not. Answers
        the text of those items that did not come before."""
        status = self._text(response, "status") or status
        self._identify(response)
        self._count(response.get("usage"))
        error = response.get("error")
        if (error and is_error(error)) or status in ("failed", "cancelled"):
            raise ProviderHTTPError(200, orjson.dumps({"error": error}))
        text = ""
        items = response.get("output")
        if items and len(items) > self._items.ended:
            text = self._take_rest(self._odd.entries(items, "output"), response, raw)
        self._finish = "end"
        if status == "incomplete":
            details = self._odd.fields(response.get("incomplete_details"), "incomplete_details")
            self._finish = _FINISHES.get(self._text(details, "reason"), "length")
        self.done = True
        return text

    def _take_rest(self, items: list[Any], response: dict[str, Any], raw: Any) -> str:
        """Take in the items of an answer that were not announced, or did not end; answers their text."""
        parts = Parts()
        parts.admit(response)
        parts.admit(response["output"])
        texts = []
        for place, (each, text) in enumerate(zip(items, entries(members(raw())["output"]), strict=True)):
            item = self._odd.fields(each, "an item")
            known = self._items.find(place, self._text(item, "id"), item.get("type"))
            if known is None or not known.ended:
                texts.append(self._take(known.place if known else None, item, text, parts))
        return "".join(texts)

    def _count(self, counts: Any) -> None:
        odd = self._odd
        usage = odd.fields(counts, "usage")
        if not usage:
            return
        read = odd.fields(usage.get("input_tokens_details"), "input_tokens_details")
        made = odd.fields(usage.get("output_tokens_details"), "output_tokens_details")
        self._count_tokens(
            prompt=odd.count(usage.get("input_tokens"), "input_tokens"),
            cached=odd.count(read.get("cached_tokens"), "cached_tokens"),
            cache_write=odd.count(read.get("cache_write_tokens"), "cache_write_tokens"),
            output=odd.count(usage.get("output_tokens"), "output_tokens"),
            reasoning=odd.count(made.get("reasoning_tokens"), "reasoning_tokens"),
        )

    def _kept_so_far(self) -> str:
        """Return the fields that the provider wants back with an answer that was cut off; empty for none."""
        return self._items.so_far()

    def _ended(self) -> ModelReply:
        """The reply, as the base says."""
        if not self._finish and self._closed and (self._content or self._calls):
            self._odd.note("the answer does not say that it is complete")
            self._finish = "end"
        if not self._finish:
            raise self._cut_off("the stream ended before the response was completed")
        finish = WITHHELD if self._refused else self._finish
        # A limit may have cut the last call off; none of such an answer is made.
        calls = {} if finish in ("length", WITHHELD) else self._whole_calls(self._items.by_index)
        opaque = self._items.whole({index: call.id for index, call in calls.items()})
        ending = "tool_calls" if calls else "stop" if finish == "end" else finish
        return self._reply(ending, calls, opaque, may_be_empty=finish != "end")
