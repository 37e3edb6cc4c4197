"""A request in Anthropic's Messages: judged as strictly as there, then reduced to what decides the answer."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator, Mapping
from typing import Any

import orjson

from palaver.testing.model_server.grammar import Script
from palaver.testing.model_server.history import BREAKPOINTS, Chat, History, InvalidRequest
from palaver.testing.model_server.thoughts import MADE, check_thoughts, thinker_of

FIELDS = frozenset({
    "model", "messages", "max_tokens", "stream", "system", "tools", "tool_choice", "temperature", "top_p", "top_k",
    "stop_sequences", "thinking", "output_config", "metadata", "service_tier", "cache_control", "container",
})  # fmt: skip
BLOCKS: Mapping[str, frozenset[str]] = {
    "text": frozenset({"text", "cache_control", "citations"}),
    "image": frozenset({"source", "cache_control"}),
    "document": frozenset({"source", "title", "context", "citations", "cache_control"}),
    "thinking": frozenset({"thinking", "signature"}),
    "redacted_thinking": frozenset({"data"}),
    "tool_use": frozenset({"id", "name", "input", "cache_control"}),
    "server_tool_use": frozenset({"id", "name", "input", "cache_control"}),
    "tool_result": frozenset({"tool_use_id", "content", "is_error", "cache_control"}),
}
"""Kinds of blocks, and what each may have beside its type."""
OF_ROLE = {
    "user": frozenset({"text", "image", "document", "tool_result"}),
    "assistant": frozenset({"text", "thinking", "redacted_thinking", "tool_use", "server_tool_use"}),
}
TOOL = frozenset({"name", "description", "input_schema", "cache_control", "strict", "type"})
LEAST_TOP_P = 0.95
"""Of a model that thinks."""
NAME = re.compile(r"[A-Za-z0-9_-]{1,128}")
NUMBERED = re.compile(r"_[0-9]+\Z")
ID = re.compile(r"[A-Za-z0-9_-]+")


def read(body: bytes, headers: Mapping[str, str]) -> Chat:
    """Judge and reduce a request. Raises InvalidRequest."""
    try:
        request = orjson.loads(body)
    except orjson.JSONDecodeError as error:
        raise InvalidRequest(f"The request body is not valid JSON: {error}") from None
    if not isinstance(request, dict):
        raise InvalidRequest("The request body is not a JSON object.")
    if "anthropic-version" not in {name.lower() for name in headers}:
        raise InvalidRequest("anthropic-version: header is required")
    _only(request, FIELDS, "")
    for name in ("model", "max_tokens", "messages"):
        if request.get(name) is None:
            raise InvalidRequest(f"{name}: Field required")
    limit = request["max_tokens"]
    if type(limit) is not int or limit < 1:
        raise InvalidRequest("max_tokens: Input should be greater than or equal to 1")
    if not isinstance(request["model"], str):
        raise InvalidRequest("model: Input should be a valid string")
    for name, most in (("temperature", 1), ("top_p", 1)):
        if not 0 <= request.get(name, 0) <= most:
            raise InvalidRequest(f"{name}: range: 0..{most}")
    _thinking(request)
    tools = _tools(request)
    history = _history(request["messages"], thinker_of(request["model"]))
    _count_breakpoints(request, history)
    messages = orjson.dumps(list(_as_chat(request)), option=orjson.OPT_SORT_KEYS)
    return Chat(
        model=request["model"],
        stream=bool(request.get("stream")),
        include_usage=True,
        max_tokens=limit,
        schema=_schema(request),
        tools=tools,
        must_call=(request.get("tool_choice") or {}).get("type") in ("any", "tool"),
        history=history,
        digest=hashlib.sha256(messages).hexdigest(),
        prompt_tokens=max(1, len(messages) // 4),
        body=body,
    )


def check(script: Script, chat: Chat) -> None:
    """Nothing more: what has to come back says itself whether it is whole."""


def _only(given: Mapping[str, Any], known: frozenset[str], where: str) -> None:
    for name in given:
        if name not in known:
            raise InvalidRequest(f"{where}{name}: Extra inputs are not permitted")


def _thinking(request: Mapping[str, Any]) -> None:
    thinking = request.get("thinking")
    if thinking is None:
        return
    if not isinstance(thinking, dict) or thinking.get("type") not in ("adaptive", "disabled"):
        raise InvalidRequest("thinking: Input tag does not match any of the expected tags: 'adaptive', 'disabled'")
    _only(thinking, frozenset({"type", "display"}), "thinking.")
    choice = request.get("tool_choice") or {}
    if thinking["type"] == "adaptive" and choice.get("type") in ("any", "tool"):
        raise InvalidRequest("Thinking may not be enabled when tool_choice forces tool use.")
    if thinking["type"] == "adaptive" and request.get("temperature", 1) != 1:
        raise InvalidRequest("`temperature` may only be set to 1 when thinking is enabled or in adaptive mode.")
    if thinking["type"] == "adaptive" and request.get("top_p", 1) < LEAST_TOP_P:
        raise InvalidRequest("`top_p` must be greater than or equal to 0.95 when thinking is enabled.")
    if thinking["type"] == "adaptive" and "top_k" in request:
        raise InvalidRequest("`top_k` must be unset when thinking is enabled.")


def _schema(request: Mapping[str, Any]) -> dict[str, Any]:
    """What the answer has to fit."""
    output = request.get("output_config") or {}
    _only(output, frozenset({"effort", "format"}), "output_config.")
    wanted = output.get("format")
    if wanted is None:
        return {}
    schema = wanted.get("schema") if isinstance(wanted, dict) and wanted.get("type") == "json_schema" else None
    if not isinstance(schema, dict):
        raise InvalidRequest("output_config.format: Input should be a JSON schema")
    return schema


def _tools(request: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The tools that the model may call, `tool_choice` applied, as functions."""
    functions: dict[str, dict[str, Any]] = {}
    for index, tool in enumerate(request.get("tools") or []):
        where = f"tools.{index}."
        _only(tool, TOOL, where)
        if not NAME.fullmatch(tool.get("name") or ""):
            raise InvalidRequest(f"{where}name: String should match pattern '^[a-zA-Z0-9_-]{{1,128}}$'")
        schema = tool.get("input_schema")
        if not isinstance(schema, dict) or schema.get("type") != "object":
            raise InvalidRequest(f"{where}input_schema.type: Field required")
        if "description" in tool and not tool["description"]:
            raise InvalidRequest(f"{where}description: String should have at least 1 character")
        if tool["name"] in functions:
            raise InvalidRequest("tools: Tool names must be unique.")
        functions[tool["name"]] = {"name": tool["name"], "parameters": schema}
    choice = request.get("tool_choice")
    if choice is None:
        return list(functions.values())
    _only(choice, frozenset({"type", "name", "disable_parallel_tool_use"}), "tool_choice.")
    if not functions:
        raise InvalidRequest("tool_choice: tool_choice may only be specified while providing tools.")
    match choice.get("type"):
        case "none":
            return []
        case "auto" | "any":
            return list(functions.values())
        case "tool" if choice.get("name") in functions:
            return [functions[choice["name"]]]
    raise InvalidRequest("tool_choice: Input does not match any of the expected choices")


