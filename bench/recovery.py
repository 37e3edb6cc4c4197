"""How long after a kill -9 of a model worker another one makes the calls again that it was waiting for, idle and with a
backlog before it; how long it takes if all were killed and one is started; and if only a message was lost."""

from __future__ import annotations

import asyncio
import random
import time
from collections import Counter
from collections.abc import Sequence
from signal import SIGKILL
from typing import Final

from bench.asked import BenchError, Call
from bench.report import Table, percentile
from bench.rig import Rig
from features.stack.child import ChildCommand
from features.stack.plan import COMMANDS
from palaver.schemas.models import AgentSpec, Submission

_MODEL: Final = "tokens-600+rate-10"
"""A minute of stream: none ends by itself before its worker is killed."""
_CAPACITY: Final = 200
_WITHIN: Final = 30.0
_SHORT: Final = "tokens-10+rate-10"
"""A second of stream, so that room comes free all the time."""
_SLOTS: Final = 50
"""Of a worker that has a backlog before it."""
_BETWEEN: Final = (0.05, 0.35)
"""Seconds between two messages that get lost: at any moment between two looks of the sweeper."""


async def measure(kills: int, runs: int, lease_seconds: float, backlog: int, lost: int) -> list[Table]:
    """Kill one of two workers so many times, each time with half of so many ``runs`` or more in its hands, and then
    with a ``backlog``; lose the messages of so many runs.

    Raises BenchError when a run is not gone on with.
    """
    idle = await _idle(kills, runs, lease_seconds)
    started, up = await _restarted(2 * kills, runs, lease_seconds)
    behind = await _behind_a_backlog(kills, backlog, lease_seconds)
    messages = await _lost_messages(lost)
    table = Table(
        f"Recovery after kill -9 of a model worker in the middle of its calls (lease {lease_seconds:g} s)",
        ("s", "p50", "p99", "max", "steps", "kills"),
        note="From the death of the worker until the model server gets the run's call again. In rows 2 and 3 all "
        "workers were killed and one was started at once: until the first call of any run, from the kill and from that "
        "worker's first report. Last row: the delivery of a run is lost; from its submit until its first call.",
    )
    for name, took, faults in (
        ("call made again", idle, kills),
        ("all killed, one started: first call", started, 2 * kills),
        ("the same, from when it was up", up, 2 * kills),
        (f"call made again, {backlog} runs in the queue", behind, kills),
        ("first call, message lost", messages, lost),
    ):
        seconds = (f"{number:.2f}" for number in (percentile(took, 50), percentile(took, 99), max(took)))
        table.rows.append((name, *seconds, f"{len(took)}", f"{faults}"))
    return [table]


async def _idle(kills: int, runs: int, lease_seconds: float) -> list[float]:
    took: list[float] = []
    async with Rig(lease_seconds=lease_seconds) as rig:
        workers = [rig.start_worker(_CAPACITY), rig.start_worker(_CAPACITY)]
        for _ in range(kills):
            submitted = await _in_flight(rig, workers, runs, lease_seconds)
            holders = [(await rig.store.runs.get(run)).current_steps[0].worker or "" for run in submitted]
            held = Counter(holder.rpartition("/")[2] for holder in holders)
            victim = max(workers, key=lambda worker: held[str(worker.pid)])
            workers.remove(victim)
            killed_at = time.time()
            victim.kill(SIGKILL)
            took += await _made_again(rig, killed_at)
            for run in submitted:
                await rig.store.runs.cancel(run)
            workers.append(rig.start_worker(_CAPACITY))
    return took


