"""The commands that each role has of Redis, each as it can be asked for without being run.

deploy/users.acl grants the same; tests/unit/test_needs.py compares the two.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final, Literal

from palaver.feature import hash_tags
from palaver.vocabulary.ids import all_shards
from palaver.vocabulary.step_kinds import MODEL

Role = Literal["api", "worker", "flower"]
"""A user of deploy/users.acl; workers of models and of tools are one."""
Place = Literal["store", "broker"]
Command = Sequence[str]
"""A command with its arguments."""

_KEY: Final = f"{{p{all_shards(1)[0]}}}:preflight"
_AGENTS: Final = "{palaver:agents}:preflight"
_KEYS: Final = "{palaver:keys}:key:preflight"
_SHARED: Final = "{palaver:workers}:preflight"
_CHANNEL: Final = f"{{p{all_shards(1)[0]}}}:feed:preflight"
_BINDING: Final = "_kombu.binding.preflight"
_EVENTS: Final = "/{db}.celeryev/*"
"""Nothing has these names. Celery's events go by the database of the broker."""

_SCRIPTS: Final[Mapping[str, str]] = {
    "del": "",
    "exists": "",
    "expire": "1",
    "get": "",
    "hdel": "f",
    "hexists": "f",
    "hget": "f",
    "hgetall": "",
    "hincrby": "f 1",
    "hlen": "",
    "hmget": "f",
    "hset": "f 1",
    "hstrlen": "f",
    "hvals": "",
    "persist": "",
    "pexpire": "1",
    "pttl": "",
    "set": "1 EX 1",
    "unlink": "",
    "xadd": "* f 1",
    "xdel": "1-1",
    "xlen": "",
    "xrange": "- +",
    "xrevrange": "+ -",
    "xtrim": "MAXLEN 1",
    "zadd": "1 m",
    "zcard": "",
    "zcount": "0 1",
    "zpopmin": "",
    "zrange": "0 1",
    "zrangebyscore": "0 1",
    "zrank": "m",
    "zrem": "m",
    "zremrangebyscore": "0 1",
    "zscore": "m",
}
"""The commands that scripts and their callers use on a key, and the arguments behind the key."""
_STORE: Final[Sequence[str]] = (
    *(f"{name} {_KEY} {rest}" for name, rest in _SCRIPTS.items()),
    "eval return 0",
    f"evalsha {'0' * 40} 0",
    "info",
    "ping",
    f"publish {_CHANNEL} 1",
    "script load return",
    f"subscribe {_CHANNEL}",
    f"unsubscribe {_CHANNEL}",
    "time",
)
_NEEDS: Final[Mapping[tuple[Role, Place], Sequence[str]]] = {
    ("api", "store"): (
        *_STORE,
        f"hkeys {_KEY}",
        f"hset {_AGENTS} f 1",
        f"rename {_KEY} {_KEY}",
        f"zlexcount {_KEY} - +",
    ),
    ("api", "broker"): (f"lpush {MODEL.queue} 1", f"llen {MODEL.queue}"),
    ("worker", "store"): (
        *_STORE,
        "client id",
        "client list",
        f"get {_KEYS}",
        f"hget {_AGENTS} f",
        f"pubsub numsub {_CHANNEL}",
        f"zremrangebyrank {_KEY} 0 1",
    ),
    ("worker", "broker"): (
        f"blmpop 1 1 {MODEL.queue} RIGHT",
        f"llen {MODEL.queue}",
        f"lpush {MODEL.queue} 1",
        f"psubscribe {_EVENTS}",
        f"publish {_EVENTS} 1",
        f"punsubscribe {_EVENTS}",
        f"rpop {MODEL.queue}",
        f"sadd {_BINDING} 1",
        f"smembers {_BINDING}",
        f"srem {_BINDING} 1",
    ),
    ("flower", "store"): (),
    ("flower", "broker"): (
        f"llen {MODEL.queue}",
        f"psubscribe {_EVENTS}",
        "ping",
        f"publish {_EVENTS} 1",
        f"punsubscribe {_EVENTS}",
    ),
}


_OF_CLUSTERS: Final = (
    "asking",
    "cluster slots",
    f"hincrby {_SHARED} f 1",
    f"spublish {_CHANNEL} 1",
    f"ssubscribe {_CHANNEL}",
    f"sunsubscribe {_CHANNEL}",
)
"""What is asked of the masters of a cluster beside that: which slots they have, for the channels of these, and for how
workers share its shards."""
_WAITS: Final = {"fsync": "waitaof 1 0 1", "replicas": "wait 0 1"}
ESSENTIAL: Final = frozenset(
    {*_SCRIPTS, "blmpop", "eval", "evalsha", "script|load", "time", "cluster|slots", "spublish"}
)
"""Commands without which a worker does no step. Without others it is shown less, or knows less."""
OF_DEATHS: Final = frozenset({"client|id", "client|list", "pubsub|numsub"})
"""The commands that tell which workers are connected."""
OF_PROMISES: Final = frozenset({"wait", "waitaof"})
"""The commands that wait for a disk or for replicas."""


def needs(
    role: Role, places: Iterable[Place], db: int = 0, durability: str = "server", *, clustered: bool = False
) -> tuple[Command, ...]:
    """The commands that a role runs at the store, at the broker, or at a server that is both, in a database. A promise
    waits for what ``durability`` says; a store that is ``clustered`` is asked for more."""
    lines = dict.fromkeys(line for place in places for line in _NEEDS[role, place])
    # Who asks nothing of the store, as Flower, promises nothing.
    if "store" in places and _NEEDS[role, "store"]:
        lines |= dict.fromkeys(f"hset {tag}:preflight f 1" for tag in hash_tags())
        if waits := _WAITS.get(durability.partition("=")[0]):
            lines[waits] = None
        if clustered:
            lines |= dict.fromkeys(_OF_CLUSTERS)
    return tuple(tuple(line.replace("{db}", str(db)).split()) for line in lines)
