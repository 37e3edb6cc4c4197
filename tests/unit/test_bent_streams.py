"""A stream that is bent says what the straight one says: in every protocol, however it is written and cut.

``PALAVER_BENT_STREAMS=100000`` looks at as many.
"""

from __future__ import annotations

import os

import pytest

from tests.unit.bent_streams import BENDS, STRAIGHT, bent, difference, written_straight
from workers.protocols import PROTOCOLS

NUMBER = int(os.environ.get("PALAVER_BENT_STREAMS", "200"))


def test_each_protocol_has_straight_streams_that_are_read() -> None:
    assert set(STRAIGHT) == set(PROTOCOLS)
    assert [case.protocol for case in written_straight() if difference(case)] == []


@pytest.mark.parametrize("first", range(0, NUMBER, max(NUMBER // 10, 1)))
def test_a_bent_stream_says_what_the_straight_one_says(first: int) -> None:
    told = {}
    for seed in range(first, min(first + max(NUMBER // 10, 1), NUMBER)):
        case = bent(seed)
        if otherwise := difference(case):
            told[seed, case.protocol, case.bends] = otherwise
    assert not told


def test_every_bend_is_among_them() -> None:
    drawn = {name for seed in range(200) for name in bent(seed).bends}
    assert {bend.__name__ for bend in BENDS} <= drawn
