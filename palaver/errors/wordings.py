"""Patterns of wordings, made so that the search for many of them at once is quick.

A search passes over a character in one step if no alternative of the pattern begins with it. The engine knows that of
alternatives that begin with such a character, and not of those that begin with a group or with the edge of a word.
"""

from __future__ import annotations

import re


def wording(*patterns: str) -> re.Pattern[str]:
    """Match any of them. Each begins with a character that stands for itself."""
    return re.compile("|".join(patterns))


def each(beginnings: str, rest: str = "") -> str:
    """Match one of the ``beginnings``, which have ``|`` between them, and the ``rest`` behind it."""
    return "|".join(beginning + rest for beginning in beginnings.split("|"))


def words(beginnings: str, rest: str = "") -> str:
    """As `each`, where a word begins."""
    return each("|".join(rf"{word[0]}(?<=\b{word[0]}){word[1:]}" for word in beginnings.split("|")), rest)
