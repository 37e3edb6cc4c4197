"""A verdict that the store cannot take ends its run in a few tries; an outage is waited out."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import redis.exceptions

from palaver.schemas.models import Message
from palaver.steps.leases import Settled, Shown
from palaver.steps.verdicts import Finish, GiveUp, HandBack, Postpone, Verdict
from palaver.telemetry.outage_log import OutageLog
from palaver.vocabulary.lifecycle import StopReason
from workers.steps import outages

FINISH = Finish(Message(role="assistant", content="x"), StopReason.END_TURN)
LEASE: Any = SimpleNamespace(run_id="run_1", step="1", agent=SimpleNamespace(provider="fake", model_name="echo"))


class Store:
    """Takes what ends a run, and of other verdicts none before so many errors."""

    def __init__(self, *errors: Exception, well: bool = True) -> None:
        self.steps = self
        self.tried: list[Verdict] = []
        self._errors = list(errors)
        self._well = well

    async def settle(self, lease: Any, verdict: Verdict, **_: Any) -> Settled:
        self.tried.append(verdict)
        if self._errors and not isinstance(verdict, GiveUp):
            raise self._errors.pop(0)
        return Settled("completed", (), None)

    async def ping(self) -> None:
        if not self._well:
            raise redis.exceptions.ConnectionError("away")


async def settle(store: Store, verdict: Verdict = FINISH) -> list[Verdict]:
    unsettled = OutageLog(outages.log, "cannot settle %s yet: %s", "step")
    runtime: Any = SimpleNamespace(store=store, unsettled=unsettled)
    await outages.settle(runtime, LEASE, verdict, shown=Shown.ALL)
    return store.tried


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    async def no_sleep(seconds: float) -> None:
        pass

    monkeypatch.setattr("workers.steps.outages.asyncio.sleep", no_sleep)


async def test_a_verdict_that_takes_too_long_each_time_ends_its_run() -> None:
    tried = await settle(Store(*[redis.exceptions.TimeoutError()] * 99))
    assert len(tried) == outages.OVERLONG + 1
    last = tried[-1]
    assert isinstance(last, GiveUp)
    assert (last.failure.error_class, last.failure.code, last.stop_reason) == ("storage", "not_settled", "error")
    assert not last.failure.retryable


@pytest.mark.parametrize(
    "error",
    [
        redis.exceptions.ConnectionError("away"),
        redis.exceptions.OutOfMemoryError("OOM"),
        redis.exceptions.ResponseError("BUSY Redis is busy"),
    ],
)
@pytest.mark.parametrize("verdict", [FINISH, Postpone(1.0, "cooldown")])
async def test_what_passes_is_waited_for(error: Exception, verdict: Verdict) -> None:
    assert await settle(Store(*[error] * 20), verdict) == [verdict] * 21


async def test_a_redis_that_does_not_answer_anything_is_waited_for() -> None:
    assert await settle(Store(*[redis.exceptions.TimeoutError()] * 20, well=False)) == [FINISH] * 21


async def test_a_verdict_that_cannot_be_written_ends_its_run_at_once() -> None:
    tried = await settle(Store(ValueError("no")))
    assert [type(each) for each in tried] == [Finish, GiveUp]


@pytest.mark.parametrize("error", [redis.exceptions.ConnectionError("away"), ValueError("no")])
async def test_a_lease_that_is_handed_back_waits_for_nothing_and_ends_no_run(error: Exception) -> None:
    store = Store(error)
    with pytest.raises(outages.NotSettled, match=type(error).__name__):
        await settle(store, HandBack(begun=True))
    assert len(store.tried) == 1
