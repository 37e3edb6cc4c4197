"""Deltas and progress on their way to watchers: gathered for some tens of milliseconds, written for all at once.

One Redis write a token would cost more than the model call. The interval grows with the number of streams that have
something to say, so that a worker with 500 streams spends a bounded share of its loop on them.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator
from typing import Final, Protocol

from palaver.steps.leases import Delta, ProgressDelta
from palaver.store import Store
from palaver.vocabulary.ids import shard_of

log = logging.getLogger("palaver.workers.steps.delta_writer")

_PER_STREAM: Final = 0.0003
"""Seconds of interval for each stream in a write; a delta costs about 50 us here and 20 us in Redis
(bench/store_cost.py)."""


class Buffer(Protocol):
    """The output of one attempt that watchers are yet to be shown."""

    lost: bool
    """Something could not be written."""
    writing: asyncio.Event | None
    """Set once what is being written is written; None if nothing is."""

    @property
    def pending(self) -> object:
        """True if there is something to write."""

    def take(self, *, last: bool = False) -> Iterator[Delta | ProgressDelta]:
        """Yield what is to be written; nothing comes after the ``last`` time."""


class DeltaWriter:
    """Writes the deltas of all streams of a worker process."""

    def __init__(self, store: Store, interval: float) -> None:
        self._store = store
        self._interval = interval
        self._waiting: list[Buffer] = []
        self._something = asyncio.Event()

    def wake(self, buffer: Buffer) -> None:
        """``buffer`` has something to say."""
        self._waiting.append(buffer)
        self._something.set()

    async def run(self) -> None:
        """Write, for ever."""
        batch: list[Buffer] = []
        while True:
            await self._something.wait()
            # As many as last time have something to say again, though only the first of them has said it.
            await asyncio.sleep(max(self._interval, _PER_STREAM * max(len(batch), len(self._waiting))))
            self._something.clear()
            batch, self._waiting = self._waiting, []
            await self.write([buffer for buffer in batch if buffer.pending])

    async def write(self, batch: list[Buffer], *, last: bool = False) -> None:
        """Write what ``batch`` has gathered. Deltas are worth less than the run: if Redis is away, they are dropped."""
        written = asyncio.Event()
        for buffer in batch:
            buffer.writing = written
        try:
            taken = [(buffer, [*buffer.take(last=last)]) for buffer in batch]
            deltas = [delta for _, some in taken for delta in some]
            if deltas:
                away = await self._store.steps.write_deltas(deltas)
                for buffer, some in taken if away else ():
                    buffer.lost = buffer.lost or any(shard_of(delta.lease.run_id) in away for delta in some)
        except Exception as error:
            log.warning("%d deltas dropped: %s", len(batch), type(error).__name__)
            for buffer in batch:
                buffer.lost = True
        finally:
            written.set()
            for buffer in batch:
                buffer.writing = None
