"""Lists in one variable, with commas between their entries."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


def parts(text: str) -> tuple[str, ...]:
    """The entries of a list, without the blanks around them."""
    return tuple(part.strip() for part in text.split(",") if part.strip())


def entries(text: str, entry: Callable[[str], T]) -> tuple[T, ...]:
    """The entries of a list, each as ``entry`` reads it. Raises ValueError, which quotes the one that does not fit."""
    found = []
    for part in parts(text):
        try:
            found.append(entry(part))
        except ValueError as error:
            raise ValueError(f"{part[:80]!r} {error}") from None
    return tuple(found)
