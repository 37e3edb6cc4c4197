"""What a tool answered or raised, as the model is told of it: bounded, whatever it is."""

from __future__ import annotations

import asyncio
import json
import re
import time
import tracemalloc
from collections import deque
from collections.abc import AsyncIterator, Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel

from palaver import tool
from palaver.errors import ErrorClass, InvalidToolCall, RetryableToolError, StaleLease, ToolError, ToolTimeout
from palaver.schemas.models import ToolCall
from palaver.tools.rendering import MAX_RESULT_CHARS, render
from palaver.vocabulary.limits import exceeded, limit_of
from workers.sources import containment
from workers.sources.containment import (
    Interrupted,
    ToolAnswer,
    contained,
    failed,
    failing,
    failure_of,
    left_behind,
    presented,
)
from workers.steps.step_functions import answer

CALL = ToolCall(id="call_1", name="look_up", arguments='{"city": "Ulm"}')


@tool
def look_up(city: str) -> str:
    """Looks it up."""
    return city


LOOK_UP = look_up.declaration


class Silent:
    """Has no text."""

    def __str__(self) -> str:
        raise RuntimeError("nothing to say")


class Leaving:
    """Ends the program when it is asked for its text."""

    def __str__(self) -> str:
        raise SystemExit


class Wordy:
    """Has more text than there is room for."""

    def __str__(self) -> str:
        return "w" * 10 * MAX_RESULT_CHARS


class Sly(str):
    """Lies about its length."""

    def __len__(self) -> int:
        return 1

    def __getitem__(self, _: Any) -> str:
        raise RuntimeError("not a part of me")


class Point(BaseModel):
    """A place."""

    x: int


@dataclass
class Pair:
    """Two things."""

    left: Any
    right: Any


def circular() -> list[object]:
    loop: list[object] = []
    loop.append(loop)
    return loop


def nested(levels: int) -> list[object]:
    inner: list[object] = []
    for _ in range(levels):
        inner = [inner]
    return inner


async def later() -> str:
    return "never"


async def stream() -> AsyncIterator[int]:
    yield 1


@pytest.mark.parametrize(
    ("result", "said"),
    [
        (circular(), "nested deeper than 64 levels, or in itself"),
        (nested(100_000), "nested deeper"),
        (Silent(), "cannot be written as JSON: RuntimeError"),
        ({"a": Silent()}, "RuntimeError"),
        ([Leaving()], "SystemExit"),
        (10**6000, "ValueError"),
        ((each for each in "ab"), "a generator: return a list"),
        (stream(), "an asynchronous generator: gather what it yields"),
    ],
    ids=["circular", "deep", "silent", "silent inside", "leaving", "a long number", "generator", "async generator"],
)
def test_a_result_that_cannot_be_told_is_an_error_of_the_tool(result: object, said: str) -> None:
    with pytest.raises(ToolError, match=f"look_up answered with .*{said}"):
        presented(LOOK_UP, result)


def test_a_coroutine_that_nobody_awaits_is_an_error_of_the_tool() -> None:
    with pytest.raises(ToolError, match="async def"):
        presented(LOOK_UP, later())


@pytest.mark.parametrize(
    ("result", "text"),
    [
        (None, "null"),
        (b"\xffbytes", "�bytes"),
        (Point(x=1), '{"x":1}'),
        ([Point(x=1), Pair(None, {True: 1.5, None: float("nan"), "ß": "\n"})],
         '[{"x":1}, {"left": null, "right": {"true": 1.5, "null": NaN, "ß": "\\n"}}]'),
        ((1, {2}, deque(["3"])), '[1, [2], ["3"]]'),
        (Sly("whole"), "whole"),
        ({Sly("key"): Sly("value")}, '{"key": "value"}'),
    ],
)  # fmt: skip
def test_results_of_many_kinds_are_json(result: object, text: str) -> None:
    assert render(result) == text


PLAIN = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20)


@given(
    st.recursive(
        PLAIN, lambda inner: st.lists(inner, max_size=80) | st.dictionaries(st.text(max_size=5), inner), max_leaves=200
    ).filter(lambda value: not isinstance(value, str))
)
@pytest.mark.slow
def test_plain_results_are_what_json_makes_of_them(result: object) -> None:
    assert render(result) == json.dumps(result, ensure_ascii=False)


def numbers() -> Iterator[int]:
    """Counts for ever."""
    number = 0
    while True:
        yield number
        number += 1


class Endless(deque[int]):
    """A sequence that does not end."""

    def __iter__(self) -> Iterator[int]:
        return numbers()


