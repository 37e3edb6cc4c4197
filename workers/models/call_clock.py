"""The clocks of a model call: how far it is, when it is given up, and how fast its answer is read."""

from __future__ import annotations

import asyncio
import time
from typing import Final

from palaver.config.providers import Timeouts
from palaver.errors import FirstTokenTimeout, IdleTimeout, ProviderError, TotalTimeout
from palaver.late import dataclass
from palaver.steps.leases import AnswerProgress
from palaver.vocabulary.limits import count_exceeded, limit_of

_BREATH: Final = 16 * 1024
_PAUSE: Final = 0.005
"""After so many bytes, reading rests for so many seconds at least: the bytes cost a millisecond or two, whatever they
say, and others are to have most of the loop, however many such answers come at a time."""
_REST_PER_STREAM: Final = 0.0001
_SHORTEST_REST: Final = 0.01
"""Seconds that reading a stream rests for each stream that comes just now, if that makes so many: its next tokens come
together. A read costs the loop 20 us whatever it brings, and watchers of so many streams see a delta less often yet."""
_IDLE_SLACK: Final = 0.05
"""A stalled stream is noticed up to this share of its idle timeout late, never early."""


@dataclass(slots=True)
class CallProgress:
    """The progress of a model call while it goes on. The call writes it, and the code that renews the lease reports
    it."""

    received: int = 0
    """Bytes."""
    characters: int = 0
    """Characters of text."""
    first_after: float | None = None
    """Seconds from the call to the first of the answer; None before that."""
    came_at: float = 0.0
    """Time at which the last of it came, or the call began (monotonic, as the next)."""
    ends_at: float | None = None
    """Time at which the call is given up, unless more comes; None before it begins."""

    def now(self) -> AnswerProgress | None:
        """As the store is told; None if there is nothing to tell."""
        if self.ends_at is None:
            return None
        now = time.monotonic()
        return AnswerProgress(self.received, self.characters, now - self.came_at, self.ends_at - now)


class CallClock:
    """Bounds the time to the first bytes of an answer, the time between two reads, and the whole call.

    Made when the call begins. `limit` is the timeout around all of it; `read` is told of each read.
    """

    def __init__(self, timeouts: Timeouts, time_left: float, progress: CallProgress) -> None:
        """``time_left`` (s) bounds the whole call, too."""
        self._timeouts = timeouts
        self._longest = min(timeouts.total, time_left)
        self._time = asyncio.get_running_loop().time
        self._began_at = self._time()
        self._end = self._began_at + max(self._longest, 0.001)
        self._move_at = 0.0
        self._breath_at = _BREATH
        self.progress = progress
        progress.received, progress.characters, progress.came_at = 0, 0, self._began_at
        progress.first_after = None
        progress.ends_at = min(self._end, self._began_at + timeouts.first_token)
        self.limit = asyncio.timeout_at(progress.ends_at)

    def read(self, size: int) -> None:
        """So many bytes of the answer came."""
        now, progress = self._time(), self.progress
        if progress.first_after is None:
            progress.first_after = now - self._began_at
        # A timer moved for each token costs more than parsing the token.
        if now >= self._move_at:
            self._move_at = now + self._timeouts.idle * _IDLE_SLACK
            progress.ends_at = min(self._end, self._move_at + self._timeouts.idle)
            self.limit.reschedule(progress.ends_at)
        progress.received += size
        progress.came_at = now

    def came(self) -> None:
        """All of the answer has come: what is left to do with it is bounded by the whole call alone."""
        self.progress.ends_at = self._end
        self.limit.reschedule(self._end)

    def rest(self, streams: int) -> float:
        """Return the seconds to rest before the next read, while so many ``streams`` come."""
        received = self.progress.received
        if received >= self._breath_at:
            self._breath_at = received + _BREATH
            return max(_PAUSE, ahead(received, self.progress.came_at - self._began_at))
        rest = streams * _REST_PER_STREAM
        return rest if rest >= _SHORTEST_REST else 0.0

    def late(self) -> ProviderError:
        """The timeout that ended the call."""
        if self._time() >= self._end:
            return TotalTimeout(f"the model call took longer than {self._longest:g} s")
        if self.progress.first_after is None:
            return FirstTokenTimeout(f"the model did not begin to answer within {self._timeouts.first_token:g} s")
        return IdleTimeout(f"the model's stream stalled for {self._timeouts.idle:g} s")


def ahead(received: int, elapsed: float) -> float:
    """Return the seconds by which an answer of so many bytes came too early; a flood is read no faster than the limits
    allow."""
    rate = limit_of("answer_rate")
    early = received - limit_of("answer_burst") - rate * elapsed
    if early <= 0:
        return 0.0
    count_exceeded("answer_rate")
    return early / rate
