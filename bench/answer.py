"""A model's answer, put together from its stream. Needs nothing but orjson: programs of others read it, too."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import orjson


class Answer:
    """The assistant's message, put together from the lines of the stream."""

    def __init__(self) -> None:
        self._content: list[str] = []
        self._calls: dict[int, dict[str, str]] = {}
        self._torn = b""

    def read(self, lines: Iterable[str | bytes]) -> None:
        """Take in all of the lines."""
        for line in lines:
            self.add(line)

    def feed(self, piece: bytes) -> None:
        """Take in what came, wherever it was cut."""
        *lines, self._torn = (self._torn + piece).split(b"\n")
        self.read(lines)

    def add(self, line: str | bytes) -> None:
        """Take in one line."""
        text = line.encode() if isinstance(line, str) else line.rstrip()
        if not text.startswith(b"data: ") or text == b"data: [DONE]":
            return
        for choice in orjson.loads(text[6:])["choices"]:
            delta = choice["delta"]
            if delta.get("content"):
                self._content.append(delta["content"])
            for part in delta.get("tool_calls") or ():
                call = self._calls.setdefault(part["index"], {"id": "", "name": "", "arguments": ""})
                call["id"] += part.get("id") or ""
                call["name"] += part["function"].get("name") or ""
                call["arguments"] += part["function"].get("arguments") or ""

    def message(self) -> dict[str, Any]:
        """The assistant's message, as it is sent back."""
        text, calls = "".join(self._content), list(self._calls.values())
        if not calls:
            return {"role": "assistant", "content": text}
        wire = [
            {"id": call["id"], "type": "function", "function": {"name": call["name"], "arguments": call["arguments"]}}
            for call in calls
        ]
        return {"role": "assistant", "content": text or None, "tool_calls": wire}


def result(call: dict[str, Any], tool: Callable[..., str]) -> dict[str, Any]:
    """The message that answers a tool call."""
    return {"role": "tool", "tool_call_id": call["id"], "content": tool(**orjson.loads(call["function"]["arguments"]))}
