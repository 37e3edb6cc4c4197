"""`python -m bench.peers.takeover [--times N] [--out FILE]`: a response in the background whose server dies in a tool.

The same script for both servers of OpenAI's Responses: begin a response, kill -9 everything but the database while its
tool runs, start it again at once, and ask nothing. The model server's ledger says when the model is asked again, the
tool's own file how often it ran. Who has not gone on after two minutes is asked for the response.
`python -m bench.peers.install databricks` installs the other one.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import time
from collections.abc import Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from types import MappingProxyType
from typing import Final, NamedTuple

from bench.asked import BenchError
from bench.conversation import INSTRUCTIONS
from bench.peers.databricks import LongRunning
from bench.peers.palaver import ToolSteps
from bench.peers.peer import Peer, Work
from bench.program import run
from bench.report import Table, heading, spread
from bench.rig import Rig

_WORK: Final = Work("tool-1", "slow")
_BEGINS: Final = 60.0
_UNASKED: Final = 120.0
"""Seconds for going on by itself: the other server looks every 15 to 45 for what has no heartbeat."""
_ASKED: Final = 60.0
_LOOK: Final = 0.05


class OverResponses(ToolSteps):
    """Palaver by its dialect for OpenAI's clients; everything is killed but Redis."""

    name = "Palaver"
    killed = MappingProxyType({"server": ("api", "worker", "tools")})

    async def submit(self, work: Work) -> str:
        tool = {"type": "mcp", "server_label": "palaver", "allowed_tools": [work.tool], "require_approval": "never"}
        said = {"instructions": INSTRUCTIONS, "input": work.input, "tools": [tool]}
        body = {"model": f"fake/{work.model}", "background": True, **said}
        return str((await self.ask("POST", "/openai/v1/responses", body))["id"])

    async def status(self, run: str) -> str:
        return str((await self.ask("GET", f"/openai/v1/responses/{run}"))["status"])


class LongRunningKilled(LongRunning):
    """The other one; everything is killed but PostgreSQL."""

    killed = MappingProxyType({"server": ("app",)})


class Takeover(NamedTuple):
    """What became of a response."""

    unasked: float | None
    """Seconds from the kill to the next call of the model; None: nobody went on before somebody asked."""
    ended: float | None
    """The same to the end of its last call."""
    tools: int
    status: str


async def measure(times: int, command: str) -> str:
    """Kill each of them so many times, in turns. Raises BenchError."""
    async with Rig() as rig, AsyncExitStack() as running:
        peers: list[Peer] = [OverResponses(rig), LongRunningKilled(rig)]
        for peer in peers:
            running.push_async_callback(peer.close)
            await peer.start()
        found: dict[str, list[Takeover]] = {peer.name: [] for peer in peers}
        for _ in range(times):
            for peer in peers:
                found[peer.name].append(await killed_in_a_tool(rig, peer))
        columns = ("", "goes on unasked", "after, s", "its last answer after, s", "tool runs", "ends as")
        table = Table(f"Killed in a tool of a response in the background ({times} times each)", columns)
        table.rows += [(name, *_row(each)) for name, each in found.items()]
        about = "\n".join(f"- **{peer.name}**: {peer.about}" for peer in peers)
        return f"{heading(command)}\n\n{about}\n\n{table.markdown()}\n"


async def killed_in_a_tool(rig: Rig, peer: Peer) -> Takeover:
    """Begin a response, kill its server while the tool runs, and see. Raises BenchError."""
    rig.asked.forget()
    before = _effects(peer)
    response = await peer.submit(_WORK)
    give_up_at = time.monotonic() + _BEGINS
    while _effects(peer) == before:
        if time.monotonic() > give_up_at:
            raise BenchError(f"{peer.name}: the tool has not begun within {_BEGINS:g} s")
        await asyncio.sleep(_LOOK)
    at = await peer.crash("server")
    unasked = ended = None
    give_up_at = time.monotonic() + _UNASKED
    while ended is None and time.monotonic() < give_up_at:
        later = [call for call in rig.asked.calls if call.at > at]
        unasked = min((call.at - at for call in later), default=None)
        if later and all(call.ended_at for call in later) and await _is_over(peer, response):
            ended = max(call.ended_at or 0.0 for call in later) - at
        await asyncio.sleep(_LOOK)
    if ended is None:
        await peer.ended([response], _ASKED)
    return Takeover(unasked, ended, _effects(peer) - before, await peer.attempt(lambda: peer.status(response), "gone"))


async def _is_over(peer: Peer, response: str) -> bool:
    """Whether it is; asked only once somebody has gone on."""
    try:
        return await peer.status(response) == peer.completed
    except BenchError:
        return False


def _effects(peer: Peer) -> int:
    return len(peer.effects.read_text().splitlines()) if peer.effects.exists() else 0


def _row(found: Sequence[Takeover]) -> Sequence[str]:
    unasked = [each.unasked for each in found if each.unasked is not None]
    ended = [each.ended for each in found if each.ended is not None]
    statuses = sorted({each.status for each in found})
    return (
        f"{len(unasked)} of {len(found)}",
        spread(unasked) if unasked else "-",
        spread(ended) if ended else "-",
        spread([float(each.tools) for each in found]),
        ", ".join(statuses),
    )


def main() -> None:
    """Measure, and say what was found."""
    parser = argparse.ArgumentParser(prog="python -m bench.peers.takeover", description=(__doc__ or "").split("\n")[2])
    parser.add_argument("--times", type=int, default=3)
    parser.add_argument("--out", type=Path, metavar="FILE", help="write the report there as well")
    given = parser.parse_args()
    command = " ".join(["python -m bench.peers.takeover", *sys.argv[1:]])
    run(measure(given.times, command), given.out)


if __name__ == "__main__":
    main()
