"""The tool calls of an answer, put together from their parts and limited while they come."""

from __future__ import annotations

import hashlib
import re
from collections import Counter
from itertools import count
from typing import Any, Final

from palaver.errors import ToolCallTooLarge, TooManyToolCalls
from palaver.schemas.models import ToolCall
from palaver.secrets.redaction import redact
from palaver.vocabulary.ids import safe_call_id
from palaver.vocabulary.limits import count_exceeded, limit_of

_LONGEST_ID: Final = 128
"""Characters of an id that is kept for its provider."""
_LONGEST_ELSEWHERE: Final = 64
"""Characters of an id that providers take of one another."""
_NOT_IN_IDS: Final = re.compile(r"[^A-Za-z0-9_-]")


class _Gathered:
    """One call, as far as it came."""

    __slots__ = ("argued", "arguments", "id", "name", "named", "provider_id")

    def __init__(self) -> None:
        self.id = self.provider_id = ""
        """As it can name a step, and as the provider gave it."""
        self.name: list[str] = []
        self.arguments: list[str] = []
        self.named = self.argued = 0
        """Characters of the name and of the arguments."""


class Calls:
    """The calls of one answer, of which there may be ``limit``. What is beyond a limit is not kept."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._calls: dict[int, _Gathered] = {}
        self._moved: dict[int, int] = {}
        """The place of the newest call, by an index that several calls came with."""
        self._newest = -1
        """The last place of a call."""
        self.length = 0
        """Characters of all arguments."""

    def __len__(self) -> int:
        return len(self._calls)

    def admit(self, number: int) -> None:
        """Raises TooManyToolCalls if so many parts that came together are more than may be."""
        if number > self._limit:
            raise self._too_many()

    def add(self, index: Any, *, identity: Any = None, name: Any = None, arguments: Any = None) -> int:
        """More of the call at ``index``; None is a call of its own. Answers its index.

        Raises:
            TooManyToolCalls: there are more than may be.
            ToolCallTooLarge: the name or the arguments are longer than may be.
            TypeError: something is not of its kind.
        """
        if index is not None and type(index) is not int:
            raise TypeError("an index that is no whole number")
        place = self._place(index, text_of(identity), name, arguments)
        call = self._calls.get(place)
        if call is None:
            if len(self._calls) >= self._limit:
                raise self._too_many()
            call = self._calls[place] = _Gathered()
            self._newest = max(self._newest, place)
        if not call.provider_id and len(provider_id := text_of(identity)) <= _LONGEST_ID:
            call.provider_id = provider_id
            call.id = provider_id if safe_call_id(provider_id) else ""
        if name := text_of(name):
            self._name(call, name)
        if arguments := text_of(arguments):
            self._argue(call, arguments)
        return place

    def _place(self, index: int | None, identity: str, name: Any, arguments: Any) -> int:
        """Return the place of the call that a part with this ``index`` belongs to. Some servers send no index, or the
        same for all."""
        if index is None:
            goes_on = arguments and not identity and not name and self._calls
            return self._newest if goes_on else self._newest + 1
        place = self._moved.get(index, index)
        call = self._calls.get(place) if identity and name else None
        if call is not None and call.provider_id not in ("", identity):
            place = self._moved[index] = self._newest + 1
        return place

    def _name(self, call: _Gathered, text: str) -> None:
        call.named += len(text)
        if call.named > limit_of("tool_name"):
            count_exceeded("tool_name")
            raise ToolCallTooLarge(
                f"the name of a tool that is called has more than {limit_of('tool_name')} characters"
            )
        call.name.append(text)

    def _argue(self, call: _Gathered, text: str) -> None:
        call.argued += len(text)
        self.length += len(text)
        if call.argued > limit_of("tool_arguments"):
            count_exceeded("tool_arguments")
            raise ToolCallTooLarge(
                f"the arguments of a tool call have more than {limit_of('tool_arguments')} characters"
            )
        if self.length > limit_of("tool_arguments_together"):
            count_exceeded("tool_arguments_together")
            raise ToolCallTooLarge(
                f"the arguments of all tool calls have more than {limit_of('tool_arguments_together')} characters"
            )
        call.arguments.append(text)

    def _too_many(self) -> TooManyToolCalls:
        count_exceeded("tool_calls")
        return TooManyToolCalls(
            f"the answer has more than {self._limit} tool calls; max_tool_calls of the provider allows more"
        )

    def provider_ids(self) -> dict[int, str]:
        """The ids that their provider gave, where they cannot name a step and belong to one call alone."""
        ids = {index: call.provider_id for index, call in self._calls.items()}
        calls_of = Counter(ids.values())
        return {
            index: provider_id
            for index, provider_id in ids.items()
            if provider_id
            and not self._calls[index].id
            and calls_of[provider_id] == 1
            and redact(provider_id) == provider_id
        }

    def whole(self) -> dict[int, ToolCall]:
        """The calls by their indices, in their order, without secrets of this process; each with an id of its own that
        can name a step: some providers repeat ids, leave them out or make them long. One that is made here is legal
        everywhere: Mistral's have nine letters and digits."""
        calls: dict[int, ToolCall] = {}
        taken: set[str] = set()
        numbers = count()
        for index in sorted(self._calls):
            call = self._calls[index]
            call_id = call.id if redact(call.id) == call.id else ""
            while not call_id or call_id in taken:
                call_id = f"call{next(numbers):05d}"
            taken.add(call_id)
            name, arguments = redact("".join(call.name)), redact("".join(call.arguments))
            calls[index] = ToolCall(id=call_id, name=name, arguments=arguments or "{}")
        return calls


def id_elsewhere(call_id: str, place: int) -> str:
    """The id of a call for a provider that did not make it, which no other call of the conversation has: most make them
    for one answer, whose turn has its ``place``. The same each time."""
    end = f"_{place}"
    readable = _NOT_IN_IDS.sub("_", call_id)
    if readable != call_id or len(call_id) + len(end) > _LONGEST_ELSEWHERE:
        end = f"_{hashlib.sha256(call_id.encode()).hexdigest()[:8]}{end}"
    return readable[: _LONGEST_ELSEWHERE - len(end)] + end


def text_of(value: Any) -> str:
    """Text, or nothing. Raises TypeError for anything else."""
    if value is not None and not isinstance(value, str):
        raise TypeError(f"{type(value).__name__} in place of text")
    return value or ""
