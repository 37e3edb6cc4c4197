"""Providers that want something back unchanged, and refuse a history without it; each in its own words.

What a model made is a function of what it said, so that no memory of earlier requests is needed to tell whether it
came back as it was: digits of numbers and the order of keys included.
"""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import orjson

PROVIDERS = ("gemini", "deepseek", "kimi", "openrouter", "groq")
PLAIN = frozenset({"role", "content", "tool_calls", "tool_call_id", "name"})
"""What every provider takes on a message."""
THOUGHTS = 6
"""Words of reasoning."""


class Refused(Exception):
    """The provider's 400."""

    def __init__(self, body: object, why: str = "unchanged") -> None:
        super().__init__("refused")
        self.body = orjson.dumps(body)
        self.why = why


@dataclass(frozen=True, slots=True)
class Made:
    """What a provider adds to a message. All but `reasoning` is JSON, as it must come back."""

    reasoning: tuple[str, ...] = ()
    details: tuple[str, ...] = ()
    detail_pieces: tuple[str, ...] = ()
    """The same, as they come in a stream."""
    extra: str | None = None
    call_extras: tuple[str | None, ...] = ()


def made(provider: str | None, content: str, calls: Sequence[Sequence[str]]) -> Made:
    """What comes with a message that says `content` and asks for `calls`: id, name and arguments of each."""
    match provider:
        case "deepseek" | "kimi":
            return Made(reasoning=_thoughts(content, calls))
        case "gemini" if calls:
            # Of parallel calls only the first is signed.
            return Made(call_extras=(_signature(calls[0]), *[None] * (len(calls) - 1)))
        case "gemini":
            return Made(extra=_signature([content]))
        case "openrouter":
            return _details(_thoughts(content, calls))
    return Made()


def check(provider: str, body: bytes) -> None:
    """Refuse a history as the provider does. Raises Refused."""
    judge = {"gemini": _gemini, "openrouter": _openrouter, "groq": _groq}.get(provider, _thinking)
    messages = _exactly(body)["messages"]
    newest_user = max((i for i, message in enumerate(messages) if message["role"] == "user"), default=0)
    for index, message in enumerate(messages):
        if message["role"] == "assistant":
            calls = [
                (call["id"], call["function"]["name"], call["function"]["arguments"])
                for call in message.get("tool_calls", ())
            ]
            expected = made(provider, message.get("content") or "", calls)
            judge(provider, index, message, expected, index > newest_user)
        else:
            _no_more_than(provider, index, message, PLAIN)


def _thinking(provider: str, index: int, message: dict[str, Any], expected: Made, current: bool) -> None:
    """DeepSeek and Kimi: on every message with calls, and DeepSeek's newest models on every one. Of an answer that was
    cut off, any part of it will do."""
    _no_more_than(provider, index, message, PLAIN | {"reasoning_content"})
    found = message.get("reasoning_content")
    needed = "tool_calls" in message or provider == "deepseek"
    if found == "".join(expected.reasoning) or (found is None and not needed):
        return
    if found and "tool_calls" not in message:
        return
    text = f"thinking is enabled but reasoning_content is missing in assistant tool call message at index {index}"
    if provider == "deepseek":
        text = (
            f"Missing `reasoning_content` field in the assistant message at message index {index}. "
            "For more information, please refer to https://api-docs.deepseek.com/guides/thinking_mode#tool-calls"
        )
    raise Refused({"error": _error(text)})


def _gemini(provider: str, index: int, message: dict[str, Any], expected: Made, current: bool) -> None:
    for name in message.keys() - PLAIN - {"extra_content"}:
        _gemini_refuses(
            f"Invalid JSON payload received. Unknown name \"{name}\" at 'messages[{index}]': Cannot find field."
        )
    calls = message.get("tool_calls", ())
    signed = [(message, "", expected.extra)] if not calls else []
    signed += [(call, call["function"]["name"], each) for call, each in zip(calls, expected.call_extras, strict=True)]
    for each, name, wanted in signed:
        found = each.get("extra_content")
        if found is None and wanted is not None and calls and current:
            _gemini_refuses(
                "Function call is missing a thought_signature in functionCall parts. This is required for tools to "
                "work correctly, and missing thought_signature may lead to degraded model performance. "
                f"Additional data, function call `default_api:{name}` , position {index + 1}. Please refer to "
                "https://ai.google.dev/gemini-api/docs/thought-signatures for more details."
            )
        if found is not None and (wanted is None or found != _exactly(wanted)):
            _gemini_refuses("Corrupted thought signature.")


