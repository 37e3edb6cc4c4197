"""The conversations that a worker process is about to go on with.

A run of many steps comes back within milliseconds: its conversation stays as it is. Once the run has ended, or waits
for an action, the next step is a person's message away, and may come to another worker: a short conversation is
forgotten at once, since reading it again is no more than a part of what a step costs; a long one is packed into one
object, for a while. So what a worker holds, and what its garbage collector looks through, does not grow with the runs
that it has done.
"""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable
from typing import Final

from palaver.steps.leases import Lease

from ..protocols import ModelProtocol
from .conversations import CachedConversation

_MAX_BYTES: Final = 64 << 20
"""Memory of all of them together."""
_SPARE: Final = 1_000
"""Conversations beyond two for each step that may be in flight."""
_STAY: Final = 300.0
"""Seconds for which one stays that no step was for: as long as most providers keep a prompt."""
_LONG: Final = 32
"""Messages of a conversation that is kept after its run: reading it again takes 15 us a message, 0.5 ms of a step that
takes 1 ms, and packing it 20 us."""
_ENTRY_BYTES: Final = 300
"""Memory of an entry beside its conversation, about."""

_Entry = tuple[CachedConversation | bytes | None, int, int, float]
"""A conversation, or it packed and the index of its protocol; its size, and the time of its newest step. Packed it is a
tuple of atoms, which the garbage collector leaves alone."""
_NOTHING: Final[_Entry] = (None, 0, 0, 0.0)


class ConversationCache:
    """Bounded by memory, by number and by time; those go first that no step was for longest."""

    def __init__(self, capacity: int = 0, clock: Callable[[], float] = time.monotonic) -> None:
        """``capacity`` is the number of steps that may be in flight."""
        self._most = _SPARE + 2 * capacity
        self._clock = clock
        self._entries: OrderedDict[str, _Entry] = OrderedDict()
        self._protocols: list[ModelProtocol] = []
        """Those of packed conversations: as many as there are protocols."""
        self._size = 0

    def __len__(self) -> int:
        return len(self._entries)

    @property
    def size(self) -> int:
        """Bytes of memory of all of them, about."""
        return self._size

    def get(self, conversation_id: str) -> CachedConversation | None:
        """Return the conversation as far as it is known here; None if nothing is."""
        kept, protocol, *_ = self._entries.get(conversation_id, _NOTHING)
        return CachedConversation.unpacked(kept, self._protocols[protocol]) if isinstance(kept, bytes) else kept

    def load(self, known: CachedConversation | None, lease: Lease, protocol: ModelProtocol) -> CachedConversation:
        """The conversation by what was ``known`` of it before ``lease`` and what that brought; an empty one for a step
        that answers a call."""
        if not lease.kind.asks_model:
            return CachedConversation(protocol)
        conversation = CachedConversation(protocol, lease.agent.model) if known is None or lease.log.rebuilt else known
        # What cannot be read to its end is not kept: its beginning would be read twice.
        self._forget(lease.conversation_id)
        conversation.extend(lease.log.entries, lease.log.position, lease.log.position_at)
        self.keep(lease.conversation_id, conversation)
        return conversation

    def keep(self, conversation_id: str, conversation: CachedConversation) -> None:
        """Remember the conversation as the newest one; the oldest ones make room."""
        self._put(conversation_id, conversation, 0, conversation.size)

    def rest(self, conversation_id: str) -> None:
        """No step of the conversation is near: its run has ended, or waits for an action."""
        conversation = self._entries.get(conversation_id, _NOTHING)[0]
        if not isinstance(conversation, CachedConversation):
            return
        if len(conversation.messages()) < _LONG:
            self._forget(conversation_id)
            return
        if conversation.protocol not in self._protocols:
            self._protocols.append(conversation.protocol)
        packed = conversation.packed()
        self._put(conversation_id, packed, self._protocols.index(conversation.protocol), len(packed))

    def _put(self, conversation_id: str, kept: CachedConversation | bytes, protocol: int, size: int) -> None:
        self._forget(conversation_id)
        size, now = size + _ENTRY_BYTES, self._clock()
        self._entries[conversation_id] = (kept, protocol, size, now)
        self._size += size
        while len(self._entries) > 1 and (
            self._size > _MAX_BYTES or len(self._entries) > self._most or self._oldest < now - _STAY
        ):
            self._forget(next(iter(self._entries)))

    @property
    def _oldest(self) -> float:
        return next(iter(self._entries.values()))[3]

    def _forget(self, conversation_id: str) -> None:
        self._size -= self._entries.pop(conversation_id, _NOTHING)[2]
