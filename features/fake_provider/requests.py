"""Requests reduced to what decides the answer, whichever API they come by.

Whether a real provider would take them is another matter: all that is asked of them here is that they can be read.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import field
from functools import wraps
from typing import Any, Final

import orjson

from palaver.late import dataclass

from .digests import blocks_of, of_items, of_messages, size, words

OPAQUE_FIELDS: Final = frozenset({"reasoning_content", "reasoning", "reasoning_details", "extra_content"})
"""Fields that a provider may want back with a message that it made, or with a call."""


class InvalidRequest(ValueError):
    """A request that a real provider answers with 400 `invalid_request_error`; `param` names the field."""

    def __init__(self, message: str, param: str | None = None) -> None:
        super().__init__(message)
        self.param = param


@dataclass(slots=True)
class RequestHistory:
    """The messages in short: `turn` user messages so far, and the place within the last turn.

    `breakpoints` are the indexes of messages with a prompt-cache breakpoint on a block of their content.
    """

    messages: int = 0
    turn: int = 0
    call_index: int = 1
    last_user: str = ""
    tool_results: int = 0
    last_result: str = ""
    breakpoints: list[int] = field(default_factory=list)

    def says(self, text: str) -> None:
        """The user says something: another turn."""
        self.turn += 1
        self.call_index, self.tool_results, self.last_user, self.last_result = 1, 0, text, ""


@dataclass(slots=True)
class Chat:
    """A request that was read. `digest` identifies its messages, `prompt_tokens` is their JSON size / 4."""

    model: str
    stream: bool
    include_usage: bool
    max_tokens: int | None
    tools: list[dict[str, Any]]
    """The functions that the model may call."""
    schema: dict[str, Any]
    """The schema of the answer; empty for none."""
    must_call: bool
    """`tool_choice` leaves the model no other way."""
    history: RequestHistory
    digest: str
    prompt_tokens: int
    body: bytes


Read = Callable[[bytes], Chat]


def _reading(read: Callable[[dict[str, Any], bytes], Chat]) -> Read:
    """A body as `read` reads it. Raises InvalidRequest for one that it cannot."""

    @wraps(read)
    def reading(body: bytes) -> Chat:
        try:
            request = orjson.loads(body)
        except orjson.JSONDecodeError as error:
            raise InvalidRequest(f"The body is not valid JSON: {error}") from None
        try:
            return read(request, body)
        except (AttributeError, LookupError, TypeError, ValueError) as error:
            raise InvalidRequest(f"This cannot be read as a request: {type(error).__name__}: {error}") from None

    return reading


@_reading
def chat_completion(request: dict[str, Any], body: bytes) -> Chat:
    """A request of OpenAI's chat completions."""
    messages = request["messages"]
    history = RequestHistory(messages=len(messages))
    before = ""
    for index, message in enumerate(messages):
        role, text = message["role"], words(message.get("content"))
        match role:
            case "user" if before == "tool" and _shows(message):
                pass  # what the results before it show, and nothing that the user says
            case "user":
                history.says(text)
            case "assistant":
                history.call_index += 1
            case "tool":
                history.tool_results += 1
                history.last_result = text
        before = role
        if marked := _marked(message):
            history.breakpoints += [index] * marked
            message["content"] = text
        for part in (message, *(message.get("tool_calls") or ())):
            for name in OPAQUE_FIELDS.intersection(part):
                del part[name]
    choice = request.get("tool_choice")
    functions = {tool["function"]["name"]: tool["function"] for tool in request.get("tools") or ()}
    limits = (request.get(name) for name in ("max_completion_tokens", "max_tokens"))
    return Chat(
        model=str(request["model"]),
        stream=bool(request.get("stream")),
        include_usage=bool((request.get("stream_options") or {}).get("include_usage")),
        max_tokens=next((int(limit) for limit in limits if limit is not None), None),
        tools=_chosen(functions, choice == "none", choice["function"]["name"] if isinstance(choice, dict) else None),
        schema=((request.get("response_format") or {}).get("json_schema") or {}).get("schema", {}),
        must_call=choice not in (None, "auto", "none"),
        history=history,
        body=body,
        **size(messages),
    )


