"""GET /v1/statistics: what became of runs and steps of late, and whose."""

from __future__ import annotations

from typing import Any

import pytest

from features.statistics.windows import WINDOWS
from palaver.schemas.models import Message, Usage
from palaver.steps.verdicts import Finish
from palaver.vocabulary.lifecycle import StopReason
from tests.unit.api_world import World, assert_problem, in_one_world, world
from tests.unit.two_tenants import OPERATOR, asking_as, tenants

USED = Usage(input_tokens=100, cached_tokens=60, output_tokens=7, model_calls=1, cost_usd=0.25)


async def use(api: World) -> None:
    """Let a run make a call, and end."""
    verdict = Finish(Message(role="assistant", content="bye"), StopReason.END_TURN, usage=USED)
    await api.store.steps.settle(await api.claim(await api.submit()), verdict)


@pytest.mark.parametrize("window", WINDOWS.values(), ids=WINDOWS)
async def test_it_tells_what_happened(window: Any) -> None:
    async with world() as api:
        await use(api)
        await api.submit()
        answer = (await api.client.get(f"/v1/statistics?window={window.name}")).json()
        assert (answer["window"], answer["tenant"], answer["span_seconds"]) == (window.name, None, window.seconds)
        total = answer["total"]
        assert total["runs"] == {
            "submitted": 2, "completed": 1, "incomplete": 0, "failed": 0, "cancelled": 0, "expired": 0,
        }  # fmt: skip
        assert (total["steps"], total["run_errors"], total["step_errors"]) == ({"model": {"done": 1}}, {}, {})
        assert (total["queue_time"]["count"], total["model_calls"]["count"]) == (1, 1)
        assert 0 < total["model_calls"]["p50_seconds"] <= total["model_calls"]["p99_seconds"] < 60
        (model,) = total["models"]
        assert model == {
            "model": "fake/tool-20", "calls": 1, "input_tokens": 100, "output_tokens": 7, "cost_usd": 0.25,
            "unpriced_calls": 0,
        }  # fmt: skip
        assert sum(span["runs"]["submitted"] for span in answer["data"]) == 2
        assert all(answer["start"] <= span["start"] < answer["end"] for span in answer["data"])


async def test_where_nothing_happened_there_is_nothing() -> None:
    async with world() as api:
        answer = (await api.client.get("/v1/statistics")).json()
        assert (answer["window"], answer["data"]) == ("hour", [])
        assert answer["total"]["model_calls"] == {"count": 0, "p50_seconds": None, "p99_seconds": None}


async def submitted(api: World, query: str = "") -> int:
    answer = (await api.client.get(f"/v1/statistics{query}")).json()
    return int(answer["total"]["runs"]["submitted"])


@pytest.mark.slow
async def test_a_tenant_sees_its_own_and_an_operator_all_or_one() -> None:
    async with tenants() as api:
        for who, times in (("acme", 1), ("globex", 2), ("default", 4)):
            with asking_as(api, who):
                for _ in range(times):
                    await api.submit()
                assert await submitted(api) == times
                assert await submitted(api, f"?tenant={who}") == times
        with asking_as(api, OPERATOR):
            assert await submitted(api) == 7
            assert [await submitted(api, f"?tenant={who}") for who in ("acme", "globex", "default")] == [1, 2, 4]


@pytest.mark.parametrize("name", ["globex", "nobody"])
async def test_anothers_is_answered_as_what_is_not_there(name: str) -> None:
    async with tenants() as api:
        with asking_as(api, "acme"):
            answer = await api.client.get(f"/v1/statistics?tenant={name}")
        assert_problem(answer, 422, "unknown_tenant")


@in_one_world(["window=month", "window=", "since=1", "tenant=a&tenant=b"])
async def test_what_is_not_asked_for_rightly_is_refused(api: World, query: str) -> None:
    answer = await api.client.get(f"/v1/statistics?{query}")
    assert answer.status_code in (400, 422), answer.text
