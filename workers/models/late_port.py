"""The model port of a worker, which is loaded once the worker is ready, or with the first call of a model."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import TYPE_CHECKING

from palaver.config.providers import Provider
from palaver.processes.garbage import load_uncollected, spare_loaded
from palaver.processes.left_out import left_out

from .model_terms import ModelTerms

if TYPE_CHECKING:
    from .model import ModelPort


class LateModelPort(ModelTerms):
    """The terms of model calls, and what makes them: httpx, aiohttp and the certificates of authorities, which are a
    tenth of what a worker loads, and no step waits for them before it has to."""

    def __init__(self, providers: Mapping[str, Provider]) -> None:
        super().__init__(providers)
        self._port: ModelPort | None = None

    async def port(self) -> ModelPort:
        """Return the port. The first calls wait for it, and the loop goes on meanwhile."""
        if self._port is None:
            kind = await asyncio.to_thread(load)
            # Another call may have waited for it, too.
            self._port = self._port or kind(self._providers)
        return self._port

    async def close(self) -> None:
        """Close all connections."""
        if self._port is not None:
            await self._port.close()


def load_ahead() -> None:
    """Load it in a process that serves already, and leave it out of later collections, as what was there before."""
    load_uncollected()
    try:
        load()
    finally:
        spare_loaded()


def load() -> type[ModelPort]:
    """Load what makes calls, unless it is there."""
    # Without the command of httpx, which has rich.
    with left_out("httpx._main"):
        from .model import ModelPort

    return ModelPort
