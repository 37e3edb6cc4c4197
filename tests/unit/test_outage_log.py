"""An outage is a line a second in the log of a worker, however many steps it holds up."""

from __future__ import annotations

import asyncio
import logging
from types import SimpleNamespace
from typing import Any

import pytest
import redis.exceptions
from redis._parsers.base import BaseParser

from palaver.schemas.models import Message
from palaver.steps.leases import Settled, Shown
from palaver.steps.verdicts import Finish, Verdict
from palaver.telemetry.outage_log import OutageLog, outage_reason
from palaver.vocabulary.lifecycle import StopReason
from tests.waiting import PATIENCE
from workers.broker import logs as logs  # its filters
from workers.steps import outages

FINISH = Finish(Message(role="assistant", content="x"), StopReason.END_TURN)


class Store:
    """Refuses each verdict so many times, as a Redis does whose disk is full."""

    def __init__(self, times: int) -> None:
        self.steps = self
        self._times = times
        self._tried: dict[str, int] = {}

    async def settle(self, lease: Any, verdict: Verdict, **_: Any) -> Settled:
        self._tried[lease.run_id] = self._tried.get(lease.run_id, 0) + 1
        if self._tried[lease.run_id] <= self._times:
            raise redis.exceptions.ResponseError("MISCONF Errors writing to the AOF file: No space left on device")
        return Settled("completed", (), None)


async def test_an_outage_is_a_line_a_second_with_a_count_and_what_redis_says(
    caplog: pytest.LogCaptureFixture,
) -> None:
    agent = SimpleNamespace(provider="fake", model_name="echo")
    leases: list[Any] = [SimpleNamespace(run_id=f"run_{n}", step="1", agent=agent) for n in range(50)]
    runtime: Any = SimpleNamespace(
        store=Store(times=3), unsettled=OutageLog(outages.log, "cannot settle %s yet: %s", "step")
    )
    began = asyncio.get_running_loop().time()
    with caplog.at_level(logging.WARNING):
        await asyncio.gather(*(outages.settle(runtime, each, FINISH, shown=Shown.ALL) for each in leases))
    seconds = asyncio.get_running_loop().time() - began
    lines = [each.getMessage() for each in caplog.records]
    assert 1 <= len(lines) <= 1 + seconds, lines
    assert lines[0] == (
        "cannot settle 50 steps (run_0/1 is one) yet: MISCONF Errors writing to the AOF file: No space left on device"
    )


async def test_one_step_is_named(caplog: pytest.LogCaptureFixture) -> None:
    wrote = asyncio.Event()
    logger = logging.getLogger("palaver.test_outage_log")
    logger.addFilter(lambda _: wrote.set() is None)  # type: ignore[func-returns-value]
    OutageLog(logger, "cannot settle %s yet: %s", "step").add("run_1/2", "OOM: no")
    async with asyncio.timeout(PATIENCE):
        await wrote.wait()
    assert caplog.messages == ["cannot settle step run_1/2 yet: OOM: no"]
    assert caplog.records[0].__dict__["fields"] == {"count": 1}


@pytest.mark.parametrize(
    ("answer", "told"),
    [
        ("OOM command not allowed when used memory > 'maxmemory'.", "OOM: command not allowed"),
        ("NOPERM User x has no permissions to run 'get'", "NOPERM: User x has no"),
        ("MISCONF Redis is configured to save RDB snapshots", "MISCONF Redis is configured"),
        ("READONLY You can't write against a read only replica.", "READONLY: You can't write"),
    ],
)
def test_the_reason_begins_with_the_first_word_of_the_server(answer: str, told: str) -> None:
    assert outage_reason(BaseParser.parse_error(answer)).startswith(told)


def test_the_reason_of_another_error_begins_with_its_class() -> None:
    error = redis.exceptions.ConnectionError("Error 111 connecting to\nlocalhost:1.")
    assert outage_reason(error) == "ConnectionError: Error 111 connecting to localhost:1."
    assert len(outage_reason(ValueError("x" * 1000))) < 250


def test_a_refusal_that_kombu_logs_has_no_traceback(caplog: pytest.LogCaptureFixture) -> None:
    try:
        raise ValueError("OOM command not allowed")
    except ValueError:
        logging.getLogger("kombu.transport.redis").warning("maybe_refresh: %s, will retry", "error", exc_info=True)
    (record,) = caplog.records
    assert record.getMessage() == "maybe_refresh: error, will retry: ValueError: OOM command not allowed"
    assert record.exc_info is None
