"""The slots of keys, as a cluster has them, and what it would refuse, on any server.

Where two keys have one hash tag, and only there, their slot is one for certain.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Final

import redis

from palaver.store.redis import fleet_keys, provider_keys

_KEYLESS: Final = frozenset(
    (
        *("ACL", "CLIENT", "COMMAND", "CONFIG", "DBSIZE", "FLUSHALL", "INFO", "KEYS", "LATENCY", "MONITOR", "PING"),
        *("PUBLISH", "PUBSUB", "SCAN", "SCRIPT", "SELECT", "SLOWLOG", "TIME", "WAIT", "WAITAOF"),
    )
)
_ALL_KEYS: Final = frozenset(("DEL", "EXISTS", "MGET", "RENAME", "TOUCH", "UNLINK", "WATCH"))
_BEHIND_A_WORD: Final = frozenset(("DEBUG", "MEMORY", "OBJECT"))
_ANYWHERE: Final = (fleet_keys.cancel_channel(""), provider_keys.PROVIDERS)
"""Channels that scripts of any slot publish on: a cluster passes their few messages on to all of its servers."""
_BROKERS: Final = frozenset({"LPUSH"})
"""Commands of scripts whose keys are the broker's: scripts use them only where it is the very same server."""
crossings: list[str] = []
"""What a cluster would have refused in the present test."""


def tag_of(key: Any) -> str:
    """The part of a key that its slot is made of."""
    text = key.decode() if isinstance(key, bytes) else str(key)
    _, opened, rest = text.partition("{")
    tag, closed, _ = rest.partition("}")
    return tag if opened and closed and tag else text


def tags_of(command: Sequence[Any]) -> frozenset[str]:
    """The tags of all keys of a command that a client sends."""
    # redis-py names some commands by two words.
    name, *behind = str(command[0]).upper().split()
    args = [*behind, *command[1:]]
    if name in _KEYLESS:
        return frozenset()
    if name in ("EVAL", "EVALSHA"):
        return frozenset(map(tag_of, args[2 : 2 + int(args[1])]))
    if name in _BEHIND_A_WORD:
        args = args[1:]
    return frozenset(map(tag_of, args if name in _ALL_KEYS else args[:1]))


def refused(command: Sequence[Any]) -> Iterator[str]:
    """Why a cluster would refuse this command, if it would."""
    tags = tags_of(command)
    if len(tags) > 1:
        yield f"{command[0]} is about several slots: {sorted(tags)}"


def refused_together(commands: Sequence[Sequence[Any]], *, transaction: bool) -> Iterator[str]:
    """Why a cluster would refuse some of what is sent together, or not know where it is to be carried out: a
    transaction is about one slot, and other commands are sent to the server of each."""
    tags = frozenset[str]().union(*map(tags_of, commands))
    if transaction and len(tags) > 1:
        yield f"a transaction is about several slots: {sorted(tags)}"
    elif len(tags) > 1:
        for command in commands:
            if not tags_of(command):
                yield f"{command[0]} may be carried out by the server of any of {sorted(tags)}"
    for command in commands:
        yield from refused(command)


def refused_in_script(first: bytes | None, name: str, args: Sequence[Any]) -> Iterator[str]:
    """Why a cluster would refuse a command of a script whose KEYS begin with ``first``: it leaves their slot."""
    used: Iterable[Any] = args if name in _ALL_KEYS else args[:1]
    if name == "PUBLISH":
        used = [channel for channel in used if not channel.decode().startswith(_ANYWHERE)]
    elif name in _KEYLESS or name in _BROKERS:
        return
    for key in used:
        if first is None or tag_of(key) != tag_of(first):
            yield f"a script about {first!r} calls {name} {key!r}"


_QUOTED: Final = re.compile(rb'"((?:[^"\\]|\\.)*)"')
_OF_A_SCRIPT: Final = re.compile(rb"^\S+ \[\d+ lua\] ")
_SCRIPT: Final = re.compile(rb'^\S+ \[[^]]*\] "eval(?:sha)?" ', re.IGNORECASE)
_SEEN: Final = b"all of it is seen"


@contextmanager
def watched_scripts(url: str) -> Iterator[Callable[[], None]]:
    """Have what scripts on the server call within the block, though a cluster would refuse it, among the ``crossings``
    behind it, and when what is yielded is called."""
    with redis.Redis.from_url(url) as client, redis.Redis.from_url(url).monitor() as monitor:
        first: bytes | None = None

        def look() -> None:
            nonlocal first
            client.echo(_SEEN)
            while _SEEN not in (line := monitor.connection.read_response(disable_decoding=True)):
                if _SCRIPT.match(line):
                    words = _QUOTED.findall(line)
                    first = words[3] if int(words[2]) else None
                elif _OF_A_SCRIPT.match(line):
                    name, *args = _QUOTED.findall(line)
                    crossings.extend(refused_in_script(first, name.decode().upper(), args))

        yield look
        look()
