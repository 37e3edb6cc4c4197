"""The meaning of a receiver's answer: whether it has the event, and when it is sent again if not."""

from __future__ import annotations

import random
from typing import Final

from palaver.late import dataclass

from .contract import AttemptOutcome
from .terms import DELAYS, JITTER, LONGEST_WAIT, PATIENT

_GONE: Final = 410


@dataclass(frozen=True, slots=True)
class ReceiverAnswer:
    """The answer of a receiver, or why there is none."""

    status: int | None
    error: str | None = None
    text: str = ""
    retry_after: float | None = None
    """Seconds that it asks to wait."""


@dataclass(frozen=True, slots=True)
class Judgement:
    """The consequence for the delivery, and for the webhook."""

    outcome: AttemptOutcome
    again_in: float = 0.0
    rests: float = 0.0
    """Seconds for which nothing is sent to the webhook."""


def judge(answer: ReceiverAnswer, tries: int, chance: random.Random) -> Judgement:
    """Judge the answer to an attempt behind ``tries`` many."""
    status = answer.status
    if status is not None and answer.error is None and 200 <= status < 300:
        return Judgement(AttemptOutcome.DELIVERED)
    if status == _GONE:
        return Judgement(AttemptOutcome.GONE)
    rests = min(answer.retry_after or 0.0, LONGEST_WAIT) if status in PATIENT else 0.0
    if tries >= len(DELAYS):
        return Judgement(AttemptOutcome.FAILED, rests=rests)
    delay = DELAYS[tries] * chance.uniform(1 - JITTER, 1 + JITTER)
    return Judgement(AttemptOutcome.AGAIN, max(delay, rests), rests)
