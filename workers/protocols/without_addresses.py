"""A protocol for a provider that is sent no addresses: it would fetch them from within a network of one's own.

At submit such content is refused. This is for what a conversation has of it from when another provider was asked, and
for results of tools.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from palaver.schemas.content import FilePart, ImagePart, Part, TextPart, text_of
from palaver.schemas.models import AgentSpec, Message

from .port import AnswerReader, CallSettings, ModelProtocol, Offer

_LEFT_OUT: Final = "[Automatic note] {} was left out here: this model is sent no addresses."


class WithoutAddresses:
    """Speaks ``protocol``, with a note in place of each image and file that is an address."""

    def __init__(self, protocol: ModelProtocol) -> None:
        self._protocol = protocol
        self.name = protocol.name
        self.path = protocol.path

    def headers(self, api_key: str | None) -> Mapping[str, str]:
        """Return the headers of the protocol."""
        return self._protocol.headers(api_key)

    def message(self, message: Message, opaque: str = "") -> bytes:
        """The message without addresses."""
        return self._protocol.message(_noted(message), opaque)

    def turn(self, asking: Message, results: Sequence[Message], opaque: str = "", *, place: int = 0) -> Sequence[bytes]:
        """The calls, and the results without addresses."""
        return self._protocol.turn(asking, [_noted(result) for result in results], opaque, place=place)

    def plain(self, text: bytes) -> bytes:
        """As the protocol does it."""
        return self._protocol.plain(text)

    def in_words(self, text: bytes) -> bytes:
        """As the protocol does it."""
        return self._protocol.in_words(text)

    def parsed(self, text: bytes) -> Sequence[Message]:
        """As the protocol does it."""
        return self._protocol.parsed(text)

    def body(
        self, agent: AgentSpec, messages: Sequence[bytes], offers: Sequence[Offer], settings: CallSettings
    ) -> bytes:
        """As the protocol does it."""
        return self._protocol.body(agent, messages, offers, settings)

    def reader(self, *, max_calls: int) -> AnswerReader:
        """The protocol's."""
        return self._protocol.reader(max_calls=max_calls)


def _noted(message: Message) -> Message:
    if isinstance(message.content, str):
        return message
    parts = tuple(_note(part) if _is_address(part) else part for part in message.content)
    return message if parts == message.content else message.model_copy(update={"content": parts})


def _is_address(part: Part) -> bool:
    return isinstance(part, ImagePart | FilePart) and not part.inline


def _note(part: Part) -> TextPart:
    return TextPart(type="text", text=_LEFT_OUT.format(text_of((part,))))
