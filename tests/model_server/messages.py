"""A request of Anthropic's Messages: judged as strictly as there."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from features.fake_provider.requests import InvalidRequest
from features.fake_provider.thoughts import thinker_of
from tests.model_server.chat_completions import BREAKPOINTS
from tests.model_server.images import judge_data
from tests.model_server.schemas import judge_answer_of_claude, judge_tool_of_claude
from tests.model_server.thoughts import check_thoughts

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
    "tool_use": frozenset({"id", "name", "input", "caller", "cache_control"}),
    "server_tool_use": frozenset({"id", "name", "input", "caller", "cache_control"}),
    "tool_result": frozenset({"tool_use_id", "content", "is_error", "cache_control"}),
}
"""Kinds of blocks, and what each may have beside its type."""
OF_ROLE = {
    "user": frozenset({"text", "image", "document", "tool_result"}),
    "assistant": frozenset({"text", "thinking", "redacted_thinking", "tool_use", "server_tool_use"}),
}
TOOL = frozenset({"name", "description", "input_schema", "cache_control", "strict", "type"})
LEAST_TOP_P = 0.95
"""The least for a model that thinks."""
NAME = re.compile(r"[A-Za-z0-9_-]{1,128}")
ID = re.compile(r"[A-Za-z0-9_-]+")


def judge(request: dict[str, Any], headers: Mapping[str, str]) -> None:
    """Raise InvalidRequest for what is refused there."""
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
    _tools(request)
    _history(request["messages"], thinker_of(request["model"]))
    _count_breakpoints(request)
    _schema(request)


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


def _schema(request: Mapping[str, Any]) -> None:
    """The schema that an answer has to fit."""
    output = request.get("output_config") or {}
    _only(output, frozenset({"effort", "format"}), "output_config.")
    wanted = output.get("format")
    if wanted is None:
        return
    schema = wanted.get("schema") if isinstance(wanted, dict) and wanted.get("type") == "json_schema" else None
    if not isinstance(schema, dict):
        raise InvalidRequest("output_config.format: Input should be a JSON schema")
    judge_answer_of_claude(schema)


def _tools(request: Mapping[str, Any]) -> None:
    """The tools that the model may call, and which it has to."""
    names: set[str] = set()
    for index, tool in enumerate(request.get("tools") or []):
        where = f"tools.{index}."
        _only(tool, TOOL, where)
        if not NAME.fullmatch(tool.get("name") or ""):
            raise InvalidRequest(f"{where}name: String should match pattern '^[a-zA-Z0-9_-]{{1,128}}$'")
        schema = tool.get("input_schema")
        if not isinstance(schema, dict) or schema.get("type") != "object":
            raise InvalidRequest(f"{where}input_schema.type: Field required")
        judge_tool_of_claude(f"tools.{index}.custom.input_schema", schema)
        if "description" in tool and not tool["description"]:
            raise InvalidRequest(f"{where}description: String should have at least 1 character")
        if tool["name"] in names:
            raise InvalidRequest("tools: Tool names must be unique.")
        names.add(tool["name"])
    choice = request.get("tool_choice")
    if choice is None:
        return
    _only(choice, frozenset({"type", "name", "disable_parallel_tool_use"}), "tool_choice.")
    if not names:
        raise InvalidRequest("tool_choice: tool_choice may only be specified while providing tools.")
    if choice.get("type") == "tool" and choice.get("name") in names:
        return
    if choice.get("type") not in ("none", "auto", "any"):
        raise InvalidRequest("tool_choice: Input does not match any of the expected choices")


def _history(messages: object, thinker: str) -> None:
    if not isinstance(messages, list) or not messages:
        raise InvalidRequest("messages: at least one message is required")
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
            paused = blocks[-1]["type"] == "server_tool_use"
    if messages[-1]["role"] == "assistant" and not paused:
        raise InvalidRequest(
            "This model does not support assistant message prefill. The conversation must end with a user message."
        )


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
            case "image" | "document":
                _source(block)
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
                for part in block["content"] if isinstance(block.get("content"), list) else ():
                    _source(part)
        _check_breakpoint(block, here)
    return content


def _source(block: Mapping[str, Any]) -> None:
    source = block.get("source") or {}
    if source.get("type") == "base64":
        judge_data(source["media_type"], source["data"])


def _check_breakpoint(block: Mapping[str, Any], here: str) -> None:
    if block.get("cache_control") is None:
        return
    if block["cache_control"].get("type") != "ephemeral" or not {*block["cache_control"]} <= {"type", "ttl"}:
        raise InvalidRequest(f"{here}.cache_control: Input tag does not match any of the expected tags: 'ephemeral'")
    if block.get("is_error"):
        raise InvalidRequest(f"{here}: cache_control cannot be set for failed tool results")
    if block["type"] == "tool_result" and not block.get("content"):
        raise InvalidRequest(f"{here}: cache_control cannot be set for empty blocks")


def _count_breakpoints(request: Mapping[str, Any]) -> None:
    contents = [message["content"] for message in request["messages"] if isinstance(message["content"], list)]
    marked = [block for content in contents for block in content if "cache_control" in block]
    system = request.get("system")
    others = [*(system if isinstance(system, list) else ()), *(request.get("tools") or ())]
    for index, block in enumerate(others):
        if "text" in block and not block["text"].strip():
            raise InvalidRequest(f"system.{index}: text content blocks must be non-empty")
    found = len(marked) + sum("cache_control" in block for block in others)
    if found > BREAKPOINTS:
        raise InvalidRequest(f"A maximum of {BREAKPOINTS} blocks with cache_control may be provided. Found {found}.")
