"""JSON pointers (RFC 6901): the place of a value in a document."""

from __future__ import annotations

from typing import Final

from palaver.vocabulary.limits import limit_of

Path = tuple[str | int, ...]
_LONGEST: Final = 300
_LONGEST_NAME: Final = limit_of("key_text")


def pointer(path: Path) -> str:
    """The pointer to what ``path`` leads to, cut where a hostile key would make it long."""
    return "".join(f"/{_escaped(str(part))[:_LONGEST_NAME]}" for part in path)[:_LONGEST]


def names_in(text: str) -> list[str]:
    """The names on the way to what the pointer ``text`` leads to."""
    return [part.replace("~1", "/").replace("~0", "~") for part in text.split("/")[1:]]


def _escaped(name: str) -> str:
    return name.replace("~", "~0").replace("/", "~1")
