"""A look at a cluster: whether its slots have masters, and these replicas, and what each master says of itself."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any, Final, get_args

from redis import ConnectionPool, Redis
from redis.exceptions import AuthenticationError, AuthorizationError, RedisError, ResponseError

from palaver.config.clusters import ClusterUrl
from palaver.config.server_lists import HostPort
from palaver.late import dataclass
from palaver.store.redis.cluster.slots import SLOTS, slot_of
from palaver.store.redis.cluster.topology import slot_ranges
from palaver.store.redis.connection import is_absent, is_closed
from palaver.store.redis.tls import ThreadTlsConnection
from palaver.store.server.findings import AWAY, Finding, Level, rights, strangers, unanswered
from palaver.store.server.needs import Role
from palaver.store.server.server_state import ServerState
from palaver.vocabulary.ids import MAX_SHARDS, all_shards

_WITHIN: Final = 4.0
"""Seconds for all connections together."""
_LEAST: Final = 0.25
_NAMED: Final = 3
"""Masters that a sentence names."""
_OURS: Final = frozenset(f"palaver-{role}" for role in get_args(Role))
"""The users of deploy/users.acl may not ask for settings, and a server keeps a list of who was refused what."""
_LEVELS: Final[Sequence[Level]] = ("ok", "warning", "error")
_SLOTS: Final = "cluster|slots"
_DISABLED: Final = "cluster support disabled"
_FULL_COVERAGE: Final = "cluster-require-full-coverage"
_ALONE: Final = (
    "name it as one server, as redis://HOST:PORT/0, or set `cluster-enabled yes` on each of the servers and make them "
    "a cluster (docs/how-to/cluster.md)"
)
_HOLES: Final = "bring back the masters that had them, or look at `redis-cli --cluster check` and `--cluster fix`"
_PARTIAL: Final = f"set `{_FULL_COVERAGE} no` on all of its servers, so that only what is on that master waits"
_AWAY: Final = (
    "start them; if they run, and the cluster knows them by addresses that lead nowhere from here, say in the address "
    "where they are: ?address_remap=KNOWN:PORT=REACHED:PORT"
)
_REPLICAS: Final = "give each of them a replica on another machine: `redis-cli --cluster add-node … --cluster-slave`"


@dataclass(frozen=True, slots=True)
class Master:
    """A master as a server of its cluster knows it."""

    address: HostPort
    """The address at which it is reached."""
    slots: frozenset[int]
    replicas: int

    @property
    def key(self) -> str | None:
        """A key that nothing has, of one of its slots; None if no shard is on it."""
        keys = (f"{{p{shard}}}:preflight" for shard in all_shards(MAX_SHARDS))
        return next((key for key in keys if slot_of(key) in self.slots), None)


def look_at_cluster(
    cluster: ClusterUrl,
    user: str,
    waits: Mapping[str, Any],
    look: Callable[[Redis, str | None], Sequence[Finding]],
) -> Iterator[Finding]:
    """Yield what is found. ``look`` returns what it finds at a master, of which it is given a key; it raises what Redis
    raises if there is no answer. ``waits`` are options of connections."""
    found = _masters(cluster, user, waits)
    if isinstance(found, Finding):
        yield found
        return
    seen: dict[HostPort, Sequence[Finding]] = {}
    silent: list[str] = []
    alone: list[str] = []
    partial: list[bool] = []
    for master in found:
        client = _client(cluster, master.address, waits, _WITHIN / len(found))
        try:
            seen[master.address] = look(client, master.key)
            if user not in _OURS:
                partial += _partial(client)
            if not master.replicas and not _followed(client):
                alone.append(str(master.address))
        except (RedisError, OSError) as error:
            silent.append(f"{master.address} ({type(error).__name__})")
        finally:
            with suppress(RedisError, OSError):
                client.close()
    yield _coverage(found, partial)
    if silent:
        summary = f"{len(silent)} of {len(found)} masters do not answer"
        said = f"has masters that do not answer, and what is on them waits: {_some(silent)}"
        yield Finding("store", AWAY, "error", summary, said, _AWAY)
    yield _replicas(found, alone)
    yield from merged(seen)


def _client(cluster: ClusterUrl, address: HostPort, waits: Mapping[str, Any], seconds: float) -> Redis:
    """Return a client of a server, which has so many seconds to connect."""
    security: dict[str, Any] = {"connection_class": ThreadTlsConnection} if cluster.encrypted else {}
    pool = ConnectionPool(
        **cluster.options(address), **security, **{**waits, "socket_connect_timeout": max(seconds, _LEAST)}
    )
    return Redis.from_pool(pool)


def _masters(cluster: ClusterUrl, user: str, waits: Mapping[str, Any]) -> list[Master] | Finding:
    """Return the masters, as the first server says that answers, or the reason why none does."""
    silent: list[str] = []
    for asked in cluster.places:
        client = _client(cluster, asked, waits, _WITHIN / len(cluster.places))
        try:
            # In two words: redis-py would read the answer, as something else.
            return masters_in(client.execute_command("CLUSTER", "SLOTS"), asked, dict(cluster.remapped))
        except (AuthenticationError, AuthorizationError) as error:
            return strangers("store", user, str(error))
        except ResponseError as error:
            if _DISABLED in str(error):
                said = "is no cluster: the server at its address has cluster support disabled"
                return Finding("store", "mode", "error", "standalone", said, _ALONE, never=True)
            if is_closed(error) or is_absent(error):
                refused, unknown = ([_SLOTS], []) if is_closed(error) else ([], [_SLOTS])
                return next(rights("store", user, refused, unknown))
            silent.append(f"{asked} ({type(error).__name__})")
        except (RedisError, OSError) as error:
            silent.append(f"{asked} ({type(error).__name__})")
        finally:
            with suppress(RedisError, OSError):
                client.close()
    return unanswered("store", f"no server of the cluster: {', '.join(silent)}")


def masters_in(answer: Sequence[Any], asked: HostPort, remapped: Mapping[HostPort, HostPort]) -> list[Master]:
    """Read the answer to ``CLUSTER SLOTS`` of the server that was ``asked``."""
    slots: dict[HostPort, set[int]] = {}
    replicas: dict[HostPort, int] = {}
    for part in slot_ranges(answer, asked, remapped):
        slots.setdefault(part.master, set()).update(range(part.first, part.last + 1))
        replicas[part.master] = part.replicas
    return [Master(address, frozenset(slots[address]), replicas[address]) for address in slots]


def _partial(client: Redis) -> list[bool]:
    """Return whether a master serves its slots while others have none; nothing if it does not tell."""
    try:
        told = client.config_get(_FULL_COVERAGE)
    except ResponseError:
        return []
    return [told[_FULL_COVERAGE] == "no"] if isinstance(told, dict) and _FULL_COVERAGE in told else []


def _followed(client: Redis) -> bool:
    """Tell whether a master has a replica: the others do not name one to which nothing has been written."""
    try:
        return bool(ServerState.of(client.info("replication")).replicas)
    except ResponseError:
        return False


def _coverage(masters: Sequence[Master], partial: Sequence[bool]) -> Finding:
    covered = sum(len(master.slots) for master in masters)
    summary = f"{covered} of {SLOTS} slots"
    if covered < SLOTS:
        said = f"has no master for {SLOTS - covered} of its {SLOTS} slots, so what is there is away"
        return Finding("store", "coverage", "error", summary, said, _HOLES)
    if not all(partial):
        said = f"stops as a whole while one of its masters is away (`{_FULL_COVERAGE} yes`)"
        return Finding("store", "coverage", "warning", f"{summary}, {_FULL_COVERAGE} yes", said, _PARTIAL)
    told = f"{_FULL_COVERAGE} no" if partial else f"{_FULL_COVERAGE} is not told: it should be no"
    return Finding("store", "coverage", "ok", f"{summary}, {told}")


def _replicas(masters: Sequence[Master], alone: Sequence[str]) -> Finding:
    """``alone`` are those of the masters that answered and have no replica."""
    if alone:
        said = f"has masters without a replica, and while one is away, what is on it waits: {_some(alone)}"
        summary = f"{len(masters)} masters, {len(alone)} without a replica"
        return Finding("store", "masters", "warning", summary, said, _REPLICAS)
    return Finding("store", "masters", "ok", f"{len(masters)} masters, each with a replica")


def merged(seen: Mapping[HostPort, Sequence[Finding]]) -> Iterator[Finding]:
    """Yield one finding for each thing that was looked at, of what the masters were found to be: the worst, and where.
    The sentence is the same for as long as the state is."""
    checks = dict.fromkeys(finding.check for findings in seen.values() for finding in findings)
    for check in checks:
        found = [(address, each) for address, findings in seen.items() for each in findings if each.check == check]
        worst = max((each.level for _, each in found), key=_LEVELS.index)
        bad = [(address, each) for address, each in found if each.level == worst]
        said: dict[str, list[str]] = {}
        for address, each in bad:
            said.setdefault(each.said, []).append(str(address))
        everywhere = len(said) == 1 and len(bad) == len(seen)
        yield replace(
            bad[0][1],
            found=_some(list(dict.fromkeys(each.found for _, each in bad)), "; "),
            said=bad[0][1].said
            if worst == "ok" or everywhere
            else _some([f"{what} (at {_some(where)})" for what, where in said.items()], ", and it "),
            never=any(each.never for _, each in bad),
            names=tuple(dict.fromkeys(name for _, each in bad for name in each.names)),
        )


def _some(things: Sequence[str], between: str = ", ") -> str:
    more = len(things) - _NAMED
    return between.join(things[:_NAMED]) + (f" and {more} more" if more > 0 else "")
