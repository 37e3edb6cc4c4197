"""Opaque parts of a message: its provider wants them back unchanged. They are its reasoning, and what it signed.

They go back to where they came from and nowhere else. The log stores them beside the message's own data and not in it:
events are made of that data, so that nobody who watches a run is shown what a provider hides.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any, Final, Self

_TEXTS: Final = ("reasoning_content", "reasoning")
"""Fields of chat completions that are readable reasoning; one says what the other does."""
_BLOCKS: Final = (
    ("reasoning_details", "text"),
    ("reasoning_details", "summary"),
    ("thinking_blocks", "thinking"),
    ("blocks", "thinking"),
)
"""Fields that are lists of blocks, among other things, and what of a block is."""


@dataclass(frozen=True, slots=True)
class Opaque:
    """Fields of a message that only their origin understands."""

    origin: str
    """The model that made them: ``protocol/provider/model``."""
    fields: str
    """JSON text of an object, in which the order of keys and the digits of numbers are as they came."""

    @property
    def stored(self) -> str:
        """As the log has it."""
        return f"{self.origin}\n{self.fields}"

    @classmethod
    def from_stored(cls, text: bytes) -> Self:
        """Read what ``stored`` wrote."""
        origin, _, fields = text.decode().partition("\n")
        return cls(origin, fields)

    def reasoning(self) -> str:
        """Return the part that people can read: it is stored once, and looked up by the names that protocols have for
        it."""
        fields = self._read()
        for name in _TEXTS:
            if fields.get(name):
                return str(fields[name])
        if items := _objects(fields.get("items")):
            return "\n\n".join(_summary(item) for item in items if _summary(item))
        blocks = ((block, name) for field, name in _BLOCKS for block in _objects(fields.get(field)))
        return "".join(str(block.get(name) or "") for block, name in blocks)

    def shown(self) -> dict[str, Any]:
        """The JSON values, as the API shows them to clients that ask; whole numbers of any length stay whole. Without
        fields if they cannot be read."""
        return {"origin": self.origin, "fields": self._read()}

    def _read(self) -> dict[str, Any]:
        """The fields; none if they are no JSON that can be read: a message is shown without them."""
        try:
            fields = json.loads(self.fields)
        except (ValueError, RecursionError):
            return {}
        return fields if isinstance(fields, dict) else {}


def _summary(item: dict[str, Any]) -> str:
    """Return the summary of the model's thoughts in an item of Responses."""
    return "\n\n".join(str(part.get("text") or "") for part in _objects(item.get("summary") or item.get("content")))


def _objects(value: Any) -> list[dict[str, Any]]:
    """The objects of a list; none if it is no list."""
    return [item for item in value if isinstance(item, dict)] if isinstance(value, list) else []
