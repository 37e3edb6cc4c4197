"""`python -m bench.peers [--quick] [--only PART] [--peers A,B] [--out FILE]`: Palaver beside others, on the same work.

`python -m bench.peers.install` installs them; who is not installed is named in the report. Takes about twenty minutes,
with --quick five. Everything listens on loopback alone, tells nobody, and ends with the bench.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Final, NamedTuple

from bench.asked import BenchError
from bench.peers import crashes, load, memory, requests, stops, streams
from bench.peers.celery_threads import CeleryThreads
from bench.peers.dbos import Dbos
from bench.peers.langgraph import LangGraph
from bench.peers.palaver import AsyncSteps, Palaver, ToolSteps
from bench.peers.peer import Peer
from bench.peers.restate import Restate
from bench.peers.rows import Row, ratio_cell
from bench.program import run
from bench.report import Table, heading
from bench.rig import Rig

PEERS: Final[Mapping[str, type[Peer]]] = {
    "palaver": Palaver,
    "steps": ToolSteps,
    "async": AsyncSteps,
    "celery": CeleryThreads,
    "restate": Restate,
    "dbos": Dbos,
    "langgraph": LangGraph,
}

ABOUT: Final = """\
The work is the same for all: an agent that calls the model 21 times and a tool 20 times in between, which are 21 steps.
All ask the same model server, which answers at once unless a row says otherwise. Rounds are interleaved. CPU and memory
are those of all processes of a peer, its database and API included; model server, client and the idle peers share the
machine. All call the model with httpx, over aiohttp; the others have tool calls sent in one piece, which costs less
than the stream that Palaver always asks for."""

HEADLINES: Final = (
    "Medians and ranges, of everything that a peer has running; less is better, but for steps a second. Other rows and "
    "[where Palaver loses](#how-many-times-better) are below. `-`: there was nothing to measure."
)

RATIOS: Final = (
    "With inline tools, with tool steps, with async steps. Above 1 Palaver does better; below 1, in bold, it loses. "
    "Medians over the rounds: each ratio is of two measurements of the same round."
)


class Part(NamedTuple):
    """Something to measure, thoroughly or quickly."""

    title: str
    note: str
    measure: Callable[[Rig, Sequence[Peer], bool], Awaitable[list[Row]]]


PARTS: Final[Mapping[str, Part]] = {
    "memory": Part(
        "Idle",
        "After a first run. RSS counts a page once for each process that has it.",
        lambda rig, peers, quick: memory.measure(rig, peers, seconds=3 if quick else 10),
    ),
    "load": Part(
        "Steps",
        "One run alone, from its first call of the model to the end of its last; 50 runs from the first submit on.",
        lambda rig, peers, quick: load.measure(rig, peers, rounds=1 if quick else 5),
    ),
    "requests": Part(
        "Requests",
        "One after the other; the status is that of a run that has ended.",
        lambda rig, peers, quick: requests.measure(
            rig, peers, rounds=1 if quick else 3, submits=10 if quick else 100, texts=3 if quick else 20
        ),
    ),
    "stops": Part(
        "Cancel",
        "In the middle of an answer of five seconds, as the model server sees its connection.",
        lambda rig, peers, quick: stops.measure(rig, peers, stops=2 if quick else 8),
    ),
    "streams": Part(
        "Slow streams",
        "Answers of ten words a second, all at once. Palaver writes each to a feed, the others drop them.",
        lambda rig, peers, quick: streams.measure(rig, peers, rounds=1 if quick else 2, streams=50 if quick else 200),
    ),
    "crashes": Part(
        "Crash",
        "Five runs; the process that makes the calls, or runs the tools, is killed and started again at once. A tool "
        "that is run again has its effect twice; after a tool step Palaver tells the model instead that the call may "
        "have taken effect. "
        "[Refunds](bench.md#refunds-that-are-interrupted-between-the-payment-and-its-checkpoint) that are paid twice "
        "were counted beside the Microsoft Agent Framework.",
        lambda rig, peers, quick: crashes.measure(
            rig, peers, crashes=1, places=("model",) if quick else ("model", "tool")
        ),
    ),
}


async def measure(parts: Sequence[str], names: Sequence[str], quick: bool, command: str) -> str:
    """The report on these parts and peers; says on stderr what it is at."""
    rows: dict[str, list[Row]] = {}
    absent: dict[str, str] = {}
    async with Rig() as rig, AsyncExitStack() as running:
        peers = [peer for name in names if (peer := await _started(rig, running, PEERS[name], absent))]
        there = [peer.name for peer in peers]
        about = [f"- **{peer.name}**: {peer.about}" for peer in peers]
        for name in parts:
            begun = time.monotonic()
            print(f"bench: {name} …", end="", file=sys.stderr, flush=True)
            rows[name] = await _measured(rig, PARTS[name], peers, quick, absent)
            print(f" {time.monotonic() - begun:.0f} s", file=sys.stderr)
    ours = [kind.name for kind in PEERS.values() if kind.ours and kind.name in there]
    others = [kind.name for kind in PEERS.values() if not kind.ours and kind.name in there]
    columns = [*ours, *others]
    tables = [
        Table(
            PARTS[name].title,
            ("", *columns),
            [row.cells(columns) for row in found if not row.headline],
            PARTS[name].note,
        )
        for name, found in rows.items()
    ]
    headlines = [row for found in rows.values() for row in found if row.headline]
    return (
        "\n\n".join(
            [
                "# Beside others",
                _headlines(headlines, columns),
                heading(command),
                ABOUT,
                "\n".join([*about, *(f"- **{name}** is missing: {why}" for name, why in absent.items())]),
                *(table.markdown() for table in tables),
                _ratios(headlines, ours, others).markdown(),
            ]
        )
        + "\n"
    )


async def _started(rig: Rig, running: AsyncExitStack, kind: type[Peer], absent: dict[str, str]) -> Peer | None:
    try:
        peer = kind(rig)
        running.push_async_callback(peer.close)
        await peer.start()
    except BenchError as error:
        absent[kind.name] = str(error)
        return None
    return peer


async def _measured(rig: Rig, part: Part, peers: list[Peer], quick: bool, absent: dict[str, str]) -> list[Row]:
    """What the peers come to; whoever does not do the work is left out from then on, and the others begin again."""
    while True:
        try:
            return await part.measure(rig, peers, quick)
        except BenchError as error:
            # What goes wrong is told with the name of the peer before it.
            guilty = next((peer for peer in peers if str(error).startswith(f"{peer.name}: ")), None)
            if guilty is None:
                return [Row(f"not measured: {error}", {})]
            absent[guilty.name] = f"{part.title}: {error}"
            peers.remove(guilty)
            await guilty.close()


def _headlines(rows: Sequence[Row], columns: Sequence[str]) -> str:
    """The table that the report begins with."""
    table = Table("In ten rows", ("", *columns), [row.cells(columns) for row in rows], HEADLINES)
    return table.markdown()


def _ratios(rows: Sequence[Row], ours: Sequence[str], others: Sequence[str]) -> Table:
    table = Table("How many times better", ("", *others), note=RATIOS)
    for row in rows:
        cells = [ratio_cell(*(row.ratios(mine, other) for mine in ours)) for other in others]
        if set(cells) != {"-"}:
            table.rows.append((row.what, *cells))
    return table


def main() -> None:
    """Measure what is asked for."""
    parser = argparse.ArgumentParser(prog="python -m bench.peers", description=(__doc__ or "").partition(":")[2])
    parser.add_argument("--quick", action="store_true", help="fewer repetitions: a first look")
    parser.add_argument("--only", choices=PARTS, metavar="PART", help=f"one of {', '.join(PARTS)}")
    parser.add_argument("--peers", default=",".join(PEERS), metavar="A,B", help=f"of {', '.join(PEERS)}")
    parser.add_argument("--out", type=Path, metavar="FILE", help="write the report there as well")
    given = parser.parse_args()
    names = given.peers.split(",")
    if unknown := [name for name in names if name not in PEERS]:
        parser.error(f"--peers: {', '.join(unknown)}: choose from {', '.join(PEERS)}")
    command = " ".join(["python -m bench.peers", *sys.argv[1:]])
    run(measure([given.only] if given.only else list(PARTS), names, given.quick, command), given.out)


if __name__ == "__main__":
    main()
