"""How far those were told who follow a conversation in this process: a client that is answered may look at once at what
it was told.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field


@dataclass(eq=False, slots=True)
class Follower:
    """One of them."""

    position: int
    revision: int
    gone: bool = False
    _moved: asyncio.Event = field(default_factory=asyncio.Event)

    def was_told(self, position: int, revision: int) -> None:
        """It knows the log up to this position, and the conversation by this revision."""
        self.position, self.revision = position, revision
        moved, self._moved = self._moved, asyncio.Event()
        moved.set()

    async def reaches(self, position: int, revision: int) -> None:
        """Wait until it was told so much, or follows no more."""
        while not self.gone and (self.position < position or self.revision < revision):
            await self._moved.wait()

    def leave(self) -> None:
        """It follows no more: nobody is to wait for it."""
        self.gone = True
        self._moved.set()


class Followers:
    """All of this process, by conversation."""

    def __init__(self) -> None:
        self._of: dict[str, set[Follower]] = {}

    def __contains__(self, conversation_id: str) -> bool:
        return conversation_id in self._of

    @contextmanager
    def joined(self, conversation_id: str, position: int, revision: int) -> Iterator[Follower]:
        """One more, that knows so much already."""
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
        """Wait until all who follow the conversation now were told so much."""
        for follower in tuple(self._of.get(conversation_id, ())):
            await follower.reaches(position, revision)
