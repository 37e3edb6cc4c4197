"""Findings about a Redis that conversations or deliveries are to be trusted to, judged."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final, Literal

from palaver.config.clusters import LIKE_CLUSTER
from palaver.config.sentinels import LIKE
from palaver.late import dataclass
from palaver.store.server.needs import OF_DEATHS, OF_PROMISES, Place
from palaver.store.server.server_state import NO_EVICTION, ServerState

Level = Literal["ok", "warning", "error"]
OLDEST: Final = 7
"""The oldest version of Redis, and those that behave like it, by its first number."""
LOGIN: Final = "login"
"""In place of a command, where no user of that name, or with that password, is let in."""
AWAY: Final = "away"
"""The check of masters of a cluster that do not answer, while others do."""
_USERS: Final = "load the deploy/users.acl of this version (docs/how-to/upgrade.md), or give this user these rights"
_MANAGED: Final = "give this user these rights; at a managed service see docs/how-to/managed-redis.md"
_UNTOLD: Final = "INFO does not tell it: look at the settings of the service"
_DISK: Final = "look at the server's log, its disk and its directory: it may refuse writes until that is mended"


_WRITES: Final = {
    "MISCONF": "make room on its disk, or mend its directory; it goes on by itself",
    "OOM": "raise its maxmemory, or delete what has ended (docs/how-to/sizing.md)",
    "READONLY": "name the primary, not a replica",
    "NOREPLICAS": "connect its replicas, or lower its min-replicas-to-write",
}
"""What is to be done where nothing is written, by the first word of the refusal."""


@dataclass(frozen=True, slots=True)
class Finding:
    """One look at one thing."""

    place: Place | Literal["archive", "issuer", "mcp", "tools"]
    check: str
    level: Level
    found: str
    """The state in a few words."""
    said: str = ""
    """Its consequence, unless the state is good; the same text for as long as the state is the same."""
    advice: str = ""
    never: bool = False
    """True if nothing can work like this, and nothing that comes by itself will change it."""
    names: tuple[str, ...] = ()
    """The names of what is refused: commands, or the login."""

    @property
    def sentence(self) -> str:
        """The sentence for the log."""
        return f"the Redis of the {self.place} {self.said}: {self.advice}"


def judge(place: Place, state: ServerState, durable_replicas: int = 0, *, clustered: bool = False) -> Iterator[Finding]:
    """Everything that INFO tells. The broker may forget: what it loses is delivered again.

    ``durable_replicas`` is how many replicas a promise waits for; ``clustered``, the address names a cluster.
    """
    yield _server(place, state)
    yield mode(place, state.mode, clustered=clustered)
    yield _role(place, state)
    yield _eviction(place, state)
    if place == "store":
        yield _persistence(state)
    yield _disk(place, state)
    if state.replicas or durable_replicas:
        yield _replication(place, state, durable_replicas)


def _server(place: Place, state: ServerState) -> Finding:
    summary = f"{state.kind} {state.version}"
    if state.major is not None and state.major < OLDEST:
        return Finding(
            place,
            "server",
            "error",
            summary,
            f"is too old ({summary})",
            "use Redis 7.0 or later, or Valkey",
            never=True,
        )
    return Finding(place, "server", "ok", summary)


def mode(place: Place, told: str, *, clustered: bool = False) -> Finding:
    """Judge what a server says that it is: ``standalone``, ``cluster`` or ``sentinel``."""
    match told:
        case "cluster" if clustered:
            return Finding(place, "mode", "ok", "cluster")
        case "cluster" if place == "broker":
            meaning = "is in cluster mode, where queues over several slots fail"
            how = f"use one server with `cluster-enabled no`, Sentinels, as {LIKE}, or RabbitMQ"
        case "cluster":
            meaning = "is one server of a cluster, and its address says nothing of the others"
            how = (
                f"name it as a cluster, as {LIKE_CLUSTER}, with a broker in PALAVER_BROKER_URL "
                "(docs/how-to/cluster.md), or use one server with `cluster-enabled no`"
            )
        case "sentinel":
            meaning = "is a Sentinel, which keeps no data"
            how = f"name it as one, with the service that it watches: {LIKE}"
        case _:
            return Finding(place, "mode", "ok", told)
    return Finding(place, "mode", "error", told, meaning, how, never=True)


def _role(place: Place, state: ServerState) -> Finding:
    if state.primary is None:
        return Finding(place, "role", "ok", _UNTOLD)
    if state.primary:
        return Finding(place, "role", "ok", "primary")
    how = f"name the primary, or a proxy or a DNS name that follows it, or Sentinels, as {LIKE}"
    return Finding(place, "role", "error", "replica", "is a replica, which takes no writes", how)


def _eviction(place: Place, state: ServerState) -> Finding:
    if state.policy is None:
        return Finding(place, "eviction", "ok", _UNTOLD)
    summary = f"maxmemory-policy {state.policy}" + (f", {state.evicted} keys evicted" if state.evicted else "")
    if state.policy == NO_EVICTION:
        return Finding(place, "eviction", "ok", summary)
    lost = "deliveries then come late" if place == "broker" else "runs and conversations are then lost"
    meaning = f"removes keys when its memory is full (maxmemory-policy {state.policy}), and {lost}"
    return Finding(place, "eviction", "warning", summary, meaning, "set `maxmemory-policy noeviction` there")


def _persistence(state: ServerState) -> Finding:
    if state.append_only is None:
        return Finding("store", "persistence", "ok", _UNTOLD)
    if state.append_only:
        return Finding("store", "persistence", "ok", "append-only file")
    unsaved = "" if state.unsaved is None else f", {state.unsaved} changes since the last snapshot"
    return Finding(
        "store",
        "persistence",
        "warning",
        f"no append-only file{unsaved}",
        "has no append-only file, so what came after its last snapshot is lost when it stops",
        "set `appendonly yes` there, as deploy/redis.conf does",
    )


def _disk(place: Place, state: ServerState) -> Finding:
    if state.disk_good is None:
        return Finding(place, "disk", "ok", _UNTOLD)
    failed = [
        name
        for name, good in (
            ("to write the append-only file", state.append_written),
            ("to rewrite the append-only file", state.append_rewritten),
            ("to write a snapshot", state.snapshot_written),
        )
        if good is False
    ]
    if not failed:
        return Finding(place, "disk", "ok", "the last writes went well")
    return Finding(place, "disk", "error", f"failed {failed[0]}", f"failed {' and '.join(failed)}", _DISK)


def _replication(place: Place, state: ServerState, needed: int) -> Finding:
    there = state.replicas or 0
    summary = f"{there} replicas" + ("" if state.lag is None else f", {state.lag} bytes behind")
    if there >= needed:
        return Finding(place, "replication", "ok", summary)
    meaning = f"has {there} replicas, and promises wait for {needed}, so they are refused"
    return Finding(place, "replication", "error", summary, meaning, "connect replicas, or change PALAVER_DURABILITY")


def split(state: ServerState, durable_replicas: int) -> Finding:
    """Judge whether a primary that may be replaced goes on taking what is lost then, when it is cut off."""
    if state.good_replicas is not None:
        return Finding("store", "split", "ok", f"min-replicas-to-write is set, {state.good_replicas} are good")
    if durable_replicas:
        return Finding("store", "split", "ok", f"promises wait for {durable_replicas} of {state.replicas} replicas")
    said = "goes on taking writes when it is cut off from its replicas, and these are lost once another is the primary"
    how = "set `min-replicas-to-write 1` and `min-replicas-max-lag 10` on all servers, or PALAVER_DURABILITY=replicas=1"
    return Finding("store", "split", "warning", "no min-replicas-to-write", said, how)


def rights(place: Place, user: str, refused: Sequence[str], unknown: Sequence[str]) -> Iterator[Finding]:
    """Yield the findings about a user's rights, compared with those that it needs."""
    missing = {*refused, *unknown}
    if deaths := sorted(missing & OF_DEATHS):
        yield _lacking(place, "deaths", "warning", user, deaths, "steps of a worker that dies wait for their leases")
    if waits := sorted(missing & OF_PROMISES):
        yield _lacking(place, "durability", "error", user, waits, "nothing is promised with this PALAVER_DURABILITY")
    # A process that was refused INFO is told of that by itself.
    apart = OF_DEATHS | OF_PROMISES | {"info"}
    refused, unknown = ([name for name in names if name not in apart] for names in (refused, unknown))
    if unknown:
        summary = f"no {_list(unknown)}"
        yield Finding(
            place,
            "commands",
            "error",
            summary,
            f"does not have {_list(unknown)}",
            "use Redis 7.0 or later, or Valkey, and rename no command there",
            never=True,
        )
    if refused:
        summary = f"{user} may not {_list(refused)}"
        meaning = f"does not let {user} use {_list(refused)}"
        yield Finding(place, "rights", "error", summary, meaning, _USERS, names=tuple(refused))
    if not refused and not unknown:
        yield Finding(place, "rights", "ok", f"{user} may do all that it has to")


