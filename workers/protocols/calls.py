"""The tool calls of an answer, put together from their parts and limited while they come."""

from __future__ import annotations

import hashlib
import re
from collections import Counter
from itertools import count, pairwise
from typing import Any, Final

import orjson

from palaver.errors import ToolCallTooLarge, TooManyToolCalls
from palaver.schemas.models import ToolCall
from palaver.secrets.redaction import redact
from palaver.vocabulary.ids import safe_call_id
from palaver.vocabulary.limits import count_exceeded, limit_of

_LONGEST_ID: Final = 128
"""Characters of an id that is kept for its provider."""
_LONGEST_ELSEWHERE: Final = 64
"""Characters of an id that providers take of one another."""
_NONE: Final = ("", "{}", "null")
"""Arguments that say nothing."""
_BEFORE: Final = ("{}{", "null{")
_LOOKS: Final = 64
"""Times that one looks whether the arguments of a call are whole."""
_NOT_IN_IDS: Final = re.compile(r"[^A-Za-z0-9_-]")


class _Gathered:
    """One call, as far as it came."""

    __slots__ = ("argued", "arguments", "given", "id", "looked", "name", "provider_id", "said_id")

    def __init__(self) -> None:
        self.id = self.provider_id = self.said_id = ""
        """As it can name a step, as the provider gave it, and as it is compared with others."""
        self.name = ""
        self.arguments: list[str] = []
        self.given = ""
        """All arguments, as they came at once; those that come in pieces take their place."""
        self.argued = 0
        """Characters of the arguments."""
        self.looked = 0
        """How often their end was looked for."""

    def says_again(self, name: str, arguments: str) -> bool:
        """Tell whether a part with them repeats what came."""
        if name != self.name or not name:
            return False
        return not arguments or (len(arguments) == self.argued and arguments == "".join(self.arguments))

    def came(self) -> str:
        """The arguments that came in pieces. If each piece has all before it once more, and they are no JSON together,
        the last one is all of them."""
        together = "".join(self.arguments)
        if len(self.arguments) > 1 and all(after.startswith(piece) for piece, after in pairwise(self.arguments)):
            last = self.arguments[-1]
            return last if _is_object(last) and not _is_object(together) else together
        return together

    def is_whole(self) -> bool:
        """Tell whether the arguments are JSON: then no more of them can follow. Looks a bounded number of times."""
        if not self.arguments or not self.arguments[-1].rstrip().endswith("}") or self.looked == _LOOKS:
            return False
        self.looked += 1
        try:
            orjson.loads("".join(self.arguments))
        except ValueError:
            return False
        return True


