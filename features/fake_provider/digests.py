"""One digest for a conversation, whichever API it comes by: the messages of others as those of a chat completion.

It does not depend on prompt-cache breakpoints, nor on what a provider wants back with a message.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

import orjson

from .thoughts import MADE

_NUMBERED: Final = re.compile(r"_[0-9]+\Z")
_MADE_CALL: Final = re.compile(r"call_[0-9a-f]{24}")
"""The id of a call that Responses has made."""


def size(messages: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """The digest of messages, and the tokens that they are."""
    text = orjson.dumps(messages, option=orjson.OPT_SORT_KEYS)
    return {"digest": hashlib.sha256(text).hexdigest(), "prompt_tokens": max(1, len(text) // 4)}


def words(content: object) -> str:
    """The text of a content: a string, or the texts of its parts."""
    if isinstance(content, list):
        return "".join(part.get("text") or part.get("refusal") or "" for part in content)
    return str(content or "")


def blocks_of(message: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The blocks of a message of Anthropic's."""
    content = message["content"]
    return [{"type": "text", "text": content}] if isinstance(content, str) else content


def of_messages(request: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """Anthropic's messages as those of a chat completion, without breakpoints and thoughts."""
    if prompt := words(request.get("system")):
        yield {"role": "system", "content": prompt}
    for message in request["messages"]:
        blocks = blocks_of(message)
        if message["role"] == "assistant":
            calls = [_call_of_block(block) for block in blocks if block["type"] == "tool_use"]
            text = "".join(block["text"] for block in blocks if block["type"] == "text")
            yield {"role": "assistant", "content": text or None, **({"tool_calls": calls} if calls else {})}
            continue
        for block in blocks:
            if block["type"] == "tool_result":
                call_id = block["tool_use_id"]
                result = "Error: " * bool(block.get("is_error")) + words(block.get("content"))
                yield {"role": "tool", "tool_call_id": _first_id(call_id, call_id.startswith(MADE)), "content": result}
            else:
                plain = {name: value for name, value in block.items() if name != "cache_control"}
                yield {"role": "user", "content": plain["text"] if plain["type"] == "text" else [plain]}


def of_items(instructions: str | None, items: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """The items of Responses as messages of a chat completion, without reasoning."""
    messages: list[dict[str, Any]] = [{"role": "system", "content": instructions}] if instructions else []
    for item in items:
        match item.get("type", "message"):
            case "message":
                content = item["content"]
                if item["role"] == "assistant" and isinstance(content, list):
                    content = words(content)
                messages.append({"role": item["role"], "content": content})
            case "function_call":
                if not messages or messages[-1]["role"] != "assistant":
                    messages.append({"role": "assistant", "content": None})
                call_id = _first_id(item["call_id"], _MADE_CALL.fullmatch(item["call_id"]))
                messages[-1].setdefault("tool_calls", []).append(_call(call_id, item["name"], item["arguments"]))
            case "function_call_output":
                call_id = _first_id(item["call_id"], _MADE_CALL.fullmatch(item["call_id"]))
                messages.append({"role": "tool", "tool_call_id": call_id, "content": words(item["output"])})
    return messages


def _call_of_block(block: Mapping[str, Any]) -> dict[str, Any]:
    call_id = _first_id(block["id"], block["id"].startswith(MADE))
    return _call(call_id, block["name"], orjson.dumps(block["input"]).decode())


def _call(call_id: str, name: str, arguments: str) -> dict[str, Any]:
    return {"id": call_id, "type": "function", "function": {"name": name, "arguments": arguments}}


def _first_id(call_id: str, made_here: object) -> str:
    """The id without the number that keeps it apart from the same one of another answer."""
    return call_id if made_here else _NUMBERED.sub("", call_id)
