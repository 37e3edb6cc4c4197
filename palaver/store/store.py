"""The door to the store: one connection pool, and one object for each group of its users."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final, Self, cast

from redis.asyncio import Redis
from redis.asyncio.retry import Retry
from redis.backoff import ExponentialBackoff
from redis.exceptions import BusyLoadingError, ConnectionError, ResponseError, TimeoutError

from palaver.config.settings import Settings
from palaver.errors import ConfigurationError
from palaver.store.conversations.server_lists import ServerLists
from palaver.store.conversations.vault import Vault
from palaver.store.fleet.feature_set import FeatureSet
from palaver.store.fleet.fleet import Fleet
from palaver.store.fleet.planning import Planning
from palaver.store.fleet.providers import Providers
from palaver.store.fleet.tools import Tools
from palaver.store.fleet.turns import WaitingTenants
from palaver.store.reading.recall import Memories
from palaver.store.redis import keys
from palaver.store.redis.capacity import Capacity
from palaver.store.redis.connection import Connection, is_absent, is_closed
from palaver.store.redis.pool import driver
from palaver.store.redis.pools import pool_of
from palaver.store.redis.rounds import Rounds
from palaver.store.redis.shared_client import SharedClient
from palaver.store.redis.visits import is_away
from palaver.store.scripting.scripts import Scripts
from palaver.store.server.rewinds import Rewinds
from palaver.store.sides import Ground, P
from palaver.store.steps.due import DueIndex
from palaver.store.steps.lacking import LackingIndex
from palaver.store.steps.queues import ToolQueues
from palaver.store.steps.steps import Steps
from palaver.store.tenants.caps import TenantCaps

if TYPE_CHECKING:
    from palaver.store.access.api_keys import ApiKeys
    from palaver.store.access.audit import AuditLog
    from palaver.store.access.signing_keys import SigningKeys
    from palaver.store.agents.agents import Agents
    from palaver.store.conversations.conversations import Conversations
    from palaver.store.fleet.measuring import Measuring
    from palaver.store.reading.conversation_feeds import ConversationFeeds
    from palaver.store.reading.feeds import Feeds
    from palaver.store.reading.usage_ledger import UsageLedger
    from palaver.store.runs.bulk import BulkControl
    from palaver.store.runs.children import Children
    from palaver.store.runs.control import RunControl
    from palaver.store.runs.history import History
    from palaver.store.runs.runs import Runs
    from palaver.store.tenants.tenants import Tenants


log = logging.getLogger("palaver.store")

_LOADING: Final = 0.5
"""Seconds between two looks at a Redis that loads its data."""


class Store:
    """All of the state, behind typed methods.

    Redis errors pass through; ``palaver.errors.classify`` judges them.
    """

    def __init__(self, redis: Redis, settings: Settings, *, send: bool = False) -> None:
        connection = cast(Connection, redis)
        scripts = Scripts(connection, settings, send=send)
        self._redis = redis
        self._connection = connection
        self._settings = settings
        self._send = send
        self.scripts = scripts
        self.capacity = Capacity(connection, settings, taken=lambda: scripts.taken)
        self.rounds = Rounds(connection, settings)
        self._ground = Ground(connection, scripts, settings, self.capacity, self.rounds)
        self._parts: dict[Callable[[Ground], Any], Any] = {}
        self.memories = Memories(self._ground)
        self.vault = self.memories.recalling(Vault(connection, scripts, settings))
        self.server_lists = ServerLists(connection, scripts)
        self.steps = Steps(connection, scripts, settings)
        self.queues = ToolQueues(connection)
        self.due = DueIndex(connection, scripts, self.rounds, self.queues)
        self.fleet = Fleet(connection, settings)
        self.planning = Planning(connection, self.fleet)
        self.feature_set = FeatureSet(connection, settings.shards)
        self.tools = Tools(connection)
        self.caps = TenantCaps(connection, scripts, self.rounds)
        self.waiting_tenants = WaitingTenants(connection, settings, self.queues)
        self.lacking = LackingIndex(connection, settings)
        self.providers = Providers(connection, scripts, settings)
        self.rewinds = Rewinds(connection, self.rounds)

    # What no worker asks for, unless an agent calls another one, is loaded when it is first named.

    @cached_property
    def _present_runs(self) -> Runs:
        from palaver.store.runs.runs import Runs

        return Runs(self._connection, self.scripts, self._settings, self.capacity, self.memories, self.vault)

    @cached_property
    def runs(self) -> Runs:
        """Runs: submitted, listed and read."""
        return self.memories.recalling(self._present_runs)

    @cached_property
    def conversations(self) -> Conversations:
        """Conversations: made, changed, listed and read."""
        from palaver.store.conversations.conversations import Conversations

        return self.memories.recalling(
            Conversations(self._connection, self.scripts, self.runs, self.capacity, self.memories, self.vault)
        )

    @cached_property
    def children(self) -> Children:
        """Runs that are calls of other agents."""
        from palaver.store.runs.children import Children

        # Each new one is looked for first: what ended long ago is none of these.
        return Children(self._connection, self._present_runs)

    @cached_property
    def control(self) -> RunControl:
        """Changes to runs that are there: cancels, inputs, deletions."""
        from palaver.store.runs.control import RunControl

        return self.memories.recalling(RunControl(self.scripts, self.runs, self.memories))

    @cached_property
    def bulk(self) -> BulkControl:
        """The same to many at once."""
        from palaver.store.runs.bulk import BulkControl

        return BulkControl(self.scripts, self.runs)

    @cached_property
    def history(self) -> History:
        """Conversations that are written to, cut or copied without a run."""
        from palaver.store.runs.history import History

        return self.memories.recalling(History(self.scripts, self.runs, self.capacity, self.vault))

    @cached_property
    def agents(self) -> Agents:
        """Agents that a tenant keeps."""
        from palaver.store.agents.agents import Agents

        return Agents(self._connection, self.scripts, self.capacity)

    @cached_property
    def feeds(self) -> Feeds:
        """The feeds of runs, for watchers."""
        from palaver.store.reading.feeds import Feeds

        channels = self._redis.channels if isinstance(self._redis, SharedClient) else None
        return self.memories.recalling(Feeds(self._connection, channels))

    @cached_property
    def conversation_feeds(self) -> ConversationFeeds:
        """The feeds of conversations."""
        from palaver.store.reading.conversation_feeds import ConversationFeeds

        return self.memories.recalling(ConversationFeeds(self._connection, self.feeds, self.runs))

    @cached_property
    def tenants(self) -> Tenants:
        """Tenants and their names."""
        from palaver.store.tenants.tenants import Tenants

        return Tenants(self._connection, self.scripts)

    @cached_property
    def usage(self) -> UsageLedger:
        """The usage of tenants, by day."""
        from palaver.store.reading.usage_ledger import UsageLedger

        return UsageLedger(self._connection, self._settings)

    @cached_property
    def api_keys(self) -> ApiKeys:
        """Keys of the API."""
        from palaver.store.access.api_keys import ApiKeys

        return ApiKeys(self._connection, self.scripts)

    @cached_property
    def audit(self) -> AuditLog:
        """The record of what was done with keys."""
        from palaver.store.access.audit import AuditLog

        return AuditLog(self._connection, self.scripts, self._settings)

    @cached_property
    def signing_keys(self) -> SigningKeys:
        """Keys that sign tokens."""
        from palaver.store.access.signing_keys import SigningKeys

        return SigningKeys(self._connection, self.scripts, self._settings)

    @cached_property
    def measuring(self) -> Measuring:
        """The numbers of metrics and of `GET /v1/queues`."""
        from palaver.store.fleet.measuring import Measuring

        return Measuring(
            self._connection,
            self.scripts,
            self._settings,
            self.fleet,
            self.providers,
            self.capacity,
            self.rewinds,
            self.queues,
            self.part,
        )

    @classmethod
    def connect(cls, settings: Settings, *, shared: bool = False, send: bool = False) -> Self:
        """A store on ``PALAVER_REDIS_URL``. It connects when it is first used. With ``shared``, most of what its users
        ask travels on one connection. With ``send``, it sends deliveries to the broker where that is the same server;
        else it is all its caller's to do.

        Every wait has an end: 2 s to connect, 5 s for an answer (of the shared connection, for anybody's), 5 s for a
        free connection.
        """
        waits: dict[str, Any] = dict(
            max_connections=64,
            patience=5,
            socket_timeout=5,
            socket_connect_timeout=2,
            **({} if settings.store_url.startswith("unix:") else {"socket_keepalive": True}),
            health_check_interval=15,
            # One repeat at once: a pooled connection may be stale after the server restarted. Longer waits
            # are the caller's to decide; each script bears being run twice.
            retry=Retry(ExponentialBackoff(cap=0.2, base=0.05), 1),
            retry_on_error=[ConnectionError, TimeoutError],
            driver_info=driver(),
        )
        if settings.clustered:
            # Not above: a process whose store is one server does without.
            from palaver.store.redis.cluster.client import ClusterClient

            return cls(ClusterClient.of(settings.store_url, shared=shared, **waits), settings, send=send)
        pool = pool_of(settings.store_url, **waits)
        return cls((SharedClient if shared else Redis)(connection_pool=pool), settings, send=send)

    def part(self, kind: Callable[[Ground], P]) -> P:
        """Return the part of a feature in this store, made when it is first asked for."""
        if kind not in self._parts:
            self._parts[kind] = kind(self._ground)
        part: P = self._parts[kind]
        return part

    def under(self, settings: Settings) -> Store:
        """The same store under other settings, for use in the place of a process that has these."""
        return Store(self._redis, settings, send=self._send)

    async def require_durability(self) -> None:
        """Ask the server for what PALAVER_DURABILITY needs. If it is away, nothing is known, and nothing is reported.

        Raises:
            ConfigurationError: the server cannot do that, or does not let us.
        """
        if self._settings.durability != "fsync":
            return
        try:
            await self._redis.execute_command("WAITAOF", 1, 0, 1)
        except (ConnectionError, TimeoutError):
            return
        except ResponseError as error:
            if is_closed(error) or is_absent(error) or "appendonly" in str(error):
                raise ConfigurationError(
                    f"PALAVER_DURABILITY=fsync: the server refuses WAITAOF ({error}). It takes Redis 7.2 or later, or "
                    "Valkey, with `appendonly yes`, and a user that may call it; else set PALAVER_DURABILITY=server"
                ) from None

    def missing(self) -> list[str]:
        """Return the shards whose server did not answer the last time: none, or all, where it is one server."""
        return [shard for shard in self.due.shards if is_away(cast(Connection, self._redis), keys.due(shard))]

    async def ping(self) -> None:
        """Raises what a call would raise while Redis is away."""
        await self._redis.ping()

    async def loaded(self) -> None:
        """Return once Redis has read its data: a large one takes minutes after a start. Raises as `ping`."""
        said = False
        while True:
            try:
                return await self.ping()
            except BusyLoadingError:
                if not said:
                    log.warning("waiting for Redis: it is loading its data")
                    said = True
                await asyncio.sleep(_LOADING)

    async def close(self) -> None:
        """Give the connections back."""
        for made in ("conversation_feeds", "feeds"):
            if made in vars(self):
                await getattr(self, made).close()
        await self.memories.close()
        await self.scripts.close()
        await self._redis.aclose()
        await self._redis.connection_pool.disconnect()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()
