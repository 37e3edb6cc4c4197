"""A model server that means harm: each of its answers ends its own run with a true class, and nothing else happens.

All kinds (tests/process/hostile) go to one model worker at the same time, each to a provider of its own, while the runs
of a neighbour go through the same worker.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import orjson
import pytest

from tests.process.checks import check_conversations, check_logs
from tests.process.cluster import Cluster
from tests.process.hostile.kind import Kind
from tests.process.hostile.kinds import KINDS
from tests.process.hostile.server import HostileServer
from tests.process.neighbour import neighbour_of, spread
from tests.waiting import eventually

pytestmark = pytest.mark.process

KEY = "sv-Canary7f3Gq2b7d9e0c41aa55e3Zk"
"""Of all hostile providers."""
LEASE = 30.0
"""Seconds: no worker dies here, and one that has to wait for the processor must not be taken for dead."""
RETRIED = ("rate_limited", "provider_error", "connection", "timeout")
ONCE: dict[str, Any] = {"rules": {each: {"attempts": 1} for each in RETRIED}}
PICK = {"name": "pick", "description": "Pick one.", "parameters": {"type": "object"}}
INVARIANTS = ("I1", "I2", "I4", "I5", "I6", "I7", "I9", "I12")
"""Those that need no ledger of the model server."""
GROWTH = 150 << 20
"""Bytes of RAM that a worker may have taken at most over what it had: some 150 answers at once, of up to 1 MiB each."""


@dataclass(frozen=True)
class Seen:
    """What became of the kinds."""

    runs: dict[str, dict[str, Any]]
    events: dict[str, bytes]
    asked: dict[str, int]
    neighbour: list[float]
    """Seconds of the neighbour's runs, meanwhile."""
    grown: int
    """Bytes of RAM of the worker, at its highest, over what it had before."""
    logs: dict[str, str]


@contextmanager
def hostile(folder: Path) -> Iterator[tuple[Cluster, HostileServer]]:
    """A cluster with one model worker that knows all hostile providers, and their server."""
    with ExitStack() as stack:
        server = stack.enter_context(HostileServer({each.name: each.play for each in KINDS}).running())
        cluster = Cluster(folder, lease=LEASE, environment={"HOSTILE_KEY": KEY})
        with cluster.providers_path.open("a") as file:
            file.writelines(entry(each, server.port) for each in KINDS)
        stack.enter_context(cluster)
        assert cluster.ended(cluster.submit("echo")).output == "echo: hello"
        cluster.mark_logs()
        yield cluster, server


@pytest.fixture(scope="module")
def seen(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Seen]:
    with hostile(tmp_path_factory.mktemp("hostile")) as (cluster, server):
        (worker,) = cluster.stack.pids("worker")
        before = memory(worker, "VmRSS")
        with neighbour_of(cluster) as seconds:
            runs = asyncio.run(submit_all(cluster, KINDS, at_once=len(KINDS)))
        grown = memory(worker, "VmHWM") - before
        events = {name: cluster.http.get(f"/v1/runs/{run['id']}/events").content for name, run in runs.items()}
        yield Seen(runs, events, dict(server.asked), seconds, grown, cluster.new_logs())
        check_conversations(cluster, [run["id"] for run in runs.values()], INVARIANTS)
        check_logs(cluster)


def entry(kind: Kind, port: int) -> str:
    """A provider of its own."""
    fields: dict[str, Any] = {"timeouts": {"first_token": 20.0, "idle": 20.0, "total": 40.0}, **kind.provider}
    lines = [f"base_url = 'http://127.0.0.1:{port}/v1'", "api_key_env = 'HOSTILE_KEY'"]
    for name, value in fields.items():
        table = (
            "{ " + ", ".join(f"{key} = {each}" for key, each in value.items()) + " }"
            if isinstance(value, dict)
            else value
        )
        lines.append(f"{name} = {table}")
    return f"\n[providers.{kind.name}]\n" + "\n".join(lines) + "\n"


def memory(pid: int, which: str) -> int:
    """Bytes of RAM of a process: now (VmRSS), or the most there ever were (VmHWM)."""
    found = re.search(rf"{which}:\s+(\d+) kB", Path(f"/proc/{pid}/status").read_text())
    assert found is not None
    return int(found[1]) * 1024


async def submit_all(cluster: Cluster, kinds: Sequence[Kind], at_once: int) -> dict[str, dict[str, Any]]:
    """Runs of these kinds, so many at a time; the answers come when the runs have ended."""
    limits, room = httpx.Limits(max_connections=None), asyncio.Semaphore(at_once)
    async with httpx.AsyncClient(base_url=cluster.stack.url, timeout=70, limits=limits, trust_env=False) as http:

        async def submit(kind: Kind) -> dict[str, Any]:
            agent = {"retry": ONCE, "stream": kind.stream, "client_tools": [PICK]}
            body = cluster.body(f"{kind.name}/{kind.name}", tools=["calculator"], agent=agent)
            async with room:
                answer = await http.post("/v1/runs", json=body, headers={"Prefer": "wait=60"})
            assert answer.status_code == 200, f"{kind.name}: {answer.text[:300]}"
            run: dict[str, Any] = answer.json()
            return run

        found = await asyncio.gather(*map(submit, kinds))
    return {kind.name: run for kind, run in zip(kinds, found, strict=True)}


def test_there_are_enough_kinds() -> None:
    assert len({each.name for each in KINDS}) == len(KINDS) >= 100


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)
def test_it_ends_its_own_run_with_a_true_class(kind: Kind, seen: Seen) -> None:
    run = seen.runs[kind.name]
    error = run["error"]
    ended = run["status"] if error is None else f"{error['class']}/{error['code'].removeprefix(kind.name)}"
    assert ended in kind.ends.split("|"), (ended, error)
    if kind.output is not None:
        assert run["output"] == kind.output
    told = seen.events[kind.name]
    assert b'"internal"' not in told
    assert len(told) < 3 << 20
    if error is not None:
        assert error["message"].isprintable()
        assert seen.asked[kind.name] == 1


def test_no_key_is_shown_or_logged(seen: Seen) -> None:
    for text in (
        orjson.dumps(seen.runs).decode(),
        *(each.decode() for each in seen.events.values()),
        *seen.logs.values(),
    ):
        assert KEY.lower() not in text.lower()
        assert KEY.encode().hex() not in text.lower()


def test_the_neighbour_goes_on(seen: Seen) -> None:
    assert len(seen.neighbour) >= 10


def test_the_worker_stays_small(seen: Seen) -> None:
    assert seen.grown < GROWTH, seen.grown >> 20


@pytest.mark.chaos
def test_the_neighbours_runs_take_as_long_as_without_hostile_answers_about(tmp_path: Path) -> None:
    with hostile(tmp_path) as (cluster, _):
        with neighbour_of(cluster) as alone:
            eventually(lambda: len(alone) >= 200)
        # A 429 cools its provider down, for the next round as well.
        kinds = [each for each in KINDS if not each.ends.startswith("rate_limited")]
        for at_once in (1, 4, 16):
            with neighbour_of(cluster) as beside:
                asyncio.run(submit_all(cluster, kinds, at_once=at_once))
            print(f"alone: {spread(alone)}; beside {at_once} hostile answers at a time: {spread(beside)}")
            assert len(beside) >= 10
