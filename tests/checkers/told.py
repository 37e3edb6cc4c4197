"""What a model may be told, derived from the log once more, and independently of the workers."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import orjson

from palaver.schemas.models import Run
from palaver.store.reading.events import LogEntry
from tests.checkers.evidence import message_of

SUMMARY = "[Automatic note] This is a summary of the earlier part of the conversation, which is left out here:\n\n"
SHOWN = {"type": "text", "text": "[Automatic note] What these tool results show as [image] or [file]:"}

BEGINS = {"role": "user", "content": "[Automatic note] The conversation begins with what the assistant said."}
GO_ON = {"role": "user", "content": "[Automatic note] Go on."}


@dataclass
class Turn:
    """Messages that only go together, and the position of the last one."""

    said: list[dict[str, Any]]
    end: int = 0
    by_the_user: bool = False
    results: dict[str, dict[str, Any] | None] = field(default_factory=dict)
    given: dict[str, str] = field(default_factory=dict)
    """The ids of calls that the provider gave, by those of the log."""
    parts: dict[str, list[dict[str, Any]]] = field(default_factory=dict)
    """What the results show, by call id."""

    @property
    def shown(self) -> list[dict[str, Any]]:
        """The same in call order."""
        return [part for call_id in self.results for part in self.parts.get(call_id, ())]

    @property
    def messages(self) -> list[dict[str, Any]]:
        results = [result for result in self.results.values() if result]
        return [*self.said, *results, *([{"role": "user", "content": [SHOWN, *self.shown]}] if self.shown else [])]


def digests(run: Run, entries: Sequence[LogEntry]) -> tuple[set[str], list[set[str]]]:
    """Of the histories that the run may ask with; and of those that it got a whole answer to, each in every form."""
    told, withdrawn = Told(run.agent.instructions, run.model), set[int]()
    asked: set[str] = set()
    kept: list[set[str]] = []
    for index, entry in enumerate(entries):
        message = message_of(entry)
        if message and message["role"] == "assistant" and entry.run_id == run.id and not message.get("partial"):
            kept.append(told.digests)
        if entry.type == "messages.withdrawn":
            withdrawn.update(range(entry.data["first"], entry.data["last"] + 1))
            told = Told(run.agent.instructions, run.model)
            for earlier in entries[:index]:
                if earlier.position not in withdrawn:
                    told.add(earlier)
        told.add(entry)
        if told.whole:
            asked |= told.digests
    return asked, kept


class Told:
    """What a model is told, as the log's entries come."""

    def __init__(self, instructions: str, model: str = "") -> None:
        self._model = model
        self._system = [{"role": "system", "content": instructions}] if instructions else []
        self._turns: list[Turn] = []

    @property
    def whole(self) -> bool:
        """Whether every call has its result."""
        return not self._turns or None not in self._turns[-1].results.values()

    @property
    def digest(self) -> str:
        """As the model server has it."""
        return _digest(self._messages)

    @property
    def digests(self) -> set[str]:
        """The same in every API: in Anthropic's, sides take turns and the user has the last word, unless the model has
        paused."""
        messages = alternating(self._messages)
        forms = [self._messages, messages]
        if messages and messages[-1]["role"] == "assistant":
            forms.append([*messages, GO_ON])
        return set(map(_digest, forms))

    @property
    def _messages(self) -> list[dict[str, Any]]:
        said = [message for turn in self._turns for message in turn.messages]
        return [*self._system, *said]

    def add(self, entry: LogEntry) -> None:
        """One more entry."""
        turns, message = self._turns, message_of(entry)
        if entry.type == "conversation.condensed":
            newest = next((turn for turn in reversed(turns) if turn.by_the_user), None)
            kept_turns = [turn for turn in turns if turn.end > entry.data["through"] or turn is newest]
            self._turns = [Turn([{"role": "user", "content": SUMMARY + entry.data["summary"]}]), *kept_turns]
        elif message is None:
            return
        elif message["role"] == "tool":
            text, shown = _shown(message)
            turns[-1].parts[message["call_id"]] = shown
            content = f"Error: {text}" if message.get("is_error") else text
            call_id = turns[-1].given.get(message["call_id"], message["call_id"])
            turns[-1].results[message["call_id"]] = {"role": "tool", "tool_call_id": call_id, "content": content}
            turns[-1].end = entry.position
        elif message.get("tool_calls"):
            calls = [_call(call) for call in message["tool_calls"]]
            given = _given_ids(entry, self._model)
            turns.append(Turn([{**_said(message), "tool_calls": calls}], entry.position, given=given))
            turns[-1].results = {call["id"]: None for call in calls}
            for call in calls:
                call["id"] = given.get(call["id"], call["id"])
        elif message.get("content") or message["role"] == "user" or self._has_paused(entry, message):
            by_the_user = message["role"] == "user" and not entry.data.get("nudge")
            turns.append(Turn([_said(message)], entry.position, by_the_user))

    def _has_paused(self, entry: LogEntry, message: dict[str, Any]) -> bool:
        """Whether the model gets back what it did without a word."""
        opaque = entry.opaque
        return bool(opaque and opaque.origin.partition("/")[2] == self._model and not message.get("partial"))