def _gemini_refuses(text: str) -> None:
    raise Refused([{"error": {"code": 400, "message": text, "status": "INVALID_ARGUMENT"}}])


def _openrouter(provider: str, index: int, message: dict[str, Any], expected: Made, current: bool) -> None:
    """Anthropic's models behind OpenRouter."""
    found = message.get("reasoning_details")
    if found is None and "tool_calls" in message and current:
        text = f"messages.{index}.content.0.type: Expected `thinking` or `redacted_thinking`, but found `tool_use`."
    elif found is not None and found != [_exactly(each) for each in expected.details]:
        text = f"messages.{index}.content.0: Invalid `signature` in `thinking` block"
    else:
        return
    raw = orjson.dumps({"type": "error", "error": {"type": "invalid_request_error", "message": text}}).decode()
    raise Refused({"error": {"message": "Provider returned error", "code": 400, "metadata": {"raw": raw}}})


def _groq(provider: str, index: int, message: dict[str, Any], expected: Made, current: bool) -> None:
    _no_more_than(provider, index, message, PLAIN)
    for call in message.get("tool_calls", ()):
        _no_more_than(provider, index, call, frozenset({"id", "type", "function"}))


def _no_more_than(provider: str, index: int, found: dict[str, Any], known: frozenset[str]) -> None:
    for name in sorted(found.keys() - known):
        place = f"'messages.{index}'"
        text = f"{place} : for 'role:assistant' the following must be satisfied[({place} : property '{name}' is "
        raise Refused({"error": _error(f"{text}unsupported)]")})


def _error(message: str) -> dict[str, str | None]:
    return {"message": message, "type": "invalid_request_error", "param": None, "code": "invalid_request_error"}


def _thoughts(content: str, calls: Sequence[Sequence[str]]) -> tuple[str, ...]:
    digest = _digest([content, *(part for call in calls for part in call)])
    return tuple(f" {digest[4 * i : 4 * i + 4]}" for i in range(THOUGHTS))


def _signature(signed: Sequence[str]) -> str:
    return f'{{"google":{{"thought_signature":"{_sealed(signed)}","weight":1.50,"age":100000000000000000001}}}}'


def _details(thoughts: Sequence[str]) -> Made:
    more = ',"format":"anthropic-claude-v1","index":0'
    seal, text = _sealed(thoughts), orjson.dumps("".join(thoughts)).decode()
    hidden = f'{{"type":"reasoning.encrypted","id":null,"data":"{seal}","index":1,"z":1e2,"a":0.10}}'
    pieces = [f'{{"type":"reasoning.text","text":{orjson.dumps(each).decode()}{more}}}' for each in thoughts]
    return Made(
        details=(f'{{"type":"reasoning.text","text":{text}{more},"signature":"{seal}"}}', hidden),
        detail_pieces=(*pieces, f'{{"type":"reasoning.text"{more},"signature":"{seal}"}}', hidden),
    )


def _sealed(signed: Sequence[str]) -> str:
    return base64.b64encode(_digest(signed).encode()).decode()


def _digest(parts: Sequence[str]) -> str:
    return hashlib.sha256(orjson.dumps(list(parts))).hexdigest()


class _Exact(dict[str, Any]):
    """An object that is equal to another only if its keys come in the same order."""

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Exact) and list(self.items()) == list(other.items())

    __hash__ = None


def _exactly(text: bytes | str) -> Any:
    """JSON whose numbers are the text that they were written as."""
    return json.loads(text, object_pairs_hook=_Exact, parse_int=_number, parse_float=_number)


def _number(text: str) -> tuple[str, str]:
    return "number", text
