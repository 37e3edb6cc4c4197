"""The fields of an answer that the provider wants back unchanged: its reasoning, and what it signed.

``reasoning_content`` and ``reasoning`` (DeepSeek, Kimi, Qwen, vLLM, …) are text that comes in pieces. OpenRouter's
``reasoning_details``, and ``thinking_blocks``, in which LiteLLM passes on what Claude thinks, are lists whose entries
come in pieces. ``extra_content`` (Gemini) stands on the message and on each call. They are gathered while they come,
and written as one JSON object in which calls go by their ids.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, Final

import orjson

from palaver.secrets.redaction import redact

from ..bounds import Parts
from ..sent_back import SentBack, as_stored, unchanged
from ..verbatim import Tree, entries, listed, members, merged, tree, value_of, written

log = logging.getLogger("palaver.workers.protocols.chat_completions.opaque")

TEXTS: Final = ("reasoning_content", "reasoning")
_SHOWN: Final = ("thinking", "reasoning_text")
"""Reasoning that is not sent back: of servers that stand for Ollama, and for Copilot."""
DETAILS: Final = "reasoning_details"
BLOCKS: Final = "thinking_blocks"
EXTRA: Final = "extra_content"
_RAW: Final = frozenset((DETAILS, BLOCKS, EXTRA))
"""Fields of which the JSON is kept as it came."""
CALLS: Final = "tool_calls"
ID: Final = "id"
_GROWING: Final = ("text", "summary", "thinking")
"""Fields of an entry that come in pieces."""
_IN_ONE_PIECE: Final = ('"reasoning.encrypted"', '"redacted_thinking"')
"""The types of those that do not."""
_THINKING: Final = '"thinking"'
"""The type of those that end with a signature, and have no index."""
_NO_INDEX: Final = ""


class _Entry:
    """An entry of a list, as far as it came."""

    __slots__ = ("fields", "texts")

    def __init__(self, entry: dict[str, Tree]) -> None:
        self.fields = entry
        self.texts: dict[str, list[str]] = {name: [text] for name in _GROWING if (text := _inside(entry.get(name)))}

    def goes_on_with(self, entry: dict[str, Tree]) -> bool:
        """Tell whether ``entry`` is more of this one. Some providers give all their blocks one index."""
        kind = entry.get("type")
        if self.fields.get("type") != kind or kind in _IN_ONE_PIECE:
            return False
        if kind == _THINKING:
            return not _inside(self.fields.get("signature"))
        return self.fields.get("id", "null") in ("null", entry.get("id", "null")) or entry.get("id", "null") == "null"

    def add(self, entry: dict[str, Tree]) -> None:
        """More of it."""
        for name in _GROWING:
            if text := _inside(entry.get(name)):
                self.texts.setdefault(name, []).append(text)
        merged(self.fields, entry)

    def written(self) -> str:
        """Its JSON."""
        return written({**self.fields, **{name: f'"{"".join(pieces)}"' for name, pieces in self.texts.items()}})


class OpaqueFields(SentBack):
    """The fields of one answer, as far as they came."""

    def __init__(self) -> None:
        super().__init__()
        self._texts: dict[str, list[str]] = {}
        self._lists: dict[str, list[_Entry | str]] = {}
        self._newest: dict[tuple[str, str], _Entry] = {}
        """The newest entry of each list with each index."""
        self._extra: Tree | None = None
        self._calls: dict[int, Tree] = {}

    def add(self, delta: Mapping[str, Any], text: Callable[[], str], parts: Parts, *, whole: bool) -> str:
        """Take in what a delta, or a message that came as a ``whole``, has of them; ``text`` is its JSON, of which
        ``parts`` may be taken apart. Answers the reasoning that it brings.

        Raises:
            ResponseTooLarge: they are larger than may be.
            ValueError: they are not what they should be.
        """
        thoughts = ""
        for name in TEXTS:
            if isinstance(piece := delta.get(name), str):
                self.grow(len(piece))
                self._texts.setdefault(name, []).append(piece)
                thoughts = thoughts or piece
        if not thoughts:
            thoughts = next((piece for name in _SHOWN if isinstance(piece := delta.get(name), str) and piece), "")
        lists: list[str] = []
        if not _RAW.isdisjoint(delta):
            lists = [name for name in (DETAILS, BLOCKS) if isinstance(delta.get(name), list | dict)]
        if not lists and delta.get(EXTRA) is None:
            return thoughts
        texts = members(text())
        for name in lists:
            self.grow(len(texts[name]))
            parts.admit(delta[name])
            values = delta[name] if isinstance(delta[name], list) else listed(delta[name])
            for value, entry in zip(values, entries(texts[name]), strict=True):
                if value is not None:
                    self._add_entry(name, entry if whole else tree(entry, value, parts))
        if delta.get(EXTRA) is not None:
            self._extra = self._added(self._extra, texts[EXTRA], delta[EXTRA], parts)
        return thoughts

    def add_to_call(self, index: int, call: Mapping[str, Any], text: str, parts: Parts) -> None:
        """Take in the fields that a part of the call at ``index`` has; ``text`` is the JSON of the part.

        Raises:
            ResponseTooLarge: all fields together are larger than may be.
        """
        parts.admit(call)
        self._calls[index] = self._added(self._calls.get(index), members(text)[EXTRA], call[EXTRA], parts)

    def _added(self, old: Tree | None, text: str, value: Any, parts: Parts) -> Tree:
        self.grow(len(text))
        new = tree(text, value, parts)
        return new if old is None else merged(old, new)

    def _add_entry(self, name: str, entry: Tree) -> None:
        """An entry of the list ``name``, or more of the newest one with its index."""
        came = self._lists.setdefault(name, [])
        if isinstance(entry, str):
            came.append(entry)
            return
        index = entry.get("index", _NO_INDEX if name == BLOCKS else None)
        known = self._newest.get((name, index)) if isinstance(index, str) else None
        if known is not None and known.goes_on_with(entry):
            known.add(entry)
            return
        came.append(begun := _Entry(entry))
        if isinstance(index, str):
            self._newest[name, index] = begun

    def so_far(self) -> str:
        """The thoughts of an answer that was cut off: text, of which a part is worth something. Empty if there is
        nothing, or more than may be kept."""
        fields = {name: redact("".join(pieces)) for name, pieces in self._texts.items()}
        return as_stored(fields, cut=True) if fields else ""

    def whole(self, call_ids: Mapping[int, str], provider_ids: Mapping[int, str] = MappingProxyType({})) -> str:
        """All of it as JSON, without secrets of this process: text like any other text, while what may be signed is
        left out rather than changed. ``provider_ids`` are those of calls that the provider gave and that the log has
        otherwise. Empty if there is nothing.

        Raises:
            ResponseTooLarge: it is larger than may be.
        """
        fields: dict[str, Any] = {name: redact("".join(pieces)) for name, pieces in self._texts.items()}
        for name, came in self._lists.items():
            texts = (entry if isinstance(entry, str) else entry.written() for entry in came)
            fields[name] = unchanged(f"[{','.join(texts)}]")
        if self._extra is not None:
            fields[EXTRA] = unchanged(written(self._extra))
        calls: dict[str, dict[str, Any]] = {call_ids[index]: {ID: name} for index, name in provider_ids.items()}
        for index, gathered in self._calls.items():
            if index in call_ids and (extra := unchanged(written(gathered))) is not None:
                calls.setdefault(call_ids[index], {})[EXTRA] = extra
        if calls:
            fields[CALLS] = calls
        fields = {name: value for name, value in fields.items() if value is not None}
        return as_stored(fields) if fields else ""


def restored(fields: str) -> tuple[dict[str, orjson.Fragment], dict[str, dict[str, Any]]]:
    """Read what ``OpaqueFields.whole`` wrote: the fields of the message, and those of each of its calls by id. What
    cannot be read is left out."""
    message_fields = _members(fields)
    calls = _members(message_fields.pop(CALLS, "{}"))
    return _fragments(message_fields), {call_id: _of_call(call_fields) for call_id, call_fields in calls.items()}


def _of_call(text: str) -> dict[str, Any]:
    fields = _members(text)
    provider_id: Any = value_of(fields.pop(ID, "null"))
    return _fragments(fields) | ({ID: provider_id} if isinstance(provider_id, str) else {})


def _members(text: str) -> dict[str, str]:
    try:
        return members(text)
    except ValueError:
        log.warning("what a provider wants back unchanged cannot be read and is left out")
        return {}


def _fragments(fields: Mapping[str, str]) -> dict[str, orjson.Fragment]:
    return {name: orjson.Fragment(value) for name, value in fields.items() if value_of(value) is not None}


def _inside(text: Tree | None) -> str:
    """Return the text in a JSON string, as it is written."""
    return text[1:-1] if isinstance(text, str) and text.startswith('"') else ""
