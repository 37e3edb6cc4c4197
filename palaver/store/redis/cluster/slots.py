"""The slots of a cluster that commands are about."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from redis.crc import key_slot

SLOTS: Final = 16384
_KEYLESS: Final = frozenset(
    (
        *("ACL", "CLIENT", "CLUSTER", "COMMAND", "CONFIG", "DBSIZE", "FLUSHALL", "INFO", "KEYS", "LATENCY", "PING"),
        *("PUBLISH", "PUBSUB", "SCAN", "SCRIPT", "SLOWLOG", "TIME", "WAIT", "WAITAOF"),
    )
)
_ALL_KEYS: Final = frozenset(("DEL", "EXISTS", "MGET", "RENAME", "TOUCH", "UNLINK"))
_BEHIND_A_WORD: Final = frozenset(("MEMORY", "OBJECT", "XINFO"))


def slot_of(key: str | bytes) -> int:
    """Return the slot of a key or of a channel."""
    return key_slot(key.encode() if isinstance(key, str) else key)


def slot_of_command(command: Sequence[Any]) -> int | None:
    """Return the slot that a command is about; None if it has no key.

    Raises:
        ValueError: its keys are of several slots.
    """
    # redis-py names some commands by two words.
    name, *behind = str(command[0]).upper().split()
    args = [*behind, *command[1:]]
    if name in _KEYLESS:
        return None
    if name in ("EVAL", "EVALSHA"):
        used = args[2 : 2 + int(args[1])]
    elif name in _ALL_KEYS:
        used = args
    else:
        used = args[1:2] if name in _BEHIND_A_WORD else args[:1]
    slots = {slot_of(key) for key in used}
    if len(slots) > 1:
        raise ValueError(f"{name} is about keys of {len(slots)} slots")
    return slots.pop() if slots else None


def slots_of_commands(commands: Sequence[Sequence[Any]], home: int) -> list[int]:
    """Return the slot at whose master each of these is carried out. One without a key follows the one before it, or the
    first that has one; at ``home`` if none has."""
    slots = [slot_of_command(command) for command in commands]
    last = next((slot for slot in slots if slot is not None), home)
    placed = []
    for slot in slots:
        last = last if slot is None else slot
        placed.append(last)
    return placed
