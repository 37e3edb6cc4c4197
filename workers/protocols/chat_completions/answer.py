"""Reads an OpenAI-compatible answer, streamed or not, without doing any I/O: bytes in, deltas and a reply out."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any, Final

import orjson

from palaver.errors import EmptyCompletion, EmptyTurn, ProviderHTTPError
from palaver.vocabulary.limits import limit_of

from ..answer_reader import EventStreamReader
from ..bounds import Parts, too_large
from ..calls import as_text
from ..ends import end_of, is_error, require_no_error
from ..port import WITHHELD, ModelReply
from ..verbatim import entries, members
from .opaque import EXTRA, OpaqueFields

_CHOICES: Final = limit_of("answer_choices")
_CALLED: Final = ("tool_calls", "function_call")
"""Finish reasons that say that there are calls."""
_PLAIN: Final = frozenset(("role", "content", "refusal", "tool_calls"))
"""Fields that most deltas have, none of which is to be sent back unchanged."""


class Completion(EventStreamReader):
    """An answer of chunks."""

    def __init__(self, *, max_calls: int = limit_of("tool_calls")) -> None:
        super().__init__(max_calls=max_calls)
        self._opaque = OpaqueFields()
        self._refused = False
        self._chosen = False
        """A choice began, if only an empty one."""
        self._answered = False
        """There was text of an answer, and of a refusal."""
        self._messages = False
        """Chunks have messages in place of deltas."""

    def _close(self) -> None:
        """The protocol's own end."""
        self.done = True

    def _take_in(self, event: dict[str, Any], payload: bytes, name: bytes) -> str:
        """Take in a chunk, as the base says."""
        if not self._id:
            self._identify(event)
        if usage := event.get("usage"):
            self._count(usage)
        choices = event.get("choices")
        if type(choices) is list and len(choices) == 1:
            choice = choices[0]
            if type(choice) is dict and not choice.get("index"):
                return self._choice(choice, event, payload, 0)
        choices = self._odd.entries(choices, "choices")
        if not choices:
            if inner := self._odd.inner(event, payload, "choices"):
                return self._event(inner, name)
            require_no_error(event, payload)
        text = ""
        for place, choice in enumerate(_few(choices)):
            if type(choice) is not dict:
                self._odd.note("a choice is no object")
            elif not (index := choice.get("index")) or not self._odd.index(index, "the index of a choice"):
                text += self._choice(choice, event, payload, place)
        return text

    def _choice(self, choice: dict[str, Any], event: dict[str, Any], payload: bytes, place: int) -> str:
        """Take in the choice at ``place`` of a chunk; answers its text."""
        self._chosen, text = True, ""
        if delta := choice.get("delta"):
            text = self._delta(delta, (event, choice), payload, place)
        elif (message := choice.get("message")) and (self._messages or not (self._content or self._calls)):
            text = self._delta(self._unsaid(message), (event, choice), payload, place, whole=True)
        elif message is None and (said := choice.get("text")):  # of the older completions
            text = self._delta({"content": said}, (event, choice), payload, place)
        if finish := choice.get("finish_reason"):
            if (error := choice.get("error")) and is_error(error):  # OpenRouter
                raise ProviderHTTPError(200, orjson.dumps({"error": error}))
            self._finish = self._odd.text(finish, "finish_reason") or self._finish
        if usage := choice.get("usage"):  # Kimi
            self._count(usage)
        return text

    def _unsaid(self, message: Any) -> Any:
        """What of a message is new: the first is all of the answer, most times. Of others, text is more of it, or has
        what came before once more."""
        if not self._messages or not isinstance(message, dict):
            self._messages = True
            return message
        content = message.get("content")
        if isinstance(content, str) and len(content) >= self._length:
            content = content.removeprefix("".join(self._content))
        return {"content": content} | ({} if self._calls else {"tool_calls": message.get("tool_calls")})

    def _delta(self, delta: Any, around: Sequence[Any], payload: bytes, place: int, *, whole: bool = False) -> str:
        """Take in a delta, or a whole message, of the choice at ``place`` of a document whose JSON is ``payload``;
        ``around`` are both. Answers its text."""
        if type(delta) is not dict:
            place_name = "message" if whole else "delta"
            delta = {"content": delta} if type(delta) is str else self._odd.fields(delta, place_name)
        calls = delta.get("tool_calls")
        if not _PLAIN.issuperset(delta):
            parts = Parts()
            raw = partial(_text_of_choice, (*around, delta), payload, place, parts, whole=whole)
            if thoughts := self._opaque.add(delta, raw, parts, whole=whole):
                self._thoughts.append(thoughts)
            if not calls and (call := delta.get("function_call")):  # as it was before there were several
                calls = [{"index": 0, "function": call}]
        if calls:
            listed = self._odd.entries(calls, "tool_calls")
            indexes, more = self._add_calls(listed, whole=whole)
            if more:
                parts = Parts()
                parts.admit(calls)
                raw_delta = _text_of_choice((*around, delta), payload, place, parts, whole=whole)
                self._add_extra(indexes, listed, raw_delta, parts)
        if content := delta.get("content"):
            self._answered = True
        elif content := delta.get("refusal"):
            self._refused = True
        else:
            return ""
        if type(content) is not str:
            if isinstance(content, dict | list):
                content = self._chunks(self._odd.entries(content, "content"))
            else:
                content = self._odd.text(content, "content")
        return self._say(content) if content else ""

    def _chunks(self, content: list[Any]) -> str:
        """The text of content that is a list of chunks, as Mistral's models that think write it."""
        texts, parts = [], Parts()
        parts.admit(content)
        for chunk in content:
            if isinstance(chunk, str):
                texts.append(chunk)
                continue
            chunk = self._odd.fields(chunk, "a part of content")
            if chunk.get("type") in ("thinking", "reasoning"):
                thinking = chunk.get("thinking") or chunk.get("reasoning") or chunk.get("text")
                parts.admit(thinking)
                if isinstance(thinking, str):
                    self._thoughts.append(thinking)
                    continue
                for part in self._odd.entries(thinking, "thinking"):
                    part = self._odd.fields(part, "a part of thinking")
                    self._thoughts.append(self._odd.text(part.get("text"), "the text of a part of thinking"))
            else:
                texts.append(self._odd.text(chunk.get("text"), "the text of a part of content"))
        return "".join(texts)

    def _add_extra(self, indexes: Sequence[int | None], calls: Sequence[Any], delta: str, parts: Parts) -> None:
        """Take in the fields of calls that are sent back as they came; ``delta`` is the JSON around them."""
        for index, call, raw in zip(indexes, calls, entries(members(delta)["tool_calls"]), strict=True):
            if index is not None and call.get(EXTRA) is not None:
                self._opaque.add_to_call(index, call, raw, parts)

    def _add_calls(self, parts: Sequence[Any], *, whole: bool) -> tuple[list[int | None], bool]:
        """Parts of calls; each is a call of its own if they are ``whole``. Answers the index of each, and whether any
        has fields that are sent back."""
        self._calls.admit(len(parts))
        odd = self._odd
        indexes: list[int | None] = []
        more = False
        for part in parts:
            if type(part) is not dict:
                odd.note("a tool call is no object")
                indexes.append(None)
                continue
            more = more or EXTRA in part
            function = part.get("function")
            if type(function) is not dict:
                function = part if function is None else odd.fields(function, "the function of a tool call")
            index, identity = part.get("index"), part.get("id")
            name, arguments = function.get("name"), function.get("arguments")
            if whole:
                index = self._calls.next
            elif index is not None and type(index) is not int:
                index = odd.index(index, "the index of a tool call")
            if type(arguments) is not str:
                arguments = as_text(function.get("parameters") if arguments is None else arguments)
            if identity is None and name is None:
                indexes.append(self._calls.add(index, arguments=arguments))
                continue
            identity = str(identity) if type(identity) is int else odd.text(identity, "the id of a tool call")
            name = odd.text(name, "the name of a tool call")
            indexes.append(self._calls.add(index, identity=identity, name=name, arguments=arguments))
        return indexes, more

    def _take_in_whole(self, document: dict[str, Any], body: bytes) -> str:
        """Take in a chat completion, as the base says."""
        if (error := document.get("error")) and is_error(error):
            raise ProviderHTTPError(200, body)
        self._identify(document)
        if document.get("usage"):
            self._count(document["usage"])
        for place, choice in enumerate(_few(self._odd.entries(document.get("choices"), "choices"))):
            if isinstance(choice, dict):
                text = self._choice(choice, document, body, place)
                self._finish = self._finish or "stop"
                return text
            self._odd.note("a choice is no object")
        if inner := self._odd.inner(document, body, "choices"):
            return self._take_in_whole(orjson.loads(inner), inner)
        require_no_error(document, body)
        return ""

    def _count(self, counts: Any) -> None:
        odd = self._odd
        usage = odd.fields(counts, "usage")
        if not usage:
            return
        details = odd.fields(usage.get("prompt_tokens_details"), "prompt_tokens_details")
        parts = odd.fields(usage.get("completion_tokens_details"), "completion_tokens_details")
        prompt, completion, total = (
            odd.count(usage.get(name), name) for name in ("prompt_tokens", "completion_tokens", "total_tokens")
        )
        # Kimi and DeepSeek have counts of their caches of their own.
        cached = details.get("cached_tokens") or usage.get("cached_tokens") or usage.get("prompt_cache_hit_tokens")
        self._count_tokens(
            prompt=prompt,
            cached=odd.count(cached, "cached_tokens"),
            cache_write=odd.count(details.get("cache_write_tokens"), "cache_write_tokens"),
            # Gemini and xAI count reasoning beside the completion, and in the total.
            output=max(completion, total - prompt),
            reasoning=odd.count(parts.get("reasoning_tokens"), "reasoning_tokens"),
        )

    def _kept_so_far(self) -> str:
        """Return the fields that the provider wants back with an answer that was cut off; empty for none."""
        return self._opaque.so_far()

    def _ended(self) -> ModelReply:
        """The reply, as the base says."""
        if not self._finish and not (self.done and (self._content or self._calls)):
            if self.done and (self._anything or not self._events.foreign):
                raise EmptyTurn if self._chosen else EmptyCompletion
            raise self._cut_off("the stream ended without a finish reason")
        finish = end_of(self._finish)
        if self._refused and not self._answered and not self._calls:
            finish = WITHHELD  # OpenAI says "stop" of it
        calls = self._calls.whole()
        opaque = self._opaque.whole({index: call.id for index, call in calls.items()}, self._calls.provider_ids())
        may_be_empty = finish in (WITHHELD, "length")
        return self._reply(finish or "stop", calls, opaque, announced=finish in _CALLED, may_be_empty=may_be_empty)


def _text_of_choice(around: Sequence[Any], payload: bytes, place: int, parts: Parts, *, whole: bool) -> str:
    """The JSON of a delta, or of a message, as it came, with the objects ``around`` it."""
    for value in around:
        parts.admit(value)
    return members(entries(members(payload)["choices"])[place])["message" if whole else "delta"]


def _few(choices: Sequence[Any]) -> Sequence[Any]:
    """Raises ResponseTooLarge if they are more than anybody asks for."""
    if len(choices) > _CHOICES:
        raise too_large("answer_choices", "the answer has", "choices")
    return choices
