"""`eventually` waits for a condition and says what it last saw."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest

from tests.waiting import aeventually, eventually


def counter() -> Iterator[int]:
    yield from range(100)


def test_the_first_truthy_value_is_returned() -> None:
    numbers = counter()
    assert eventually(lambda: next(numbers), every=0.001) == 1


def test_an_exception_means_not_yet() -> None:
    seen: list[int] = []

    def condition() -> int:
        seen.append(len(seen))
        return seen[3]

    assert eventually(condition, every=0.001) == 3


def test_the_error_says_why_and_what_was_last_seen() -> None:
    with pytest.raises(AssertionError, match=r"the sky falls: not within 0.01 s; the last try gave \[\]"):
        eventually(list, within=0.01, every=0.001, why="the sky falls")
    with pytest.raises(AssertionError, match="raised KeyError") as caught:
        eventually(lambda: {"y": 1}["x"], within=0.01, every=0.001)
    assert isinstance(caught.value.__cause__, KeyError)


async def test_async_conditions_and_plain_ones() -> None:
    numbers = counter()

    async def condition() -> int:
        return next(numbers)

    assert await aeventually(condition, every=0.001) == 1
    assert await aeventually(lambda: next(numbers), every=0.001) == 2


async def test_a_hanging_condition_is_given_up() -> None:
    with pytest.raises(AssertionError, match="the last try raised TimeoutError"):
        await aeventually(asyncio.Event().wait, within=0.01, every=0.001)
