"""What OpenAI's dialect costs beside the native one: ``python -m bench.dialects [--rounds N] [--events N]``.

The two take turns, so that what else the machine does meets both. The CPU is that of the API for an event and watcher;
the time is from the request that begins a run, to the first event of its stream, at an API that has nothing else to do.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Mapping
from statistics import median
from typing import Any, Final

import httpx

from bench.conversation import INPUT, MODEL
from bench.program import run
from bench.report import Table, spread
from bench.rig import Rig
from bench.watchers import Crowd, native, watched

_CROWDS: Final = (Crowd(1, 1, 0.002), Crowd(1, 10, 0.004))
_FIRST: Final = 200
_STREAM: Final = {"accept": "text/event-stream"}


def openai(run_id: str) -> str:
    """Return the path of the stream of a run's response."""
    return f"/openai/v1/responses/{run_id.replace('run_', 'resp_')}?stream=true"


_PATHS: Final[Mapping[str, Callable[[str], str]]] = {"native": native, "openai": openai}
_BEGINS: Final[Mapping[str, tuple[str, dict[str, Any]]]] = {
    "native": ("/v1/runs", {"agent": {"model": f"fake/{MODEL}"}, "input": INPUT}),
    "openai": ("/openai/v1/responses", {"model": f"fake/{MODEL}", "input": INPUT, "stream": True}),
}


async def report(rounds: int, events: int) -> str:
    """Measure, and say what was found."""
    cpu: dict[tuple[Crowd, str], list[float]] = {(crowd, name): [] for crowd in _CROWDS for name in _PATHS}
    first: dict[str, list[float]] = {name: [] for name in _PATHS}
    async with Rig() as rig:
        url, api = await rig.start_api()
        for number in range(rounds + 1):
            for crowd in _CROWDS:
                for name, path in _PATHS.items():
                    found = await watched(rig, url, api, crowd, events if number else events // 10, path)
                    if number:
                        cpu[crowd, name].append(found.cpu)
        async with httpx.AsyncClient(base_url=url, headers=_STREAM, timeout=30) as client:
            for _ in range(_FIRST):
                for name, (path, body) in _BEGINS.items():
                    first[name].append(await _first_event(client, path, body))
    watching = Table("An event that is watched", ("runs", "watchers of each", "dialect", "API CPU us"))
    for (crowd, name), found_cpu in cpu.items():
        watching.rows.append((f"{crowd.runs}", f"{crowd.watchers}", name, spread(found_cpu)))
    beginning = Table("From the request to the first event", ("dialect", "p50 ms"))
    beginning.rows += [(name, f"{1000 * median(times):.2f}") for name, times in first.items()]
    return f"{watching.markdown()}\n\n{beginning.markdown()}\n"


async def _first_event(client: httpx.AsyncClient, path: str, body: dict[str, Any]) -> float:
    began = time.perf_counter()
    async with client.stream("POST", path, json=body) as answer:
        async for piece in answer.aiter_bytes():
            if b"created" in piece:
                return time.perf_counter() - began
    raise RuntimeError("the stream ended before it began")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--events", type=int, default=2000)
    arguments = parser.parse_args()
    run(report(arguments.rounds, arguments.events), None)
