"""The port that every model protocol implements: what a request is made of, and what reads an answer.

A protocol does no I/O. It makes bytes from messages and reads bytes into a reply; ``workers.models.model`` carries
both.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, Protocol

from palaver.incoming.lenient_json import joined, joined_json
from palaver.late import dataclass
from palaver.schemas.models import AgentSpec, Message, ToolCall, Usage
from palaver.schemas.protocols import ProtocolName, Thinking

LEFT_OUT: Final = "[{} left out: the provider refused it]"
"""The words in place of an image or a file; its kind, or its name, goes in."""
PAUSE: Final = "pause"
"""The finish reason of an answer that its provider goes on with if it gets back what came."""
WITHHELD: Final = "content_filter"
"""That of an answer, or the rest of one, that the provider's policy or the model refuses."""


@dataclass(frozen=True, slots=True)
class ModelReply:
    """A model's answer."""

    content: str
    tool_calls: tuple[ToolCall, ...]
    finish_reason: str
    """``length``, ``WITHHELD`` and ``PAUSE`` whatever the protocol calls them; any other is an ordinary end."""
    usage: Usage
    opaque: str = ""
    """The fields that the provider wants back unchanged: JSON of an object that the protocol alone understands; empty
    for none."""
    response_id: str = ""
    response_model: str = ""
    """The provider's names for the answer, and for the model that gave it; empty if it does not say."""
    explanation: str = ""
    """Why it was withheld, in the provider's words; empty if that is not said apart from the answer."""
    request_id: str | None = None
    """The provider's name for the request, of an answer that it withheld."""

    def in_whole_characters(self) -> ModelReply:
        """It without halves of characters, of an answer whose JSON was mended."""
        calls = (
            call.model_copy(update={"name": joined(call.name), "arguments": joined(call.arguments)})
            for call in self.tool_calls
        )
        return ModelReply(
            joined(self.content),
            tuple(calls),
            joined(self.finish_reason),
            self.usage,
            joined_json(self.opaque),
            joined(self.response_id),
            joined(self.response_model),
            joined(self.explanation),
            self.request_id,
        )


@dataclass(frozen=True, slots=True)
class Offer:
    """A tool that the model may ask for."""

    name: str
    description: str
    parameters: Mapping[str, Any]
    """A JSON schema."""


@dataclass(frozen=True, slots=True)
class CallSettings:
    """The settings of a call, from the provider's entry."""

    cache: bool = False
    """True to set prompt-cache breakpoints."""
    thinking: Thinking | None = None
    max_output_tokens: int | None = None
    """The limit for an agent that sets none of its own."""
    max_completion_tokens: bool = False
    """True if a request has that limit under this name."""


class AnswerReader(Protocol):
    """Reads one answer: bytes in, text, reasoning and a reply out. Any split of the bytes gives the same reply.

    Everything it takes in is bounded while it is read. Each method raises the ``ProviderError`` that says what is wrong
    with the answer.
    """

    done: bool
    """The provider has said that this was all."""
    usage: Usage
    """The usage that the provider has reported so far; also of an answer that is cut off."""
    uncounted: bool
    """The answer is whole, and the provider did not say what it took."""

    @property
    def waiting(self) -> int:
        """Bytes of a stream that are read with what follows them: the beginning of an event."""

    @property
    def oddities(self) -> str:
        """The oddities of an answer that was read all the same: places and kinds, and nothing of its content. Empty for
        none."""

    def feed(self, data: bytes) -> tuple[str, str]:
        """Take in bytes of a stream; answers the text that they bring, and what of the model's reasoning people can
        read."""

    def end(self) -> tuple[str, str]:
        """The stream is over. Answers as ``feed`` what was waiting for more."""

    def read(self, body: bytes) -> str:
        """Take in a whole answer that was not streamed; answers its text."""

    def opaque_so_far(self) -> str:
        """Return the fields that the provider wants back with an answer that was cut off; empty for none."""

    def reply(self) -> ModelReply:
        """The whole answer, without secrets of this process."""


class ModelProtocol(Protocol):
    """A way of speaking to models. It keeps no state: one object serves all providers that speak it.

    Its row in ``palaver.schemas.protocols`` says which options and which content it carries, so that the API refuses
    the rest at submit. What comes nevertheless, from a conversation that began in another protocol, is told to the
    model in words.
    """

    name: ProtocolName
    """The ``protocol`` of a provider."""
    path: str
    """The path of requests, behind a provider's ``base_url``."""

    def headers(self, api_key: str | None) -> Mapping[str, str]:
        """The headers of a request that are the protocol's own, with the provider's key."""

    def message(self, message: Message, opaque: str = "") -> bytes:
        """A message without calls, as JSON of the protocol; ``opaque`` is what its provider wants back with it."""

    def turn(self, asking: Message, results: Sequence[Message], opaque: str = "", *, place: int = 0) -> Sequence[bytes]:
        """A message with calls and its results, which are in call order; ``opaque`` as with ``message``. No other turn
        of the conversation has its ``place``: providers repeat the ids of calls."""

    def plain(self, text: bytes) -> bytes:
        """Return what ``message`` or ``turn`` wrote, without the part of it that is ``opaque``."""

    def in_words(self, text: bytes) -> bytes:
        """Return what ``message`` or ``turn`` wrote, with words in place of its images and files."""

    def parsed(self, text: bytes) -> Sequence[Message]:
        """Return what ``message`` or ``turn`` wrote, as far as words can tell it: to summarise it."""

    def body(
        self, agent: AgentSpec, messages: Sequence[bytes], offers: Sequence[Offer], settings: CallSettings
    ) -> bytes:
        """A request, put together from messages that are JSON already."""

    def reader(self, *, max_calls: int) -> AnswerReader:
        """A reader for one answer, which may have so many tool calls."""
