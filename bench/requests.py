"""What a request costs: the API beside the same done by hand, one process each, in turns.

The client (`bench/load.py`) is a process of its own, and neither side writes a line a request.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Final

import orjson

from bench.asked import BenchError
from bench.conversation import INPUT, INSTRUCTIONS, MODEL, TOOL
from bench.report import Table, percentile
from bench.rig import Rig
from bench.usage import Usage
from features.stack.child import ChildCommand
from features.stack.ports import HOST, free_port
from features.stack.readiness import answers_ok
from palaver.schemas.models import AgentSpec, Submission
from palaver.store.fleet.fleet import WorkerReport
from palaver.store.redis.keys import run as key_of_run

_CONNECTIONS: Final = (1, 32)
_SECONDS: Final = 1.0
"""Of each sample: CPU time comes in ticks of 10 ms."""
_NOTE: Final = (
    "The floor (`bench/floor_api.py`) is bare FastAPI with redis-py, one uvicorn process as ours: HGETALL of such a "
    "run, one EVALSHA that writes a hash, nothing. CPU is the server's for a request. Medians of the rounds; ratios "
    "are to the floor of the same round, with the least and the most: of requests/s more is better, of CPU less."
)


@dataclass(frozen=True)
class Side:
    """A server, and what it is asked on each connection, by kinds of requests."""

    process: ChildCommand
    port: int
    requests: Mapping[str, Sequence[str]]


@dataclass(frozen=True)
class Sample:
    """What came of a second of requests; times in ms, CPU in us a request."""

    rate: float
    p50: float
    p99: float
    cpu: float
    redis_cpu: float


async def measure(rounds: int) -> list[Table]:
    """Measure in so many rounds. Raises BenchError when a side answers with anything but success."""
    async with Rig() as rig:
        sides = {"floor": await _floor(rig), "Palaver": await _palaver(rig)}
        kinds = list(sides["floor"].requests)
        found: dict[tuple[str, int, str], list[Sample]] = {
            (kind, connections, name): [] for kind in kinds for connections in _CONNECTIONS for name in sides
        }
        for side in sides.values():
            for kind in kinds:
                await _sample(rig, side, kind, _CONNECTIONS[-1])
        for turn in range(rounds):
            for kind, connections in ((kind, each) for kind in kinds for each in _CONNECTIONS):
                for name in list(sides)[:: -1 if turn % 2 else 1]:
                    found[kind, connections, name].append(await _sample(rig, sides[name], kind, connections))
    return [_table(connections, rounds, kinds, found) for connections in _CONNECTIONS]


async def _floor(rig: Rig) -> Side:
    port = free_port()
    options = ("--host", HOST, "--port", str(port), "--log-level", "warning")
    process = rig.start("uvicorn", "bench.floor_api:app", *options)
    await rig.until(lambda: answers_ok(f"http://{HOST}:{port}/healthz"), "the floor answers")
    return Side(process, port, _requests(port, [f"/runs/{key_of_run(each)}" for each in await _runs(rig)], "/runs"))


async def _palaver(rig: Rig) -> Side:
    url, process = await rig.start_api()
    port = int(url.rpartition(":")[2])
    # As if a worker had been there: where no provider is known yet, each submit asks for them.
    report = WorkerReport(id="bench/1", queues=("model",), in_flight=0, capacity=1, draining=False, providers=("fake",))
    await rig.store.fleet.report(report)
    return Side(process, port, _requests(port, [f"/v1/runs/{each}" for each in await _runs(rig)], "/v1/runs"))


async def _runs(rig: Rig) -> list[str]:
    """A run for each connection: several who read the same would share what is read."""
    agent = AgentSpec(model=f"fake/{MODEL}", instructions=INSTRUCTIONS, tools=(TOOL,))
    wanted = Submission(agent=agent, input=INPUT)
    return [(await rig.store.runs.submit(wanted)).run_id for _ in range(_CONNECTIONS[-1])]


def _requests(port: int, reads: Sequence[str], submit: str) -> Mapping[str, Sequence[str]]:
    body = orjson.dumps({"agent": {"model": f"fake/{MODEL}", "instructions": INSTRUCTIONS}, "input": INPUT}).decode()
    head = f"Host: {HOST}:{port}\r\nAccept: */*\r\nUser-Agent: bench\r\n"
    typed = f"{head}Content-Type: application/json\r\nContent-Length: {len(body)}\r\n"
    return {
        "read a run": [f"GET {path} HTTP/1.1\r\n{head}\r\n" for path in reads],
        "submit a run": [f"POST {submit} HTTP/1.1\r\n{typed}\r\n{body}"],
        "healthz": [f"GET /healthz HTTP/1.1\r\n{head}\r\n"],
    }


async def _sample(rig: Rig, side: Side, kind: str, connections: int) -> Sample:
    before, redis_before = Usage.of(side.process.pid), Usage.of(rig.redis.pid)
    client = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "bench.load", str(side.port), str(connections), str(_SECONDS)),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    told, error = await client.communicate(orjson.dumps(side.requests[kind]))
    if client.returncode:
        raise BenchError(f"{kind}: {error.decode()[-500:]}")
    after, redis_after = Usage.of(side.process.pid), Usage.of(rig.redis.pid)
    answer = orjson.loads(told)
    took = answer["took"]
    return Sample(
        rate=len(took) / answer["seconds"],
        p50=percentile(took, 50),
        p99=percentile(took, 99),
        cpu=1e6 * (after.cpu - before.cpu) / len(took),
        redis_cpu=1e6 * (redis_after.cpu - redis_before.cpu) / len(took),
    )


def _table(
    connections: int, rounds: int, kinds: Sequence[str], found: Mapping[tuple[str, int, str], Sequence[Sample]]
) -> Table:
    table = Table(
        f"A request, {connections} connection{'s' * (connections > 1)} ({rounds} times {_SECONDS:g} s)",
        ("", "p50 ms", "p99 ms", "requests/s", "ratio", "CPU us", "ratio", "Redis CPU us"),
        note=_NOTE if connections == _CONNECTIONS[0] else "",
    )
    for kind in kinds:
        floor, ours = (found[kind, connections, name] for name in ("floor", "Palaver"))
        rates = [a.rate / b.rate for a, b in zip(ours, floor, strict=True)]
        cpus = [a.cpu / b.cpu for a, b in zip(ours, floor, strict=True)]
        table.rows += [
            (f"{kind}, floor", *_shown(floor, ["", ""])),
            (kind, *_shown(ours, [_range(rates), _range(cpus)])),
        ]
    return table


def _shown(samples: Sequence[Sample], ratios: Sequence[str]) -> tuple[str, ...]:
    return (
        f"{median(each.p50 for each in samples):.2f}",
        f"{median(each.p99 for each in samples):.1f}",
        f"{median(each.rate for each in samples):,.0f}",
        ratios[0],
        f"{median(each.cpu for each in samples):.0f}",
        ratios[1],
        f"{median(each.redis_cpu for each in samples):.0f}",
    )


def _range(ratios: Sequence[float]) -> str:
    return f"{median(ratios):.2f} ({min(ratios):.2f} to {max(ratios):.2f})"
