"""The request as a provider sees it: judged strictly, then reduced to what decides the answer."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field
from typing import Any

import orjson

ROLES = frozenset({"system", "developer", "user", "assistant", "tool"})
BREAKPOINTS = 4
"""Prompt-cache breakpoints that one request may have: Anthropic's limit."""
WANTED_BACK = frozenset({"reasoning_content", "reasoning", "reasoning_details", "extra_content"})
"""What a provider may want back with a message that it made, or with a call."""


class InvalidRequest(ValueError):
    """A request that a real provider answers with 400 `invalid_request_error`; `param` names the field."""

    def __init__(self, message: str, param: str | None = None) -> None:
        super().__init__(message)
        self.param = param


@dataclass(slots=True)
class History:
    """What the messages say: `turn` user messages so far, and the place within the last turn.

    `breakpoints` are the indexes of messages with a prompt-cache breakpoint on a block of their content.
    """

    messages: int = 0
    turn: int = 0
    call_index: int = 1
    last_user: str = ""
    tool_results: int = 0
    last_result: str = ""
    breakpoints: list[int] = field(default_factory=list)


@dataclass(slots=True)
class Chat:
    """A judged request. `digest` identifies its messages, `prompt_tokens` is their JSON size / 4.

    To both, a message with breakpoints, or with what a provider wants back, is the same as without.
    """

    model: str
    stream: bool
    include_usage: bool
    max_tokens: int | None
    tools: list[dict[str, Any]]
    schema: dict[str, Any]
    """Of the answer; empty for none."""
    must_call: bool
    """`tool_choice` leaves the model no other way."""
    history: History
    digest: str
    prompt_tokens: int
    body: bytes


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


