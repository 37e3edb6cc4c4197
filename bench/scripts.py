"""What a step costs Redis, script by script, and that this stays the same with more runs at once and longer logs.

A step is a model call with the inline tool call behind it. Three passes do the same work: one is measured, in one the
server tells each command (MONITOR), and in one it times each call of a script (SLOWLOG).
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from redis.asyncio import Redis

from bench import log_length
from bench.asked import BenchError
from bench.conversation import CALLS, INSTRUCTIONS, MODEL, TOOL
from bench.history import conversation
from bench.report import Table
from bench.rig import Rig
from bench.server_work import Heard, ServerWork, heard, timed
from palaver.schemas.models import Message

_AT_ONCE: Final = 50
_PACE: Final = 150
"""Model calls a second of all runs together, when there are many at once: a worker's, with room to spare."""
_FEW: Final = 5
"""Model calls of a run among many."""
_LEAST: Final = 500
"""Runs that are measured at least, by turns if they are more than at once."""
_LONG: Final = 4
"""Conversations that are long, at once."""
_TURNS: Final = 5
_WITHIN: Final = 200.0
_AFTERMATH: Final = 0.5
"""Seconds in which what has ended is settled."""
_SMALL: Final = 0.5
"""us a step: what takes no more has no row."""

_COLUMNS: Final = ("commands", "KB in", "KB out", "Redis CPU ms", "of it in scripts")


@dataclass(frozen=True, slots=True)
class Load:
    """Runs of one kind, so many at once."""

    model: str
    calls: int
    """Model calls of each."""
    at_once: int
    times: int = 1
    conversations: tuple[str, ...] = ()
    """Those to go on with; new ones if there is none."""

    @property
    def steps(self) -> int:
        """Model calls of all."""
        return self.calls * self.at_once * self.times

    async def put_on(self, rig: Rig) -> None:
        """Have the runs made. Nothing else asks the server meanwhile. Raises BenchError if they do other work."""
        expected = self.calls * self.at_once
        for _ in range(self.times):
            rig.asked.forget()
            for place in self.conversations or [None] * self.at_once:
                await rig.submit(self.model, tools=(TOOL,), instructions=INSTRUCTIONS, conversation=place)
            calls = await rig.asked.ended(
                expected, within=_WITHIN, what=f"{self.at_once} runs of {self.model}", every=0.1
            )
            await asyncio.sleep(_AFTERMATH)
            if len(calls) != expected or any(call.outcome != "answered" for call in calls):
                raise BenchError(f"{self.model}: {expected} answered calls expected, not {len(calls)}")


async def measure(at_once: Sequence[int], messages: Sequence[int]) -> list[Table]:
    """Measure with so many runs at once, and behind so many messages. Raises BenchError."""
    async with Rig() as rig, Redis.from_url(rig.redis.url) as redis:
        worker = rig.start_worker(max(at_once), None, "-E")
        await rig.workers_ready(worker)
        load = Load(MODEL, CALLS, _AT_ONCE)
        await load.put_on(rig)
        tables = [await _by_script(rig, redis, load), await _with_many(rig, redis, at_once)]
        tables.append(await _behind(rig, redis, messages))
    return [*tables, await log_length.measure(messages)]


async def _by_script(rig: Rig, redis: Redis, load: Load) -> Table:
    """The table of scripts."""
    names = rig.names_of_scripts
    plain = await _work(rig, redis, load)
    async with heard(rig.redis.port, names) as told:
        await load.put_on(rig)
    before = await ServerWork.of(redis)
    async with timed(redis, names) as seconds:
        await load.put_on(rig)
    slower = (await ServerWork.of(redis)) - before
    table = Table(
        f"What a step costs Redis, by script ({load.at_once} runs at once)",
        ("", "calls a step", "commands a call", "us a call", "commands a step", "us a step"),
        note="Commands are counted (MONITOR), and the time of each script is measured (SLOWLOG), in passes of their "
        f"own. Scripts took {slower.in_scripts / plain.in_scripts:.2f} times as long while measured one by one as in "
        "the pass without, which the last rows are from. The server's is its CPU: scripts, sockets, parsing, the "
        "append-only file.",
    )
    table.rows += _rows(told, seconds, load.steps)
    scripts = sum(told.inside.values()) / load.steps
    alone = told.of_clients.total() / load.steps
    table.rows += [
        (
            "all scripts",
            f"{told.calls.total() / load.steps:.2f}",
            "",
            "",
            f"{scripts:.1f}",
            _us(plain.in_scripts, load),
        ),
        ("what clients send, calls of scripts included", f"{alone:.2f}", "", "", f"{alone:.1f}", ""),
        ("the server", "", "", "", f"{scripts + alone:.1f}", _us(plain.cpu, load)),
    ]
    return table


