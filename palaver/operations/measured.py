"""Samples for metrics from the store, as they were a moment ago."""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from typing import Final

from palaver.store import Store
from palaver.store.redis.single_flight import Fresh, SingleFlight
from palaver.telemetry.exposition import Samples

LASTS: Final = 5.0
"""Seconds for which a reading is used, by however many requests."""


class Measured:
    """Samples that are read from the store once for all requests of a moment."""

    def __init__(self, store: Store, providers: Iterable[str]) -> None:
        self._reads = SingleFlight(1)
        self._samples = Fresh(self._reads, partial(store.measuring.read, tuple(providers)), LASTS)

    async def samples(self) -> Samples:
        """Return the samples of the store itself, and of these providers. Raises what the store raises."""
        return await self._samples.get()

    async def close(self) -> None:
        """Read no more."""
        await self._reads.close()
