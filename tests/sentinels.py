"""A primary, its replicas, and the Sentinels that watch them: real processes on this machine, ours to kill."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final, Self

import redis

from deploy.check.logins import is_before_7_2
from deploy.users import users_of_7_0
from features.stack.child import dying_with_parent
from features.stack.ports import HOST, free_port
from features.stack.redis_server import RedisServer, find_server
from palaver.config.sentinels import ENCRYPTED, PLAIN, Sentinels, by_sentinels, sentinels_of
from palaver.store.redis.sentinel.blocking import ask, pool
from tests.pages import ROOT
from tests.tls import Tls
from tests.waiting import PATIENCE, eventually

SERVICE = "orders"
PASSWORD: Final = "not-a-secret-1"
"""That of the servers of a guarded group."""
BY_SENTINEL: Final = os.environ.get("PALAVER_TEST_STORE") == "sentinel"
"""True where the contract and the processes are tested on a Redis that Sentinels know."""
OPTIONS: Mapping[str, str] = {"repl-diskless-sync-delay": "0", "repl-ping-replica-period": "1"}
_HASTE = ("PING-PERIOD", "300", "INFO-PERIOD", "300", "PUBLISH-PERIOD", "100", "MIN-LINK-RECONNECT-PERIOD", "500")
"""Milliseconds. By itself a Sentinel needs seconds to know the others, and ten to make a server that is back a
replica. It promotes none of which it has not heard for five pings, and asks replicas of a lost primary each second."""
_GUARDED: Final = (ROOT / "deploy" / "sentinel.conf").read_text()
"""The file that an installation begins with: its users are those that Palaver says are enough."""
_SERVERS_USER: Final = next(line for line in _GUARDED.splitlines() if "ACL SETUSER" in line).partition("SETUSER ")[2]


class SentinelServer:
    """One Sentinel; with `guarded`, as deploy/sentinel.conf has it, and nobody asks it without a login. With `tls` it
    speaks nothing else."""

    def __init__(
        self, monitored: int, quorum: int, *, down_after: float, guarded: bool = False, tls: Tls | None = None
    ) -> None:
        self.port = free_port()
        self._guarded = guarded
        self._tls = tls
        self._dir = Path(tempfile.mkdtemp(prefix="palaver-sentinel-"))
        self._program = tls.program if tls else find_server()
        watched = f"{HOST} {monitored} {quorum}"
        shipped = users_of_7_0(_GUARDED) if is_before_7_2(self._program) else _GUARDED
        # Of several lines for one thing the last counts.
        lines = [
            *(shipped.replace("redis-1.internal 6379 2", watched).splitlines() if guarded else ()),
            f"port {0 if tls else self.port}",
            *(f"{name} {value}" for name, value in (tls.options(self.port) if tls else {}).items()),
            f"bind {HOST}",
            f"dir {self._dir}",
            f"logfile {self.log_path}",
            *(() if guarded else [f"sentinel monitor {SERVICE} {watched}"]),
            f"sentinel down-after-milliseconds {SERVICE} {round(down_after * 1000)}",
            f"sentinel failover-timeout {SERVICE} 2000",
            f"sentinel parallel-syncs {SERVICE} 5",
        ]
        self._config = self._dir / "sentinel.conf"
        self._config.write_text("\n".join(lines) + "\n")
        self._process: subprocess.Popen[bytes] | None = None

    @classmethod
    def of(cls, port: int) -> Self:
        """One for a server that comes later, and that nothing replaces."""
        return cls(port, 1, down_after=3600)

    @property
    def url(self) -> str:
        """An address that names only this one."""
        return f"redis+sentinel://{HOST}:{self.port}/{SERVICE}/0"

    @property
    def log_path(self) -> Path:
        """Its log."""
        return self._dir / "sentinel.log"

    def start(self) -> None:
        """Start it, with what it knew when it ended; return once it answers."""
        self._process = subprocess.Popen(dying_with_parent([str(self._program), str(self._config), "--sentinel"]))
        eventually(lambda: self.ask("PING"), within=10)
        self.ask("SENTINEL", "DEBUG", *_HASTE)

    def ask(self, *command: str) -> Any:
        """Return its answer, as to one of its peers. Raises what Redis raises."""
        user, password = ("peers", "PASSWORD-3") if self._guarded else (None, None)
        tls: Any = {"ssl": True, "ssl_ca_certs": str(self._tls.certificate)} if self._tls else {}
        with redis.Redis(
            host=HOST, port=self.port, username=user, password=password, socket_timeout=2, protocol=2, **tls
        ) as client:
            return client.execute_command(*command)

    def kill(self) -> None:
        """SIGKILL."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    def pause(self) -> None:
        """SIGSTOP: connections stay open and nothing answers."""
        assert self._process is not None
        self._process.send_signal(signal.SIGSTOP)

    def resume(self) -> None:
        """Undo `pause()`."""
        assert self._process is not None
        self._process.send_signal(signal.SIGCONT)

    def close(self) -> None:
        """End it, and forget what it knew."""
        self.kill()
        shutil.rmtree(self._dir, ignore_errors=True)


