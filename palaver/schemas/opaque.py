"""Opaque parts of a message: its provider wants them back unchanged. They are its reasoning, and what it signed.

They go back to where they came from and nowhere else. The log stores them beside the message's own data and not in it:
events are made of that data, so that no watcher of a run is shown what a provider hides.
"""

from __future__ import annotations

import json
from typing import Any, Self

from palaver.late import dataclass
from palaver.schemas.protocols import PROTOCOL_RULES


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
        """Return the part of it that people can read, as the protocol has it that it came in."""
        protocol = self.origin.partition("/")[0]
        speaking = (rules for name, rules in PROTOCOL_RULES.items() if name == protocol)
        return "".join(rules.reasoning(self._read()) for rules in speaking)

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
