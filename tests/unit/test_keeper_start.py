"""A worker that starts while Redis loads its data waits for it; one that is not there is said at once."""

from __future__ import annotations

import logging
from typing import Any, cast

import pytest
from redis.exceptions import BusyLoadingError, ConnectionError

from palaver.store import Store
from workers.loops import keeper


class Answering:
    """A store whose server answers so, one after the other, and then as it should."""

    def __init__(self, *errors: Exception) -> None:
        self._errors = [*errors]

    async def ping(self) -> None:
        if self._errors:
            raise self._errors.pop(0)


async def started(*errors: Exception) -> None:
    await keeper._ping(cast(Store, Answering(*errors)))


async def test_one_that_loads_is_waited_for(caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(keeper, "_LOADING", 0.0)
    with caplog.at_level(logging.WARNING):
        await started(*(BusyLoadingError("Redis is loading the dataset in memory") for _ in range(3)))
    assert [record.getMessage() for record in caplog.records] == ["waiting for Redis: it is loading its data"]


@pytest.mark.parametrize("error", [ConnectionError("refused"), OSError("away")])
async def test_one_that_is_away_is_said_at_once(error: Any) -> None:
    with pytest.raises(type(error)):
        await started(error)
