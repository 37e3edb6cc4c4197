"""`palaver serve` beside `palaver up`: processes, memory, and the time from the command to the end of the first run."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from typing import Final, NamedTuple

import httpx

from bench.asked import BenchError
from bench.report import Table, number
from bench.usage import Usage, proportional
from features.stack.child import ChildCommand
from features.stack.ports import HOST, VARIABLES, Ports, free_port
from features.stack.readiness import accepts
from palaver.processes.process_tree import below

_WITHIN: Final = 120.0
_REST: Final = 3.0
"""Seconds in which what was just started comes to rest."""
_TOOL: Final = """
from palaver import tool

@tool(idempotent=True)
def find_order(expression: str) -> str:
    "Look an order up."
    return expression
"""
_WAYS: Final[Mapping[str, tuple[Sequence[str], Mapping[str, str]]]] = {
    "palaver up": (("up",), {}),
    "palaver serve": (("serve",), {}),
    "palaver serve, with a tool that is not async": (("serve",), {"PALAVER_TOOLS": "order_tool"}),
    "palaver serve --workers 2": (("serve", "--workers", "2"), {}),
}


class _Found(NamedTuple):
    """What one start has shown."""

    first_run: float
    processes: int
    rss: float
    pss: float


async def measure(rounds: int) -> list[Table]:
    """Start each in turns, in a directory of its own, with one model server beside them all."""
    found: dict[str, list[_Found]] = {way: [] for way in _WAYS}
    with tempfile.TemporaryDirectory() as folder, _model(Path(folder)) as port:
        for each in range(rounds):
            for number_of_way, (way, (words, environment)) in enumerate(_WAYS.items()):
                place = Path(folder) / f"{each}-{number_of_way}"
                found[way].append(await asyncio.to_thread(_start, place, words, environment, port))
    table = Table(
        "One machine",
        ("", "processes", "RSS MB", "PSS MB", "s to the end of the first run"),
        note=f"From the command in an empty directory, with its own Redis and archive; medians of {rounds}. The parent "
        "and all processes below it, of `palaver up` with the model server that it brings, after the first run, which "
        "has one tool call. RSS counts a page that several processes share once for each, PSS once in all.",
    )
    for way, all_found in found.items():
        processes = median(each.processes for each in all_found)
        memory = (median(each.rss for each in all_found), median(each.pss for each in all_found))
        first_run = median(each.first_run for each in all_found)
        table.rows.append((way, f"{processes:.0f}", *map(number, memory), number(first_run)))
    return [table]


def _start(place: Path, words: Sequence[str], environment: Mapping[str, str], model: int) -> _Found:
    place.mkdir()
    (place / "order_tool.py").write_text(_TOOL)
    (place / "providers.toml").write_text(f'[providers.mine]\nbase_url = "http://{HOST}:{model}/v1"\n')
    ports = Ports.free()
    clean = {name: value for name, value in os.environ.items() if not name.startswith("PALAVER_")}
    command = ChildCommand(
        "command",
        (sys.executable, "-m", "palaver.cli", *words),
        environment={
            **clean,
            **{variable: str(getattr(ports, name)) for name, variable in VARIABLES.items()},
            "PYTHONPATH": str(place),
            "PALAVER_DATA_DIR": str(place / "data"),
            "PALAVER_PROVIDERS": str(place / "providers.toml"),
            **environment,
        },
        log_path=place / "log",
        ready=lambda _: True,
    )
    begun = time.monotonic()
    command.start()
    try:
        _run(f"http://{HOST}:{ports.api}", "find_order" if environment else "calculator", command)
        first_run = time.monotonic() - begun
        time.sleep(_REST)
        used = Usage.of(command.pid)
        return _Found(first_run, 1 + len(below(command.pid)), used.rss, proportional(command.pid))
    finally:
        command.terminate()
        command.reap(time.monotonic() + _WITHIN)


def _run(url: str, tool: str, command: ChildCommand) -> None:
    """One run with one tool call, as soon as it is taken."""
    body = {"agent": {"model": "mine/tool-1", "tools": [tool]}, "input": "1 + 1"}
    give_up_at = time.monotonic() + _WITHIN
    with httpx.Client(timeout=_WITHIN, trust_env=False) as client:
        while time.monotonic() < give_up_at:
            try:
                answer = client.post(f"{url}/v1/runs", json=body, headers={"Prefer": "wait=60"})
            except httpx.TransportError:
                time.sleep(0.02)
                continue
            if answer.status_code == httpx.codes.OK and answer.json()["status"] == "completed":
                return
            time.sleep(0.02)
    raise BenchError(f"no run was completed; the end of the log:\n{command.output[-2000:]}")


@contextmanager
def _model(folder: Path) -> Iterator[int]:
    port = free_port()
    model = ChildCommand(
        "model",
        (sys.executable, "-m", "features.fake_provider", "--host", HOST, "--port", str(port)),
        environment=os.environ,
        log_path=folder / "model.log",
        ready=lambda _: accepts(port),
    )
    model.start()
    try:
        model.wait_until_ready(time.monotonic() + _WITHIN)
        yield port
    finally:
        model.kill(signal.SIGKILL)
