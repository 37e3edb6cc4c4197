"""What the store knows for metrics, as it was a moment ago."""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from typing import Final

from palaver.store import Store
from palaver.store.redis.single_flight import Fresh, SingleFlight
from palaver.telemetry.exposition import Samples

LASTS: Final = 5.0
"""Seconds for which what was read is used, however many ask."""


class Measured:
    """Reads it once for all who ask."""

    def __init__(self, store: Store, providers: Iterable[str]) -> None:
        self._reads = SingleFlight(1)
        self._samples = Fresh(self._reads, partial(store.measuring.read, tuple(providers)), LASTS)

    async def samples(self) -> Samples:
        """What the store knows of itself, and about these providers. Raises what the store raises."""
        return await self._samples.get()

    async def close(self) -> None:
        """Read no more."""
        await self._reads.close()
