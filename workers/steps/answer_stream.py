"""The answer of one attempt on its way to watchers: text and reasoning apart, without secrets of this process."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Final

from palaver.processes.failpoints import failpoint
from palaver.secrets.redaction import Passing, redact
from palaver.steps.leases import Delta, Lease, Shown
from palaver.steps.verdicts import GiveUp, RetryAfter, Verdict
from palaver.vocabulary.limits import limit_of

from .delta_writer import DeltaWriter

_LONGEST: Final = limit_of("delta")


class AnswerStream:
    """Gathers what the model says, until the `DeltaWriter` takes it for all streams at once."""

    def __init__(self, writer: DeltaWriter, lease: Lease) -> None:
        self._writer = writer
        self._lease = lease
        self._whole: list[str] = []
        """The whole text."""
        self._text: list[str] = []
        self._thoughts: list[str] = []
        """The part of both that is not written yet."""
        self._passing = {False: Passing(), True: Passing()}
        """By whether it is reasoning."""
        self.shown = False
        """Watchers may have seen of the answer, or of what the model thinks."""
        self._written = False
        self.lost = False
        self.writing: asyncio.Event | None = None

    def show(self, text: str, thoughts: str) -> None:
        """Let watchers see more of the answer, and of what the model thinks: it is written with the next batch."""
        failpoint("model.delta")
        self.shown = True
        if not self.pending:
            self._writer.wake(self)
        if text:
            self._whole.append(text)
            self._text.append(text)
        if thoughts:
            self._thoughts.append(thoughts)

    @property
    def text(self) -> str:
        """The text of the model so far."""
        return redact("".join(self._whole))

    @property
    def pending(self) -> bool:
        """True if there is something to write."""
        return bool(self._text or self._thoughts)

    def take(self, *, last: bool = False) -> Iterator[Delta]:
        """The gathered text as deltas. Until the ``last`` time, what may be the beginning of a secret is kept back."""
        gathered = {True: "".join(self._thoughts), False: "".join(self._text)}
        self._forget()
        for reasoning, more in gathered.items():
            text = self._passing[reasoning].add(more, last=last)
            for start in range(0, len(text), _LONGEST):
                self._written = True
                yield Delta(self._lease, text[start : start + _LONGEST], reasoning)

    async def flush(self) -> None:
        """Write the rest, if a beginning was written: the deltas of an answer add up to it. Else the whole message will
        do, which reasoning is no part of."""
        if self.writing is not None:
            # On another connection: the rest could overtake it, and so could the end of the lease it is written under.
            await self.writing.wait()
        held = any(passing.held for passing in self._passing.values())
        if self._thoughts or (self._written and (self._text or held)):
            await self._writer.write([self], last=True)

    def close(self, verdict: Verdict) -> Shown:
        """Write no more of it. Returns how much watchers saw of the message of ``verdict``."""
        self._forget()
        if not self._written:
            return Shown.NOTHING
        withdrawn = isinstance(verdict, RetryAfter) or (isinstance(verdict, GiveUp) and verdict.message is None)
        return Shown.HALF if self.lost or withdrawn else Shown.ALL

    def _forget(self) -> None:
        self._text, self._thoughts = [], []
