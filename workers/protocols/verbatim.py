"""JSON whose text is kept as it came, the order of its keys and the digits of its numbers included: a provider may have
signed what it sent."""

from __future__ import annotations

import json
import re
from typing import Any, Final, TypeVar

import msgspec
import orjson

from .bounds import Parts

Tree = dict[str, "Tree"] | str
"""Objects by their members; anything else is its JSON text."""
T = TypeVar("T")

_GLUED: Final = re.compile(rb"(?<=\})\s*(?:data:\s*)?(?=\{)")
_LEVELS: Final = 8
"""Objects within each other that are taken apart; what is deeper is one text."""
# These pass over the JSON of a part without making what it says: a MiB of numbers in some 3 ms.
_OBJECT: Final = msgspec.json.Decoder(dict[str, msgspec.Raw])
_ARRAY: Final = msgspec.json.Decoder(list[msgspec.Raw])


def members(text: str | bytes) -> dict[str, str]:
    """The members of an object, by name: the JSON text of each. A caller that has not bounded them asks `Parts` first.

    Raises:
        ValueError: it is no object, or no JSON.
    """
    return {name: str(raw, "utf-8") for name, raw in _read(_OBJECT, text).items()}


def elements(text: str | bytes) -> list[str]:
    """The JSON text of each element of an array. A caller that has not bounded them asks `Parts` first.

    Raises:
        ValueError: it is no array, or no JSON.
    """
    return [str(raw, "utf-8") for raw in _read(_ARRAY, text)]


def apart(text: bytes) -> list[bytes]:
    """The objects in ``text`` that have lost what stood between them, if it is none as a whole."""
    return _GLUED.split(text)


def listed(fields: dict[str, T]) -> list[T | dict[str, T]]:
    """The entries of the array for which an object stands: its values if they are numbered, as PHP writes a list with
    holes; else itself, as the one entry."""
    return [*fields.values()] if fields and all(map(str.isdecimal, fields)) else [fields]


def entries(text: str) -> list[str]:
    """The JSON text of each element of an array, or of what stands for it."""
    if not text.startswith("{"):
        return elements(text)
    return [text if isinstance(entry, dict) else entry for entry in listed(members(text))]


def value_of(text: str) -> Any:
    """Return the value of ``text``; None if it is no JSON that a request may have in it."""
    try:
        return orjson.loads(text)
    except ValueError:
        return None


def tree(text: str, value: Any, parts: Parts, levels: int = _LEVELS) -> Tree:
    """The objects within ``text``, which is the JSON of ``value``.

    Raises:
        ResponseTooLarge: they have more in them than ``parts`` has left.
    """
    if not levels or not isinstance(value, dict):
        return text
    parts.admit(value)
    return {name: tree(member, value[name], parts, levels - 1) for name, member in members(text).items()}


def merged(old: Tree, new: Tree) -> Tree:
    """``old`` with what ``new`` adds to it; where both have a value, the newer one, unless that is null."""
    if isinstance(old, dict) and isinstance(new, dict):
        for name, value in new.items():
            old[name] = merged(old[name], value) if name in old else value
        return old
    return old if new == "null" else new


def written(node: Tree) -> str:
    """Return the JSON text of ``node``."""
    if isinstance(node, str):
        return node
    return "{" + ",".join(f"{json.dumps(name)}:{written(value)}" for name, value in node.items()) + "}"


def _read(decoder: msgspec.json.Decoder[T], text: str | bytes) -> T:
    try:
        return decoder.decode(text)
    except msgspec.MsgspecError as error:
        raise ValueError(str(error)) from None
    except RecursionError:
        raise ValueError("too many levels") from None
