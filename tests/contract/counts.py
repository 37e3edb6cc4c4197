"""What the scripts counted is what runs, steps and feeds say; what waits is in the list of its reason."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

import orjson

from palaver.store.redis import keys
from tests.contract.families import used_by_itself

if TYPE_CHECKING:
    from tests.contract.invariants import Shard

_USED = (
    "input_tokens",
    "cached_tokens",
    "cache_write_tokens",
    "output_tokens",
    "reasoning_tokens",
    "model_calls",
    "cost",
)


def check_waiting(shard: Shard) -> None:
    """The lists of what waits."""
    waiting, pending = set(), set()
    for run_id, run in shard.runs.items():
        if "waiting" in run:
            waiting.add((orjson.loads(run["waiting"])["reason"], run_id))
        for action in orjson.loads(run.get("actions", "[]")):
            pending.add((action["type"], f"{run_id}/{action['call_id']}"))
    assert _members(shard.waiting) == waiting, "the lists of runs that wait"
    assert _members(shard.pending) == pending, "the lists of actions that are pending"


def _members(lists: dict[str, dict[str, float]]) -> set[tuple[str, str]]:
    return {(name, member) for name, members in lists.items() for member in members}


def check_caps(shard: Shard) -> None:
    """What the leased steps of each tenant have reserved, and the steps that wait for a cap of theirs."""
    reserved, held = Counter[str](), set[str]()
    for run_id, steps in shard.steps.items():
        owner = keys.owners_of(run_id)[0]
        for name, step in steps.items():
            assert step["state"] == "leased" or "reserved" not in step, f"{run_id}/{name} has reserved, and no lease"
            reserved[f"{owner}reserved"] += step.get("reserved", 0)
            waits = step["state"] == "later" and step.get("postponed") == step["until"]
            if waits and step["reason"] == "tenant_limit" and "needs" in step:
                conversation_id = shard.runs[run_id]["conversation"]
                held.add(f"{owner}{step['held']:013.0f} {conversation_id}/{run_id}/{name}")
    waiting = Counter(f"{keys.owners_of(entry.split('/')[1])[0]}held" for entry in held)
    counted = {name: number for name, number in shard.meters.items() if name.endswith(("reserved", "held")) and number}
    assert counted == +reserved + waiting, "what is reserved, and how many wait"
    assert shard.held == held, "the steps that wait for a cap"


def check_counts(shard: Shard) -> None:
    """The counts, as long as no run is gone."""
    counts = shard.counts
    assert all(number > 0 or series.endswith(" sum") for series, number in counts.items()), counts
    if counts.get("runs_submitted", 0) != len(shard.runs):
        assert counts.get("runs_submitted", 0) > len(shard.runs), "a run was not counted"
        return
    ended = [run for run in shard.runs.values() if "stop_reason" in run]
    ends = Counter(
        f"{run['status']} {run['stop_reason']} {orjson.loads(run.get('error', '{}')).get('class', '')}" for run in ended
    )
    assert series_of(counts, "runs_finished") == ends, "runs that have ended"
    assert _times(counts, "run_duration_seconds") == len(ended), "how long runs took"
    cancelled = sum("cancel" in run for run in ended if run["stop_reason"] == "cancelled")
    assert _times(counts, "cancel_duration_seconds") == cancelled, "how long cancels took"
    used = Counter({name: sum(used_by_itself(shard, run_id, name) for run_id in shard.runs) for name in _USED})
    tokens = Counter[str]()
    for series, number in series_of(counts, "tokens").items():
        tokens[series.rpartition(" ")[2]] += number
    assert tokens["input"] + tokens["cache_read"] + tokens["cache_write"] == used["input_tokens"], "tokens of input"
    assert tokens["output"] + tokens["reasoning"] == used["output_tokens"], "tokens of output"
    assert series_of(counts, "model_calls").total() == used["model_calls"], "calls of models"
    assert series_of(counts, "cost_usd").total() == used["cost"], "costs"
    assert {name: shard.usage[name] for name in _USED} == dict(used), "the ledger"
    unknown = shard.usage["spent"] - used["cost"]
    assert unknown == 0 or (unknown > 0 and shard.usage["unpriced_calls"]), "what was spent"
    assert shard.usage["unpriced_calls"] <= used["model_calls"], "calls without a price"
    _check_leases(shard)


def by_last(numbers: Counter[str]) -> Counter[str]:
    """Summed up by the last label."""
    found = Counter[str]()
    for series, number in numbers.items():
        found[series.rpartition(" ")[2]] += number
    return found


def _check_leases(shard: Shard) -> None:
    """Each lease ended in exactly one way, or goes on."""
    seen = Counter[str]()
    for run_id in shard.runs:
        feed = shard.feeds.get(run_id)
        if not feed or feed[0]["id"] != "1-0":
            return
        seen.update(event["type"] for event in feed)
    leased = sum(step["state"] == "leased" for steps in shard.steps.values() for step in steps.values())
    outcomes = Counter[str]()
    for series, number in series_of(shard.counts, "steps").items():
        outcomes[series.partition(" ")[2]] += number
    assert seen["step.started"] == outcomes.total() + leased, f"leases: {outcomes}, and {leased} go on"
    assert seen["run.retrying"] == outcomes["retried"] == series_of(shard.counts, "retries").total(), "retries"
    assert outcomes["failed"] == series_of(shard.counts, "step_failures").total(), "failures"


def series_of(counts: dict[str, int], name: str) -> Counter[str]:
    """The series of a metric, by the values of its labels."""
    return Counter(
        {series.removeprefix(f"{name} "): number for series, number in counts.items() if series.startswith(f"{name} ")}
    )


def _times(counts: dict[str, int], name: str) -> int:
    return sum(number for series, number in series_of(counts, name).items() if series.rpartition(" ")[2] != "sum")
