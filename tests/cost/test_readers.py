"""No answer holds a worker's loop: of every protocol, streamed or not, at the largest size that is taken in; nor does
an error answer."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial

import orjson
import pytest

from features.mcp_client.stdio_transport import StdioChannel
from features.mcp_client.wire import InvalidAnswer, messages_of
from palaver.client.answers import MAX_ANSWER
from palaver.errors import ProviderError, ProviderHTTPError, classify
from palaver.incoming.event_stream import EventParser, EventTooLong
from palaver.schemas.protocols import ProtocolName
from palaver.vocabulary.limits import limit_of
from tests.cost.hostile_answers import error_bodies, shapes
from workers.protocols import PROTOCOLS, AnswerReader

RATIO = 8
"""How much longer than the floor a piece may hold the loop: the floor takes some 10 ms, and nobody is to wait for more
than 50. What is slowest takes three times the floor; looking at each element in Python took fifty times."""
FLOOD_RATIO = 6
"""The same of 64 KiB of lines that say nothing, after which others have their turn."""
JUDGED_RATIO = 2.5
"""The same of what a step makes of an error: the slowest takes once the floor."""
JUDGED = 3
"""Times that a step asks what an error means: whether the conversation was too long, whether what was sent back was not
taken, and what is to follow."""
PIECE = 64 * 1024
"""Bytes that come at once, at most."""
_DOCUMENT = b"[" + b",".join([b"[]"] * 100_000) + b"]"


def _floor() -> float:
    """Seconds that JSON with very many values takes, whatever is done with it."""
    begun = time.thread_time()
    orjson.loads(_DOCUMENT)
    return time.thread_time() - begun


@pytest.fixture(scope="module")
def floor() -> float:
    return min(_floor() for _ in range(5))


def taken(act: Callable[[], object]) -> tuple[float, ProviderError | None]:
    """Seconds of the loop, and how it was refused, if it was."""
    refused, begun = None, time.thread_time()
    try:
        act()
    except ProviderError as error:
        refused = error
    return time.thread_time() - begun, refused


def judge(error: ProviderError) -> None:
    """Ask what it means, as often as a step does, without a pause."""
    for _ in range(JUDGED):
        classify(error, source="model", provider="fake", model="x")


def holds(reader: AnswerReader, data: bytes, *, streamed: bool) -> Iterator[tuple[float, ProviderError | None]]:
    """What each piece of the answer takes, and then the reply."""
    pieces = [data[place : place + PIECE] for place in range(0, len(data), PIECE)]
    acts: list[Callable[[], object]] = [partial(reader.read, data)]
    if streamed:
        acts = [partial(reader.feed, piece) for piece in pieces]
    for act in (*acts, reader.reply):
        seconds, refused = taken(act)
        yield seconds, refused
        if refused:
            return


def over(ratio: float, floor: float, seconds: Callable[[], float]) -> float | None:
    """How many floors it takes, if they are more than `ratio` each time.

    A machine changes its pace, and something else may have it: behind the first try, the floor is taken beside each.
    """
    least = seconds() / floor
    for _ in range(4):
        if least <= ratio:
            return None
        before, took = _floor(), seconds()
        least = min(least, took / max(before, _floor()))
    return round(least, 1) if least > ratio else None


@pytest.mark.parametrize("streamed", [True, False], ids=["streamed", "whole"])
@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_no_answer_holds_the_loop(protocol: ProtocolName, streamed: bool, floor: float) -> None:
    def longest(data: bytes) -> float:
        reader = PROTOCOLS[protocol].reader(max_calls=limit_of("tool_calls"))
        return max(seconds for seconds, _ in holds(reader, data, streamed=streamed))

    slow = {}
    for name, data in shapes(protocol, streamed=streamed):
        if times := over(RATIO, floor, partial(longest, data)):
            slow[name] = times
    assert not slow


FLOODS = (
    b"\n",
    b"\r",
    b"\r\n",
    b":\n",
    b": x\n\n",
    b":\r",
    b"data:\n\n",
    b"data\n",
    b"id: 1\n",
    b"event: x\n\n",
    b"x\n",
)
"""What says nothing, and may come for ever."""


def flood(feed: Callable[[bytes], object], piece: bytes) -> float:
    """Seconds of the loop that the longest of a few pieces takes, of those after which a turn is given up."""
    data = piece * (PIECE // len(piece))
    longest = 0.0
    for _ in range(4):
        begun = time.thread_time()
        with suppress(ProviderError, EventTooLong, InvalidAnswer):
            feed(data)
        longest = max(longest, time.thread_time() - begun)
    return longest


@pytest.mark.parametrize("name", [*PROTOCOLS, "mcp", "a process", "sdk"])
def test_no_flood_of_lines_holds_the_loop(name: str, floor: float) -> None:
    def reading() -> Callable[[bytes], object]:
        if name in PROTOCOLS:
            return PROTOCOLS[name].reader(max_calls=8).feed  # type: ignore[index]
        if name == "a process":
            channel = StdioChannel(["x"], {}, "/", lambda: None)
            return lambda data: channel._take_lines(data.split(b"\n"))
        if name == "sdk":
            return EventParser(MAX_ANSWER).feed
        events = EventParser(limit_of("mcp_body"))
        return lambda data: [*messages_of(events.feed(data))]

    slow = {}
    for piece in FLOODS:
        if times := over(FLOOD_RATIO, floor, lambda piece=piece: flood(reading(), piece)):  # type: ignore[misc]
            slow[piece] = times
    assert not slow


@pytest.mark.parametrize("streamed", [True, False], ids=["streamed", "whole"])
@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_no_refused_answer_holds_the_loop_when_it_is_judged(
    protocol: ProtocolName, streamed: bool, floor: float
) -> None:
    def judging(data: bytes) -> float:
        reader = PROTOCOLS[protocol].reader(max_calls=limit_of("tool_calls"))
        errors = [error for _, error in holds(reader, data, streamed=streamed) if error is not None]
        return sum(taken(partial(judge, error))[0] for error in errors)

    slow = {}
    for name, data in shapes(protocol, streamed=streamed, about="error"):
        if times := over(JUDGED_RATIO, floor, partial(judging, data)):
            slow[name] = times
    assert not slow


@pytest.mark.parametrize("status", [200, 400, 429, 500])
def test_no_error_answer_holds_the_loop(status: int, floor: float) -> None:
    def judging(body: bytes) -> float:
        return taken(partial(judge, ProviderHTTPError(status, body)))[0]

    slow = {}
    for name, body in error_bodies():
        assert len(body) <= limit_of("error_body")
        if times := over(JUDGED_RATIO, floor, partial(judging, body)):
            slow[name] = times
    assert not slow
