"""What a provider wants back with what it said, as the bytes in which a later request must have it: read from its
streams by what its documentation says of them, and not by the code of Palaver.

What a model thinks, whatever is signed or encrypted, and its calls with the very text of their arguments. Where a
stream brought a text in pieces, it is the JSON of the whole; where it brought JSON at once, it is that JSON.
"""

from __future__ import annotations

import json
import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

_DATA: Final = re.compile(r"^data: (\{.*\})$", re.MULTILINE)
_HIDDEN: Final = re.compile(r'\{"type":"reasoning\.encrypted".*?\}')
_DECODER: Final = json.JSONDecoder()


def kept(path: str, stream: str) -> Counter[str] | None:
    """What an answer brought that is to be sent back, and how often; None if the stream does not come to its end."""
    end, read = _READERS[path]
    return Counter(read(stream)) if end in stream else None


def _chat_completions(stream: str) -> Iterator[str]:
    thoughts, signed = "", ""
    calls: dict[int, dict[str, str]] = defaultdict(lambda: {"id": "", "name": "", "arguments": ""})
    for text, event in _events(stream):
        delta: dict[str, Any] = next((choice["delta"] for choice in event["choices"]), {})
        thoughts += delta.get("reasoning_content", "")
        for detail in delta.get("reasoning_details", ()):
            signed += detail.get("text", "")
            yield from (f'"signature":{_json(detail["signature"])}' for _ in detail.keys() & {"signature"})
        yield from _HIDDEN.findall(text)
        for call in delta.get("tool_calls", ()):
            found = calls[call["index"]]
            found["id"] += call.get("id", "")
            for name, more in call["function"].items():
                found[name] += more
            yield from (f'"extra_content":{_raw(text, "extra_content")}' for _ in call.keys() & {"extra_content"})
    if thoughts:
        yield f'"reasoning_content":{_json(thoughts)}'
    if signed:
        yield f'"text":{_json(signed)}'
    for call in calls.values():
        function = f'{{"name":{_json(call["name"])},"arguments":{_json(call["arguments"])}}}'
        yield f'{{"id":{_json(call["id"])},"type":"function","function":{function}'


def _messages(stream: str) -> Iterator[str]:
    begun: dict[int, str] = {}
    pieces: dict[int, dict[str, str]] = defaultdict(lambda: defaultdict(str))
    for text, event in _events(stream):
        match event:
            case {"type": "content_block_start", "index": index}:
                begun[index] = _raw(text, "content_block")
            case {"type": "content_block_delta", "index": index, "delta": delta}:
                for name, more in delta.items():
                    pieces[index][name] += more
    for index, first in begun.items():
        block, more = json.loads(first), pieces[index]
        match block["type"]:
            case "thinking":
                said = f'"thinking":{_json(more["thinking"])},"signature":{_json(more["signature"])}'
                yield f'{{"type":"thinking",{said}}}'
            case "tool_use":
                called = f'"id":{_json(block["id"])},"name":{_json(block["name"])}'
                yield f'{{"type":"tool_use",{called},"input":{more["partial_json"]}}}'
            case "redacted_thinking":
                yield first


def _responses(stream: str) -> Iterator[str]:
    for text, event in _events(stream):
        match event:
            case {"type": "response.output_item.done", "item": {"type": "reasoning"}}:
                yield _raw(text, "item")
            case {"type": "response.output_item.done", "item": {"type": "function_call"} as item}:
                called = f'"call_id":{_json(item["call_id"])},"name":{_json(item["name"])}'
                yield f'{{"type":"function_call",{called},"arguments":{_json(item["arguments"])}}}'


_READERS: Final[Mapping[str, tuple[str, Callable[[str], Iterator[str]]]]] = {
    "/v1/chat/completions": ("data: [DONE]", _chat_completions),
    "/v1/messages": ('"type":"message_stop"', _messages),
    "/v1/responses": ('"type":"response.completed"', _responses),
}
"""By path: how the newest event of a whole stream looks, and what reads it."""


def _events(stream: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """The data of each event, as they came and as they are read."""
    return ((text, json.loads(text)) for text in _DATA.findall(stream))


def _raw(text: str, name: str) -> str:
    """The JSON text of the first member of this name."""
    begin = text.index(f'"{name}":') + len(name) + 3
    return text[begin : _DECODER.raw_decode(text, begin)[1]]


def _json(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)