def _history(messages: object, thinker: str) -> History:
    if not isinstance(messages, list) or not messages:
        raise InvalidRequest("messages: at least one message is required")
    seen = History(messages=len(messages))
    open_calls: list[str] = []
    ids: set[str] = set()
    for index, message in enumerate(messages):
        where = f"messages.{index}"
        role = message.get("role") if isinstance(message, dict) else None
        if role not in OF_ROLE:
            raise InvalidRequest(f"{where}.role: Input should be 'user' or 'assistant'")
        _only(message, frozenset({"role", "content"}), f"{where}.")
        if role != ("user", "assistant")[index % 2]:
            wrong = f'roles must alternate between "user" and "assistant", but found multiple "{role}" roles in a row'
            raise InvalidRequest(f"messages: {wrong if index else 'first message must use the user role'}")
        blocks = _blocks(message["content"], role, where)
        results = [block for block in blocks if block["type"] == "tool_result"]
        _pair(open_calls, results, blocks, where)
        calls = [block["id"] for block in blocks if block["type"] == "tool_use"]
        if ids.intersection(calls) or len({*calls}) < len(calls):
            raise InvalidRequest(f"{where}: `tool_use` ids must be unique")
        ids.update(calls)
        open_calls = calls
        if role == "assistant":
            check_thoughts(blocks, thinker, where)
            # What the model said between two searches of its provider, and behind the last one, was an answer each.
            searches = sum(block["type"] == "server_tool_use" for block in blocks)
            paused = blocks[-1]["type"] == "server_tool_use"
            seen.call_index += searches + (not paused)
            continue
        if said := [block.get("text", "") for block in blocks if block["type"] != "tool_result"]:
            seen.turn += 1
            # Messages of a user in a row are texts of one, here: what was said last is the last of them.
            last = next(filter(None, reversed(said)), "")
            seen.call_index, seen.tool_results, seen.last_user, seen.last_result = 1, 0, last, ""
        else:
            seen.tool_results += len(results)
            seen.last_result = _words(results[-1].get("content"))
    if messages[-1]["role"] == "assistant" and not paused:
        raise InvalidRequest(
            "This model does not support assistant message prefill. The conversation must end with a user message."
        )
    return seen


def _pair(asked: list[str], results: list[dict[str, Any]], blocks: list[dict[str, Any]], where: str) -> None:
    """Each call has its result in the next message, before anything else."""
    answered = [block["tool_use_id"] for block in results]
    if lacking := [each for each in asked if each not in answered]:
        raise InvalidRequest(
            f"{where}: `tool_use` ids were found without `tool_result` blocks immediately after: {', '.join(lacking)}."
        )
    for each in answered:
        if each not in asked:
            raise InvalidRequest(f"{where}: unexpected `tool_use_id` found in `tool_result` blocks: {each}.")
    if len({*answered}) < len(answered):
        raise InvalidRequest(f"{where}: each tool_use must have a single result.")
    if any(block["type"] != "tool_result" for block in blocks[: len(results)]):
        raise InvalidRequest(f"{where}: `tool_result` blocks must come before other content.")


