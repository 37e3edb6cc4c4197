from __future__ import annotations

import time

from palaver.cli.connection import QuietNotice
from tests.waiting import eventually


def test_speaks_again_and_again_while_it_is_quiet_and_less_and_less_often() -> None:
    said: list[float] = []
    with QuietNotice(said.append, first=0.02):
        eventually(lambda: len(said) >= 3)
    assert said[0] >= 0.02
    assert said[1] >= 2 * said[0]
    assert said[2] >= 2 * said[1]


def test_counts_from_the_last_thing_heard() -> None:
    said: list[float] = []
    with QuietNotice(said.append, first=0.02) as progress:
        eventually(lambda: len(said) >= 3)
        heard_at = time.monotonic()
        progress.heard()
        before = len(said)
        # One word may have been on its way when it was heard.
        eventually(lambda: len(said) >= before + 2)
        assert said[before + 1] <= time.monotonic() - heard_at


def test_says_nothing_about_what_is_quick() -> None:
    said: list[float] = []
    with QuietNotice(said.append, first=60) as progress:
        progress.heard()
    assert said == []
