"""Items of a response's output, as clients read them."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any, Final

from api.kit.shown_run import Content
from palaver.schemas.arguments import as_json
from palaver.schemas.content import parts_from, text_of
from palaver.schemas.mcp_servers import JOINT, own_label

from .ids import ResponseId

SERVER: Final = "palaver"
"""The label of the server that runs an agent's tools, as clients have it: an MCP server."""


Labels = Collection[str]
"""The labels of the MCP servers that an agent names itself."""


def text_item(item_id: str, text: str | None, status: str) -> dict[str, Any]:
    """Return a message of the assistant; without a text it has only begun."""
    content = [] if text is None else [text_part(text)]
    return {"id": item_id, "type": "message", "role": "assistant", "status": status, "content": content}


def text_part(text: str) -> dict[str, Any]:
    """Return a part of a message's content."""
    return {"type": "output_text", "text": text, "annotations": [], "logprobs": []}


def reasoning_item(item_id: str, text: str | None, status: str) -> dict[str, Any]:
    """Return what a model thought, as far as it tells."""
    summary = [] if text is None else [summary_part(text)]
    return {"id": item_id, "type": "reasoning", "summary": summary, "status": status}


def summary_part(text: str) -> dict[str, Any]:
    """Return a part of a summary of thoughts."""
    return {"type": "summary_text", "text": text}


def function_item(item_id: str, call: Mapping[str, Any], status: str) -> dict[str, Any]:
    """Return a call that the client makes; it has no arguments before it is whole."""
    arguments = call["arguments"] if status == "completed" else ""
    about = {"id": item_id, "type": "function_call", "call_id": call["id"], "name": call["name"]}
    return {**about, "arguments": arguments, "status": status}


def server_item(
    item_id: str,
    labels: Labels,
    call: Mapping[str, Any],
    status: str,
    output: str | None = None,
    request: str | None = None,
) -> dict[str, Any]:
    """Return a call that Palaver makes, of a tool of the agent or of a server that it names. It has no arguments where
    it begins: they follow. Why it failed stands in the output, as the model has it: versions of clients differ in the
    form of an error."""
    return {
        "id": item_id,
        "type": "mcp_call",
        **_whose(labels, call["name"]),
        "arguments": "" if status == "in_progress" else call["arguments"],
        "approval_request_id": request,
        "output": output,
        "error": None,
        "status": status,
    }


def _whose(labels: Labels, tool: str) -> dict[str, str]:
    label = own_label(labels, tool)
    if label is None:
        return {"server_label": SERVER, "name": tool}
    return {"server_label": label, "name": tool.removeprefix(f"{label}{JOINT}")}


def approval_item(action: Mapping[str, Any], response: ResponseId, labels: Labels = ()) -> dict[str, Any]:
    """Return a call that waits for a decision. Its id says which response asks: clients may have nothing
    else of it when they answer."""
    return {
        "id": f"{action['id']}_{response.tail}",
        "type": "mcp_approval_request",
        **_whose(labels, action["tool"]),
        "arguments": as_json(action["arguments"]),
    }


def text_in(content: Content) -> str:
    """Return the text of a message as an event has it, with a word for each image and file."""
    return content if isinstance(content, str) else text_of(parts_from(content))


def approval_response_item(request: str, decided: Mapping[str, Any]) -> dict[str, Any]:
    """Return a decision on a call that an item has asked for."""
    return {
        "id": f"mcpa_{request}",
        "type": "mcp_approval_response",
        "approval_request_id": request,
        "approve": decided["decision"] in ("approve", "edit"),
        "reason": decided.get("reason"),
    }


def output_item(item_id: str, message: Mapping[str, Any]) -> dict[str, Any]:
    """Return the output of a call that the client made."""
    about = {"id": f"{item_id}_output", "type": "function_call_output", "call_id": message["call_id"]}
    status = "incomplete" if message.get("is_error") else "completed"
    return {**about, "output": text_in(message["content"]), "status": status}


def input_items(item_id: str, message: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the items that a message of an input, or of a conversation, was."""
    match message["role"]:
        case "tool":
            return [output_item(item_id, message)]
        case "user":
            about = {"id": f"msg_{item_id}", "type": "message", "role": "user", "status": "completed"}
            return [{**about, "content": _input_parts(message.get("content", ""))}]
    calls = [
        function_item(f"fc_{item_id}_{place}", {**call, "arguments": as_json(call["arguments"])}, "completed")
        for place, call in enumerate(message.get("tool_calls", ()))
    ]
    text = text_in(message.get("content", ""))
    return [*([text_item(f"msg_{item_id}", text, "completed")] if text else []), *calls]


def _input_parts(content: Any) -> list[dict[str, Any]]:
    if isinstance(content, str):
        return [{"type": "input_text", "text": content}]
    return [_input_part(part) for part in content]


def _input_part(part: Mapping[str, Any]) -> dict[str, Any]:
    match part["type"]:
        case "image":
            return {"type": "input_image", "image_url": part["url"], "detail": "auto", "file_id": None}
        case "file":
            where = "file_data" if part["url"].startswith("data:") else "file_url"
            return {"type": "input_file", where: part["url"], "filename": part.get("name")}
    return {"type": "input_text", "text": part["text"]}
