"""The conversation as a model sees it, derived from the log and from nothing else.

The log is append-only, so what was derived from its beginning stays right: a worker keeps conversations that it is
about to go on with (`conversation_cache`) as ready-made JSON, and a claim brings only what the log has beyond that.
"""

from __future__ import annotations

import pickle
import sys
from array import array
from collections.abc import Iterable, Sequence
from copy import copy
from typing import Final, Self

from palaver.late import dataclass
from palaver.schemas.models import Message
from palaver.schemas.stuck_limits import MAX_TURNS
from palaver.steps.leases import LogMessage
from palaver.steps.stuck import Turn
from palaver.steps.verdicts import Condensed, ReasoningDropped

from ..protocols import ModelProtocol

_OBJECT_BYTES: Final = 400
"""Memory of a conversation without messages, about."""
_MESSAGE_BYTES: Final = 24
"""Memory of a message beside its text, about: its places in two lists, and what an allocation is rounded by."""
_TURN_BYTES: Final = 250
"""Memory of a turn's digest, about."""
_NO_RESULT: Final = "No result was recorded."
_SUMMARY: Final = (
    "[Automatic note] This is a summary of the earlier part of the conversation, which is left out here:\n\n"
)


@dataclass(frozen=True, slots=True)
class OlderPart:
    """The part of a conversation that a summary is to stand for."""

    messages: Sequence[bytes]
    through: int
    """The log position that it reaches."""
    weight: int
    """Bytes that go away: neither an earlier summary nor what is kept in any case is counted."""


