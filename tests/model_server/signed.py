"""Providers that want something back unchanged, and refuse a history without it; each in its own words: digits of
numbers and the order of keys included.
"""

from __future__ import annotations

import json
from typing import Any

import orjson

from features.fake_provider.exchanges import RefusedRequest
from features.fake_provider.signed import Made, made

PLAIN = frozenset({"role", "content", "tool_calls", "tool_call_id", "name"})
"""Fields that every provider takes on a message."""


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
    raise _refused({"error": _error(text)})


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
    raise _refused([{"error": {"code": 400, "message": text, "status": "INVALID_ARGUMENT"}}])


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
    raise _refused({"error": {"message": "Provider returned error", "code": 400, "metadata": {"raw": raw}}})


def _groq(provider: str, index: int, message: dict[str, Any], expected: Made, current: bool) -> None:
    _no_more_than(provider, index, message, PLAIN)
    for call in message.get("tool_calls", ()):
        _no_more_than(provider, index, call, frozenset({"id", "type", "function"}))


def _no_more_than(provider: str, index: int, found: dict[str, Any], known: frozenset[str]) -> None:
    for name in sorted(found.keys() - known):
        place = f"'messages.{index}'"
        text = f"{place} : for 'role:assistant' the following must be satisfied[({place} : property '{name}' is "
        raise _refused({"error": _error(f"{text}unsupported)]")})


def _error(message: str) -> dict[str, str | None]:
    return {"message": message, "type": "invalid_request_error", "param": None, "code": "invalid_request_error"}


def _refused(body: object) -> RefusedRequest:
    return RefusedRequest(orjson.dumps(body))


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