def _lacking(place: Place, check: str, level: Level, user: str, names: Sequence[str], so: str) -> Finding:
    """Some commands are missing, and ``so`` is the one thing that follows."""
    meaning = f"does not let {user} use {_list(names)}, so {so}"
    return Finding(place, check, level, f"{user} may not {_list(names)}", meaning, _MANAGED, names=tuple(names))


def _list(names: Sequence[str]) -> str:
    return ", ".join(names[:8]) + (f" and {len(names) - 8} more" if len(names) > 8 else "")


def unlooked(place: Place, user: str, why: str) -> Finding:
    """INFO is refused."""
    meaning = f"does not let {user} use INFO, so it cannot be told whether it loses data ({why})"
    return Finding(place, "server", "warning", _UNTOLD, meaning, _MANAGED)


def unasked(place: Place, user: str) -> Finding:
    """Commands are not queued, and so cannot be asked for without being run."""
    meaning = f"does not queue commands, so it cannot be told what {user} may do before it does it"
    return Finding(place, "rights", "warning", _UNTOLD, meaning, _MANAGED)


def unwritable(place: Place, why: str) -> Finding:
    """A command that writes is refused to every user; ``why`` begins with the word for it."""
    how = _WRITES.get(why.partition(" ")[0].rstrip(":"), "look at its log")
    return Finding(place, "writes", "error", f"refused: {why}", f"takes no writes ({why})", how)


def unscripted(place: Place, why: str) -> Finding:
    """A script does not run."""
    meaning = f"does not run a script ({why})"
    return Finding(
        place, "scripts", "error", "no script runs", meaning, "use a Redis or a Valkey that runs Lua scripts"
    )


def unanswered(place: Place, why: str) -> Finding:
    """No server answers there."""
    how = "start it, or correct its address in PALAVER_REDIS_URL or PALAVER_BROKER_URL"
    return Finding(place, "answer", "error", why, f"does not answer ({why})", how)


def strangers(place: Place, user: str, why: str) -> Finding:
    """The login is refused."""
    meaning = f"refuses the login of {user} ({why})"
    how = "correct the user and the password in the address, or the server's users.acl"
    return Finding(place, "login", "error", "refused", meaning, how, names=(LOGIN,))