class Calls:
    """The calls of one answer, of which there may be ``limit``. What is beyond a limit is not kept."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._calls: dict[int, _Gathered] = {}
        self._moved: dict[int, int] = {}
        """The place of the newest call, by an index that several calls came with."""
        self.next = 0
        """A place behind all calls."""
        self.length = 0
        """Characters of all arguments."""

    def __len__(self) -> int:
        return len(self._calls)

    def admit(self, number: int) -> None:
        """Raises TooManyToolCalls if so many parts that came together are more than may be."""
        if number > self._limit:
            raise self._too_many()

    def add(
        self, index: int | None, *, identity: str = "", name: str = "", arguments: str = "", given: str = ""
    ) -> int | None:
        """More of the call at ``index``; answers its place, None if there is nothing of a call. Without an index, what
        has the same id belongs together. What is said again is not said twice. ``given`` are all arguments, unless
        pieces of them follow, or came and are whole.

        Raises:
            TooManyToolCalls: there are more than may be.
            ToolCallTooLarge: the name or the arguments are longer than may be.
        """
        if index is not None and arguments and not (identity or name):
            known = self._moved.get(index, index)
            if (call := self._calls.get(known)) is not None:
                self._bound(call, arguments)
                call.arguments.append(arguments)
                return known
        said_id = identity[:_LONGEST_ID]
        place = self._place(index, said_id, name, arguments)
        if place is None:
            return None
        call = self._calls.get(place)
        if call is None:
            if not (identity or name or arguments or given):
                return place
            if len(self._calls) >= self._limit:
                raise self._too_many()
            call = self._calls[place] = _Gathered()
            self.next = max(self.next, place + 1)
        if identity and not call.said_id:
            call.said_id = said_id
            call.provider_id = identity if len(identity) <= _LONGEST_ID else ""
            call.id = call.provider_id if safe_call_id(call.provider_id) else ""
        again = call.says_again(name, arguments)
        if name and name != call.name and not (call.name and call.arguments):
            self._name(call, name)
        if given and not call.is_whole():
            self._forget(call)
            self._bound(call, given)
            call.given = given
        if arguments and not (again and call.is_whole()):
            self._bound(call, arguments)
            call.arguments.append(arguments)
        return place

    def is_whole(self, place: int) -> bool:
        """Tell whether the arguments of the call at ``place`` are JSON, or none."""
        call = self._calls[place]
        return bool(call.given) or not call.arguments or _is_object(call.came())

    def _place(self, index: int | None, said_id: str, name: str, arguments: str) -> int | None:
        """Return the place of the call that a part with this ``index`` belongs to. Some servers send no index, or the
        same for all."""
        if index is None:
            return self._place_without_index(said_id, name, arguments)
        place = self._moved.get(index, index)
        call = self._calls.get(place)
        if call is None and said_id and arguments:  # Some count the parts.
            same = next((known for known, each in self._calls.items() if each.said_id == said_id), None)
            if same is not None and name in ("", self._calls[same].name) and not self._calls[same].is_whole():
                place = self._moved[index] = same
        elif call is not None and name and _is_another(call, said_id, name, arguments):
            place = self._moved[index] = self.next
        return place

    def _place_without_index(self, said_id: str, name: str, arguments: str) -> int | None:
        if said_id:
            places = (place for place, call in reversed(self._calls.items()) if call.said_id == said_id)
            place = next(places, self.next)
            call = self._calls.get(place)
            return self.next if call is not None and name and _is_another(call, said_id, name, arguments) else place
        newest = self._calls.get(self.next - 1)
        if newest is not None and arguments:
            if not name:
                return self.next - 1
            if name == newest.name and not newest.said_id and not newest.is_whole():
                return self.next - 1
        return self.next if name or arguments else None

    def _name(self, call: _Gathered, text: str) -> None:
        if len(call.name) + len(text) > limit_of("tool_name"):
            count_exceeded("tool_name")
            raise ToolCallTooLarge(
                f"the name of a tool that is called has more than {limit_of('tool_name')} characters"
            )
        call.name += text

    def _forget(self, call: _Gathered) -> None:
        """The arguments of the call come anew."""
        self.length -= call.argued
        call.arguments, call.argued = [], 0

    def _bound(self, call: _Gathered, text: str) -> None:
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
            arguments = redact(as_meant(call.came()) or as_meant(call.given))
            calls[index] = ToolCall(id=call_id, name=redact(call.name.strip()), arguments=arguments or "{}")
        return calls


def as_text(arguments: Any) -> str:
    """Arguments, or a piece of them, as text: Ollama's own way is an object, which some servers in front of it keep."""
    return arguments if type(arguments) is str else "" if arguments is None else orjson.dumps(arguments).decode()


def as_meant(arguments: str) -> str:
    """Arguments without what servers put around them: an empty object before the pieces, all of it said again behind
    them, or a text whose content is the JSON."""
    text = arguments.strip()
    if text in _NONE:
        return ""
    if text.startswith(_BEFORE):
        text = text[text.index("{", 1) :]
    half = len(text) // 2
    try:
        if text.startswith('"') and isinstance(inner := orjson.loads(text), str) and inner.lstrip().startswith("{"):
            return inner
        if text.startswith("{") and text[:half] == text[half:]:
            orjson.loads(text[:half])
            return text[:half]
    except ValueError:
        return arguments
    return text if text.startswith("{") else arguments


def _is_object(text: str) -> bool:
    try:
        return isinstance(orjson.loads(text), dict)
    except ValueError:
        return False


def id_elsewhere(call_id: str, place: int) -> str:
    """The id of a call for a provider that did not make it, which no other call of the conversation has: most make them
    for one answer, whose turn has its ``place``. The same each time."""
    end = f"_{place}"
    readable = _NOT_IN_IDS.sub("_", call_id)
    if readable != call_id or len(call_id) + len(end) > _LONGEST_ELSEWHERE:
        end = f"_{hashlib.sha256(call_id.encode()).hexdigest()[:8]}{end}"
    return readable[: _LONGEST_ELSEWHERE - len(end)] + end


def _is_another(call: _Gathered, said_id: str, name: str, arguments: str) -> bool:
    """Tell whether a part with a name begins another call than ``call``, which has the same index or id."""
    if said_id and call.said_id not in ("", said_id):
        return True
    if said_id and name == call.name and call.argued == len("{}"):  # stands for what follows
        return False
    return bool(call.name) and not call.says_again(name, arguments) and call.is_whole()
