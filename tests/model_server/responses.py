"""A request of OpenAI's Responses: judged as strictly as there."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import orjson

from features.fake_provider.exchanges import RefusedRequest
from features.fake_provider.grammar import ModelScript
from features.fake_provider.requests import Chat, InvalidRequest
from features.fake_provider.thoughts import encrypted
from features.fake_provider.wire import error
from tests.model_server.images import judge_url
from tests.model_server.schemas import judge_strict_answer, judge_tool_of_openai
from tests.model_server.thoughts import thinks

FIELDS = frozenset({
    "model", "input", "instructions", "stream", "stream_options", "store", "include", "tools", "tool_choice",
    "parallel_tool_calls", "max_output_tokens", "max_tool_calls", "temperature", "top_p", "top_logprobs", "reasoning",
    "text", "metadata", "truncation", "user", "safety_identifier", "prompt_cache_key", "prompt_cache_options",
    "service_tier",
})  # fmt: skip
ITEMS: Mapping[str, frozenset[str]] = {
    "message": frozenset({"type", "role", "content", "phase", "id", "status"}),
    "function_call": frozenset({"type", "call_id", "name", "arguments", "id", "status"}),
    "function_call_output": frozenset({"type", "call_id", "output", "id", "status"}),
    "reasoning": frozenset({"type", "id", "summary", "content", "encrypted_content", "status"}),
}
"""Types of items, and what each may have."""
ENCRYPTED = "reasoning.encrypted_content"
EFFORTS = (None, "none", "minimal", "low", "medium", "high", "xhigh", "max")
LEAST = 16
"""Tokens that an answer may be limited to."""
NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")


def judge(request: dict[str, Any], headers: Mapping[str, str]) -> None:
    """Raise InvalidRequest for what is refused there."""
    _only(request, FIELDS, "")
    if not isinstance(request.get("model"), str):
        raise InvalidRequest("Missing required parameter: 'model'.", "model")
    if request.get("store") is not False or ENCRYPTED not in (request.get("include") or ()):
        raise InvalidRequest(f"Nothing is stored here: send 'store' false, and '{ENCRYPTED}' in 'include'.", "store")
    limit = request.get("max_output_tokens")
    if limit is not None and (type(limit) is not int or limit < LEAST):
        said = f"Invalid 'max_output_tokens': integer below minimum value. Expected a value >= {LEAST}."
        raise InvalidRequest(said, "max_output_tokens")
    reasoning = request.get("reasoning") or {}
    _only(reasoning, frozenset({"effort", "summary"}), "reasoning.")
    if reasoning.get("effort") not in EFFORTS or reasoning.get("summary") not in (None, "auto", "concise", "detailed"):
        raise InvalidRequest("Invalid value.", "reasoning")
    items = request.get("input")
    if isinstance(items, str):
        items = [{"role": "user", "content": items}]
    if not isinstance(items, list) or not items:
        raise InvalidRequest("Missing required parameter: 'input'.", "input")
    _history(items)
    _schema(request.get("text") or {})
    _tools(request)


def check(script: ModelScript, chat: Chat) -> None:
    """Reasoning comes back as it was, and before each call that it led to. Raises Refused.

    With `stale`, what was made before that call of the turn cannot be read any more, and is not wanted.
    """
    request: dict[str, Any] = orjson.loads(chat.body)
    items = request["input"] if isinstance(request["input"], list) else []
    before = script.stale if script.stale is not None and chat.history.call_index >= script.stale else 0
    thought = False
    index, answered = 1, False
    for place, item in enumerate(items):
        kind, role = item.get("type", "message"), item.get("role")
        if role == "user":
            index, answered = 1, False
        elif answered and kind in ("reasoning", "message", "function_call"):
            index, answered = index + 1, False
        if kind == "reasoning":
            sealed = encrypted(chat.model, item.get("id", ""), item.get("summary"))
            if item.get("encrypted_content") != sealed or index < before:
                raise RefusedRequest(_void(item), "stale" if index < before else "unchanged")
            if place + 1 == len(items) or items[place + 1].get("type") in ("reasoning", "function_call_output"):
                raise RefusedRequest(_lacks(place, "reasoning", item.get("id"), "following item"))
            thought = True
        elif kind == "function_call":
            if thinks(item["call_id"], chat.model) and not thought and script.stale is None:
                raise RefusedRequest(_lacks(place, "function_call", item["call_id"], "'reasoning' item"))
        elif kind == "function_call_output":
            thought, answered = False, True
        elif role == "user":
            thought = False


def _void(item: Mapping[str, Any]) -> bytes:
    said = f"The encrypted content for item {item.get('id')} could not be verified."
    return error(said, "invalid_request_error", "invalid_encrypted_content")


def _lacks(place: int, kind: str, identity: object, what: str) -> bytes:
    said = f"Item '{identity}' of type '{kind}' was provided without its required {what}."
    return error(said, "invalid_request_error", None, f"input[{place}]")


def _only(given: Mapping[str, Any], known: frozenset[str], where: str) -> None:
    for name in given:
        if name not in known:
            raise InvalidRequest(f"Unknown parameter: '{where}{name}'.", f"{where}{name}")


def _schema(text: Mapping[str, Any]) -> None:
    """The schema that an answer has to fit."""
    _only(text, frozenset({"format", "verbosity"}), "text.")
    wanted = text.get("format") or {"type": "text"}
    if wanted in ({"type": "text"}, {"type": "json_object"}):
        return
    _only(wanted, frozenset({"type", "name", "schema", "strict", "description"}), "text.format.")
    schema = wanted.get("schema")
    if wanted.get("type") != "json_schema" or not isinstance(schema, dict) or not wanted.get("name"):
        raise InvalidRequest("Missing required parameter: 'text.format.name'.", "text.format")
    if wanted.get("strict"):
        judge_strict_answer(wanted["name"], schema)


def _tools(request: Mapping[str, Any]) -> None:
    """The tools that the model may call, and which it has to."""
    names: set[str] = set()
    for index, tool in enumerate(request.get("tools") or []):
        where = f"tools[{index}]"
        _only(tool, frozenset({"type", "name", "description", "parameters", "strict"}), f"{where}.")
        if tool.get("type") != "function" or not NAME.fullmatch(tool.get("name") or ""):
            raise InvalidRequest(f"Invalid '{where}.name'.", f"{where}.name")
        if tool["name"] in names:
            raise InvalidRequest("Tool names must be unique.", where)
        names.add(tool["name"])
        judge_tool_of_openai(tool["name"], tool.get("parameters") or {})
    choice = request.get("tool_choice")
    if isinstance(choice, dict):
        if choice.get("name") not in names:
            raise InvalidRequest("Tool choice not found in 'tools' parameter.", "tool_choice")
    elif choice not in (None, "auto", "none", "required") or (choice == "required" and not names):
        raise InvalidRequest("Invalid value.", "tool_choice")


def _history(items: list[Any]) -> None:
    answered: dict[str, bool] = {}
    for index, item in enumerate(items):
        where = f"input[{index}]"
        kind = item.get("type", "message") if isinstance(item, dict) else ""
        if kind not in ITEMS:
            raise InvalidRequest(f"Invalid value: '{kind}'.", f"{where}.type")
        _only(item, ITEMS[kind], f"{where}.")
        match kind:
            case "message":
                if item.get("role") not in ("user", "assistant", "system", "developer"):
                    raise InvalidRequest("Invalid value.", f"{where}.role")
                _content(item.get("content"), where)
            case "function_call":
                _call(item, answered, where)
            case "function_call_output":
                _result(item, answered, where)
                _content(item["output"], where)
    if lacking := [call_id for call_id, there in answered.items() if not there]:
        raise InvalidRequest(f"No tool output found for function call {lacking[0]}.", "input")


def _call(item: Mapping[str, Any], asked: dict[str, bool], where: str) -> None:
    call_id = item.get("call_id")
    if not isinstance(call_id, str) or not NAME.fullmatch(call_id):
        raise InvalidRequest(f"Invalid '{where}.call_id': expected at most 64 characters.", f"{where}.call_id")
    if call_id in asked:
        raise InvalidRequest(f"Duplicate call id {call_id}.", f"{where}.call_id")
    if not NAME.fullmatch(item.get("name") or "") or not isinstance(item.get("arguments"), str):
        raise InvalidRequest(f"Invalid '{where}.name'.", f"{where}.name")
    if "id" in item and not str(item["id"]).startswith("fc_"):
        raise InvalidRequest(f"Invalid '{where}.id': expected an ID that begins with 'fc'.", f"{where}.id")
    asked[call_id] = False


def _result(item: Mapping[str, Any], asked: dict[str, bool], where: str) -> None:
    call_id = item.get("call_id")
    if asked.get(str(call_id)) is not False:
        raise InvalidRequest(f"No tool call found for function call output with call_id {call_id}.", "input")
    if "output" not in item:
        raise InvalidRequest(f"Missing required parameter: '{where}.output'.", f"{where}.output")
    asked[str(call_id)] = True


def _content(content: object, where: str) -> None:
    """A string, or an array of parts."""
    if isinstance(content, str):
        return
    if not isinstance(content, list) or not content:
        raise InvalidRequest("Invalid type for content.", f"{where}.content")
    for part in content:
        kind = part.get("type") if isinstance(part, dict) else None
        if kind not in ("input_text", "output_text", "refusal", "input_image", "input_file"):
            raise InvalidRequest(f"Invalid value: '{kind}'.", f"{where}.content")
        if kind == "input_image":
            judge_url(part["image_url"])