async def _restarted(kills: int, runs: int, lease_seconds: float) -> tuple[list[float], list[float]]:
    """Kill all workers and start one as users do: the seconds until the first call, from both moments."""
    started: list[float] = []
    up: list[float] = []
    async with Rig(lease_seconds=lease_seconds) as rig:
        workers = [_start_as_users_do(rig), _start_as_users_do(rig)]
        for _ in range(kills):
            submitted = await _in_flight(rig, workers, runs, lease_seconds)
            killed_at = time.time()
            for worker in workers:
                worker.kill(SIGKILL)
            workers = [_start_as_users_do(rig)]
            await rig.workers_ready(*workers, every=0.005)
            up_at = time.time()
            await _made_again(rig, killed_at)
            first = min(call.at for call in rig.asked.calls if call.at >= killed_at)
            started.append(first - killed_at)
            up.append(max(0.0, first - up_at))
            for run in submitted:
                await rig.store.runs.cancel(run)
            workers.append(_start_as_users_do(rig))
    return started, up


async def _in_flight(rig: Rig, workers: Sequence[ChildCommand], runs: int, lease_seconds: float) -> list[str]:
    """So many runs whose calls are under way, for a time that lets a kill meet leases at any age: their ids."""
    await rig.workers_ready(*workers)
    rig.asked.forget()
    submitted = [await rig.submit(_MODEL) for _ in range(runs)]
    await rig.asked.until(lambda calls: len(calls) == runs, within=_WITHIN, what=f"{runs} streams")
    # They are renewed with heartbeats.
    await asyncio.sleep(random.uniform(0.5, 0.5 + lease_seconds / 3))
    return submitted


def _start_as_users_do(rig: Rig) -> ChildCommand:
    return rig.start_foreign("worker", COMMANDS["worker"], rig.environment)


async def _behind_a_backlog(kills: int, runs: int, lease_seconds: float) -> list[float]:
    """All of the runs are submitted before the first kill; each kill meets workers that are full."""
    took: list[float] = []
    async with Rig(lease_seconds=lease_seconds) as rig:
        for _ in range(runs):
            await rig.submit(_SHORT)
        workers = [rig.start_worker(_SLOTS), rig.start_worker(_SLOTS)]
        for _ in range(kills):
            await rig.workers_ready(*workers)
            rig.asked.forget()
            await rig.asked.until(lambda calls: len(calls) >= 4 * _SLOTS, within=_WITHIN, what="both are full")
            await asyncio.sleep(random.uniform(0.1, lease_seconds / 3))
            killed_at = time.time()
            workers.pop(0).kill(SIGKILL)
            workers.append(rig.start_worker(_SLOTS))
            took += await _made_again(rig, killed_at)
        left = (await rig.store.due.depths())["model"][0]
        if left == 0:
            raise BenchError("the backlog was worked off before the last kill: give it more runs")
    return took


async def _lost_messages(messages: int) -> list[float]:
    """Runs that are submitted and never published."""
    async with Rig() as rig:
        await rig.workers_ready(rig.start_worker(_CAPACITY))
        submitted: dict[str, float] = {}
        for _ in range(messages):
            taken = await rig.store.runs.submit(Submission(agent=AgentSpec(model=f"fake/{_SHORT}"), input="hello"))
            submitted[taken.run_id] = time.time()
            await asyncio.sleep(random.uniform(*_BETWEEN))
        calls = await rig.asked.until(
            lambda found: len(found) == messages, within=_WITHIN, what="calls of lost messages"
        )
        return [call.at - submitted[call.run] for call in calls]


async def _made_again(rig: Rig, killed_at: float) -> list[float]:
    """For each run whose call the death of a worker cut off, the seconds until its next call."""
    waits: dict[str, float | None] = {}

    def recovered(calls: Sequence[Call]) -> bool:
        nonlocal waits
        waits = _waits(calls, killed_at)
        return bool(waits) and None not in waits.values()

    await rig.asked.until(recovered, within=_WITHIN, what="calls of the killed worker, again")
    return [wait for wait in waits.values() if wait is not None]


def _waits(calls: Sequence[Call], killed_at: float) -> dict[str, float | None]:
    """For each run whose call the death cut off, the seconds until its next call; None: not yet."""
    waits: dict[str, float | None] = {
        call.run: None for call in calls if call.at < killed_at <= (call.closed_by_client_at or 0.0)
    }
    for call in calls:
        if call.at >= killed_at and call.run in waits and waits[call.run] is None:
            waits[call.run] = call.at - killed_at
    return waits
