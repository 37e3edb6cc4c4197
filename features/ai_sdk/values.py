"""Contents of messages, arguments and results, as parts of a UI message have them."""

from __future__ import annotations

import mimetypes
from collections.abc import Mapping
from typing import Any
from urllib.parse import urlsplit

import orjson

from api.kit.shown_run import Content
from palaver.schemas.content import inline_data


def parts_of(content: Content) -> list[dict[str, Any]]:
    """Return a message as parts of the types ``text`` and ``file``."""
    if isinstance(content, str):
        return [{"type": "text", "text": content}] if content else []
    return [made for part in content if (made := _part(part)) is not None]


def _part(part: Mapping[str, Any]) -> dict[str, Any] | None:
    match part["type"]:
        case "text":
            return {"type": "text", "text": part["text"]}
        case "image" | "file":
            made = {"type": "file", "url": part["url"], "mediaType": _media_type(part["url"], part["type"])}
            name = part.get("name")
            return made if name is None else made | {"filename": name}
        case _:
            return None


def _media_type(url: str, kind: str) -> str:
    if inline := inline_data(url[:200]):
        return inline[0]
    guessed, _ = mimetypes.guess_type(urlsplit(url).path, strict=True)
    return guessed or ("image" if kind == "image" else "application/octet-stream")


def input_of(arguments: str) -> Any:
    """Return the arguments of a call; as they are if they are no JSON, as a model may write what is none."""
    try:
        return orjson.loads(arguments.strip() or "{}")
    except ValueError:
        return arguments


def question_of(action: Mapping[str, Any], known_as: str) -> dict[str, Any]:
    """Return the question that a call waits with, for a person."""
    question = {name: value for name, value in action["question"].items() if value is not None}
    return {**question, "actionId": action["id"], "toolCallId": known_as, "expiresAt": action["expires_at"]}


def waiting_below(data: Mapping[str, Any]) -> dict[str, Any]:
    """Return a call of a run below that waits for an action, from its event."""
    action = data["action"]
    made = {
        "actionId": action["id"],
        "runId": data["child_run_id"],
        "path": list(data["path"]),
        "type": action["type"],
        "toolName": action["tool"],
        "input": input_of(action["arguments"]),
        "digest": action["digest"],
        "expiresAt": action["expires_at"],
        "secondPerson": action["second_person"],
    }
    question = action.get("question")
    return made | {"question": {k: v for k, v in question.items() if v is not None}} if question else made


def settled_below(data: Mapping[str, Any]) -> dict[str, Any]:
    """Return the decision about such a call, from its event."""
    return {"actionId": data["action_id"], "runId": data["child_run_id"], "decision": data["decision"]}


def output_of(content: Content) -> Any:
    """Return the result of a call: what is a JSON object or list in a text is that again, anything else the text."""
    if isinstance(content, str):
        return input_of(content) if content[:1] in ("{", "[") else content
    return [dict(part) for part in content]
