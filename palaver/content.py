"""What a message says: a text, or parts of which text is one kind.

Text alone is a string, on the wire and in the log: that is what nearly all messages are, and it costs nothing more.
Parts are for what is not text alone. So one part that is text becomes its string, and every list that is left is meant.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated, Any, Final, Literal

from pydantic import AfterValidator, Field, StringConstraints, TypeAdapter

from palaver.fields import AtMost, Strict

Url = Annotated[str, StringConstraints(pattern=r"^(https?://|data:)[^\s\x00-\x1f]+$")]
"""Fetched by the provider, never by us; or the data itself."""


class TextPart(Strict):
    """Text among other parts."""

    type: Literal["text"]
    text: str


class _Media(Strict):
    url: Url

    @property
    def inline(self) -> bool:
        """Whether the data are here, and no address from which they come."""
        return self.url.startswith("data:")


class ImagePart(_Media):
    """An image for the model to look at."""

    type: Literal["image"]


class FilePart(_Media):
    """A document for the model to read."""

    type: Literal["file"]
    name: str | None = None


class ReasoningPart(Strict):
    """What a model thought before it answered, as far as it says."""

    type: Literal["reasoning"]
    text: str


Part = Annotated[TextPart | ImagePart | FilePart | ReasoningPart, Field(discriminator="type")]
Parts = Annotated[tuple[Part, ...], AtMost("message_parts")]


def _plain(content: str | tuple[Part, ...]) -> str | tuple[Part, ...]:
    if isinstance(content, tuple):
        match content:
            case ():
                return ""
            case (TextPart(text=text),):
                return text
    return content


Content = Annotated[str | Parts, AfterValidator(_plain)]
_PARTS: Final[TypeAdapter[tuple[Part, ...]]] = TypeAdapter(Parts)


def parts_from(listed: Iterable[Any]) -> tuple[Part, ...]:
    """Parts from JSON."""
    return _PARTS.validate_python(tuple(listed))


def text_of(content: str | tuple[Part, ...]) -> str:
    """What of it is text; an image or a file is named by its kind."""
    if isinstance(content, str):
        return content
    return "\n".join(part.text if isinstance(part, TextPart | ReasoningPart) else f"[{part.type}]" for part in content)
