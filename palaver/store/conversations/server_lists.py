"""The tools of MCP servers that a conversation names itself, as they were when it asked first. They are in the
conversation's hash, so that they go with it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import assert_never

from palaver.errors import StaleLease
from palaver.steps.leases import Lease
from palaver.store.reading.existing import known_fields
from palaver.store.redis import keys
from palaver.store.redis.connection import Connection
from palaver.store.scripting.contracts.replies import Stale
from palaver.store.scripting.contracts.server_lists import KeepServerList, KeptList, TooManyLists
from palaver.store.scripting.scripts import Scripts
from palaver.vocabulary.limits import count_exceeded


class ServerLists:
    """Lists of tools, each by a digest of which server it is of. The first one that is kept is kept for all."""

    def __init__(self, redis: Connection, scripts: Scripts) -> None:
        self._redis = redis
        self._scripts = scripts

    async def of(self, conversation_id: str, servers: Sequence[str]) -> Mapping[str, bytes]:
        """The lists of these servers that a conversation has.

        Raises:
            UnknownConversation: it is not there (any more).
        """
        texts = await known_fields(self._redis, conversation_id, *(f"offers:{server}" for server in servers))
        return {server: text for server, text in zip(servers, texts, strict=True) if text is not None}

    async def keep(self, lease: Lease, server: str, text: bytes) -> bytes:
        """Keep a list; return the one that is kept.

        Raises:
            StaleLease: the lease is not the newest any more.
        """
        run = keys.of_run(lease.run_id, lease.conversation_id)
        keep = KeepServerList(run=run, step=lease.step, fence=lease.fence, server=server, text=text)
        match await self._scripts.run(keep):
            case KeptList(kept):
                return kept
            case TooManyLists():
                count_exceeded("own_lists")
                return text
            case Stale():
                raise StaleLease
            case other:
                assert_never(other)
