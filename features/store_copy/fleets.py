"""The users of a store: workers by their reports, and all processes of Palaver by their connections."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple

from palaver.store.redis import fleet_keys

from .places import NAME, CopyPlace

_OURS: Final = "palaver"
_USERS: Final = ("palaver-api", "palaver-worker")
_SCRIPT: Final = "evalsha"
"""The command that shows a process of ours where servers do not tell the library of a connection: Redis 7.0."""
_SHOWN: Final = 5


class StoreUsers(NamedTuple):
    """The processes that use a store."""

    workers: tuple[str, ...]
    others: tuple[str, ...]
    """The addresses of connections."""
    copies: tuple[str, ...]
    """The same of other copies that are under way."""
    seen: bool
    """False if the server does not tell who is connected: then only workers are known."""

    @property
    def there(self) -> bool:
        """True if there is one."""
        return bool(self.workers or self.others or self.copies)

    @property
    def named(self) -> str:
        """The processes, for a sentence."""
        said = []
        if self.workers:
            said.append(f"workers {_some(self.workers)}")
        if self.others:
            said.append(f"connections of workers, APIs or commands from {_some(self.others)}")
        if self.copies:
            said.append(f"another copy from {_some(self.copies)}")
        return "; ".join(said)


async def fleet_of(place: CopyPlace) -> StoreUsers:
    """Return the processes that use a store. A worker whose connection is closed is dead, whatever it reported."""
    clients = await place.may_see("CLIENT LIST")
    listed = [client for some in clients or () for client in some]
    (ids,) = await place.ask([("ZRANGE", fleet_keys.WORKERS, 0, -1)])
    reports = await place.ask([("HGETALL", fleet_keys.worker(name.decode())) for name in ids])
    alive = {client["id"] for client in listed}
    servers = await servers_of(place)
    workers = [
        name.decode()
        for name, report in zip(ids, reports, strict=True)
        if report and not (clients is not None and _is_closed(report, servers, alive))
    ]
    here = [client for client in listed if place.clustered or client.get("db", place.database) == place.database]
    copies = [client["addr"] for client in here if _is_copy(client) and client["name"] != place.own]
    others = [client["addr"] for client in here if not _is_copy(client) and _is_ours(client)]
    return StoreUsers(tuple(sorted(workers)), tuple(others), tuple(copies), clients is not None)


async def servers_of(place: CopyPlace) -> frozenset[str]:
    """Return the names that the servers of a place have had since they started; none of those that do not tell."""
    return frozenset(told["run_id"] for told in await place.may_see("INFO", "server") or () if "run_id" in told)


async def scripts_run(place: CopyPlace) -> int | None:
    """Return how many scripts the servers of a place have run; None if they do not tell."""
    told = await place.may_see("INFO", "commandstats")
    if told is None:
        return None
    return sum(int(stats.get("cmdstat_evalsha", {}).get("calls", 0)) for stats in told)


def _is_closed(report: Mapping[bytes, bytes], servers: frozenset[str], alive: set[str]) -> bool:
    connection, server = report.get(b"connection", b"0").decode(), report.get(b"server", b"").decode()
    return connection != "0" and server in servers and connection not in alive


def _is_copy(client: Mapping[str, str]) -> bool:
    return client.get("name", "").startswith(NAME)


def _is_ours(client: Mapping[str, str]) -> bool:
    return (
        _OURS in client.get("lib-name", "")
        or client.get("user") in _USERS
        or ("lib-name" not in client and client.get("cmd") == _SCRIPT)
    )


def _some(names: tuple[str, ...]) -> str:
    more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
    return ", ".join(names[:_SHOWN]) + more
