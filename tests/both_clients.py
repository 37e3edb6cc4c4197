"""The clients behind one way of calling them, so that a test says once what holds for both."""

from __future__ import annotations

import asyncio
import inspect
from contextlib import aclosing
from itertools import islice
from typing import Any, TypeAlias

import pytest

from palaver.client import AsyncPalaver, Palaver
from tests.scripted_api import RUN_ID

RUNS = "/v1/runs"
RUN = f"/v1/runs/{RUN_ID}"
EVENTS = f"{RUN}/events"


class Blocking:
    """Calls a method of `Palaver`; what it iterates comes as a list."""

    def __call__(self, url: str, method: str, *args: Any, take: int | None = None, **kwargs: Any) -> Any:
        with Palaver(url, timeout=2.0) as client:
            result = getattr(client, method)(*args, **kwargs)
            return list(islice(result, take)) if inspect.isgenerator(result) else result


class OnALoop:
    """Calls a method of `AsyncPalaver` likewise."""

    def __call__(self, url: str, method: str, *args: Any, take: int | None = None, **kwargs: Any) -> Any:
        return asyncio.run(self._call(url, method, take, *args, **kwargs))

    async def _call(self, url: str, method: str, take: int | None, *args: Any, **kwargs: Any) -> Any:
        async with AsyncPalaver(url, timeout=2.0) as client:
            result = getattr(client, method)(*args, **kwargs)
            if not inspect.isasyncgen(result):
                return await result
            items: list[Any] = []
            async with aclosing(result):
                async for item in result:
                    items.append(item)
                    if len(items) == take:
                        break
            return items


Call: TypeAlias = Blocking | OnALoop

async_client = pytest.mark.parametrize("call", [OnALoop()], ids=["async"])
"""For what is decided in code that is written once: the blocking client is made from this one, word by word
(``test_client_twin.py``)."""
both_clients = pytest.mark.parametrize("call", [Blocking(), OnALoop()], ids=["sync", "async"])
"""For what httpx, threads and generators do differently: streams, pages, functions, retries, ends."""
