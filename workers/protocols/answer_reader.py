"""The common part of the readers of all protocols: an event stream, cut anywhere, or one document becomes text,
reasoning, calls, and the reply that they are together.

What is odd about an answer and clear all the same is read as it is meant, and said (`oddities`). Only what cannot be
known makes it no answer.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import compress
from typing import Any, ClassVar, Final

import orjson

from palaver.errors import EmptyCompletion, EmptyTurn, MalformedResponse, ProviderHTTPError, TruncatedStream
from palaver.incoming.event_stream import EventParser, EventTooLong
from palaver.incoming.lenient_json import Halves, joined_json, mended
from palaver.schemas.models import ToolCall, Usage
from palaver.secrets.redaction import redact
from palaver.vocabulary.limits import limit_of

from .bounds import SMALL, Parts, check_stored, name_of, parsed, too_large, used
from .calls import Calls
from .ends import Ends, is_error
from .oddities import Oddities
from .port import ModelReply
from .verbatim import apart, elements

_TEXT: Final = limit_of("answer_text")
_LINE: Final = limit_of("answer_line")
_END: Final = b"\n\n"
_UNKNOWN: Final = Usage(model_calls=1)
_ODD_JSON: Final = "an event is JSON only after it was mended: a character is cut in two, or a number is none"
_MISSHAPEN: Final = (ValueError, TypeError, AttributeError, KeyError)
"""Exceptions from taking apart JSON of an unforeseen shape."""


class EventStreamReader:
    """Puts an answer together. ``feed`` it the bytes of a stream as they come; ask for the ``reply`` at the end.

    Any split of the bytes gives the same reply. A protocol says what an event means to it (``_take_in``), and an answer
    that is one document (``_take_in_whole``); and how what was taken in ends (``_ended``).
    """

    _ECHOES: ClassVar[tuple[bytes, ...]] = ()
    """The beginnings of events that repeat the request and say nothing else: large ones are not looked at."""

    def __init__(self, *, max_calls: int = limit_of("tool_calls")) -> None:
        self._events = EventParser(_LINE)
        self._content: list[str] = []
        self._length = 0
        """Characters of the text."""
        self._thoughts: list[str] = []
        """Reasoning in the bytes that are being read."""
        self._calls = Calls(max_calls)
        self._finish = ""
        """Why the answer ended, as the protocol says it."""
        self._id = self._model = ""
        """The provider's names for the answer, and for the model that gives it."""
        self.done = False
        """The provider has said that this was all."""
        self._closed = False
        """A proxy has said so, in its own way."""
        self._anything = False
        """An event was read."""
        self._mended = False
        """An event was mended: there may be halves of characters."""
        self._said, self._thought = Halves(), Halves()
        """The text and the reasoning of such an answer."""
        self._odd = Oddities()
        self.usage = _UNKNOWN
        self._counted = False
        self.uncounted = False
        """The answer is whole, and the provider did not say what it took."""

    @property
    def waiting(self) -> int:
        """Bytes of the stream that are read with what follows them: the beginning of an event."""
        return self._events.waiting

    @property
    def oddities(self) -> str:
        """The oddities of the answer in words, without anything of its content; empty if there are none."""
        return str(self._odd)

    def feed(self, data: bytes) -> tuple[str, str]:
        """Take in bytes of the stream; answers the text and the reasoning that they bring.

        The work is linear in what comes, however it is cut, and what is beyond a limit is not kept.

        Raises:
            MalformedResponse: a part of it cannot be known.
            ResponseTooLarge: the text, an event, or what is to be kept is longer than may be.
            TooManyToolCalls, ToolCallTooLarge: so are its calls.
            ProviderHTTPError: the provider reported an error in the stream.
        """
        texts = []
        try:
            for payload, name, _ in self._events.feed(data):
                if self.done:
                    break
                if text := self._event(payload, name):
                    texts.append(text)
        except EventTooLong:
            raise too_large("answer_line", "an event of the stream has", "bytes") from None
        if not self._thoughts:
            return "".join(texts), ""
        thoughts, self._thoughts = "".join(self._thoughts), []
        return "".join(texts), self._thought.add(thoughts) if self._mended else thoughts

    def end(self) -> tuple[str, str]:
        """The stream is over. Answers as ``feed``, and raises as it does, but for an event that is cut off."""
        text, thoughts = "", ""
        if self._events.waiting and not self.done:
            try:
                text, thoughts = self.feed(_END)
            except MalformedResponse:
                self._odd.note("the last event is cut off")
        if self._mended:
            text, thoughts = text + self._say(self._said.end(), whole=True), thoughts + self._thought.end()
        return text, thoughts

    def read(self, body: bytes) -> str:
        """Take in a whole answer that was not streamed; answers its text.

        Raises:
            MalformedResponse: it is no answer of this protocol.
            ResponseTooLarge, TooManyToolCalls, ToolCallTooLarge: something of it is longer than may be.
            ProviderHTTPError: it is an error.
        """
        try:
            document = parsed(body)
        except ValueError:
            try:
                document = parsed(body := mended(body))
            except ValueError:
                if b"\n" not in body.strip():
                    raise MalformedResponse("the answer is no JSON") from None
                # A document for each event, a line each.
                return self.feed(body + _END)[0]
            self._mend()
        try:
            if isinstance(document, list):
                text = self._event(body, b"")
                self._close()
                return text
            self._anything = self.done = True
            return self._take_in_whole(self._odd.fields(document, "the answer"), body)
        except _MISSHAPEN as error:
            raise MalformedResponse("the answer has a shape that is not known") from error

    def opaque_so_far(self) -> str:
        """Return the fields that the provider wants back with an answer that was cut off; empty for none."""
        kept = self._kept_so_far()
        return joined_json(kept) if self._mended else kept

    def _kept_so_far(self) -> str:
        raise NotImplementedError

    def reply(self) -> ModelReply:
        """The whole answer, without secrets of this process.

        Raises:
            TruncatedStream: the stream ended before the model did.
            EmptyCompletion: it has neither text nor calls; an EmptyTurn if the model says that its turn is over.
            MalformedResponse: it is no answer, or contradicts itself.
            ResponseTooLarge: it would be too large as JSON.
            ProviderError: the model, or its provider, broke off and says so.
        """
        self.end()
        reply = self._ended()
        return reply.in_whole_characters() if self._mended else reply

    def _event(self, payload: bytes, name: bytes) -> str:
        """Take in the data of an event with this name, if it has one; answers its text."""
        try:
            if len(payload) <= SMALL:
                event = orjson.loads(payload)
            elif payload.startswith(self._ECHOES):
                return ""
            else:
                event = parsed(payload)
        except ValueError:
            return self._take_in_odd(payload, name)
        if type(event) is not dict:
            if isinstance(event, str):  # the JSON of the event
                return self._event(event.encode(), name)
            if isinstance(event, list) and any(objects := [isinstance(each, dict) for each in event]):
                Parts().admit(event)
                return "".join(self._event(raw.encode(), name) for raw in compress(elements(payload), objects))
            self._events.foreign = True
            self._odd.note("an event is no object")
            return ""
        if name == b"error" or ((error := event.get("error")) and is_error(error)):
            raise ProviderHTTPError(200, payload)
        self._anything = True
        try:
            return self._take_in(event, payload, name)
        except _MISSHAPEN as error:
            raise MalformedResponse("an event of the stream has a shape that is not known") from error

    def _take_in_odd(self, payload: bytes, name: bytes) -> str:
        """Take in what is no JSON, or only if it is mended; answers its text. Words say nothing; what was to be an
        object is lost, and what it had is not known."""
        word = payload.strip()
        if not word:
            return ""
        if word.strip(b"[]").upper() == b"DONE":
            self._close()
            return ""
        if name == b"error":
            raise ProviderHTTPError(200, payload)
        if not word.startswith(b"{"):
            self._events.foreign = True
            self._odd.note("an event is no JSON")
            return ""
        try:
            parsed(payload := mended(payload))
        except ValueError:
            if len(pieces := apart(payload)) > 1:
                Parts().admit(pieces)
                return "".join(self._event(piece, name) for piece in pieces)
            raise MalformedResponse("an event of the stream is no JSON: what it said cannot be known") from None
        self._mend()
        return self._event(payload, name)

    def _close(self) -> None:
        """The stream says that it is over: in most protocols a proxy does."""
        self._closed = True

    def _mend(self) -> None:
        self._mended = True
        self._odd.note(_ODD_JSON)

    def _take_in(self, event: dict[str, Any], payload: bytes, name: bytes) -> str:
        """Take in an event, whose JSON is ``payload``; answers its text. What is misshapen may raise what it does."""
        raise NotImplementedError

    def _take_in_whole(self, document: dict[str, Any], body: bytes) -> str:
        """Take in an answer, whose JSON is ``body``, as ``_take_in`` does an event."""
        raise NotImplementedError

    def _ended(self) -> ModelReply:
        """The reply, of what was taken in. Raises as ``reply``."""
        raise NotImplementedError

    def _say(self, text: str, *, whole: bool = False) -> str:
        """Text of the answer; returns what is known of it. A half of a character waits, unless it is ``whole``."""
        if self._mended and not whole:
            text = self._said.add(text)
        self._length += len(text)
        if self._length > _TEXT:
            raise too_large("answer_text", "the text of the answer has", "characters")
        self._content.append(text)
        return text

    def _identify(self, answer: Mapping[str, Any]) -> None:
        """Take in what the provider calls the answer, and the model that gives it, from where it says so."""
        self._id, self._model = name_of(answer.get("id")), name_of(answer.get("model"))

    def _count_tokens(self, **counts: int) -> None:
        """Take in what the provider counted, as `used` takes it."""
        self._counted, self.usage = True, used(**counts)

    def _whole_calls(self, parts: Mapping[int, Ends]) -> dict[int, ToolCall]:
        """The calls, of which each is one of these parts. Raises MalformedResponse if one has no end, or no name."""
        calls = self._calls.whole()
        for index, call in calls.items():
            if index not in parts or not parts[index].ended:
                self._odd.note("a tool call has no end")
                if not self._calls.is_whole(index):
                    raise MalformedResponse("a tool call of the answer has no end, and its arguments are not whole")
            if not call.name:
                raise MalformedResponse("a tool call of the answer has no name")
        return calls

    def _reply(
        self,
        finish: str,
        calls: Mapping[int, ToolCall],
        opaque: str,
        *,
        announced: bool = False,
        may_be_empty: bool = False,
        explanation: str = "",
    ) -> ModelReply:
        """The reply with all text that came. ``announced``: it is to have calls. Raises as ``reply``."""
        content = redact("".join(self._content))
        if not content and not calls and not may_be_empty:
            raise EmptyCompletion if announced else EmptyTurn
        if announced and not calls:
            raise MalformedResponse("the answer announces tool calls and has none")
        made = tuple(calls.values())
        check_stored(self._length + self._calls.length, content, made)
        self.uncounted = not self._counted
        return ModelReply(content, made, finish, self.usage, opaque, self._id, self._model, explanation)

    def _cut_off(self, why: str) -> TruncatedStream | MalformedResponse:
        """Return the error of a stream that has no end: it is cut off, or it never was one."""
        if self._events.foreign and not self._anything:
            return MalformedResponse("the provider answered something else than an event stream")
        return TruncatedStream(why)
