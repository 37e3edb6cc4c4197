"""Operations on the lists of tools of MCP servers that a conversation names itself."""

from __future__ import annotations

from palaver.late import dataclass
from palaver.store.redis.keys import RunKeys
from palaver.store.scripting.contracts.declaration import Script
from palaver.store.scripting.contracts.replies import Stale


@dataclass(frozen=True, slots=True)
class KeptList:
    """The list that the conversation has of the server: the one that was kept first."""

    text: bytes


@dataclass(frozen=True, slots=True)
class TooManyLists:
    """The conversation has as many as it may: this one is not kept."""


class KeepServerList(Script[KeptList | TooManyLists | Stale]):
    """Keep the list of a server for a conversation, unless it has one."""

    grows = True

    run: RunKeys
    step: str
    fence: int
    server: str
    """A digest of which server it is."""
    text: bytes
    """The list, as JSON."""
