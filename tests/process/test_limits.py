"""What limits a run: it ends before the next call, or on time, and keeps everything done so far."""

from __future__ import annotations

import pytest

from tests.process.cluster import Cluster
from tests.redis_cluster import ON_CLUSTER
from tests.waiting import eventually

pytestmark = pytest.mark.process

A_TOKEN = 10 / 1_000_000
"""US dollars, by the price of most models of the provider `priced`."""


def test_a_run_stops_before_the_call_that_its_dollars_do_not_cover(cluster: Cluster) -> None:
    run_id = cluster.submit("priced/tool-20", tools=["calculator"], budget={"cost_usd": 200 * A_TOKEN})
    run = cluster.ended(run_id)
    assert (run.status, run.stop_reason, run.error) == ("incomplete", "budget", None)
    assert 1 < run.usage.model_calls < 20
    tokens = run.usage.input_tokens + run.usage.output_tokens
    assert tokens >= 200
    assert run.usage.cost_usd == pytest.approx(tokens * A_TOKEN, rel=1e-9)
    (warning,) = [event.data for event in cluster.events(run_id) if event.type == "budget.warning"]
    assert (warning["what"], warning["limit"]) == ("cost_usd", 200 * A_TOKEN)
    assert 160 * A_TOKEN <= warning["used"] <= run.usage.cost_usd
    answered = [event for event in cluster.events(run_id) if event.type == "tool.finished"]
    assert len(answered) == run.usage.tool_calls == run.usage.model_calls


def test_each_call_costs_what_its_model_does_fallbacks_included(cluster: Cluster) -> None:
    rules = {"provider_error": {"attempts": 1, "then": "fallback_model"}}
    agent = {"fallbacks": ["priced/tool-2"], "retry": {"rules": rules}}
    budget = {"cost_usd": 1.0}
    run = cluster.ended(cluster.submit("priced/503", tools=["calculator"], agent=agent, budget=budget))
    assert (run.status, run.model) == ("completed", "priced/tool-2")
    dollars = (run.usage.input_tokens * 3 + run.usage.output_tokens * 30) / 1_000_000
    assert run.usage.cost_usd == pytest.approx(dollars, rel=1e-9)


def test_the_seconds_of_a_run_end_a_model_call_that_goes_on_and_on(cluster: Cluster) -> None:
    # Of many shards, a sweeper knows within a second or two what will be due in one.
    seconds = 8.0 if ON_CLUSTER else 1.5
    run_id = cluster.submit("say-400+rate-20", budget={"seconds": seconds})
    warning = cluster.saw(run_id, "budget.warning")
    run = cluster.ended(run_id)
    assert (run.status, run.stop_reason, run.error) == ("incomplete", "budget", None)
    assert run.times.started_at is not None
    assert run.times.ended_at is not None
    assert seconds <= (run.times.ended_at - run.times.started_at).total_seconds() < seconds + 8.5
    assert (warning.data["what"], warning.data["limit"]) == ("seconds", seconds)
    assert (warning.at - run.times.started_at).total_seconds() >= 0.8 * seconds
    assert warning.at < run.times.ended_at
    assert cluster.saw(run_id, "message.delta").seq < warning.seq
    eventually(lambda: cluster.model_calls(run_id)[0].closed_by_client_at, why="the provider still streams")


def test_the_seconds_of_a_run_end_a_call_that_hangs_and_a_tool(cluster: Cluster) -> None:
    hangs = cluster.submit("hang-*", budget={"seconds": 1})
    works = cluster.submit("tool-1", '[[args {"seconds": 30}]]', tools=["record"], budget={"seconds": 1})
    for run_id in (hangs, works):
        run = cluster.ended(run_id)
        assert (run.status, run.stop_reason) == ("incomplete", "budget"), cluster.timeline(run_id)
        assert "run.retrying" not in [event.type for event in cluster.events(run_id)]
    assert cluster.saw(works, "tool.finished").data["error"]["class"] == "tool_interrupted"
