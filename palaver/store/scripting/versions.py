"""The replies of scripts that keep something by its name in a version that a request may expect"""

from __future__ import annotations

from typing import Final, NamedTuple, TypeVar

from palaver.errors import PalaverError, StateConflict
from palaver.store.scripting.contracts.agents import Absent, OtherVersion, Removed, TenantErased, TooMany
from palaver.store.scripting.contracts.replies import RefusalCode
from palaver.store.scripting.refusals import refusal
from palaver.vocabulary.limits import count_exceeded

K = TypeVar("K")


class Versioned(NamedTuple):
    """A kind of things with a name and a version, as its refusals say it."""

    kind: str
    several: str
    """The limit of their number."""
    version: str
    changed: str
    """The code of a conflict: it has another version than was expected."""
    full: str

    def kept(self, reply: K | OtherVersion | TooMany | TenantErased) -> K:
        """Return the reply that says that it is kept. Raises StateConflict where it is not."""
        match reply:
            case OtherVersion() as other:
                raise self._conflict(other)
            case TooMany():
                count_exceeded(self.several)
                raise StateConflict(self.full, None, f"there are as many {self.several} as there may be")
            case TenantErased():
                raise refusal(RefusalCode.TENANT_ERASED, None)
            case kept:
                return kept

    def removed(self, reply: Removed | OtherVersion | Absent, unknown: PalaverError) -> None:
        """Return if it is removed. Raises StateConflict where it has another version, and ``unknown`` if it is not
        there."""
        if isinstance(reply, OtherVersion):
            raise self._conflict(reply)
        if isinstance(reply, Absent):
            raise unknown

    def _conflict(self, other: OtherVersion) -> StateConflict:
        what = f"its {self.version} is {other.version}" if other.version else f"there is no {self.kind} of that name"
        return StateConflict(self.changed, None, f"the {self.kind} is not as the request expects: {what}")


AGENT: Final = Versioned("agent", "agents", "newest version", "agent_changed", "agents_full")
