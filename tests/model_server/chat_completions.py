"""A request of OpenAI's chat completions: judged as strictly as there."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from features.fake_provider.requests import InvalidRequest
from tests.model_server.images import judge_url
from tests.model_server.schemas import judge_strict_answer, judge_tool_of_openai

ROLES = frozenset({"system", "developer", "user", "assistant", "tool"})
BREAKPOINTS = 4
"""Prompt-cache breakpoints that one request may have: Anthropic's limit."""


@dataclass(slots=True)
class _OpenCalls:
    """The calls of the last assistant message, and which of them still lack a result."""

    asked: set[str] = field(default_factory=set)
    open: dict[str, None] = field(default_factory=dict)

    def ask(self, ids: list[str]) -> None:
        self.asked = set(ids)
        self.open = dict.fromkeys(ids)

    def answer(self, call_id: str, where: str) -> None:
        if call_id in self.open:
            del self.open[call_id]
        elif call_id in self.asked:
            raise InvalidRequest(f"Tool call '{call_id}' has more than one tool message.", where)
        else:
            raise InvalidRequest(
                f"Tool message for '{call_id}' must be a response to a preceding message with 'tool_calls'.",
                where,
            )

    def close(self) -> None:
        if self.open:
            raise InvalidRequest(
                "An assistant message with 'tool_calls' must be followed by tool messages responding to each "
                f"'tool_call_id'. These tool_call_ids did not have response messages: {', '.join(self.open)}",
                "messages",
            )
        self.asked = set()


def judge(request: dict[str, Any], headers: Mapping[str, str]) -> None:
    """Raise InvalidRequest for what is refused there."""
    model = request.get("model")
    if not isinstance(model, str) or not model:
        raise InvalidRequest("You must provide a model parameter.", "model")
    _history(request.get("messages"))
    options = request.get("stream_options") or {}
    if not isinstance(options, dict):
        raise InvalidRequest("'stream_options' must be an object.", "stream_options")
    _flag(request, "stream")
    _flag(options, "include_usage")
    _max_tokens(request)
    _tools(request)
    _schema(request.get("response_format"))


def _flag(fields: dict[str, Any], name: str) -> None:
    value = fields.get(name)
    if value is not None and not isinstance(value, bool):
        raise InvalidRequest(f"'{name}' must be a boolean.", name)


def _max_tokens(request: dict[str, Any]) -> None:
    for name in ("max_completion_tokens", "max_tokens"):
        value = request.get(name)
        if value is not None and (not isinstance(value, int) or isinstance(value, bool) or value < 1):
            raise InvalidRequest(f"'{name}' must be a positive integer.", name)


def _tools(request: dict[str, Any]) -> None:
    """The functions the model may call, and which it has to."""
    tools = request.get("tools")
    if tools is not None and (not isinstance(tools, list) or not tools):
        raise InvalidRequest("'tools' must be a non-empty array.", "tools")
    names: set[str] = set()
    for index, tool in enumerate(tools or []):
        function = tool.get("function") if isinstance(tool, dict) and tool.get("type") == "function" else None
        if not isinstance(function, dict) or not isinstance(name := function.get("name"), str) or not name:
            raise InvalidRequest("A tool must be a function with a name.", f"tools[{index}]")
        if name in names:
            raise InvalidRequest(f"Tool names must be unique: '{name}'.", f"tools[{index}]")
        names.add(name)
        judge_tool_of_openai(name, function.get("parameters") or {})
    choice = request.get("tool_choice")
    if choice is not None and not names:
        raise InvalidRequest("'tool_choice' is only allowed when 'tools' are specified.", "tool_choice")
    if isinstance(choice, str) and choice not in ("auto", "none", "required"):
        raise InvalidRequest(f"Invalid value: '{choice}'.", "tool_choice")
    if isinstance(choice, dict) and (wanted := (choice.get("function") or {}).get("name")) not in names:
        raise InvalidRequest(f"Tool choice '{wanted}' is not in 'tools'.", "tool_choice")


def _schema(wanted: object) -> None:
    """The schema that an answer has to fit."""
    if wanted in (None, {"type": "text"}, {"type": "json_object"}):
        return
    inner = wanted.get("json_schema") if isinstance(wanted, dict) and wanted.get("type") == "json_schema" else None
    if not isinstance(inner, dict) or not isinstance(inner.get("name"), str):
        raise InvalidRequest("'response_format' is none.", "response_format")
    if not isinstance(inner.get("schema", {}), dict):
        raise InvalidRequest("A schema must be an object.", "response_format.json_schema.schema")
    if inner.get("strict"):
        judge_strict_answer(inner["name"], inner.get("schema", {}))