@_reading
def message(request: dict[str, Any], body: bytes) -> Chat:
    """A request of Anthropic's Messages."""
    messages = request["messages"]
    history = RequestHistory(messages=len(messages))
    for index, entry in enumerate(messages):
        blocks = blocks_of(entry)
        history.breakpoints += [index] * _marked(entry)
        if entry["role"] == "assistant":
            # What the model said between two searches of its provider, and behind the last one, was an answer each.
            searches = sum(block["type"] == "server_tool_use" for block in blocks)
            history.call_index += searches + (blocks[-1]["type"] != "server_tool_use")
            continue
        results = [block for block in blocks if block["type"] == "tool_result"]
        if texts := [block.get("text", "") for block in blocks if block["type"] != "tool_result"]:
            # Messages of a user in a row are texts of one, here: what was said last is the last of them.
            history.says(next(filter(None, reversed(texts)), ""))
        else:
            history.tool_results += len(results)
            history.last_result = words(results[-1].get("content"))
    choice = request.get("tool_choice") or {}
    functions = {
        tool["name"]: {"name": tool["name"], "parameters": tool["input_schema"]} for tool in request.get("tools") or ()
    }
    return Chat(
        model=str(request["model"]),
        stream=bool(request.get("stream")),
        include_usage=True,
        max_tokens=int(request["max_tokens"]),
        tools=_chosen(functions, choice.get("type") == "none", choice.get("name")),
        schema=((request.get("output_config") or {}).get("format") or {}).get("schema", {}),
        must_call=choice.get("type") in ("any", "tool"),
        history=history,
        body=body,
        **size([*of_messages(request)]),
    )


@_reading
def response(request: dict[str, Any], body: bytes) -> Chat:
    """A request of OpenAI's Responses."""
    items = request["input"]
    if isinstance(items, str):
        items = [{"role": "user", "content": items}]
    history = RequestHistory(messages=len(items))
    answering = False
    for item in items:
        match item.get("type", "message"):
            case "message" if item["role"] == "user":
                history.says(words(item.get("content")))
                answering = False
            case "message" if item["role"] != "assistant":
                answering = True
            case "function_call_output":
                history.tool_results += 1
                history.last_result = words(item["output"])
                answering = False
            case _:
                # What the model said at once is one call of it.
                history.call_index += not answering
                answering = True
    choice = request.get("tool_choice")
    functions = {
        tool["name"]: {"name": tool["name"], "parameters": tool.get("parameters") or {}}
        for tool in request.get("tools") or ()
    }
    limit = request.get("max_output_tokens")
    return Chat(
        model=str(request["model"]),
        stream=bool(request.get("stream")),
        include_usage=True,
        max_tokens=None if limit is None else int(limit),
        tools=_chosen(functions, choice == "none", choice.get("name") if isinstance(choice, dict) else None),
        schema=((request.get("text") or {}).get("format") or {}).get("schema", {}),
        must_call=choice not in (None, "auto", "none"),
        history=history,
        body=body,
        **size(of_items(request.get("instructions"), items)),
    )


def _chosen(functions: Mapping[str, dict[str, Any]], none: bool, name: str | None) -> list[dict[str, Any]]:
    """The tools that the model may call, `tool_choice` applied."""
    if none:
        return []
    return list(functions.values()) if name is None else [functions[name]]


def _shows(message: Mapping[str, Any]) -> bool:
    """Tell whether there is more than text in it."""
    content = message.get("content")
    return isinstance(content, list) and any(part["type"] != "text" for part in content)


def _marked(message: Mapping[str, Any]) -> int:
    """Count the blocks of the content that end a prefix to be cached."""
    content = message.get("content")
    return sum("cache_control" in block for block in content) if isinstance(content, list) else 0
