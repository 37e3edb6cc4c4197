"""No answer holds a worker's loop: of every protocol, streamed or not, at the largest size that is taken in."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from functools import partial

import orjson
import pytest

from palaver.errors import ProviderError
from palaver.vocabulary.limits import limit_of
from tests.cost.hostile_answers import shapes
from workers.protocols import PROTOCOLS, AnswerReader

RATIO = 8
"""How much longer than the floor a piece may hold the loop: the floor takes some 10 ms, and nobody is to wait for more
than 50. What is slowest takes three times the floor; looking at each element in Python took fifty times."""
PIECE = 64 * 1024
"""Bytes that come at once, at most."""


@pytest.fixture(scope="module")
def floor() -> float:
    """Seconds that JSON with very many values takes, whatever is done with it."""
    document = b"[" + b",".join([b"[]"] * 100_000) + b"]"

    def once() -> float:
        begun = time.thread_time()
        orjson.loads(document)
        return time.thread_time() - begun

    return min(once() for _ in range(5))


def holds(reader: AnswerReader, data: bytes, *, streamed: bool) -> Iterator[float]:
    """Seconds for which each piece of the answer holds the loop, and then the reply."""
    pieces = [data[place : place + PIECE] for place in range(0, len(data), PIECE)]
    acts: list[Callable[[], object]] = [partial(reader.read, data)]
    if streamed:
        acts = [partial(reader.feed, piece) for piece in pieces]
    for act in (*acts, reader.reply):
        refused, begun = False, time.thread_time()
        try:
            act()
        except ProviderError:
            refused = True
        yield time.thread_time() - begun
        if refused:
            return


@pytest.mark.parametrize("streamed", [True, False], ids=["streamed", "whole"])
@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_no_answer_holds_the_loop(protocol: str, streamed: bool, floor: float) -> None:
    slow = {}
    for name, data in shapes(protocol, streamed=streamed):
        # Another try: something else may have had the machine.
        for _ in range(3):
            reader = PROTOCOLS[protocol].reader(max_calls=limit_of("tool_calls"))  # type: ignore[index]
            ratio = max(holds(reader, data, streamed=streamed)) / floor
            if ratio <= RATIO:
                break
        else:
            slow[name] = round(ratio, 1)
    assert not slow
