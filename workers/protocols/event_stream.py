"""What the readers of all protocols do alike: an event stream, cut anywhere, becomes text, reasoning and calls."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from palaver.errors import MalformedResponse, TruncatedStream
from palaver.schemas.models import Usage
from palaver.secrets.redaction import hide
from palaver.vocabulary.limits import most

from .bounds import too_large
from .calls import Calls
from .lines import Lines

_TEXT: Final = most("answer_text")
_LONGEST_NAME: Final = 512
"""Characters of what a provider calls an answer: proxies put names of their own around it."""


class EventStreamReader:
    """Puts an answer together. ``feed`` it the bytes of a stream as they come; ask for the ``reply`` at the end.

    Any split of the bytes gives the same reply. A protocol says what an event means to it: ``_event``.
    """

    def __init__(self, *, max_calls: int = most("tool_calls")) -> None:
        self._lines = Lines()
        self._content: list[str] = []
        self._length = 0
        """Characters of the text."""
        self._thoughts: list[str] = []
        """Of the bytes that are being read."""
        self._calls = Calls(max_calls)
        self._finish = ""
        """Why the answer ended, as the protocol says it."""
        self._id = self._model = ""
        """What the provider calls the answer, and the model that gives it."""
        self.done = False
        """The provider has said that this was all."""
        self._anything = False
        """An event was read."""
        self._foreign = False
        """There was something that is no event stream."""
        self.usage = Usage(model_calls=1)
        self.uncounted = False
        """The answer is whole, and the provider did not say what it took."""

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

    def _event(self, payload: bytes) -> str:
        """Take in the data of an event; answers its text."""
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

    def _take_in_the_rest(self) -> None:
        """What stands behind the last line feed."""
        if self._lines.waiting:
            self.feed(b"\n")

    def _cut_off(self, why: str) -> TruncatedStream | MalformedResponse:
        """What is wrong with a stream that has no end: it is cut off, or it never was one."""
        return _something_else() if self._foreign and not self._anything else TruncatedStream(why)


def _name(name: Any) -> str:
    """Empty for what is none, or has a secret of this process in it."""
    return name if isinstance(name, str) and len(name) <= _LONGEST_NAME and hide(name) == name else ""


def _something_else() -> MalformedResponse:
    return MalformedResponse("the provider answered something else than an event stream")
