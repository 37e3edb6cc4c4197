"""A process that starts while Redis loads its data waits for it; one that is not there is said at once."""

from __future__ import annotations

import logging

import pytest
from redis.exceptions import BusyLoadingError, ConnectionError

from palaver.config.settings import Settings
from palaver.store import Store, store


async def loaded(monkeypatch: pytest.MonkeyPatch, *errors: Exception) -> None:
    """Wait for a server that answers so, one after the other, and then as it should."""
    left = [*errors]

    async def ping(self: Store) -> None:
        if left:
            raise left.pop(0)

    monkeypatch.setattr(Store, "ping", ping)
    monkeypatch.setattr(store, "_LOADING", 0.0)
    async with Store.connect(Settings(redis_url="redis://127.0.0.1:1/0")) as opened:
        await opened.loaded()


async def test_one_that_loads_is_waited_for(caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch) -> None:
    with caplog.at_level(logging.WARNING):
        await loaded(monkeypatch, *(BusyLoadingError("loading the dataset in memory") for _ in range(3)))
    assert [record.getMessage() for record in caplog.records] == ["waiting for Redis: it is loading its data"]


async def test_one_that_is_away_is_said_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ConnectionError, match="refused"):
        await loaded(monkeypatch, ConnectionError("refused"))
