"""The common part of the readers of all protocols: an event stream, cut anywhere, or one document becomes text,
reasoning, calls, and the reply that they are together."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, Protocol

from palaver.errors import EmptyCompletion, MalformedResponse, ProviderHTTPError, TruncatedStream
from palaver.schemas.models import ToolCall, Usage
from palaver.secrets.redaction import redact
from palaver.vocabulary.limits import limit_of

from .bounds import check_stored, parsed, too_large
from .calls import Calls
from .lines import Lines
from .port import ModelReply

_TEXT: Final = limit_of("answer_text")
_LONGEST_NAME: Final = 512
"""Characters of what a provider calls an answer: proxies put names of their own around it."""
_UNKNOWN: Final = Usage(model_calls=1)
_MISSHAPEN: Final = (ValueError, TypeError, AttributeError, KeyError)
"""Exceptions from taking apart JSON of another shape than the protocol's."""


class Ends(Protocol):
    """A part of an answer."""

    ended: bool
    """It is whole."""


class EventStreamReader:
    """Puts an answer together. ``feed`` it the bytes of a stream as they come; ask for the ``reply`` at the end.

    Any split of the bytes gives the same reply. A protocol says what an event means to it (``_take_in``), and an answer
    that is one document (``_take_in_whole``); and how what was taken in ends (``_ended``).
    """

    def __init__(self, *, max_calls: int = limit_of("tool_calls")) -> None:
        self._lines = Lines()
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
        self._anything = False
        """An event was read."""
        self._foreign = False
        """There was something that is no event stream."""
        self.usage = _UNKNOWN
        self._counted = False
        self.uncounted = False
        """The answer is whole, and the provider did not say what it took."""

    @property
    def waiting(self) -> int:
        """Bytes of the stream that are read with what follows them: the beginning of a line."""
        return self._lines.waiting

    def feed(self, data: bytes) -> tuple[str, str]:
        """Take in bytes of the stream; answers the text and the reasoning that they bring.

        The work is linear in what comes, however it is cut, and what is beyond a limit is not kept.

        Raises:
            MalformedResponse: it is no event stream of this protocol.
            ResponseTooLarge: the text, a line, or what is to be kept is longer than may be.
            TooManyToolCalls, ToolCallTooLarge: so are its calls.
            ProviderHTTPError: the provider reported an error in the stream.
        """
        texts = []
        for line in self._lines.split(data):
            if self.done:
                break
            if line.startswith(b"data:"):
                if text := self._event(line[5:].strip()):
                    texts.append(text)
            elif line.strip():
                self._other(line)
        if not self._thoughts:
            return "".join(texts), ""
        thoughts, self._thoughts = "".join(self._thoughts), []
        return "".join(texts), thoughts

    def read(self, body: bytes) -> str:
        """Take in a whole answer that was not streamed; answers its text.

        Raises:
            MalformedResponse: it is no answer of this protocol.
            ResponseTooLarge, TooManyToolCalls, ToolCallTooLarge: something of it is longer than may be.
            ProviderHTTPError: it is an error.
        """
        try:
            document = parsed(body)
            self._anything = self.done = True
            return self._take_in_whole(document, body)
        except _MISSHAPEN as error:
            raise MalformedResponse(f"the answer cannot be read: {type(error).__name__}") from error

    def opaque_so_far(self) -> str:
        """Return the fields that the provider wants back with an answer that was cut off; empty for none."""
        raise NotImplementedError

    def reply(self) -> ModelReply:
        """The whole answer, without secrets of this process.

        Raises:
            TruncatedStream: the stream ended before the model did.
            EmptyCompletion: it has neither text nor calls.
            MalformedResponse: it is no answer, or contradicts itself.
            ResponseTooLarge: it would be too large as JSON.
            ProviderError: the model, or its provider, broke off and says so.
        """
        # What stands behind the last line feed.
        if self.waiting:
            self.feed(b"\n")
        return self._ended()

    def _event(self, payload: bytes) -> str:
        """Take in the data of an event; answers its text. The name of an event stands in it, too."""
        if not payload or payload == b"[DONE]":  # of proxies, where a protocol has another end
            return ""
        try:
            event = parsed(payload)
            self._anything = True
            if event.get("error"):
                raise ProviderHTTPError(200, payload)
            return self._take_in(event, payload)
        except _MISSHAPEN as error:
            raise MalformedResponse(f"an event of the stream cannot be read: {type(error).__name__}") from error

    def _take_in(self, event: dict[str, Any], payload: bytes) -> str:
        """Take in an event, whose JSON is ``payload``; answers its text. What is misshapen may raise what it does."""
        raise NotImplementedError

    def _take_in_whole(self, document: dict[str, Any], body: bytes) -> str:
        """Take in an answer, whose JSON is ``body``, as ``_take_in`` does an event."""
        raise NotImplementedError

    def _ended(self) -> ModelReply:
        """The reply, of what was taken in. Raises as ``reply``."""
        raise NotImplementedError

    def _other(self, line: bytes) -> None:
        """A line that is no data: of an event stream, or of something else."""
        if line[:1] in (b"<", b"{"):
            raise _something_else()
        if not line.startswith((b"event:", b":", b"id:", b"retry:")):
            self._foreign = True

    def _say(self, text: str) -> str:
        """Text of the answer, which it returns."""
        self._length += len(text)
        if self._length > _TEXT:
            raise too_large("answer_text", "the text of the answer has", "characters")
        self._content.append(text)
        return text

    def _identify(self, answer: Mapping[str, Any]) -> None:
        """Take in what the provider calls the answer, and the model that gives it, from where it says so."""
        self._id, self._model = _name(answer.get("id")), _name(answer.get("model"))

    def _count_tokens(self, *, prompt: int, cached: int, cache_write: int, output: int, reasoning: int) -> None:
        """Take in what the provider counted; a part is no more than what it is a part of."""
        self._counted = True
        cached = min(prompt, cached)
        self.usage = Usage(
            model_calls=1,
            input_tokens=prompt,
            cached_tokens=cached,
            cache_write_tokens=min(prompt - cached, cache_write),
            output_tokens=output,
            reasoning_tokens=min(output, reasoning),
        )

    def _whole_calls(self, parts: Mapping[int, Ends]) -> dict[int, ToolCall]:
        """The calls, of which each is one of these parts. Raises MalformedResponse if one has no end."""
        calls = self._calls.whole()
        if not all(parts[index].ended for index in calls):
            raise MalformedResponse("a tool call of the answer has no end")
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
        """The reply with all text that came. ``announced``: it is to have calls.

        Raises EmptyCompletion, MalformedResponse and ResponseTooLarge as ``reply``.
        """
        content = redact("".join(self._content))
        if not content and not calls and not may_be_empty:
            raise EmptyCompletion
        if announced and not calls:
            raise MalformedResponse("the answer announces tool calls and has none")
        made = tuple(calls.values())
        check_stored(self._length + self._calls.length, content, made)
        self.uncounted = not self._counted
        return ModelReply(content, made, finish, self.usage, opaque, self._id, self._model, explanation)

    def _cut_off(self, why: str) -> TruncatedStream | MalformedResponse:
        """Return the error of a stream that has no end: it is cut off, or it never was one."""
        return _something_else() if self._foreign and not self._anything else TruncatedStream(why)


def _name(name: Any) -> str:
    """Empty for what is none, or has a secret of this process in it."""
    return name if isinstance(name, str) and len(name) <= _LONGEST_NAME and redact(name) == name else ""


def _something_else() -> MalformedResponse:
    return MalformedResponse("the provider answered something else than an event stream")
