"""Days of ticks in fast-forward, with two schedulers that are killed between any two commands: each tick once."""

from __future__ import annotations

import asyncio
import random
from datetime import UTC, datetime, timedelta
from typing import Any

import orjson
import pytest

from features.schedules import schedule_keys
from features.schedules.keeping import times_of
from features.schedules.tests.unit.schedule_world import Schedulers, next_attention
from palaver.schemas.schedules import Timing
from palaver.store.redis import keys
from tests.contract.clock import TurnedDatabase, turned_clock
from tests.unit.api_world import AGENT, SETTINGS, World, world

BEGIN = datetime(2026, 10, 20, 0, 30, tzinfo=UTC)
"""The hour comes twice five days later."""
MONTH = timedelta(days=31)
CRON: dict[str, Any] = {"cron": "15 */8 * * *", "timezone": "Europe/Berlin"}
FAST: dict[str, Any] = {"every": 1800, "jitter": 300}


class Ledger:
    """What the store says of ticks and runs, written down before it is forgotten."""

    def __init__(self) -> None:
        self.ticks: dict[str, dict[str, dict[str, Any]]] = {}
        self.runs: set[str] = set()

    async def read(self, api: World) -> None:
        for name in ("cron", "fast"):
            redis: Any = api.redis
            entries = await redis.xrange(schedule_keys.schedule_ticks("", name))
            known = self.ticks.setdefault(name, {})
            known.update({entry_id.decode(): orjson.loads(fields[b"tick"]) for entry_id, fields in entries})
        self.runs |= {run_id.decode() for run_id in await redis.zrange(keys.runs("00"), 0, -1)}


def expected(name: str, timing: dict[str, Any], until: float) -> list[int]:
    begin, times = int(BEGIN.timestamp() * 1000), times_of("", name, Timing(**timing))
    found: list[int] = []
    for tick in times.behind(begin):
        if times.at(tick) > until * 1000:
            return found
        found.append(tick)
    raise AssertionError


async def play(*, chance: float, seed: int, length: timedelta, fast: dict[str, Any]) -> tuple[int, int]:
    """Let time pass. Returns ticks and deaths."""
    settings = SETTINGS.model_copy(update={"retention": 60 * 86400.0})
    ledger, dice = Ledger(), random.Random(seed)
    with turned_clock(BEGIN.timestamp()) as clock:
        async with world(settings, server=TurnedDatabase()) as api:
            for name, timing in (("cron", CRON), ("fast", fast)):
                body = {**timing, "run": {"agent": AGENT, "input": "hello"}}
                assert (await api.client.put(f"/v1/schedules/{name}", json=body)).status_code == 201
            redis: Any = api.redis
            schedulers = Schedulers(api, chance, seed)
            two, end = [schedulers.process(), schedulers.process()], (BEGIN + length).timestamp()
            while clock.now < end or await redis.hexists(schedule_keys.schedule("", "fast"), "tick"):
                at = await next_attention(api)
                assert at is not None
                clock.now = max(clock.now, at) + dice.choice((0.0, 0.5, 9.0))
                two = list(await asyncio.gather(*map(schedulers.look, two)))
                await ledger.read(api)
                for name in ("cron", "fast"):
                    # Its end comes before the next tick.
                    last = await redis.hget(schedule_keys.schedule("", name), "last")
                    if last is not None:
                        await api.client.post(f"/v1/runs/{last.decode()}/cancel")
            for name, timing in (("cron", CRON), ("fast", fast)):
                pending = await redis.hget(schedule_keys.schedule("", name), "tick")
                settled = [*ledger.ticks[name].values()]
                ticks = [int(datetime.fromisoformat(each["tick"]).timestamp() * 1000) for each in settled]
                wanted = expected(name, timing, clock.now)
                assert {each["outcome"] for each in settled} == {"started"}
                assert not [each for each in settled if each["missed_since"]]
                assert sorted(ticks) == [tick for tick in wanted if tick != int(pending or 0)], name
            runs = [each["run_id"] for ticks in ledger.ticks.values() for each in ticks.values()]
            assert len(set(runs)) == len(runs)
            assert set(runs) <= ledger.runs
            assert len(ledger.runs - set(runs)) <= 1, "a run of a tick that is settled by nobody"
    return len(runs), schedulers.deaths


@pytest.mark.slow
async def test_each_tick_of_ten_days_comes_once_whoever_dies() -> None:
    fast = {"every": 6 * 3600, "jitter": 600}
    ticks, deaths = await play(chance=0.06, seed=7, length=timedelta(days=10), fast=fast)
    assert ticks >= 68
    assert deaths >= 25


@pytest.mark.chaos
async def test_each_tick_of_a_month_comes_once_however_many_there_are() -> None:
    ticks, deaths = await play(chance=0.05, seed=11, length=MONTH, fast=FAST)
    print(f"{ticks} ticks, {deaths} deaths")
    assert ticks > 1_500
    assert deaths > 700
