"""How soon a stream begins in each dialect, and its first token is there: ``python -m bench.dialects [--times N]``.
What an event costs one who watches is ``python -m bench --only watchers``.

The time is from the request that begins a run, at an API and a worker that have nothing else to do, and a model that
answers at once. The dialects take turns, so that what else the machine does meets all of them.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Mapping
from statistics import median
from typing import Any, Final, NamedTuple
from uuid import uuid4

import httpx

from bench.conversation import INPUT
from bench.program import run
from bench.report import Table, number, percentile
from bench.rig import Rig

_STREAM: Final = {"accept": "text/event-stream"}
_JSON: Final = {"accept": "application/json"}
_TOKEN: Final = b"w1"
"""The first word of the model's answer; nothing else in a stream has it."""
_AGENT: Final = {"model": "fake/say-3"}


class Began(NamedTuple):
    """Seconds from a request to the first event, and to the first token."""

    event: float
    token: float


async def report(times: int) -> str:
    """Measure, and say what was found."""
    found: dict[str, list[Began]] = {name: [] for name in _begins()}
    async with Rig() as rig:
        url, _ = await rig.start_api()
        await rig.workers_ready(rig.start_worker(50))
        async with httpx.AsyncClient(base_url=url, headers=_STREAM, timeout=30, trust_env=False) as client:
            (await client.put("/v1/agents/bench", json=_AGENT, headers=_JSON)).raise_for_status()
            for _ in range(times + 1):
                for name, (path, body) in _begins().items():
                    found[name].append(await _began(client, path, body))
    columns = ("dialect", "first event p50 ms", "first token p50 ms", "of it more than native's", "p90 ms")
    table = Table(f"From the request that begins a run ({times} times)", columns)
    native = median(each.token for each in found["native"][1:])
    for name, (_, *each) in found.items():
        tokens = [1000 * began.token for began in each]
        events = median(1000 * began.event for began in each)
        more = f"{median(tokens) - 1000 * native:+.2f}"
        table.rows.append((name, number(events), number(median(tokens)), more, number(percentile(tokens, 90))))
    return f"{table.markdown()}\n"


def _begins() -> Mapping[str, tuple[str, dict[str, Any]]]:
    """The request that begins another run, in each dialect."""
    name = uuid4().hex
    message = {"id": name, "role": "user"}
    said = {**message, "content": INPUT}
    parts = {**message, "parts": [{"type": "text", "text": INPUT}]}
    model = {"model": "agent/bench", "stream": True}
    return {
        "native": ("/v1/runs", {"agent": "bench", "input": INPUT}),
        "AI SDK": ("/ui/agents/bench/chat", {"id": name, "messages": [parts], "trigger": "submit-message"}),
        "AG-UI": ("/ag-ui/agents/bench", {"threadId": name, "runId": name, "messages": [said]}),
        "OpenAI Responses": ("/openai/v1/responses", {**model, "input": INPUT}),
        "OpenAI chat": ("/openai/v1/chat/completions", {**model, "messages": [{"role": "user", "content": INPUT}]}),
    }


async def _began(client: httpx.AsyncClient, path: str, body: dict[str, Any]) -> Began:
    sent = time.perf_counter()
    event = token = 0.0
    seen = b""
    async with client.stream("POST", path, json=body) as answer:
        async for piece in answer.aiter_bytes():
            seen += piece
            event = event or time.perf_counter() - sent
            token = token or (time.perf_counter() - sent if _TOKEN in seen else 0.0)
    if not token:
        raise RuntimeError(f"{path}: the stream ended without a token: {seen.decode()[:300]}")
    return Began(event, token)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--times", type=int, default=200)
    run(report(parser.parse_args().times), None)