def _us(seconds: float, load: Load) -> str:
    """A step, in microseconds."""
    return f"{1e6 * seconds / load.steps:.0f}"


def _rows(told: Heard, seconds: Mapping[str, float], steps: int) -> list[Sequence[str]]:
    """A row for each script, the dearest first, without those that took next to nothing."""
    found: list[Sequence[str]] = []
    for name in sorted(seconds, key=seconds.__getitem__, reverse=True):
        calls, inside, spent = told.calls[name], told.inside[name], 1e6 * seconds[name]
        if calls and spent / steps > _SMALL:
            a_call, a_step = (f"{inside / calls:.1f}", f"{spent / calls:.0f}"), f"{inside / steps:.1f}"
            found.append((f"`{name}`", f"{calls / steps:.3f}", *a_call, a_step, f"{spent / steps:.0f}"))
    return found


async def _with_many(rig: Rig, redis: Redis, at_once: Sequence[int]) -> Table:
    table = Table(
        f"What a step costs Redis, by runs at once ({_FEW} model calls each, {_PACE} a second of all together)",
        ("", *_COLUMNS),
        note="The model takes the longer for its answer the more runs there are. Renewed leases, and what else comes "
        "with the time, are counted in.",
    )
    for many in at_once:
        wait = 1000 * many // _PACE
        load = Load(f"tool-{_FEW - 1}+ttft-{wait}", _FEW, many, max(1, _LEAST // many))
        table.rows.append((f"{many:,}", *_numbers(await _work(rig, redis, load), load.steps)))
    return table


async def _behind(rig: Rig, redis: Redis, messages: Sequence[int]) -> Table:
    table = Table(
        f"What a step costs Redis, by messages before the run ({_LONG} runs at once, {_TURNS} times)",
        ("", *_COLUMNS),
        note="The worker has the conversation from an earlier run. Submitting is counted in. By turns; those in the "
        "middle by their CPU. The more messages a worker sends, the longer the server is left alone between two "
        "steps: what that alone makes of the same commands is in the table below.",
    )
    loads = {
        many: Load(MODEL, CALLS, _LONG, conversations=tuple([await _long(rig, many) for _ in range(_LONG)]))
        for many in messages
    }
    taken: dict[int, list[ServerWork]] = {many: [] for many in messages}
    for _ in range(_TURNS):
        for many, load in loads.items():
            taken[many].append(await _work(rig, redis, load))
    for many, works in taken.items():
        middle = sorted(works, key=lambda work: work.cpu)[len(works) // 2]
        table.rows.append((f"{many:,}", *_numbers(middle, loads[many].steps)))
    return table


async def _long(rig: Rig, messages: int) -> str:
    """A conversation with so many messages."""

    async def say(said: tuple[Message, ...], place: str | None) -> str:
        (run,) = await rig.ended([await rig.submit("echo", input=said, conversation=place)])
        return run.conversation_id

    return await conversation(messages, say)


async def _work(rig: Rig, redis: Redis, load: Load) -> ServerWork:
    before = await ServerWork.of(redis)
    await load.put_on(rig)
    return await ServerWork.of(redis) - before


def _numbers(work: ServerWork, steps: int) -> tuple[str, ...]:
    return (
        f"{work.commands / steps:.1f}",
        f"{work.received / steps / 1e3:.1f}",
        f"{work.sent / steps / 1e3:.1f}",
        f"{1e3 * work.cpu / steps:.2f}",
        f"{1e3 * work.in_scripts / steps:.2f}",
    )