def read(body: bytes) -> Chat:
    """Judge and reduce a request body. Raises InvalidRequest."""
    try:
        request = orjson.loads(body)
    except orjson.JSONDecodeError as error:
        raise InvalidRequest(f"The body is not valid JSON: {error}") from None
    if not isinstance(request, dict):
        raise InvalidRequest("The body must be a JSON object.")
    model = request.get("model")
    if not isinstance(model, str) or not model:
        raise InvalidRequest("You must provide a model parameter.", "model")
    history = _history(request.get("messages"))
    for index in history.breakpoints:
        message = request["messages"][index]
        message["content"] = _text(message["content"], "messages", optional=False)
    for message in request["messages"]:
        for part in (message, *(message.get("tool_calls") or ())):
            for name in WANTED_BACK.intersection(part):
                del part[name]
    messages = orjson.dumps(request["messages"], option=orjson.OPT_SORT_KEYS)
    options = request.get("stream_options") or {}
    if not isinstance(options, dict):
        raise InvalidRequest("'stream_options' must be an object.", "stream_options")
    return Chat(
        model=model,
        stream=_flag(request, "stream"),
        include_usage=_flag(options, "include_usage"),
        max_tokens=_max_tokens(request),
        tools=_tools(request),
        schema=_schema(request.get("response_format")),
        must_call=request.get("tool_choice") not in (None, "auto", "none"),
        history=history,
        digest=hashlib.sha256(messages).hexdigest(),
        prompt_tokens=max(1, len(messages) // 4),
        body=body,
    )


def _flag(fields: dict[str, Any], name: str) -> bool:
    value = fields.get(name)
    if value is not None and not isinstance(value, bool):
        raise InvalidRequest(f"'{name}' must be a boolean.", name)
    return bool(value)


def _max_tokens(request: dict[str, Any]) -> int | None:
    for name in ("max_completion_tokens", "max_tokens"):
        value = request.get(name)
        if value is not None:
            if not isinstance(value, int) or isinstance(value, bool) or value < 1:
                raise InvalidRequest(f"'{name}' must be a positive integer.", name)
            return value
    return None


def _tools(request: dict[str, Any]) -> list[dict[str, Any]]:
    """The functions the model may call, `tool_choice` applied."""
    tools = request.get("tools")
    if tools is not None and (not isinstance(tools, list) or not tools):
        raise InvalidRequest("'tools' must be a non-empty array.", "tools")
    functions: dict[str, dict[str, Any]] = {}
    for index, tool in enumerate(tools or []):
        function = tool.get("function") if isinstance(tool, dict) and tool.get("type") == "function" else None
        if not isinstance(function, dict) or not isinstance(name := function.get("name"), str) or not name:
            raise InvalidRequest("A tool must be a function with a name.", f"tools[{index}]")
        if name in functions:
            raise InvalidRequest(f"Tool names must be unique: '{name}'.", f"tools[{index}]")
        functions[name] = function
    choice = request.get("tool_choice")
    if choice is not None and not functions:
        raise InvalidRequest("'tool_choice' is only allowed when 'tools' are specified.", "tool_choice")
    if isinstance(choice, str) and choice not in ("auto", "none", "required"):
        raise InvalidRequest(f"Invalid value: '{choice}'.", "tool_choice")
    if choice == "none":
        return []
    if isinstance(choice, dict):
        wanted = (choice.get("function") or {}).get("name")
        if wanted not in functions:
            raise InvalidRequest(f"Tool choice '{wanted}' is not in 'tools'.", "tool_choice")
        return [functions[wanted]]
    return list(functions.values())


def _schema(wanted: object) -> dict[str, Any]:
    """The schema that an answer has to fit."""
    if wanted in (None, {"type": "text"}, {"type": "json_object"}):
        return {}
    inner = wanted.get("json_schema") if isinstance(wanted, dict) and wanted.get("type") == "json_schema" else None
    if not isinstance(inner, dict) or not isinstance(inner.get("name"), str):
        raise InvalidRequest("'response_format' is none.", "response_format")
    schema = inner.get("schema", {})
    if not isinstance(schema, dict):
        raise InvalidRequest("A schema must be an object.", "response_format.json_schema.schema")
    return schema


def _history(messages: object) -> History:
    if not isinstance(messages, list) or not messages:
        raise InvalidRequest("'messages' must be a non-empty array.", "messages")
    seen = History(messages=len(messages))
    calls = _OpenCalls()
    role: str | None = None
    for index, message in enumerate(messages):
        where = f"messages[{index}]"
        before = role
        role = message.get("role") if isinstance(message, dict) else None
        if not isinstance(role, str) or role not in ROLES:
            raise InvalidRequest(f"Invalid role {role!r}: expected one of {', '.join(sorted(ROLES))}.", where)
        if role != "tool":
            calls.close()
        tool_calls = message.get("tool_calls")
        if role == "assistant" and tool_calls is not None:
            calls.ask(_call_ids(tool_calls, where))
        text = _text(message.get("content"), where, optional=role == "assistant" and tool_calls is not None)
        seen.breakpoints += [index] * _breakpoints(message, where)
        if role == "user" and before == "tool" and _shows(message):
            pass  # what the results before it show, and nothing that the user says
        elif role == "user":
            seen.turn += 1
            seen.call_index, seen.tool_results, seen.last_user, seen.last_result = 1, 0, text, ""
        elif role == "assistant":
            seen.call_index += 1
        elif role == "tool":
            call_id = message.get("tool_call_id")
            if not isinstance(call_id, str) or not call_id:
                raise InvalidRequest("A tool message needs a 'tool_call_id'.", where)
            if _shows(message):
                raise InvalidRequest("A tool message takes parts of type 'text' only.", where)
            calls.answer(call_id, where)
            seen.tool_results += 1
            seen.last_result = text
    calls.close()
    if len(seen.breakpoints) > BREAKPOINTS:
        found = len(seen.breakpoints)
        message = f"A maximum of {BREAKPOINTS} blocks with cache_control may be provided. Found {found}."
        raise InvalidRequest(message, "messages")
    return seen


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


def _text(content: object, where: str, *, optional: bool) -> str:
    """The text of a message: a string, or the text parts of an array."""
    if isinstance(content, str):
        return content
    if content is None and optional:
        return ""
    if isinstance(content, list) and content:
        texts: list[str] = []
        for part in content:
            if not isinstance(part, dict) or not isinstance(part.get("type"), str):
                raise InvalidRequest("A content part must be an object with a type.", where)
            if part["type"] == "text":
                if not isinstance(part.get("text"), str):
                    raise InvalidRequest("A text part needs a 'text' string.", where)
                texts.append(part["text"])
        return "".join(texts)
    kind = type(content).__name__
    raise InvalidRequest(f"Invalid 'content': expected a string or an array of parts, got {kind}.", where)
