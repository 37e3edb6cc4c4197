"""Agents on the server: a tenant keeps them by name, in numbered versions."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from typing import Final

import orjson

from palaver.errors import UNREADABLE, CorruptRecord, UnknownAgent
from palaver.late import dataclass
from palaver.schemas.agents import ServerAgent
from palaver.schemas.models import AgentSpec
from palaver.store.reading import records
from palaver.store.redis import agent_keys
from palaver.store.redis.capacity import Capacity
from palaver.store.redis.connection import Connection
from palaver.store.scripting.contracts.agents import KeepAgent, RemoveAgent
from palaver.store.scripting.contracts.wire import read_agent
from palaver.store.scripting.moving import durable_reply
from palaver.store.scripting.scripts import Scripts
from palaver.store.scripting.versions import AGENT

ANY_VERSION: Final = -1
"""The version that is expected of an agent that only has to be there."""


@dataclass(frozen=True, slots=True)
class ListedAgents:
    """Agents by name."""

    agents: Sequence[ServerAgent]
    last: str
    """The name up to which the page goes."""
    more: bool
    """There are agents behind that."""


class Agents:
    """The agents of tenants, each of which is named by its tag."""

    def __init__(self, redis: Connection, scripts: Scripts, capacity: Capacity) -> None:
        self._redis = redis
        self._scripts = scripts
        self._capacity = capacity

    async def keep(
        self, tenant: str, name: str, agent: AgentSpec, *, by: str | None = None, expected: int | None = None
    ) -> tuple[ServerAgent, bool]:
        """Make ``agent`` the newest version of the agent ``name``, and say whether there was none before. One that is
        as the newest version is that. ``expected`` is the version that it must have until now, 0 for none,
        `ANY_VERSION` for any.

        Raises:
            StateConflict: ``agent_changed``, it has another version; ``agents_full``; ``tenant_erased``.
            NoRoom: ``store_nearly_full``.
            NotDurable: kept, but not as safely as PALAVER_DURABILITY asks.
        """
        await self._capacity.admit()
        keep = KeepAgent(
            names=agent_keys.agents(tenant),
            versions=agent_keys.agent_versions(tenant, name),
            agent=name,
            expected=expected,
            # The name is that of the place, and the number comes with it.
            spec=records.agent_json(agent.model_copy(update={"name": None, "version": None})),
            by=orjson.dumps(by),
        )
        kept = await durable_reply(self._scripts.run_durably(keep), AGENT.kept)
        return await self.get(tenant, name, kept.version), kept.new

    async def get(self, tenant: str, name: str, version: int | None = None) -> ServerAgent:
        """The agent in that version, or in its newest one.

        Raises:
            UnknownAgent: there is no agent of that name, or no such version of it (any more).
        """
        key = agent_keys.agent_versions(tenant, name)
        newest, oldest, removed = await self._redis.hmget(key, ["newest", "oldest", "removed"])
        if newest is None or oldest is None or removed is not None:
            raise UnknownAgent(name)
        number = int(newest) if version is None else version
        spec, facts = await self._redis.hmget(key, [f"spec:{number}", f"facts:{number}"])
        if spec is None or facts is None:
            raise UnknownAgent(name, version)
        return _agent(name, number, int(oldest), int(newest), spec, facts)

    async def list(self, tenant: str, *, after: str = "", limit: int) -> ListedAgents:
        """The agents behind the name ``after``, each in its newest version."""
        newest = await self._redis.hgetall(agent_keys.agents(tenant))
        names = sorted(newest)
        begin = bisect_right(names, after.encode())
        page = names[begin : begin + limit]
        pipeline = self._redis.pipeline(transaction=False)
        for name in page:
            number = newest[name].decode()
            fields = ["oldest", f"spec:{number}", f"facts:{number}"]
            pipeline.hmget(agent_keys.agent_versions(tenant, name.decode()), fields)
        rows = zip(page, await pipeline.execute() if page else (), strict=True)
        listed = [
            _agent(name.decode(), int(newest[name]), int(oldest), int(newest[name]), spec, facts)
            # One without them was removed meanwhile, or has a newer version that is listed the next time.
            for name, (oldest, spec, facts) in rows
            if spec is not None
        ]
        return ListedAgents(listed, page[-1].decode() if page else after, begin + limit < len(names))

    async def remove(self, tenant: str, name: str, *, expected: int | None = None) -> None:
        """Forget an agent. Runs and conversations that have it go on with it.

        Raises:
            UnknownAgent: there is none of that name.
            StateConflict: ``agent_changed``, it has another version than ``expected``.
            NotDurable: done, but not as safely as PALAVER_DURABILITY asks.
        """
        remove = RemoveAgent(
            names=agent_keys.agents(tenant),
            versions=agent_keys.agent_versions(tenant, name),
            agent=name,
            expected=expected,
        )
        await durable_reply(self._scripts.run_durably(remove), lambda reply: AGENT.removed(reply, UnknownAgent(name)))


def _agent(name: str, version: int, oldest: int, newest: int, spec: bytes, facts: bytes) -> ServerAgent:
    try:
        known, agent = orjson.loads(facts), read_agent(spec)
        created_at, created_by = records.instant(known["created_at"]), known["created_by"]
    except UNREADABLE as error:
        raise CorruptRecord(f"the agent {name}") from error
    return ServerAgent(
        name=name,
        version=version,
        newest=newest,
        oldest=oldest,
        agent=agent.model_copy(update={"name": name, "version": version}),
        created_at=created_at,
        created_by=created_by,
    )
