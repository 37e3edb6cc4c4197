"""Patterns of wordings, made so that the search for many of them at once is quick.

A search passes over a character in one step if no alternative of the pattern begins with it. The engine knows that of
alternatives that begin with such a character, and not of those that begin with a group or with the edge of a word.
"""

from __future__ import annotations

import re
from functools import cached_property


class Wording:
    """Patterns, each of which begins with a character that stands for itself. They are compiled at the first search:
    many processes never see such an error."""

    def __init__(self, *patterns: str) -> None:
        self._patterns = patterns

    @cached_property
    def _pattern(self) -> re.Pattern[str]:
        return re.compile("|".join(self._patterns))

    def search(self, text: str) -> re.Match[str] | None:
        """Look for any of them."""
        return self._pattern.search(text)


def each(beginnings: str, rest: str = "") -> str:
    """Match one of the ``beginnings``, which have ``|`` between them, and the ``rest`` behind it."""
    return "|".join(beginning + rest for beginning in beginnings.split("|"))


def words(beginnings: str, rest: str = "") -> str:
    """As `each`, where a word begins."""
    return each("|".join(rf"{word[0]}(?<=\b{word[0]}){word[1:]}" for word in beginnings.split("|")), rest)
