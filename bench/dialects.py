"""How soon a stream begins in each dialect: ``python -m bench.dialects [--times N]``. What an event costs one who
watches is ``python -m bench --only watchers``.

The time is from the request that begins a run to the first event of its stream, at an API that has nothing else to do.
The dialects take turns, so that what else the machine does meets all of them.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Mapping
from statistics import median
from typing import Any, Final

import httpx

from bench.conversation import INPUT, MODEL
from bench.program import run
from bench.report import Table
from bench.rig import Rig

_STREAM: Final = {"accept": "text/event-stream"}
_BEGINS: Final[Mapping[str, tuple[str, dict[str, Any]]]] = {
    "native": ("/v1/runs", {"agent": {"model": f"fake/{MODEL}"}, "input": INPUT}),
    "OpenAI": ("/openai/v1/responses", {"model": f"fake/{MODEL}", "input": INPUT, "stream": True}),
}


async def report(times: int) -> str:
    """Measure, and say what was found."""
    first: dict[str, list[float]] = {name: [] for name in _BEGINS}
    async with Rig() as rig:
        url, _ = await rig.start_api()
        async with httpx.AsyncClient(base_url=url, headers=_STREAM, timeout=30) as client:
            for _ in range(times):
                for name, (path, body) in _BEGINS.items():
                    first[name].append(await _first_event(client, path, body))
    table = Table("From the request to the first event", ("dialect", "p50 ms"))
    table.rows += [(name, f"{1000 * median(each):.2f}") for name, each in first.items()]
    return f"{table.markdown()}\n"


async def _first_event(client: httpx.AsyncClient, path: str, body: dict[str, Any]) -> float:
    began = time.perf_counter()
    async with client.stream("POST", path, json=body) as answer:
        async for piece in answer.aiter_bytes():
            if b"created" in piece:
                return time.perf_counter() - began
    raise RuntimeError("the stream ended before it began")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--times", type=int, default=200)
    run(report(parser.parse_args().times), None)
