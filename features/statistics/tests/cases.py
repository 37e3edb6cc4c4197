"""The cases of statistics in tests of the core."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Final

from features.statistics.statistics import Statistics
from features.statistics.tallies import MODEL_COLUMNS, JournalLine, SpanTally
from features.statistics.windows import WINDOWS
from palaver.store import Store
from palaver.store.redis import keys
from tests.contract.counts import by_last, series_of

if TYPE_CHECKING:
    from tests.contract.invariants import Shard

UNGROUPED: Final = ("get /v1/statistics",)


async def take_note(store: Store, tag: str) -> None:
    """What happened until now is added up."""
    await store.part(Statistics).fold()


async def counted(store: Store) -> Counter[tuple[str, ...]]:
    """What the tallies of the longest window have, each number by what it is called."""
    told, spans = Counter[tuple[str, ...]](), (await store.part(Statistics).read(WINDOWS["week"]))[1].values()
    for tally in spans:
        told.update({("run", name): number for name, number in tally.runs.items()})
        told.update({("step", *name.split(" ")): number for name, number in tally.steps.items()})
        told.update({("error", name): number for name, number in tally.step_errors.items()})
        told["leases",] += tally.steps.total()
        told.update({(name,): sum(used[name] for used in tally.models.values()) for name in MODEL_COLUMNS})
    return told


def check_shard(shard: Shard) -> None:
    """What the tallies of the longest window and the journal have is what was counted, each thing once; and what all
    tenants but the default one have together is what they have."""
    tallies = {owner: _whole(places) for owner, places in shard.statistics.items()}
    together = tallies.pop(keys.OTHER_TENANTS, SpanTally())
    if not shard.erased:
        owned = SpanTally()
        for tally in (tally for owner, tally in tallies.items() if owner):
            owned.merge(tally)
        assert vars(owned) == vars(together), "tallies of tenants, and of all of them"
    total = together
    total.merge(tallies.get("", SpanTally()))
    for line in shard.journal:
        total.add(JournalLine.of(line.encode()).words)
    counts, ends, failures = shard.counts, Counter[str](), Counter[str]()
    for series, number in series_of(counts, "runs_finished").items():
        ends[series.partition(" ")[0]] += number
        failures[series.rpartition(" ")[2]] += number
    assert total.runs == +Counter({**ends, "submitted": counts.get("runs_submitted", 0)}), "statistics of runs"
    assert total.run_errors == Counter({name: number for name, number in failures.items() if name}), "errors of runs"
    assert total.steps == series_of(counts, "steps"), "statistics of leases"
    assert total.waited.total() <= total.steps.total(), "times of queueing"
    errors = by_last(series_of(counts, "step_failures")) + by_last(series_of(counts, "retries"))
    lost = sum(number for series, number in total.steps.items() if series.endswith(" lost"))
    assert total.step_errors == errors + Counter(worker_lost=lost), "errors of steps"
    used = Counter[str]()
    for numbers in total.models.values():
        used.update(numbers)
    tokens = by_last(series_of(counts, "tokens"))
    assert used["calls"] == series_of(counts, "model_calls").total(), "calls of models"
    assert used["input_tokens"] == tokens["input"] + tokens["cache_read"] + tokens["cache_write"], "tokens that went in"
    assert used["output_tokens"] == tokens["output"] + tokens["reasoning"], "tokens that came out"
    assert used["cost"] == series_of(counts, "cost_usd").total(), "money"


def _whole(places: dict[str, str]) -> SpanTally:
    """All that the tallies of the longest window have."""
    whole = SpanTally()
    for place, text in places.items():
        if place.startswith("week:"):
            whole.merge(SpanTally.of_json(text.encode())[1])
    return whole
