"""Followers of conversations in this process: the positions of the sockets of clients, and snapshots that they share.

A client that gets an answer may look at once at the events that its socket has brought.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import field
from typing import Final

from palaver import operations
from palaver.errors import StoreUnavailable, UnknownConversation
from palaver.late import dataclass
from palaver.operations import Backend, SingleFlight
from palaver.schemas.conversation import Conversation

_WAIT: Final = 0.25
"""Seconds that an answer waits for sockets that are slower."""
_READS: Final = 48
"""Snapshots that are read at once."""


@dataclass(eq=False, slots=True)
class Follower:
    """The socket of a client that follows a conversation."""

    position: int
    revision: int
    gone: bool = False
    _moved: asyncio.Event = field(default_factory=asyncio.Event)

    def reach(self, position: int, revision: int) -> None:
        """Note that it has the log up to this position, and the conversation by this revision."""
        self.position, self.revision = position, revision
        moved, self._moved = self._moved, asyncio.Event()
        moved.set()

    async def reaches(self, position: int, revision: int) -> None:
        """Wait until it has come so far, or follows no more."""
        while not self.gone and (self.position < position or self.revision < revision):
            await self._moved.wait()

    def leave(self) -> None:
        """Note that it follows no more: it is not waited for."""
        self.gone = True
        self._moved.set()


class Followers:
    """All followers of this process, by conversation; one object for each application."""

    def __init__(self) -> None:
        self.snapshots: Final = SingleFlight(_READS)
        self._of: dict[str, set[Follower]] = {}

    def __contains__(self, conversation_id: str) -> bool:
        return conversation_id in self._of

    @contextmanager
    def joined(self, conversation_id: str, position: int, revision: int) -> Iterator[Follower]:
        """Add a follower that has the log and the conversation so far, for as long as the context lasts."""
        follower = Follower(position, revision)
        others = self._of.setdefault(conversation_id, set())
        others.add(follower)
        try:
            yield follower
        finally:
            follower.leave()
            others.discard(follower)
            if not others:
                del self._of[conversation_id]

    async def reach(self, conversation_id: str, position: int, revision: int) -> None:
        """Wait until all who follow the conversation now have come so far."""
        for follower in tuple(self._of.get(conversation_id, ())):
            await follower.reaches(position, revision)

    async def close(self) -> None:
        """Read no more."""
        await self.snapshots.close()


async def caught_up(backend: Backend, conversation_id: str, known: Conversation | None = None) -> None:
    """Wait until the sockets that follow the conversation in this process have its events up to now, or up to the
    conversation as it is ``known``; a quarter of a second at most. Those of other processes are not waited for."""
    followers = backend.guest(Followers)
    if conversation_id not in followers:
        return
    try:
        async with asyncio.timeout(_WAIT):
            end = known or await operations.log_end(backend, conversation_id)
            await followers.reach(conversation_id, end.entries, end.revision)
    except (TimeoutError, UnknownConversation, StoreUnavailable):
        # What was asked for is done: this changes nothing of the answer to it.
        return
