"""What others wait for while one client is hostile: answers that are costly to read, and bursts of sockets.

Quiet and attacked in turns, in the same processes. Others are small runs of another model and reads of a list, over
HTTP, each begun as soon as the one before it has ended.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, Final

import httpx

from bench.asked import BenchError
from bench.hostile_models import chosen
from bench.report import Table, percentile
from bench.rig import PROTOCOLS, Rig
from features.stack.ports import free_port
from features.stack.readiness import accepts
from palaver.vocabulary.limits import limit_of

_READERS: Final = {"fake": "chat_completions", "claude": "anthropic", "responding": "responses"}
"""The names of protocols by those of `PROTOCOLS`."""
_LOOPS: Final = 2
"""Runs of others at a time."""
_TOGETHER: Final = 5
"""Answers that are read at a time: of one alone each piece waits until others had their turn, for seconds in all."""
_ONCE: Final = {"patience": 0, "rules": {name: {"attempts": 1} for name in ("connection", "provider_error", "timeout")}}
"""A retry policy: no answer is asked for twice."""
_QUIET: Final = 3.0
"""Seconds between two attacks in which others are alone."""
_BURST: Final = 8.0
"""Seconds in which others are watched from a burst on."""
_WITHIN: Final = 60.0
_KEY: Final = "bench-key-of-others"
_HOSTILE_KEY: Final = "bench-key-of-a-burst"
_MESSAGE: Final = 200_000
"""Bytes of what sockets are sent, three times."""


@dataclass
class Waits:
    """Seconds that others waited, with when each began."""

    runs: list[tuple[float, float]] = field(default_factory=list)
    reads: list[tuple[float, float]] = field(default_factory=list)


async def measure(shapes: int, rounds: int, strangers: int, deaf: int) -> list[Table]:
    """With so many answers of each protocol and each way, then so many sockets without a key, and that never read.

    Raises BenchError when a run of others does not complete.
    """
    answers = Table(
        f"Others' runs beside answers that are costly to read (at most {shapes} shapes of each, "
        f"{limit_of('answer_line') >> 10} KiB a line, {limit_of('answer_document') >> 10} KiB a document)",
        ("", "shapes", "runs", *(f"{when} {what}" for when in ("quiet", "attacked") for what in ("p50", "p99", "max")),
         "p99, ratio", "max, later by", "what was read then"),
        note="ms of others' runs, of one model call, over HTTP, in the worker that reads the answers, "
        f"{_TOGETHER} at a time. Quiet and attacked in turns, {rounds} times; later than the quiet maximum.",
    )  # fmt: skip
    for name, spoken in PROTOCOLS.items():
        for streamed in (True, False):
            title = f"{spoken.title}, {'streamed' if streamed else 'whole'}"
            answers.rows.append((title, *await _answers(name, spoken.table, shapes, rounds, streamed=streamed)))
    sockets = Table(
        "Others beside bursts of OpenHands' sockets",
        ("", "", "quiet p50", "p99", "max", "attacked p50", "p99", "max", "p99, ratio"),
        note=f"ms, in the {_BURST:g} seconds from each burst on; quiet and attacked in turns, {rounds} times. Sockets "
        f"that never read have a key, small buffers and one conversation, in which {_MESSAGE // 1000} KB are said "
        "three times.",
    )
    sockets.rows += await _sockets(f"{strangers:,} without a key", strangers, None, rounds)
    sockets.rows += await _sockets(f"{deaf:,} that never read", deaf, _HOSTILE_KEY, rounds)
    return [answers, sockets]


async def _answers(name: str, table: str, shapes: int, rounds: int, *, streamed: bool) -> Sequence[str]:
    names = [shape.name for shape in chosen(_READERS[name], streamed=streamed, count=shapes)]
    port = free_port()
    async with Rig() as rig:
        rig.add_provider("hostile", f"http://127.0.0.1:{port}/v1", table)
        how = () if streamed else ("--whole",)
        about = ("--port", str(port), "--protocol", _READERS[name], "--shapes", str(shapes), *how)
        rig.start("bench.hostile_models", *about)
        await rig.until(lambda: accepts(port), "the hostile model server listens")
        url, _ = await rig.start_api()
        await rig.workers_ready(rig.start_worker(50))
        quiet, attacked, during = Waits(), Waits(), dict[str, tuple[float, float]]()
        async with httpx.AsyncClient(base_url=url, timeout=_WITHIN, trust_env=False) as client:
            await _watched(client, Waits(), _QUIET)
            for turn in range(rounds):
                await _watched(client, quiet, _QUIET)
                numbers = iter(range(turn, len(names), rounds))
                async with _others(client, attacked), asyncio.TaskGroup() as attackers:
                    for _ in range(_TOGETHER):
                        attackers.create_task(_attack(client, numbers, names, during))
    before, now = ([took for _, took in waits.runs] for waits in (quiet, attacked))
    later = max(now) - max(before)
    begun, took = max(attacked.runs, key=lambda each: each[1])
    worst = "; ".join(name for name, (since, until) in during.items() if begun < until and begun + took > since)
    return (f"{len(names)}", f"{len(now):,}", *_ms(before), *_ms(now), _ratio(before, now), f"{1e3 * later:.0f}", worst)


async def _attack(
    client: httpx.AsyncClient, numbers: Iterator[int], names: Sequence[str], during: dict[str, tuple[float, float]]
) -> None:
    """Have the next answer read until there is none, and note when each was."""
    for number in numbers:
        begun = time.perf_counter()
        await _run(client, f"hostile/s{number}", ends=("failed", "completed", "incomplete"))
        during[names[number]] = (begun, time.perf_counter())


async def _sockets(title: str, count: int, key: str | None, rounds: int) -> list[Sequence[str]]:
    async with Rig() as rig:
        more = {"PALAVER_MAX_WATCHERS_PER_KEY": str(2 * count)} if key else {}
        url, _ = await rig.start_api(PALAVER_API_KEYS=f"others={_KEY},burst={_HOSTILE_KEY}", **more)
        await rig.workers_ready(rig.start_worker(50))
        quiet, attacked = Waits(), Waits()
        async with _client(url, _KEY) as client, _client(url, _HOSTILE_KEY) as hostile:
            await _watched(client, Waits(), _QUIET)
            for _ in range(rounds):
                await _watched(client, quiet, _BURST)
                talk = await _conversation(hostile)
                about = ("--path", f"/openhands/sockets/events/{talk}", *(("--key", key) if key else ()))
                port = url.rpartition(":")[2]
                burst = rig.start("bench.hostile_sockets", "--port", port, "--count", str(count), *about)
                # It is there before others are watched, and connects a little later.
                await rig.until(lambda burst=burst: "ready" in burst.output, "the burst is ready")  # type: ignore[misc]
                async with _others(client, attacked):
                    ends = time.monotonic() + _BURST
                    if key:
                        await rig.until(lambda burst=burst: "connected" in burst.output, "sockets connect")  # type: ignore[misc]
                        for _ in range(3):
                            await _say(hostile, talk)
                    await asyncio.sleep(max(0.0, ends - time.monotonic()))
                burst.terminate()
                burst.reap(time.monotonic() + 5)
                await _watched(client, Waits(), _QUIET)
    rows: list[Sequence[str]] = []
    for what, before, now in (("runs", quiet.runs, attacked.runs), ("reads", quiet.reads, attacked.reads)):
        seconds, those = ([took for _, took in each] for each in (before, now))
        rows.append((title, what, *_ms(seconds), *_ms(those), _ratio(seconds, those)))
    return rows


def _client(url: str, key: str) -> httpx.AsyncClient:
    headers = {"Authorization": f"Bearer {key}"}
    return httpx.AsyncClient(base_url=url, timeout=_WITHIN, trust_env=False, headers=headers)


async def _conversation(client: httpx.AsyncClient) -> str:
    agent = {"kind": "Agent", "llm": {"model": "fake/echo", "usage_id": "agent"}, "tools": []}
    answer = await client.post("/openhands/api/conversations", json={"agent": agent})
    return str(_checked(answer)["id"])


async def _say(client: httpx.AsyncClient, talk: str) -> None:
    said = {"role": "user", "content": [{"type": "text", "text": "x" * _MESSAGE}], "run": False}
    _checked(await client.post(f"/openhands/api/conversations/{talk}/events", json=said))


async def _watched(client: httpx.AsyncClient, waits: Waits, seconds: float) -> None:
    async with _others(client, waits):
        await asyncio.sleep(seconds)


@asynccontextmanager
async def _others(client: httpx.AsyncClient, waits: Waits) -> AsyncIterator[None]:
    """Runs and reads, one after the other, until the end of the block."""
    over = asyncio.Event()

    async def again(act: Callable[[], Awaitable[object]], into: list[tuple[float, float]]) -> None:
        while not over.is_set():
            begun = time.perf_counter()
            await act()
            into.append((begun, time.perf_counter() - begun))

    async def read() -> None:
        _checked(await client.get("/v1/runs?limit=1"))

    async with asyncio.TaskGroup() as group:
        for _ in range(_LOOPS):
            group.create_task(again(lambda: _run(client, "fake/echo", ends=("completed",)), waits.runs))
        group.create_task(again(read, waits.reads))
        try:
            yield
        finally:
            over.set()


async def _run(client: httpx.AsyncClient, model: str, *, ends: Sequence[str]) -> None:
    """A run, to its end, with one attempt."""
    body = {"agent": {"model": model, "retry": _ONCE}, "input": "hello"}
    answer = await client.post("/v1/runs", json=body, headers={"Prefer": f"wait={_WITHIN:.0f}"})
    status = _checked(answer)["status"]
    if status not in ends:
        raise BenchError(f"a run of {model} is {status}")


def _checked(answer: httpx.Response) -> Mapping[str, Any]:
    if answer.is_error:
        raise BenchError(f"the API answered {answer.status_code}: {answer.text[:200]}")
    found: Mapping[str, Any] = answer.json()
    return found


def _ms(seconds: Sequence[float]) -> list[str]:
    return [f"{1e3 * each:.1f}" for each in (percentile(seconds, 50), percentile(seconds, 99), max(seconds))]


def _ratio(before: Sequence[float], now: Sequence[float]) -> str:
    return f"{percentile(now, 99) / percentile(before, 99):.2f}"