class SentinelGroup:
    """A primary with `replicas`, and `sentinels` that take it for dead after `down_after` seconds.

    `options` are those of the servers. With `guarded` everybody has to log in, with the users of deploy/sentinel.conf.
    With `tls` clients, servers and Sentinels speak it to each other; only tests reach a server without.
    """

    def __init__(
        self,
        *,
        replicas: int = 2,
        sentinels: int = 3,
        down_after: float = 1.0,
        options: Mapping[str, str] | None = None,
        guarded: bool = False,
        tls: Tls | None = None,
    ) -> None:
        own = {**OPTIONS, **(options or {})}
        self._users = tempfile.TemporaryDirectory(prefix="palaver-users-")
        if guarded:
            # Over a restart as well.
            users = Path(self._users.name) / "users.conf"
            users.write_text(f"user {_SERVERS_USER}\n")
            own |= {"requirepass": PASSWORD, "masterauth": PASSWORD, "include": str(users)}
        self._guarded, self._down_after, self._count, self._tls = guarded, down_after, sentinels, tls
        login = ("default", PASSWORD) if guarded else None
        self.servers: list[RedisServer] = []
        self._tls_ports: dict[RedisServer, int] = {}
        for _ in range(replicas + 1):
            port = free_port()
            more, program = (tls.options(port), tls.program) if tls else ({}, None)
            server = RedisServer(options={**own, **more}, login=login, program=program)
            self.servers.append(server)
            if tls:
                self._tls_ports[server] = port
        self.sentinels: list[SentinelServer] = []

    @contextlib.contextmanager
    def open(self) -> Iterator[Self]:
        """All run until the end of the block."""
        with contextlib.ExitStack() as stack:
            stack.enter_context(self._users)
            for server in self.servers:
                stack.enter_context(server)
            first, *others = self.servers
            for replica in others:
                with self.admin(replica) as client:
                    client.replicaof(HOST, str(self.port_of(first)))
            eventually(lambda: all(self._info(each)["master_link_status"] == "up" for each in others))
            for _ in range(self._count):
                quorum = self._count // 2 + 1
                sentinel = SentinelServer(
                    self.port_of(first), quorum, down_after=self._down_after, guarded=self._guarded, tls=self._tls
                )
                stack.callback(sentinel.close)
                self.sentinels.append(sentinel)
                sentinel.start()
            self.settle()
            yield self

    @property
    def url(self) -> str:
        """The address, for PALAVER_REDIS_URL."""
        login = f":{PASSWORD}@" if self._guarded else ""
        places = ",".join(f"{HOST}:{sentinel.port}" for sentinel in self.sentinels)
        own = ["sentinel_username=palaver", "sentinel_password=PASSWORD-2"] if self._guarded else []
        if self._tls:
            own.append(f"ssl_ca_certs={self._tls.certificate}")
        scheme = ENCRYPTED if self._tls else PLAIN
        return f"{scheme}://{login}{places}/{SERVICE}/0{'?' if own else ''}{'&'.join(own)}"

    @property
    def known(self) -> Sentinels:
        """The address, read."""
        return sentinels_of(self.url)

    @property
    def primary(self) -> RedisServer:
        """The server that most Sentinels name. Raises if none answers."""
        return self.named(self._ports()[0])

    def named(self, port: int) -> RedisServer:
        """The server that Sentinels name by this port."""
        return next(server for server in self.servers if self.port_of(server) == port)

    def port_of(self, server: RedisServer) -> int:
        """The port by which Sentinels name it."""
        return self._tls_ports.get(server) or server.port

    def settle(self, *, within: float = PATIENCE) -> None:
        """Wait until all servers and Sentinels that run know each other, and all could be done again."""
        eventually(self._settled, within=within, every=0.1, why="the group does not come to rest")

    def fail_over(self, through: int = 0) -> None:
        """Order a failover through this Sentinel, and wait until all of them know it. It is ordered again if the one
        that was to be promoted did not come up in time."""
        before = self.port_of(self.primary)

        def moved() -> bool:
            with contextlib.suppress(redis.ResponseError):
                self.sentinels[through].ask("SENTINEL", "FAILOVER", SERVICE)
            with contextlib.suppress(AssertionError):
                self.moved_from(before, within=5)
                return True
            return False

        eventually(moved)

    def moved_from(self, port: int, *, within: float = PATIENCE) -> None:
        """Wait until all Sentinels that answer name another primary."""
        eventually(lambda: (ports := self._ports()) and port not in ports, within=within, every=0.05)

    @contextlib.contextmanager
    def admin(self, server: RedisServer) -> Iterator[redis.Redis]:
        """A connection to this server."""
        with redis.Redis.from_url(server.url, socket_timeout=5) as client:
            yield client

    def _ports(self) -> list[int]:
        """The ports of the primary, by Sentinel."""
        known = self.known
        ports: list[int] = []
        for place in known.places:
            with contextlib.suppress(redis.RedisError, OSError):
                ((_, port),) = ask(known, place, 1, ("SENTINEL", "GET-MASTER-ADDR-BY-NAME", SERVICE))
                ports.append(int(port))
        return sorted(ports, key=ports.count, reverse=True)

    def _info(self, server: RedisServer) -> Mapping[str, Any]:
        with self.admin(server) as client:
            return dict(client.info("replication"))

    def _settled(self) -> bool:
        ports = self._ports()
        running = [server for server in self.servers if server.running]
        primary = self.named(ports[0])
        replicas = [server for server in running if server is not primary]
        info = self._info(primary)
        online = [value for name, value in info.items() if name.startswith("slave") and isinstance(value, dict)]
        return (
            len(set(ports)) == 1
            and info["role"] == "master"
            and sum(each["state"] == "online" for each in online) == len(replicas)
            and all(self._info(replica)["master_port"] == self.port_of(primary) for replica in replicas)
            and all(self._ready(place, len(replicas), len(ports)) for place in self.known.places)
        )

    def _ready(self, place: Any, replicas: int, sentinels: int) -> bool:
        """Tell whether a Sentinel knows all that there is. One that is not there is no obstacle."""
        try:
            told, ready = ask(self.known, place, 1, ("SENTINEL", "MASTER", SERVICE), ("SENTINEL", "CKQUORUM", SERVICE))
        except (redis.RedisError, OSError):
            return True
        about = dict(zip(told[::2], told[1::2], strict=True))
        return (
            about[b"flags"] == b"master"
            and int(about[b"num-slaves"]) >= replicas
            and int(about[b"num-other-sentinels"]) >= sentinels - 1
            and not isinstance(ready, Exception)
        )


def client_of(url: str) -> redis.Redis:
    """Return a client for an address, of a server or of Sentinels."""
    if by_sentinels(url):
        return redis.Redis.from_pool(pool(sentinels_of(url), socket_timeout=5))
    return redis.Redis.from_url(url, socket_timeout=5)
