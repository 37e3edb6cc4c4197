"""What a step costs: the same conversation on Palaver, on a plain Celery task and on a bare coroutine, in turns.

All workers run all the time, one process each, with the same number of slots; each round gives every side the
same work once, so that whatever else the machine does meets all of them alike. A step is a model call with the
tool call behind it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import count
from statistics import median
from typing import Final

from celery import Celery

from bench.asked import BenchError, Call
from bench.conversation import CALLS, INPUT, INSTRUCTIONS, MODEL, TOOL
from bench.report import Table
from bench.rig import Rig
from bench.usage import Usage
from features.stack.child import ChildCommand

_SLOTS: Final = 50
_AT_ONCE: Final = 50
_IN_A_ROW: Final = 10
"""Conversations in a sample of one run at a time: CPU time comes in ticks of 10 ms."""
_WITHIN: Final = 60.0
_AFTERMATH: Final = 0.2
"""Seconds that the last step gets to be settled before the CPU time is read."""

_CAPTION: Final = (
    "CPU is the worker process's, user and system; Redis CPU is the server's. Medians; ratios are of worker CPU "
    "to the floor's (`bench/floor.py` says what it is). The bare task (`bench/floor_on_loop.py`) keeps no state "
    "either and does without acknowledgements: about the least that a step costs on Celery."
)


@dataclass(frozen=True)
class Side:
    """Something that holds the conversation when it is asked to."""

    name: str
    worker: ChildCommand
    submit: Callable[[], Awaitable[object]]


@dataclass(frozen=True)
class Sample:
    """A side's work in one round; what it used is for each step."""

    seconds: float
    cpu: float
    redis_cpu: float
    rss: float
    rate: float
    """Steps a second, of all conversations together."""
    questions: frozenset[str]


async def measure(rounds: int) -> list[Table]:
    """Measure in so many rounds. Raises BenchError when a side does not do the work, or does other work."""
    async with Rig() as rig:
        sides = _sides(rig)
        for side in sides:
            await sample(rig, side, in_a_row=1, at_once=_AT_ONCE)
        one: dict[str, list[Sample]] = {side.name: [] for side in sides}
        many: dict[str, list[Sample]] = {side.name: [] for side in sides}
        for turn in range(rounds):
            # Another side begins each time: the first one meets what the last round left behind.
            for side in sides[turn % len(sides) :] + sides[: turn % len(sides)]:
                one[side.name].append(await sample(rig, side, in_a_row=_IN_A_ROW, at_once=1))
                many[side.name].append(await sample(rig, side, in_a_row=1, at_once=_AT_ONCE))
    return [
        _table(f"A step, one run at a time ({rounds} times {_IN_A_ROW} runs)", one),
        _table(f"A step, {_AT_ONCE} runs at once ({rounds} times)", many),
    ]


def _sides(rig: Rig) -> list[Side]:
    """The floor first. Their first work will show whether they run."""
    slots = ("-c", str(_SLOTS))
    plain = rig.start_celery("bench.floor", "-P", "threads", *slots)
    pool = {"CELERY_CUSTOM_WORKER_POOL": "workers.broker.pool:TaskPool"}
    on_loop = rig.start_celery("bench.floor_on_loop", "-P", "custom", *slots, environment=pool)
    # As `palaver worker` starts it: with events for Flower, and its log lines.
    palaver = rig.start_worker(_SLOTS, None, "-E", "-l", "INFO")
    celery = Celery(broker=rig.floor_broker_url)
    return [
        Side("floor: plain Celery, threads, httpx", plain, _enqueue(celery, "floor.step", "floor")),
        Side("bare task on Palaver's pool", on_loop, _enqueue(celery, "floor.step_on_loop", "floor-on-loop")),
        Side("Palaver", palaver, lambda: rig.submit(MODEL, tools=(TOOL,), instructions=INSTRUCTIONS)),
    ]


def _enqueue(celery: Celery, task: str, queue: str) -> Callable[[], Awaitable[object]]:
    numbers = count(1)

    async def submit() -> object:
        messages = [{"role": "user", "content": INPUT}]
        arguments = (f"{queue}-{next(numbers)}", MODEL, messages)
        return celery.send_task(task, arguments, queue=queue, ignore_result=True)

    return submit


async def nothing() -> None:
    """There is nothing to wait for."""


async def sample(
    rig: Rig, side: Side, *, in_a_row: int, at_once: int, afterwards: Callable[[], Awaitable[None]] = nothing
) -> Sample:
    """What a side uses for so many conversations, and for what is done ``afterwards``."""
    calls: list[Call] = []
    before, redis_before = Usage.of(side.worker.pid), Usage.of(rig.redis.pid)
    for _ in range(in_a_row):
        rig.asked.forget()
        for _ in range(at_once):
            await side.submit()
        calls += await rig.asked.ended(at_once * CALLS, within=_WITHIN, what=f"{side.name}: {at_once} conversations")
    await asyncio.sleep(_AFTERMATH)
    await afterwards()
    after, redis_after = Usage.of(side.worker.pid), Usage.of(rig.redis.pid)
    runs = in_a_row * at_once
    steps, spans = runs * CALLS, _spans(calls)
    if (len(calls), len(spans)) != (steps, runs) or any(call.outcome != "answered" for call in calls):
        raise BenchError(f"{side.name}: {steps} calls in {runs} runs expected, not {len(calls)} in {len(spans)}")
    whole = max(call.ended_at or 0.0 for call in calls) - min(call.at for call in calls)
    return Sample(
        seconds=median(spans.values()) / CALLS,
        cpu=(after.cpu - before.cpu) / steps,
        redis_cpu=(redis_after.cpu - redis_before.cpu) / steps,
        rss=after.rss,
        rate=steps / (whole if at_once > 1 else sum(spans.values())),
        questions=frozenset(call.digest for call in calls),
    )


def _spans(calls: Sequence[Call]) -> dict[str, float]:
    """For each run the seconds from its first call to the end of its last."""
    begun: dict[str, float] = {}
    spans: dict[str, float] = {}
    for call in calls:
        begun.setdefault(call.run, call.at)
        spans[call.run] = (call.ended_at or 0.0) - begun[call.run]
    return spans


def _table(title: str, samples: Mapping[str, Sequence[Sample]]) -> Table:
    if len({sample.questions for each in samples.values() for sample in each}) != 1:
        raise BenchError("the sides did not ask the model server the same questions")
    columns = ("", "ms a step", "CPU ms a step", "ratio", "Redis CPU ms a step", "steps/s", "RSS MB")
    table = Table(title, columns, note=_CAPTION)
    floor = median(sample.cpu for sample in next(iter(samples.values())))
    for name, each in samples.items():
        cpu = median(sample.cpu for sample in each)
        numbers = (
            f"{1e3 * median(sample.seconds for sample in each):.1f}",
            f"{1e3 * cpu:.2f}",
            f"{cpu / floor:.2f}",
            f"{1e3 * median(sample.redis_cpu for sample in each):.2f}",
            f"{median(sample.rate for sample in each):.0f}",
            f"{max(sample.rss for sample in each):.0f}",
        )
        table.rows.append((name, *numbers))
    return table
