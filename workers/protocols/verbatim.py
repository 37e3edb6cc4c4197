"""JSON whose text is kept as it came, the order of its keys and the digits of its numbers included: a provider may have
signed what it sent."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from typing import Any, Final

import orjson

Tree = dict[str, "Tree"] | str
"""Objects by their members; anything else is its JSON text."""

_SPACE: Final = re.compile(r"[ \t\n\r]*")
_LEVELS: Final = 8
"""Objects within each other that are taken apart; what is deeper is one text."""
_string: Final[Callable[[str, int, bool], tuple[str, int]]] = json.decoder.scanstring  # type: ignore[attr-defined]
_value: Final[Callable[[str, int], tuple[object, int]]] = json.JSONDecoder().raw_decode


def members(text: str) -> dict[str, str]:
    """The members of an object, by name: the JSON text of each.

    Raises:
        ValueError: it is no object, or no JSON.
    """
    return dict(_parts(text, "{", "}"))


def elements(text: str) -> list[str]:
    """The JSON text of each element of an array.

    Raises:
        ValueError: it is no array, or no JSON.
    """
    return [value for _, value in _parts(text, "[", "]")]


def value_of(text: str) -> Any:
    """What ``text`` says; None if it is no JSON that a request may have in it."""
    try:
        return orjson.loads(text)
    except ValueError:
        return None


def tree(text: str, levels: int = _LEVELS) -> Tree:
    """The objects within ``text``, which is JSON."""
    if not levels or not text.startswith("{"):
        return text
    return {name: tree(value, levels - 1) for name, value in members(text).items()}


def merged(old: Tree, new: Tree) -> Tree:
    """``old`` with what ``new`` adds to it; where both have a value, the newer one, unless that is null."""
    if isinstance(old, dict) and isinstance(new, dict):
        for name, value in new.items():
            old[name] = merged(old[name], value) if name in old else value
        return old
    return old if new == "null" else new


def written(found: Tree) -> str:
    """The JSON text of it."""
    if isinstance(found, str):
        return found
    return "{" + ",".join(f"{json.dumps(name)}:{written(value)}" for name, value in found.items()) + "}"


def _parts(text: str, opening: str, closing: str) -> Iterator[tuple[str, str]]:
    """The parts of an object or an array: the name of each, where it has one, and its text."""
    place = _over(text, opening, 0)
    while text[place : place + 1] != closing:
        name = ""
        if opening == "{":
            name, place = _string(text, _over(text, '"', place, space=False), True)
            place = _over(text, ":", place)
        try:
            end = _value(text, place)[1]
        except RecursionError:
            raise ValueError("too many levels") from None
        yield name, text[place:end]
        place = _behind(text, end)
        if text[place : place + 1] != closing:
            place = _over(text, ",", place)


def _over(text: str, sign: str, place: int, *, space: bool = True) -> int:
    """Behind ``sign``, which is next, and behind the white space around it. Raises ValueError if it is not next."""
    place = _behind(text, place)
    if text[place : place + 1] != sign:
        raise ValueError(f"no {sign} where one belongs")
    return _behind(text, place + 1) if space else place + 1


def _behind(text: str, place: int) -> int:
    """Behind the white space at ``place``."""
    space = _SPACE.match(text, place)
    assert space is not None  # none is enough
    return space.end()
