"""A Redis as its INFO describes it, as far as the safety of the stored data depends on that."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, Self

from palaver.late import dataclass

_KINDS: Final = (("valkey_version", "Valkey"), ("dragonfly_version", "Dragonfly"), ("redis_version", "Redis"))
_OK: Final = "ok"
NO_EVICTION: Final = "noeviction"
"""The one policy that loses nothing."""


@dataclass(frozen=True, slots=True)
class ServerState:
    """None where the server does not tell."""

    kind: str
    version: str
    protocol: str
    """The version of Redis that it behaves like."""
    mode: str
    """``standalone``, ``cluster`` or ``sentinel``."""
    primary: bool | None
    policy: str | None
    """The policy of eviction when its memory is full."""
    evicted: int | None
    """Keys, since it started."""
    append_only: bool | None
    append_written: bool | None
    """True if the last write to the append-only file went well; the next two are alike."""
    append_rewritten: bool | None
    snapshot_written: bool | None
    unsaved: int | None
    """Changes since the last snapshot."""
    replicas: int | None
    """The number of replicas that are connected and have the data that were there before them."""
    lag: int | None
    """Bytes that the replica furthest behind has not confirmed; None without replicas."""
    good_replicas: int | None
    """The number of replicas that count for `min-replicas-to-write`; None where that is not set."""

    @classmethod
    def of(cls, info: Mapping[str, Any]) -> Self:
        """From the answer to INFO, as redis-py reads it."""
        field, kind = next(((field, kind) for field, kind in _KINDS if field in info), ("", "Redis"))
        online = [replica for replica in _replicas(info) if replica.get("state") == "online"]
        sent = _number(info, "master_repl_offset")
        confirmed = [int(replica["offset"]) for replica in online if str(replica.get("offset", "")).isdigit()]
        # Valkey has it under a name of its own.
        told = str(info.get("redis_mode", info.get("server_mode", "standalone")))
        mode = "cluster" if _flag(info, "cluster_enabled") else told
        return cls(
            kind=kind,
            version=str(info.get(field, "?")),
            protocol=str(info.get("redis_version", "?")),
            mode=mode,
            primary=info["role"] == "master" if "role" in info else None,
            policy=str(info["maxmemory_policy"]) if "maxmemory_policy" in info else None,
            evicted=_number(info, "evicted_keys"),
            append_only=_flag(info, "aof_enabled"),
            append_written=_good(info, "aof_last_write_status"),
            append_rewritten=_good(info, "aof_last_bgrewrite_status"),
            snapshot_written=_good(info, "rdb_last_bgsave_status"),
            unsaved=_number(info, "rdb_changes_since_last_save"),
            replicas=len(online) if "connected_slaves" in info else None,
            lag=None if sent is None or not confirmed else max(0, sent - min(confirmed)),
            good_replicas=_number(info, "min_slaves_good_slaves"),
        )

    @property
    def disk_good(self) -> bool | None:
        """True if all that was last written to the disk went well."""
        outcomes = [
            outcome
            for outcome in (self.append_written, self.append_rewritten, self.snapshot_written)
            if outcome is not None
        ]
        return all(outcomes) if outcomes else None

    @property
    def major(self) -> int | None:
        """The first number of the version of Redis that it behaves like; None if that is none."""
        first = self.protocol.partition(".")[0]
        return int(first) if first.isdecimal() else None


def _replicas(info: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    return [info[name] for name in info if name[:5] == "slave" and name[5:].isdigit() and isinstance(info[name], dict)]


def _number(info: Mapping[str, Any], name: str) -> int | None:
    return int(info[name]) if str(info.get(name, "")).isdigit() else None


def _flag(info: Mapping[str, Any], name: str) -> bool | None:
    return bool(int(info[name])) if str(info.get(name, "")).isdigit() else None


def _good(info: Mapping[str, Any], name: str) -> bool | None:
    return info[name] == _OK if name in info else None
