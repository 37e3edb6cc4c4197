"""`python -m bench [--quick] [--only PART] [--out FILE]`: measure this machine, print Markdown tables.

Everything runs on loopback in processes of its own, which end with the bench: a Redis, a model server, workers,
an API. Takes about seven minutes, with --quick two. On a busy machine look at CPU and ratios, not at seconds.
"""

from __future__ import annotations

from typing import Final

from bench import (
    archive,
    cancels,
    cooldown,
    cost,
    fair,
    hostile,
    idle,
    large_cluster,
    lists,
    masters,
    million,
    one_machine,
    pauses,
    protocols,
    recovery,
    refund,
    requests,
    scripts,
    sizing,
    start,
    steps,
    streams,
    telling,
    tenants,
    tool_steps,
    watchers,
    worked,
)
from bench.program import Part, main, report_on
from palaver.config.settings import Settings

LEASE_SECONDS: Final[float] = Settings.model_fields["lease_seconds"].default

TARGETS: Final = (
    "What it should show: CPU of a step at most 1.3 times the floor's, and with traces and histograms at most 5 % "
    "more than without, and in no protocol more than 1.1 times that of chat completions; every stream complete; a "
    "cancel reaches the provider within 150 ms (p99); a killed worker's calls are made again within 3 s (p99) at the "
    "default lease, and where all were killed, the first one within a second of when another is up; a lost message is "
    "made good within a second (p99); others' runs end at most 50 ms later beside answers that are costly to read, and "
    "their p99 is at most 3 times the quiet one beside bursts of sockets; no refund is paid twice. The machine runs "
    "everything at once, Redis and the model server included, so compare rows, not machines."
)

PARTS: Final[dict[str, Part]] = {
    "steps": lambda quick: steps.measure(rounds=2 if quick else 7),
    "protocols": lambda quick: protocols.measure(rounds=3 if quick else 9),
    "telling": lambda quick: telling.measure(pairs=3 if quick else 8, rounds=4),
    "scripts": lambda quick: scripts.measure(
        at_once=(50,) if quick else (50, 500, 2000),
        messages=(10, 1000) if quick else (10, 100, 1000, 10_000),
    ),
    "streams": lambda quick: streams.measure(streams=500 if quick else 2000, seconds=5 if quick else 20),
    "cancel": lambda quick: cancels.measure(100 if quick else 300, in_flight=200, tools=8 if quick else 20),
    "requests": lambda quick: requests.measure(rounds=2 if quick else 6),
    "watchers": lambda quick: watchers.measure(rounds=2 if quick else 5, events=5_000 if quick else 10_000),
    "tools": lambda quick: tool_steps.measure(rounds=3 if quick else 9),
    "hostile": lambda quick: hostile.measure(
        shapes=12 if quick else 50,
        rounds=2 if quick else 4,
        strangers=500 if quick else 2000,
        deaf=250 if quick else 1000,
    ),
    "cooldown": lambda quick: cooldown.measure(rounds=1 if quick else 5),
    "fair": lambda quick: fair.measure(crowd=1_000 if quick else 10_000, runs=10, calls=400 if quick else 1_000),
    "tenants": lambda quick: tenants.measure(
        numbers=(1, 100) if quick else (1, 100, 10_000),
        backlog=2_000 if quick else 20_000,
        calls=1_000 if quick else 6_000,
        crowd=1_000 if quick else 10_000,
        singles=100 if quick else 1_000,
    ),
    "masters": lambda quick: masters.measure(rounds=4 if quick else 20, most_workers=2 if quick else 4),
    "large": lambda quick: large_cluster.measure(
        ended=2_000 if quick else 1_000_000, waiting=400 if quick else 100_000, probes=300 if quick else 3_000
    ),
    "lists": lambda quick: lists.measure(
        runs=10_000 if quick else 100_000,
        cancelled=2_000 if quick else 12_000,
        retried=500 if quick else 2_000,
    ),
    "worked": lambda quick: worked.measure(behind=5_000 if quick else 40_000, rounds=5 if quick else 9),
    "million": lambda quick: million.measure(
        runs=20_000 if quick else 1_000_000,
        every=2_000 if quick else 10_000,
        long_runs=20 if quick else 200,
        steps=100 if quick else 500,
    ),
    "pauses": lambda quick: pauses.measure(
        runs=10_000 if quick else 60_000, every=2_000 if quick else 10_000, steps=5_000 if quick else 20_000
    ),
    "sizing": lambda quick: sizing.measure(scale=1 if quick else 4, in_flight=200 if quick else 1000),
    "cost": lambda quick: cost.measure(rounds=2 if quick else 6),
    "table": lambda quick: cost.step_and_requests(rounds=1 if quick else 3),
    "idle": lambda quick: idle.measure(),
    "serve": lambda quick: one_machine.measure(rounds=1 if quick else 5),
    "start": lambda quick: start.measure(rounds=1 if quick else 5),
    "recovery": lambda quick: recovery.measure(
        kills=1 if quick else 5,
        runs=40,
        lease_seconds=LEASE_SECONDS,
        backlog=2000 if quick else 10_000,
        lost=30 if quick else 100,
    ),
    "refund": lambda quick: refund.measure(refunds=10 if quick else 100),
    "archive": lambda quick: archive.measure(
        rounds=2 if quick else 6, runs=40, sizes=(1_000,) if quick else (10_000, 100_000, 1_000_000)
    ),
}

_ALONE: Final = frozenset({"archive", "million", "large", "table"})
"""Parts that take half an hour, and one that another part measures, too: only if they are asked for."""


if __name__ == "__main__":
    main("bench", __doc__, PARTS, report_on(PARTS, "Benchmark", TARGETS), _ALONE)