class CachedConversation:
    """Messages in the form of a protocol, each already JSON, up to a position of the log.

    Whole turns: a message with calls is here once all their answers are, and they follow it in call order, whatever
    order they came in. A few objects however long it is: the garbage collector looks into each that there is.
    """

    __slots__ = (
        "_answers",
        "_asking",
        "_bound",
        "_ends",
        "_messages",
        "_model",
        "_run_id",
        "_size",
        "_turn_end",
        "_turn_opaque",
        "_turns",
        "_user",
        "answered",
        "condensed",
        "corrected",
        "nudged",
        "position",
        "position_at",
        "prompt_tokens",
        "protocol",
    )

    def __init__(self, protocol: ModelProtocol, model: str = "") -> None:
        self.protocol = protocol
        self._model = model
        self._bound = False
        """True if there is something that only the model that made it may be sent."""
        self.position = 0
        self.position_at = 0
        """Time at which the entry there was written, ms: after a rewind of Redis another one has its position."""
        self.nudged = False
        """True if the model was told that the newest turns repeat themselves."""
        self.corrected = False
        """True if the model was told that an answer since the user's newest message is not what was asked for."""
        self.answered = 0
        """The position of the model's newest answer."""
        self.prompt_tokens = 0
        """Input tokens of the newest call; 0 when unknown, or when it was condensed since."""
        self.condensed = False
        """True if it was condensed, and the model has not answered since."""
        self._messages: list[bytes] = []
        self._ends = array("q")
        """For each message: the position of the last entry of its turn; 0 for a summary."""
        self._size = 0
        self._user = -1
        """The index of the newest message of the user's own."""
        self._asking: Message | None = None
        """A message whose calls lack answers, and those that came."""
        self._answers: dict[str, Message] = {}
        self._turn_end = 0
        self._turn_opaque = ""
        self._run_id = ""
        self._turns: list[Turn] = []

    @property
    def origin(self) -> str:
        """The protocol and the name of the model that is asked: what another one made is left out as far as only that
        understands it."""
        return f"{self.protocol.name}/{self._model}"

    def turn_to(self, protocol: ModelProtocol, model: str) -> bool:
        """Switch to this model. Returns whether that is possible without reading the log again."""
        if protocol is not self.protocol or (self._bound and model != self._model):
            return False
        self._model = model
        return True

    def extend(self, entries: Iterable[LogMessage], position: int, position_at: int = 0) -> None:
        """Take in what the log has beyond this position; what is known already changes nothing."""
        for entry in entries:
            if entry.position > self.position:
                self._add(entry)
        if position >= self.position:
            self.position, self.position_at = position, position_at

    def messages(self) -> list[bytes]:
        """The messages so far."""
        return self._messages

    def turns(self, run_id: str) -> Sequence[Turn]:
        """The turns of this run since the user's newest message, oldest first: the last ``MAX_TURNS``."""
        return self._turns if run_id == self._run_id else ()

    @property
    def size(self) -> int:
        """Bytes of memory, about."""
        return _OBJECT_BYTES + self._size + _TURN_BYTES * len(self._turns)

    def packed(self) -> bytes:
        """All of it but the protocol, as one object, which the garbage collector does not look into."""
        return pickle.dumps([getattr(self, name) for name in _PACKED], protocol=pickle.HIGHEST_PROTOCOL)

    @classmethod
    def unpacked(cls, packed: bytes, protocol: ModelProtocol) -> Self:
        """The conversation that this process has packed."""
        conversation = cls(protocol)
        for name, value in zip(_PACKED, pickle.loads(packed), strict=True):
            setattr(conversation, name, value)
        return conversation

    def having(self, condensed: Condensed) -> CachedConversation:
        """This conversation as it will be once ``condensed`` is in the log."""
        other = copy(self)
        other._messages, other._ends = self._messages.copy(), self._ends[:]
        other._condense(condensed.summary, condensed.through)
        return other

    def dropping(self, dropped: ReasoningDropped) -> CachedConversation:
        """This conversation as it will be once ``dropped`` is in the log."""
        other = copy(self)
        other._messages, other._ends = self._messages.copy(), self._ends[:]
        other._drop(dropped.origin)
        return other

    def leaving_out(self, after: int) -> CachedConversation:
        """This conversation with words in place of all images and files behind the position ``after`` of the log."""
        other = copy(self)
        other._messages, other._ends = self._messages.copy(), self._ends[:]
        other._leave_out(after)
        return other

    def older_part(self, most_messages: int = sys.maxsize) -> OlderPart | None:
        """Return the part to condense: everything but the newest whole turns, a quarter of the bytes and at
        most ``most_messages`` messages.

        The user's newest message is kept in any case. None if nothing would go away.
        """
        cut, room = len(self._messages), sum(map(len, self._messages)) // 4
        while cut:
            start = cut - 1
            while start and self._ends[start - 1] == self._ends[start]:
                start -= 1
            room -= sum(map(len, self._messages[start:cut]))
            if room < 0 or len(self._messages) - start > most_messages:
                break
            cut = start
        weights = [len(text) for text in self._messages[:cut]]
        if weights and not self._ends[0]:
            weights[0] = 0
        if 0 <= self._user < cut:
            weights[self._user] = 0
        return OlderPart(self._messages[:cut], max(self._ends[:cut]), sum(weights)) if sum(weights) else None

    def _add(self, entry: LogMessage) -> None:
        message = entry.message
        if entry.run_id != self._run_id:
            self._begin(entry.run_id)
        if entry.drops:
            self._drop(entry.drops)
            return
        if message.role == "tool":
            self._answer(message, entry.position)
            return
        self.prompt_tokens = entry.prompt_tokens or self.prompt_tokens
        opaque = self._opaque(entry)
        if message.role == "assistant":
            self.condensed, self.answered = False, entry.position
            if not message.content and not message.tool_calls and (message.partial or not opaque):
                return
        self._seal()
        if entry.through:
            self._condense(message.text, entry.through)
        elif message.tool_calls:
            self._asking, self._turn_opaque, self._turn_end = message, opaque, entry.position
        else:
            if entry.left_out_after is not None:
                self._leave_out(entry.left_out_after)
            self._append(self.protocol.message(message, opaque), entry.position)
            self.nudged = self.nudged or entry.nudge
            self.corrected = self.corrected or entry.misfit
            if message.role == "user" and not entry.nudge:
                self._begin(entry.run_id)
                self._user = len(self._messages) - 1

    def _opaque(self, entry: LogMessage) -> str:
        """Return the fields of the entry that the model that is asked wants back with it."""
        if entry.opaque is None:
            return ""
        self._bound = True
        return entry.opaque.fields if entry.opaque.origin == self.origin else ""

    def _begin(self, run_id: str) -> None:
        self._run_id, self._turns, self.nudged, self.corrected = run_id, [], False, False

    def _answer(self, message: Message, position: int) -> None:
        """An answer to none of the open calls, or a second one, is left out."""
        if self._asking is None or message.call_id in self._answers:
            return
        if any(call.id == message.call_id for call in self._asking.tool_calls):
            self._answers[str(message.call_id)] = message
            self._turn_end = position
            if len(self._answers) == len(self._asking.tool_calls):
                self._close()

    def _seal(self) -> None:
        """The store seals every turn, so this finds nothing; one lost answer must not cost the conversation."""
        if self._asking is not None:
            for call in self._asking.tool_calls:
                lost = Message(role="tool", call_id=call.id, name=call.name, content=_NO_RESULT, is_error=True)
                self._answers.setdefault(call.id, lost)
            self._close()

    def _close(self) -> None:
        """The turn is whole."""
        assert self._asking is not None  # only an open turn is closed
        calls = self._asking.tool_calls
        results = [self._answers[call.id] for call in calls]
        for text in self.protocol.turn(self._asking, results, self._turn_opaque, place=self._turn_end):
            self._append(text, self._turn_end)
        turn = Turn.of(calls, self._answers)
        if not self._turns or self._turns[-1].digest != turn.digest:
            self.nudged = False
        self._turns = [*self._turns[1 - MAX_TURNS :], turn]
        self._asking, self._answers = None, {}

    def _append(self, text: bytes, end: int) -> None:
        # A copy: what orjson returns holds on to the 4 KiB that it was written into, thirty times its length.
        self._messages.append(bytes(memoryview(text)))
        self._ends.append(end)
        self._size += sys.getsizeof(text) + _MESSAGE_BYTES

    def _condense(self, summary: str, through: int) -> None:
        """Put ``summary`` in place of the turns that end at or before ``through``; the user's newest message stays."""
        staying = [i for i, end in enumerate(self._ends) if end > through or i == self._user]
        turns = [(self._messages[i], self._ends[i]) for i in staying]
        self._user = staying.index(self._user) + 1 if self._user >= 0 else -1
        self._messages, self._ends, self._size = [], array("q"), 0
        summarised = self.protocol.message(Message(role="user", content=_SUMMARY + summary))
        for text, end in [(summarised, 0), *turns]:
            self._append(text, end)
        self.prompt_tokens, self.condensed = 0, True

    def _drop(self, origin: str) -> None:
        """Leave out what only ``origin`` understands, if that is who is asked: no other origin was sent it anyway."""
        if origin == self.origin:
            self._rewrite([self.protocol.plain(text) for text in self._messages])

    def _leave_out(self, after: int) -> None:
        turns = zip(self._messages, self._ends, strict=True)
        self._rewrite([self.protocol.in_words(text) if end > after else text for text, end in turns])

    def _rewrite(self, messages: Sequence[bytes]) -> None:
        ends = self._ends
        self._messages, self._ends, self._size = [], array("q"), 0
        for text, end in zip(messages, ends, strict=True):
            self._append(text, end)


_PACKED: Final = tuple(name for name in CachedConversation.__slots__ if name != "protocol")
