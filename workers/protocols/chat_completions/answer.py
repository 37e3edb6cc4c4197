"""Reads an OpenAI-compatible answer, streamed or not, without doing any I/O: bytes in, deltas and a reply out."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any, Final

import orjson

from palaver.errors import EmptyCompletion, ProviderError, ProviderHTTPError
from palaver.vocabulary.limits import limit_of

from ..bounds import Parts, tokens, too_large
from ..calls import text_of
from ..event_stream import EventStreamReader
from ..port import WITHHELD, ModelReply
from ..verbatim import elements, members
from .opaque import EXTRA, OpaqueFields

_CHOICES: Final = limit_of("answer_choices")
_FINISHES: Final = {
    **dict.fromkeys(("length", "max_tokens", "model_length"), "length"),
    **dict.fromkeys(("content_filter", "refusal", "safety", "sensitive"), WITHHELD),
    **dict.fromkeys(("error", "network_error", "insufficient_system_resource"), "error"),
}
"""Finish reasons of providers, with the port's name for the same end; any other is an ordinary end."""
_PLAIN: Final = frozenset(("role", "content", "refusal", "tool_calls"))
"""Fields that most deltas have, none of which is to be sent back unchanged."""


class Completion(EventStreamReader):
    """An answer of chunks."""

    def __init__(self, *, max_calls: int = limit_of("tool_calls")) -> None:
        super().__init__(max_calls=max_calls)
        self._opaque = OpaqueFields()
        self._error_follows = False
        self._refused = False
        self._answered = False
        """There was text of an answer, and of a refusal."""

    def _other(self, line: bytes) -> None:
        """A line that is no data: of an event stream, or of something else."""
        if line.startswith(b"event:"):
            self._error_follows = line[6:].strip() == b"error"
        elif line.startswith(b"error:"):  # llama.cpp
            raise ProviderHTTPError(200, line[6:])
        super()._other(line)

    def _event(self, payload: bytes) -> str:
        """Take in a chunk; answers its text."""
        if payload == b"[DONE]":
            self.done = True
        elif payload and self._error_follows:
            raise ProviderHTTPError(200, payload)
        return super()._event(payload)

    def _take_in(self, event: dict[str, Any], payload: bytes) -> str:
        """Take in a chunk, as the base says."""
        if not self._id:
            self._identify(event)
        if event.get("usage"):
            self._count(event["usage"])
        text = ""
        for place, choice in enumerate(_few(event.get("choices") or ())):
            if choice.get("index", 0) == 0:
                if choice.get("delta"):
                    text += self._delta(event, payload, place)
                if finish := choice.get("finish_reason"):
                    self._finish = text_of(finish)
                if usage := choice.get("usage"):  # Kimi
                    self._count(usage)
        return text

    def _delta(self, document: dict[str, Any], payload: bytes, place: int, *, whole: bool = False) -> str:
        """Take in a delta, or a whole message, of the choice at ``place`` of ``document``, whose JSON is ``payload``;
        answers its text."""
        delta = document["choices"][place]["message" if whole else "delta"]
        if not _PLAIN.issuperset(delta):
            parts = Parts()
            text = partial(_text_of_choice, document, payload, place, parts, whole=whole)
            if thoughts := self._opaque.add(delta, text, parts, whole=whole):
                self._thoughts.append(thoughts)
        if calls := delta.get("tool_calls"):
            indexes = self._add_calls(calls, whole=whole)
            if any(call.get(EXTRA) is not None for call in calls):
                parts = Parts()
                texts = elements(members(_text_of_choice(document, payload, place, parts, whole=whole))["tool_calls"])
                for index, call, raw in zip(indexes, calls, texts, strict=True):
                    if call.get(EXTRA) is not None:
                        self._opaque.add_to_call(index, call, raw, parts)
        content = delta.get("content") or delta.get("refusal")
        self._refused |= bool(delta.get("refusal"))
        self._answered |= bool(delta.get("content"))
        if isinstance(content, list):
            content = self._chunks(content)
        piece = text_of(content)
        return self._say(piece) if piece else ""

    def _chunks(self, content: list[Any]) -> str:
        """The text of content that is a list of chunks, as Mistral's models that think write it."""
        texts, parts = [], Parts()
        parts.admit(content)
        for chunk in content:
            if chunk.get("type") == "thinking":
                parts.admit(chunk["thinking"])
                self._thoughts += [text_of(part.get("text")) for part in chunk["thinking"]]
            else:
                texts.append(text_of(chunk.get("text")))
        return "".join(texts)

    def _add_calls(self, parts: Sequence[Any], *, whole: bool) -> list[int]:
        """Parts of calls; each is a call of its own if they are ``whole``. Answers the index of each."""
        self._calls.admit(len(parts))
        indexes = []
        for part in parts:
            function = part.get("function") or {}
            index = None if whole else part.get("index")
            name, arguments = function.get("name"), function.get("arguments")
            if isinstance(arguments, dict):  # Ollama's own way, which some servers in front of it keep
                arguments = orjson.dumps(arguments).decode()
            indexes.append(self._calls.add(index, identity=part.get("id"), name=name, arguments=arguments))
        return indexes

    def _take_in_whole(self, document: dict[str, Any], body: bytes) -> str:
        """Take in a chat completion, as the base says."""
        if document.get("error"):
            raise ProviderHTTPError(200, body)
        self._identify(document)
        if document.get("usage"):
            self._count(document["usage"])
        for choice in _few(document.get("choices") or ())[:1]:
            self._finish = text_of(choice.get("finish_reason")) or "stop"
            return self._delta(document, body, 0, whole=True)
        return ""

    def _count(self, usage: dict[str, Any]) -> None:
        prompt = tokens(usage.get("prompt_tokens"))
        details, parts = usage.get("prompt_tokens_details") or {}, usage.get("completion_tokens_details") or {}
        # Gemini and xAI count reasoning beside the completion, and in the total.
        written = max(tokens(usage.get("completion_tokens")), tokens(usage.get("total_tokens")) - prompt)
        # Kimi and DeepSeek have counts of their caches of their own.
        cached = details.get("cached_tokens") or usage.get("cached_tokens") or usage.get("prompt_cache_hit_tokens")
        self._count_tokens(
            prompt=prompt,
            cached=tokens(cached),
            cache_write=tokens(details.get("cache_write_tokens")),
            output=written,
            reasoning=tokens(parts.get("reasoning_tokens")),
        )

    def opaque_so_far(self) -> str:
        """Return the fields that the provider wants back with an answer that was cut off; empty for none."""
        return self._opaque.so_far()

    def _ended(self) -> ModelReply:
        """The reply, as the base says."""
        if not self._finish and not (self.done and (self._content or self._calls)):
            if self.done and (self._anything or not self._foreign):
                raise EmptyCompletion
            raise self._cut_off("the stream ended without a finish reason")
        finish = _FINISHES.get(self._finish.lower(), self._finish)
        if self._refused and not self._answered and not self._calls and finish != "error":
            finish = WITHHELD  # OpenAI says "stop" of it
        if finish == "error":
            raise ProviderError("the model broke off with an error")
        calls = self._calls.whole()
        opaque = self._opaque.whole({index: call.id for index, call in calls.items()}, self._calls.provider_ids())
        may_be_empty = finish in (WITHHELD, "length")
        return self._reply(finish or "stop", calls, opaque, announced=finish == "tool_calls", may_be_empty=may_be_empty)


def _text_of_choice(document: dict[str, Any], payload: bytes, place: int, parts: Parts, *, whole: bool) -> str:
    """The JSON of a delta, or of a message, as it came."""
    choice, name = document["choices"][place], "message" if whole else "delta"
    for value in (document, choice, choice[name]):
        parts.admit(value)
    return members(elements(members(payload)["choices"])[place])[name]


def _few(choices: Sequence[Any]) -> Sequence[Any]:
    """Raises ResponseTooLarge if they are more than anybody asks for."""
    if len(choices) > _CHOICES:
        raise too_large("answer_choices", "the answer has", "choices")
    return choices
