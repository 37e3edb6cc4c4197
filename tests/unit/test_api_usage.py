"""GET /v1/usage: rows by what is asked for, in JSON and in CSV."""

from __future__ import annotations

import csv
import io
from datetime import timedelta
from typing import Any

from palaver.schemas.models import Message, Usage
from palaver.steps.verdicts import Finish
from palaver.store.reading.usage_ledger import today
from palaver.store.redis import keys
from palaver.vocabulary.lifecycle import StopReason
from tests.unit.api_world import AGENT, World, assert_problem, in_one_world, world

USED = Usage(input_tokens=100, cached_tokens=60, output_tokens=7, model_calls=1, cost_usd=0.25)


async def use(api: World, **agent: Any) -> None:
    """Let a run of this agent make a call."""
    run = await api.submit(agent={**AGENT, **agent})
    verdict = Finish(Message(role="assistant", content="bye"), StopReason.END_TURN, usage=USED)
    await api.store.steps.settle(await api.claim(run), verdict)


async def move_to(api: World, days_ago: int) -> None:
    """Have what was used so far be used on another day."""
    number = today().toordinal() - 719163
    (key,) = [name async for name in api.redis.scan_iter(match="{p??}:usage:*")]
    shard = key.decode()[2:4]
    await api.redis.rename(key, keys.usage(shard, number - days_ago))


async def test_it_is_told_by_day_and_in_all() -> None:
    async with world() as api:
        await use(api)
        await move_to(api, 3)
        await use(api)
        await use(api)
        answer = (await api.client.get("/v1/usage")).json()
        assert (answer["end"], answer["group_by"]) == (str(today()), ["day"])
        assert [(row["day"], row["model_calls"], row["cost_usd"]) for row in answer["data"]] == [
            (str(today() - timedelta(days=3)), 1, 0.25),
            (str(today()), 2, 0.5),
        ]
        assert answer["total"] == {
            "model_calls": 3,
            "input_tokens": 300,
            "cached_tokens": 180,
            "cache_write_tokens": 0,
            "output_tokens": 21,
            "reasoning_tokens": 0,
            "cost_usd": 0.75,
            "unpriced_calls": 0,
        }
        since = (await api.client.get(f"/v1/usage?start={today()}")).json()
        assert since["total"]["model_calls"] == 2
        assert (await api.client.get(f"/v1/usage?end={today() - timedelta(days=4)}")).json()["data"] == []


async def test_rows_are_those_that_were_asked_for() -> None:
    async with world() as api:
        await use(api, name="support")
        await use(api, name="sales")
        await use(api, name="sales", model="fake/echo")
        answer = (await api.client.get("/v1/usage?group_by=agent,model")).json()
        assert [(row["agent"], row["model"], row["key"], row["day"], row["model_calls"]) for row in answer["data"]] == [
            ("sales", "fake/echo", None, None, 1),
            ("sales", "fake/tool-20", None, None, 1),
            ("support", "fake/tool-20", None, None, 1),
        ]


async def test_a_spreadsheet_can_read_it() -> None:
    async with world() as api:
        await use(api, name="=1+1")
        answer = await api.client.get("/v1/usage?group_by=day,agent", headers={"Accept": "text/csv"})
        assert answer.headers["content-type"] == "text/csv; charset=utf-8"
        (row,) = csv.DictReader(io.StringIO(answer.text))
        assert (row["day"], row["model_calls"], row["cost_usd"]) == (str(today()), "1", "0.25")
        # What a user named must not be a formula for whoever opens it.
        assert row["agent"] == "'=1+1"


async def test_days_before_there_were_any_have_nothing() -> None:
    async with world() as api:
        assert (await api.client.get("/v1/usage?end=0001-01-01")).json()["data"] == []
        assert (await api.client.get("/v1/usage?start=9999-12-31")).json()["data"] == []


@in_one_world(
    [
        ("start=2026-02-02&end=2026-02-01", 422, "invalid_time", "?end", "must not be before the start"),
        ("start=2026-01-01&end=2026-12-31", 422, "invalid_time", "?end", "at most 92 days"),
        ("start=yesterday", 422, "validation_error", "?start", "date"),
        ("group_by=hour", 422, "validation_error", "?group_by", "there are: day, tenant, agent, model, key"),
        ("by=day", 400, "unknown_parameter", "?by", "is not known here"),
    ]
)
async def test_what_cannot_be_told_is_refused(
    api: World, query: str, status: int, code: str, place: str, says: str
) -> None:
    answer = await api.client.get(f"/v1/usage?{query}")
    assert_problem(answer, status, code)
    (fault,) = answer.json()["errors"]
    assert fault["pointer"] == place
    assert says in fault["message"]
