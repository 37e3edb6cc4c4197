"""`python -m bench.openhands [--quick] [--only PART] [--out FILE]`: Palaver beside OpenHands' agent-server.

`python -m bench.openhands.install` installs the reference, which needs Python 3.12 or 3.13. Takes about nine minutes,
with --quick three. Everything listens on loopback alone and ends with the bench.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Final, NamedTuple

from bench.asked import BenchError
from bench.openhands import answers, crashes, crowds, load, returns, stops
from bench.openhands.install import VERSION
from bench.openhands.rows import Row
from bench.openhands.sides import WORKERS, AgentServer, Palaver, Side
from bench.program import main
from bench.report import Table, heading
from bench.rig import Rig

ABOUT: Final = f"""\
What OpenHands' clients ask of either, done by both in turns, on the same machine, against the same model server, which
answers at once unless a row says otherwise. A conversation is 20 calls of `think`, a tool that costs nothing, and the
answer: 21 steps. Clients are httpx and websockets; the rows on `run()` are of OpenHands' own client.

OpenHands' agent-server {VERSION} is one process with files as its store; its limit of 10 runs at once is raised where
rows do not say otherwise. Palaver is one API, {WORKERS} model workers without events for Flower, and Redis with its
append-only file. CPU and memory are those of all processes of a side. Numbers are medians, with the range over the
rounds; a ratio above 1 says how many times better Palaver does, one below 1 is in bold."""


class Part(NamedTuple):
    """Something to measure, thoroughly or quickly."""

    title: str
    note: str
    measure: Callable[[Rig, Sequence[Side], bool], Awaitable[list[Row]]]


PARTS: Final[Mapping[str, Part]] = {
    "load": Part(
        "Steps",
        "A step is a call of the model, with its tool.",
        lambda rig, sides, quick: load.measure(rig, sides, at_once=(1, 20, 50), rounds=1 if quick else 3),
    ),
    "requests": Part(
        "Requests",
        "Milliseconds, p50 / p99, one after the other, each in a conversation of its own; GET while it runs. The "
        "conversations beside them make one step a second each.",
        lambda rig, sides, quick: answers.measure(rig, sides, probes=10 if quick else 50, busy=20),
    ),
    "returns": Part(
        "Waiting for a run",
        "OpenHands' client, one run after another, each with one call of the model that takes 300 ms.",
        lambda rig, sides, quick: returns.measure(rig, sides, runs=3 if quick else 20),
    ),
    "stops": Part(
        "Stopping a run",
        "In the middle of an answer of three seconds, as the model server sees its connection.",
        lambda rig, sides, quick: stops.measure(rig, sides, stops=2 if quick else 6),
    ),
    "crowds": Part(
        "A crowd",
        "Palaver has no limit but that of its queue; the reference is shown with its own, which clients are told of by "
        "429 and do not wait for.",
        lambda rig, sides, quick: crowds.measure(rig, sides[0], crowd=100 if quick else 500, refused=20),
    ),
    "crashes": Part(
        "A crash",
        "Everything but Redis is killed in the second of four calls of each conversation, and started again at once. "
        "A client looks each 100 ms, and runs again what ended with an error. Palaver goes on when the leases of the "
        "dead run out (15 s).",
        lambda rig, sides, quick: crashes.measure(rig, sides, crashes=1 if quick else 2, conversations=8),
    ),
}


async def measure(names: Sequence[str], quick: bool, command: str) -> str:
    """The report on these parts; says on stderr what it is at."""
    tables: list[Table] = []
    async with Rig() as rig:
        sides: tuple[Side, Side] = (Palaver(rig), AgentServer(rig))
        for side in sides:
            await side.start()
        for name in names:
            begun = time.monotonic()
            print(f"bench: {name} …", end="", file=sys.stderr, flush=True)
            part, columns = PARTS[name], ("", *(side.name for side in sides), "ratio")
            try:
                rows = await part.measure(rig, sides, quick)
            except BenchError as error:
                # What the others take minutes for is not thrown away.
                rows = [Row(f"not measured: {error}", "", "")]
            tables.append(Table(part.title, columns, [row.cells() for row in rows], part.note))
            print(f" {time.monotonic() - begun:.0f} s", file=sys.stderr)
    parts = ["# Beside OpenHands' agent-server", heading(command), ABOUT, *(table.markdown() for table in tables)]
    return "\n\n".join(parts) + "\n"


if __name__ == "__main__":
    main("bench.openhands", __doc__, PARTS, measure)
