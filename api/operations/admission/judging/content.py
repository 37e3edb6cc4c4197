"""Parts of messages, images and files above all: a part that a model's protocol has no place for is refused here, and
never left out."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from palaver.errors import FieldError
from palaver.schemas.content import FilePart, ImagePart, Part
from palaver.schemas.json_pointers import pointer
from palaver.schemas.models import Message

from ..lookup import has_parts
from ..tree import AgentModels


def part_faults(input: str | Sequence[Message], models: AgentModels) -> Iterator[FieldError]:
    """Yield a fault for each part of ``input`` that one of the models cannot be sent."""
    if isinstance(input, str) or not has_parts(input):
        return
    blind = next((model for model in models.all if not model.provider.fetches), None)
    for index, message in enumerate(input):
        for place, part in enumerate(() if isinstance(message.content, str) else message.content):
            for model in models.of_each_protocol:
                if what := model.protocol.lacks(message.role, part):
                    why = f"{what} cannot be sent to {model.name}: its provider speaks {model.protocol.name}"
                    yield _unsupported(index, place, why)
            if blind is not None and _is_fetched(part):
                why = f"cannot be sent by its address to {blind.name}, whose provider is to fetch none"
                yield _unsupported(index, place, f"{why}: send a data: URL")


def _is_fetched(part: Part) -> bool:
    return isinstance(part, ImagePart | FilePart) and not part.inline


def _unsupported(index: int, place: int, why: str) -> FieldError:
    return FieldError(pointer(("input", index, "content", place)), "unsupported_content", why)