def _blocks(content: object, role: str, where: str) -> list[dict[str, Any]]:
    if isinstance(content, str):
        content = [{"type": "text", "text": content}]
    if not isinstance(content, list) or not content:
        raise InvalidRequest(f"{where}: all messages must have non-empty content")
    for place, block in enumerate(content):
        here = f"{where}.content.{place}"
        kind = block.get("type") if isinstance(block, dict) else None
        if kind not in OF_ROLE[role]:
            raise InvalidRequest(f"{here}: Input tag '{kind}' does not match any of the expected tags")
        _only({name: 0 for name in block if name != "type"}, BLOCKS[kind], f"{here}.{kind}.")
        match kind:
            case "text" if not isinstance(block.get("text"), str) or not block["text"].strip():
                raise InvalidRequest(f"{here}: text content blocks must contain non-whitespace text")
            case "tool_use":
                if not ID.fullmatch(block.get("id") or "") or not NAME.fullmatch(block.get("name") or ""):
                    raise InvalidRequest(f"{here}.tool_use.id: String should match pattern '^[a-zA-Z0-9_-]+$'")
                if not isinstance(block.get("input"), dict):
                    raise InvalidRequest(f"{here}.tool_use.input: Input should be a valid dictionary")
            case "tool_result":
                if not isinstance(block.get("tool_use_id"), str):
                    raise InvalidRequest(f"{here}.tool_result.tool_use_id: Field required")
                if block.get("is_error") and not block.get("content"):
                    raise InvalidRequest(f"{here}: content cannot be empty if `is_error` is true")
        _check_breakpoint(block, here)
    return content


def _check_breakpoint(block: Mapping[str, Any], here: str) -> None:
    if block.get("cache_control") is None:
        return
    if block["cache_control"].get("type") != "ephemeral" or not {*block["cache_control"]} <= {"type", "ttl"}:
        raise InvalidRequest(f"{here}.cache_control: Input tag does not match any of the expected tags: 'ephemeral'")
    if block.get("is_error"):
        raise InvalidRequest(f"{here}: cache_control cannot be set for failed tool results")
    if block["type"] == "tool_result" and not block.get("content"):
        raise InvalidRequest(f"{here}: cache_control cannot be set for empty blocks")


def _count_breakpoints(request: Mapping[str, Any], history: History) -> None:
    history.breakpoints = [
        index
        for index, message in enumerate(request["messages"])
        if isinstance(message["content"], list)
        for block in message["content"]
        if "cache_control" in block
    ]
    system = request.get("system")
    others = [*(system if isinstance(system, list) else ()), *(request.get("tools") or ())]
    for index, block in enumerate(others):
        if "text" in block and not block["text"].strip():
            raise InvalidRequest(f"system.{index}: text content blocks must be non-empty")
    found = len(history.breakpoints) + sum("cache_control" in block for block in others)
    if found > BREAKPOINTS:
        raise InvalidRequest(f"A maximum of {BREAKPOINTS} blocks with cache_control may be provided. Found {found}.")


def _as_chat(request: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """The messages as those of a chat completion, without breakpoints and thoughts: a conversation has one digest,
    whichever API it comes by."""
    if told := _words(request.get("system")):
        yield {"role": "system", "content": told}
    for message in request["messages"]:
        blocks = _blocks(message["content"], message["role"], "")
        if message["role"] == "assistant":
            calls = [_call(block) for block in blocks if block["type"] == "tool_use"]
            text = "".join(block["text"] for block in blocks if block["type"] == "text")
            yield {"role": "assistant", "content": text or None, **({"tool_calls": calls} if calls else {})}
            continue
        for block in blocks:
            if block["type"] == "tool_result":
                said = "Error: " * bool(block.get("is_error")) + _words(block.get("content"))
                yield {"role": "tool", "tool_call_id": _given(block["tool_use_id"]), "content": said}
            else:
                plain = {name: value for name, value in block.items() if name != "cache_control"}
                yield {"role": "user", "content": plain["text"] if plain["type"] == "text" else [plain]}


def _call(block: Mapping[str, Any]) -> dict[str, Any]:
    function = {"name": block["name"], "arguments": orjson.dumps(block["input"]).decode()}
    return {"id": _given(block["id"]), "type": "function", "function": function}


def _given(call_id: str) -> str:
    """The id without the number that keeps it apart from the same one of another answer."""
    return call_id if call_id.startswith(MADE) else NUMBERED.sub("", call_id)


def _words(content: object) -> str:
    if isinstance(content, list):
        return "".join(block.get("text", "") for block in content)
    return str(content or "")
