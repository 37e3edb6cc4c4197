"""What a message says, in OpenHands' words and in ours."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, Literal

from pydantic import Field

from palaver.schemas.content import ImagePart, Part, TextPart
from palaver.schemas.models import Message

from .fields import Known, refusing


class TextContent(Known):
    """Text. Whether it is to be cached is the provider's setting here."""

    type: Literal["text"] = "text"
    text: str


class ImageContent(Known):
    """Images, each by its address."""

    type: Literal["image"]
    image_urls: list[str]


GivenContent = str | list[Annotated[TextContent | ImageContent, Field(discriminator="type")]]


def user_message(content: GivenContent) -> Message:
    """What a user says.

    Raises:
        Refused: what of it cannot be taken.
    """
    if isinstance(content, str):
        return Message(role="user", content=content)
    parts: list[Part] = []
    with refusing("/content"):
        for each in content:
            if isinstance(each, TextContent):
                parts.append(TextPart(type="text", text=each.text))
            else:
                parts += [ImagePart(type="image", url=url) for url in each.image_urls]
        return Message(role="user", content=tuple(parts))


def shown(content: str | Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """The content of a message in the log, as an event has it."""
    return [_text(content)] if isinstance(content, str) else [_part(part) for part in content]


def _part(part: dict[str, Any]) -> dict[str, Any]:
    match part:
        case {"type": "image", "url": url}:
            return {"type": "image", "image_urls": [url]}
        case {"type": "file"}:
            # OpenHands has no place for files in a message.
            return _text(f"[file {part.get('name') or 'without a name'}]")
        case _:
            return _text(str(part.get("text", "")))


def _text(text: str) -> dict[str, Any]:
    return {"type": "text", "text": text}
