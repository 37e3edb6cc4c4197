"""Bodies of requests with all fields of OpenAI's dialect."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from tests.unit.waiting_runs import FUNCTION, GIF, Waiting


def bodies(waits: Waiting) -> Iterator[tuple[str, Any]]:
    """Yield paths and bodies."""
    content = [{"type": "input_text", "text": "x"}, {"type": "input_image", "image_url": GIF}]
    items = [
        {"type": "message", "role": "system", "content": "s"},
        {"type": "message", "role": "user", "content": content},
        {"type": "function_call", "call_id": "k", "name": "weather", "arguments": "{}"},
        {"type": "function_call_output", "call_id": "k", "output": "x"},
        {"type": "reasoning"},
    ]
    server = {"type": "mcp", "server_label": "palaver", "allowed_tools": ["calculator"], "require_approval": "always"}
    yield "/openai/v1/responses", {
        "model": "fake/tool-20", "input": items, "background": True, "max_output_tokens": 10, "temperature": 0.5,
        "tools": [{"type": "function", **FUNCTION}, server], "tool_choice": {"type": "function", "name": "weather"},
        "metadata": {"a": "b"}, "text": {"format": {"type": "json_schema", "name": "n", "schema": {"type": "object"}}},
        "reasoning": {"effort": "low"}, "run": {"budget": {"tokens": 10}, "priority": 1, "tags": ["a"]},
    }  # fmt: skip
    response = f"resp_{waits.run.removeprefix('run_')}"
    decision = {"type": "mcp_approval_response", "approval_request_id": waits.actions["approval"], "approve": False}
    output = {"type": "function_call_output", "call_id": "c2", "output": [{"type": "input_text", "text": "x"}]}
    yield "/openai/v1/responses", {"previous_response_id": response, "background": True, "input": [decision, output]}
    above = f"resp_{waits.above.removeprefix('run_')}"
    decision = {**decision, "approval_request_id": waits.below, "reason": "no"}
    yield "/openai/v1/responses", {"previous_response_id": above, "background": True, "input": [decision]}
    messages = [{"role": "user", "content": [{"type": "text", "text": "x"}]}]
    calls = [{"id": "k", "type": "function", "function": {"name": "weather", "arguments": "{}"}}]
    messages += [{"role": "assistant", "content": "", "tool_calls": calls}]
    messages += [{"role": "tool", "tool_call_id": "k", "content": "x"}]
    # One that is wrong is refused in any case: else a client that streams nothing would wait for the answer.
    yield "/openai/v1/chat/completions", {
        "model": "fake/tool-20", "messages": messages, "stop": ["a"], "n": 2, "tools": [{"type": "function"}],
        "response_format": {"type": "json_object"}, "stream_options": {"include_usage": True}, "stream": True,
    }  # fmt: skip
    yield "/openai/v1/conversations", {"metadata": {"a": "b"}, "items": [items[1]]}