def alternating(messages: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """``messages`` as those of Anthropic's API are in a chat: the assistant's in a row are one."""
    found: list[dict[str, Any]] = []
    for message in messages:
        if message["role"] != "assistant":
            found.append(message)
            continue
        before = found.pop() if found and found[-1]["role"] == "assistant" else {}
        calls = [*before.get("tool_calls", ()), *map(_spelt, message.get("tool_calls", ()))]
        text = (before.get("content") or "") + (message.get("content") or "")
        found.append({"role": "assistant", "content": text or None, **({"tool_calls": calls} if calls else {})})
    first = next((place for place, message in enumerate(found) if message["role"] != "system"), 0)
    if found and found[first]["role"] == "assistant":
        found.insert(first, BEGINS)
    return found


def _spelt(call: dict[str, Any]) -> dict[str, Any]:
    """A call whose arguments are JSON, and not a text of it."""
    function = call["function"]
    arguments = orjson.loads(function["arguments"])
    return {**call, "function": {**function, "arguments": orjson.dumps(arguments).decode()}}


def _given_ids(entry: LogEntry, model: str) -> dict[str, str]:
    """What the provider of ``model`` calls its calls, where the log calls them otherwise."""
    if entry.opaque is None or entry.opaque.origin.partition("/")[2] != model:
        return {}
    calls = orjson.loads(entry.opaque.fields).get("tool_calls", {})
    return {call_id: fields["id"] for call_id, fields in calls.items() if "id" in fields}


def _shown(result: dict[str, Any]) -> tuple[str, list[dict[str, Any]]]:
    """The words of a result, and what of it is sent behind all results."""
    content = result.get("content", "")
    if not isinstance(content, list):
        return content, []
    words = "\n".join(part["text"] if part["type"] == "text" else f"[{part['type']}]" for part in content)
    shown = [part for part in _content(content) if part["type"] != "text"]
    whose = {"type": "text", "text": f"{result['name']} ({result['call_id']}):"}
    return words, [whose, *shown] if shown else []


def _said(message: dict[str, Any]) -> dict[str, Any]:
    empty = None if message.get("tool_calls") else ""
    return {"role": message["role"], "content": _content(message.get("content")) or empty}


def _content(content: Any) -> Any:
    if not isinstance(content, list):
        return content
    return [_part(part) for part in content]


def _part(part: dict[str, Any]) -> dict[str, Any]:
    match part:
        case {"type": "image", "url": url}:
            return {"type": "image_url", "image_url": {"url": url}}
        case {"type": "file", "url": url, "name": name}:
            return {"type": "file", "file": {"filename": name, "file_data": url}}
    return part


def _call(call: dict[str, Any]) -> dict[str, Any]:
    arguments = call.get("arguments", "{}")
    try:
        is_object = isinstance(orjson.loads(arguments), dict)
    except orjson.JSONDecodeError:
        is_object = False
    arguments = arguments if is_object else "{}"
    return {"id": call["id"], "type": "function", "function": {"name": call["name"], "arguments": arguments}}


def _digest(messages: list[dict[str, Any]]) -> str:
    return hashlib.sha256(orjson.dumps(messages, option=orjson.OPT_SORT_KEYS)).hexdigest()
