"""A cluster of Redis: masters and their replicas, real processes on this machine, ours to kill."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from functools import partial
from typing import Any, Final, Self

import redis
from redis.asyncio.retry import Retry
from redis.backoff import ExponentialBackoff

from features.stack.ports import HOST, free_port
from features.stack.redis_server import RedisServer
from palaver.store.redis.cluster.slots import SLOTS
from tests.pages import ROOT
from tests.waiting import eventually

ON_CLUSTER: Final = os.environ.get("PALAVER_TEST_STORE") == "cluster"
"""True where the contract is tested on a cluster."""
WAITS: Final[dict[str, Any]] = {
    "max_connections": 64,
    "patience": 5,
    "socket_timeout": 5,
    "socket_connect_timeout": 2,
    "retry": Retry(ExponentialBackoff(cap=0.2, base=0.05), 1),
}
"""The options of pools that the store has."""
_SHIPPED: Final = dict(
    line.split(" ", 1)
    for line in (ROOT / "deploy" / "cluster.conf").read_text().splitlines()
    if line and not line.startswith("#")
)
"""The settings that an installation begins with."""
NODE_TIMEOUT: Final = 1.0
"""Seconds without an answer after which the others take a master for dead."""


_FLAGS: Final = {
    **redis.RedisCluster.COMMAND_FLAGS,
    **dict.fromkeys(("KEYS", "DBSIZE", "CONFIG SET", "CLIENT PAUSE", "PUBSUB CHANNELS"), "primaries"),
}


class _Whole(redis.RedisCluster):
    """A client that asks all masters what is about a server: redis-py asks one, for the names of all keys, too."""

    COMMAND_FLAGS = _FLAGS


class RedisCluster:
    """``masters`` with ``replicas`` each. Slots without a master do not stop those of the others.

    ``options`` are those of each server, and ``options_of`` a number those of that one; ``login`` is a user and its
    password, where the default user may not log in.
    """

    def __init__(
        self,
        masters: int = 3,
        replicas: int = 0,
        *,
        options: Mapping[str, str] | None = None,
        login: tuple[str, str] | None = None,
        options_of: Callable[[int], Mapping[str, str]] = lambda _: {},
    ) -> None:
        self._options_of = options_of
        self._masters = masters
        self._replicas = replicas
        self._options = dict(options or {})
        self._login = login
        self._stack = ExitStack()
        self.servers: list[RedisServer] = []

    def __enter__(self) -> Self:
        try:
            self._start()
        except BaseException:
            self._stack.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    @property
    def url(self) -> str:
        """The address of the cluster."""
        return self.url_of(self._login)

    def url_of(self, login: tuple[str, str] | None) -> str:
        """The address of the cluster for a user."""
        user = f"{':'.join(login)}@" if login else ""
        return f"redis+cluster://{user}{','.join(f'{HOST}:{server.port}' for server in self.servers)}/0"

    def client(self, server: RedisServer) -> Any:
        """A connection to one of the servers."""
        user, password = self._login or (None, None)
        return redis.Redis(
            host=HOST, port=server.port, username=user, password=password, decode_responses=True, socket_timeout=5
        )

    def whole(self) -> Any:
        """A connection to all of them."""
        return _Whole(host=HOST, port=self.servers[0].port, socket_timeout=5)

    def masters(self) -> list[RedisServer]:
        """The servers that are masters now, as they say themselves, of those that run."""
        return [server for server in self.servers if server.running and self._role(server) == "master"]

    def master_of(self, slot: int) -> RedisServer:
        """The master that has a slot."""
        for server in self.masters():
            for first, last, (_, port, *_), *_ in self.client(server).execute_command("CLUSTER", "SLOTS"):
                if first <= slot <= last:
                    return next(server for server in self.servers if server.port == port)
        raise LookupError(f"nobody has slot {slot}")

    def move_slots(self, first: int, last: int, source: RedisServer, target: RedisServer) -> None:
        """Move slots as Valkey 9 does by itself: whole, and at one moment."""
        at, name = self.client(source), self._id(target)
        at.execute_command("CLUSTER", "MIGRATESLOTS", "SLOTSRANGE", first, last, "NODE", name)
        eventually(partial(self._has_moved, at))

    def move_key_by_key(self, slot: int, source: RedisServer, target: RedisServer) -> None:
        """Move a slot as redis-cli does: for a while some of its keys are here, and some there."""
        here, there = self.client(source), self.client(target)
        there.execute_command("CLUSTER", "SETSLOT", slot, "IMPORTING", self._id(source))
        here.execute_command("CLUSTER", "SETSLOT", slot, "MIGRATING", self._id(target))
        while names := here.execute_command("CLUSTER", "GETKEYSINSLOT", slot, 100):
            here.execute_command("MIGRATE", HOST, target.port, "", 0, 5000, "KEYS", *names)
        for at in (there, here):
            at.execute_command("CLUSTER", "SETSLOT", slot, "NODE", self._id(target))

    def _id(self, server: RedisServer) -> str:
        return str(self.client(server).execute_command("CLUSTER", "MYID"))

    @staticmethod
    def _has_moved(at: Any) -> bool:
        last = at.execute_command("CLUSTER", "GETSLOTMIGRATIONS")[0]
        state = dict(last)["state"]
        assert state not in ("failed", "cancelled"), last
        return bool(state == "success")

    def _role(self, server: RedisServer) -> str:
        return str(self.client(server).role()[0])

    def _start(self) -> None:
        options = {
            **_SHIPPED,
            "cluster-node-timeout": str(round(NODE_TIMEOUT * 1000)),
            "cluster-replica-validity-factor": "0",
            "cluster-migration-barrier": "100",
            "repl-diskless-sync-delay": "0",
            "repl-ping-replica-period": "1",
            **self._options,
        }
        for number in range(self._masters * (1 + self._replicas)):
            own = {"cluster-port": str(free_port()), **self._options_of(number)}
            server = RedisServer(options={**options, **own}, login=self._login)
            self._stack.enter_context(server)
            self.servers.append(server)
        clients = [self.client(server) for server in self.servers]
        ids = [client.execute_command("CLUSTER", "MYID") for client in clients]
        for number, (begin, end) in enumerate(self._ranges()):
            clients[number].execute_command("CLUSTER", "ADDSLOTSRANGE", begin, end)
            clients[number].execute_command("CLUSTER", "SET-CONFIG-EPOCH", number + 1)
        for server in self.servers[1:]:
            bus = self.client(server).config_get("cluster-*port")
            port = bus["cluster-announce-bus-port"]
            clients[0].execute_command(
                "CLUSTER", "MEET", HOST, server.port, bus["cluster-port"] if port == "0" else port
            )
        eventually(lambda: all(self._knows(client, len(self.servers)) for client in clients))
        for number, client in enumerate(clients[self._masters :]):
            client.execute_command("CLUSTER", "REPLICATE", ids[number % self._masters])
        for client in clients[self._masters :]:
            eventually(partial(self._follows, client))
        eventually(lambda: all(self._is_whole(client) for client in clients))

    def kill(self) -> None:
        """Kill all servers."""
        for server in self.servers:
            server.kill()

    def start_again(self) -> None:
        """Start those that do not run, with what they had; on return the slots have their masters."""
        for server in self.servers:
            if not server.running:
                server.start()
        for server in self.servers:
            eventually(partial(self._is_whole, self.client(server)))

    @staticmethod
    def _is_whole(client: Any) -> bool:
        return bool(client.cluster("info")["cluster_state"] == "ok")

    def infos(self) -> list[Any]:
        """Return what each master says of itself."""
        return [self.client(server).info() for server in self.masters()]

    def writes(self, server: RedisServer) -> int:
        """Return how many bytes of writes a server has taken."""
        return int(self.client(server).info("replication")["master_repl_offset"])

    def follows(self, server: RedisServer) -> bool:
        """Tell whether a server is a replica that is connected to its master."""
        return self._follows(self.client(server))

    @staticmethod
    def _follows(client: Any) -> bool:
        return bool(client.info("replication").get("master_link_status") == "up")

    @staticmethod
    def _knows(client: Any, number: int) -> bool:
        return int(client.cluster("info")["cluster_known_nodes"]) == number

    def _ranges(self) -> Iterator[tuple[int, int]]:
        for number in range(self._masters):
            yield SLOTS * number // self._masters, SLOTS * (number + 1) // self._masters - 1