@pytest.mark.parametrize(
    "result",
    [
        "x" * 10**8,
        ["y" * 10**8],
        b"z" * 10**8,
        pytest.param(Endless(), marks=pytest.mark.slow),
        Wordy(),
        {"a": [Wordy()]},
        pytest.param(["", *"q" * 10**6], marks=pytest.mark.slow),
    ],
    ids=["text", "text inside", "bytes", "endless", "wordy", "wordy inside", "many"],
)
def test_what_is_told_bounds_the_work(result: object) -> None:
    """Cut before it is encoded: nothing is copied whole, and nothing is gone through to its end."""
    before = exceeded["tool_result"]
    tracemalloc.start()
    text = render(result)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert len(text) < MAX_RESULT_CHARS + 150
    assert "\n[cut: " in text[MAX_RESULT_CHARS // 2 - 100 : MAX_RESULT_CHARS // 2 + 10]
    assert peak < 40 * MAX_RESULT_CHARS
    assert exceeded["tool_result"] == before + 1


def test_edited_arguments_are_told_with_the_result() -> None:
    message = answer(CALL, render({"sun": True}), edited=True).message
    assert message.content == '[The user changed the arguments of this call to {"city": "Ulm"}]\n{"sun": true}'
    assert (message.call_id, message.name, message.is_error) == ("call_1", "look_up", False)


class Mute(ToolError):
    """Raises when it is asked what happened."""

    def __str__(self) -> str:
        raise RuntimeError("mute")


class Vague(Exception):
    """Says what is no text."""

    def __str__(self) -> str:
        return Sly("vague")


class Late(RetryableToolError):
    """Asks for a pause that is none."""

    def __init__(self) -> None:
        super().__init__("later")
        self.retry_after = "soon"  # type: ignore[assignment]


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (ValueError("no such city"), "look_up failed: ValueError: no such city"),
        (ValueError("x" * 100_000_000), "look_up failed: ValueError: x"),
        (Mute(), r"which cannot say what happened \(RuntimeError\)"),
        (Vague(), "look_up failed: Vague: vague"),
        (Late(), "later"),
        (StaleLease("taken"), "StaleLease: taken"),
        (GeneratorExit(), "GeneratorExit"),
        (type("N" * 10_000, (Exception,), {})("x"), "N" * 100 + ": x"),
    ],
    ids=["plain", "long", "mute", "vague", "late", "an order of ours", "generator exit", "a long name"],
)
def test_whatever_a_tool_raises_is_its_failure_in_few_words(error: BaseException, said: str) -> None:
    with pytest.raises(ToolError, match=said) as raised, failing(LOOK_UP):
        raise error
    assert len(str(raised.value)) < limit_of("tool_error") + 200
    assert failure_of(raised.value).error_class is ErrorClass.TOOL_ERROR


def test_what_a_tool_means_by_its_exception_is_kept() -> None:
    again = failed(LOOK_UP, RetryableToolError("busy", retry_after=2))
    assert isinstance(again, RetryableToolError)
    assert again.retry_after == 2
    assert isinstance(failed(LOOK_UP, InvalidToolCall("no such city")), InvalidToolCall)
    with pytest.raises(Interrupted), failing(LOOK_UP):
        raise Interrupted


async def test_a_tool_that_blocks_the_loop_is_named_in_the_log(caplog: pytest.LogCaptureFixture) -> None:
    @tool(inline=True)
    def ponder() -> str:
        """Takes its time."""
        time.sleep(0.3)
        return "42"

    assert await contained(ponder.declaration, ponder) == "42"
    assert re.search(r"tool ponder held up every step of its process for \d+\.\d s", caplog.text)


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody waits for tools that do not stop."""
    monkeypatch.setattr(containment, "GRACE", 0.01)


async def deaf(until: asyncio.Event, begun: asyncio.Event) -> str:
    """Swallows every cancel."""
    begun.set()
    while not until.is_set():
        with suppress(asyncio.CancelledError):
            await until.wait()
    return "done"


async def ends(waiting: asyncio.Task[ToolAnswer], until: asyncio.Event) -> bool:
    """Whether it ends before the tool does."""
    try:
        done, _ = await asyncio.wait([waiting], timeout=5)
        return bool(done)
    finally:
        until.set()


async def test_a_call_that_does_not_stop_when_its_time_is_up_is_left_behind(impatient: None) -> None:
    until, begun = asyncio.Event(), asyncio.Event()
    hasty = LOOK_UP.model_copy(update={"timeout": 0.01})
    waiting = asyncio.create_task(left_behind(hasty, contained(hasty, lambda: deaf(until, begun))))
    assert await ends(waiting, until)
    assert begun.is_set()
    with pytest.raises(ToolTimeout):
        await waiting


async def test_a_call_that_does_not_stop_when_it_is_cancelled_is_left_behind(impatient: None) -> None:
    until, begun = asyncio.Event(), asyncio.Event()
    waiting = asyncio.create_task(left_behind(LOOK_UP, contained(LOOK_UP, lambda: deaf(until, begun))))
    await begun.wait()
    waiting.cancel()
    assert await ends(waiting, until)
    assert waiting.cancelled()


async def test_a_call_that_finishes_when_it_is_cancelled_has_its_result() -> None:
    begun = asyncio.Event()

    async def finishes() -> str:
        begun.set()
        with suppress(asyncio.CancelledError):
            await asyncio.Event().wait()
        return "done"

    waiting = asyncio.create_task(left_behind(LOOK_UP, contained(LOOK_UP, finishes)))
    await begun.wait()
    waiting.cancel()
    await asyncio.wait([waiting])
    assert not waiting.cancelled()
    assert waiting.result() == "done"


async def test_what_a_call_on_a_loop_answers_and_raises_comes_through() -> None:
    async def fails() -> str:
        raise ValueError("no")

    assert await left_behind(LOOK_UP, contained(LOOK_UP, lambda: "Ulm")) == "Ulm"
    with pytest.raises(ToolError, match="ValueError: no"):
        await left_behind(LOOK_UP, contained(LOOK_UP, fails))