def _history(messages: object) -> None:
    if not isinstance(messages, list) or not messages:
        raise InvalidRequest("'messages' must be a non-empty array.", "messages")
    calls, breakpoints = _OpenCalls(), 0
    for index, message in enumerate(messages):
        where = f"messages[{index}]"
        role = message.get("role") if isinstance(message, dict) else None
        if not isinstance(role, str) or role not in ROLES:
            raise InvalidRequest(f"Invalid role {role!r}: expected one of {', '.join(sorted(ROLES))}.", where)
        if role != "tool":
            calls.close()
        tool_calls = message.get("tool_calls")
        if role == "assistant" and tool_calls is not None:
            calls.ask(_call_ids(tool_calls, where))
        _content(message.get("content"), where, optional=role == "assistant" and tool_calls is not None)
        breakpoints += _breakpoints(message, where)
        if role == "tool":
            call_id = message.get("tool_call_id")
            if not isinstance(call_id, str) or not call_id:
                raise InvalidRequest("A tool message needs a 'tool_call_id'.", where)
            if _shows(message):
                raise InvalidRequest("A tool message takes parts of type 'text' only.", where)
            calls.answer(call_id, where)
    calls.close()
    if breakpoints > BREAKPOINTS:
        message = f"A maximum of {BREAKPOINTS} blocks with cache_control may be provided. Found {breakpoints}."
        raise InvalidRequest(message, "messages")


def _shows(message: dict[str, Any]) -> bool:
    """Whether there is more than text in it."""
    content = message.get("content")
    return isinstance(content, list) and any(part.get("type") != "text" for part in content if isinstance(part, dict))


def _breakpoints(message: dict[str, Any], where: str) -> int:
    """How many blocks of the content end a prefix to be cached."""
    if "cache_control" in message:
        raise InvalidRequest("'cache_control' belongs on a block of the content.", f"{where}.cache_control")
    content = message.get("content")
    blocks = [part for part in content if "cache_control" in part] if isinstance(content, list) else []
    for block in blocks:
        if block["cache_control"] != {"type": "ephemeral"}:
            raise InvalidRequest('\'cache_control\' must be {"type": "ephemeral"}.', where)
        if block["type"] == "text" and not block["text"]:
            raise InvalidRequest("cache_control cannot be set for empty text blocks.", where)
    return len(blocks)


def _call_ids(tool_calls: object, where: str) -> list[str]:
    if not isinstance(tool_calls, list) or not tool_calls:
        raise InvalidRequest("'tool_calls' must be a non-empty array.", where)
    ids: list[str] = []
    for call in tool_calls:
        call_id = call.get("id") if isinstance(call, dict) else None
        if not isinstance(call_id, str) or not call_id:
            raise InvalidRequest("A tool call needs an 'id'.", where)
        function = call.get("function")
        if call.get("type") != "function" or not isinstance(function, dict):
            raise InvalidRequest(f"Tool call '{call_id}' must be of type 'function'.", where)
        if not isinstance(function.get("name"), str) or not isinstance(function.get("arguments"), str):
            raise InvalidRequest(f"Tool call '{call_id}' needs a function name and string arguments.", where)
        if call_id in ids:
            raise InvalidRequest(f"Duplicate tool call id '{call_id}' in one assistant message.", where)
        ids.append(call_id)
    return ids


def _content(content: object, where: str, *, optional: bool) -> None:
    """A string, or an array of parts."""
    if isinstance(content, str) or (content is None and optional):
        return
    if isinstance(content, list) and content:
        for part in content:
            if not isinstance(part, dict) or not isinstance(part.get("type"), str):
                raise InvalidRequest("A content part must be an object with a type.", where)
            if part["type"] == "text" and not isinstance(part.get("text"), str):
                raise InvalidRequest("A text part needs a 'text' string.", where)
            if part["type"] == "image_url":
                judge_url(part["image_url"]["url"])
        return
    kind = type(content).__name__
    raise InvalidRequest(f"Invalid 'content': expected a string or an array of parts, got {kind}.", where)
