"""What a kill -9 costs: how long until the model is asked again, and what is done twice."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from bench.asked import BenchError, Call
from bench.peers.peer import Peer, Work
from bench.peers.rows import Row, Values
from bench.rig import Rig

_RUNS: Final = 5
_AT_ONCE: Final = 4
"""Tools that have begun before a kill: a tools worker of Palaver's runs as many at once."""
_TOOL_CALLS: Final = 3
_CALLS: Final = _TOOL_CALLS + 1
_IN_MODEL: Final = Work(f"tool-{_TOOL_CALLS}+ttft-1000", "add")
_IN_TOOL: Final = Work(f"tool-{_TOOL_CALLS}", "slow")
_WITHIN: Final = 30.0
_GIVE_UP: Final = 30.0
"""Seconds in which a peer goes on by itself, or is said not to."""


@dataclass(frozen=True)
class Found:
    """What became of one crash."""

    again: Values
    """Seconds from the kill to the first call of the model, by run."""
    completed: str
    calls: str
    """Calls of the model, and tools begun, beyond those that the work takes."""
    tools: str


async def measure(rig: Rig, peers: Sequence[Peer], *, crashes: int, places: Sequence[str]) -> list[Row]:
    """Kill each peer's worker so many times in each of these ``places``, `model` or `tool`; start it again at once.

    Raises:
        BenchError: a peer does not begin, or cannot be started again.
    """
    rows: list[Row] = []
    for where in places:
        work = _IN_MODEL if where == "model" else _IN_TOOL
        found = {peer.name: [await _crash(rig, peer, where, work) for _ in range(crashes)] for peer in peers}
        title = f"kill -9 in a call of the {where}" if where == "model" else "kill -9 in a tool"
        rows += [
            Row(
                f"{title}: the model is asked again after, s",
                {name: _seconds(each) for name, each in found.items()},
                headline=True,
            ),
            Row(f"{title}: runs completed", _texts(found, lambda each: each.completed), more=None),
            Row(f"{title}: model calls repeated", _texts(found, lambda each: each.calls), more=None),
        ]
        if where == "tool":
            rows.append(Row(f"{title}: tools run again", _texts(found, lambda each: each.tools), more=None))
    return rows


async def _crash(rig: Rig, peer: Peer, where: str, work: Work) -> Found:
    rig.asked.forget()
    peer.effects.write_text("")
    runs = await asyncio.gather(*(peer.submit(work) for _ in range(_RUNS)))
    if where == "model":
        # All are in their second call: a step has been taken that need not be taken again.
        await rig.asked.until(
            lambda calls: len(calls) == 2 * _RUNS, within=_WITHIN, what=f"{peer.name}: second calls", every=0.005
        )
        await asyncio.sleep(0.3)
    else:
        await _until_begun(peer, _AT_ONCE)
        await asyncio.sleep(0.3)
    killed_at = await peer.crash(where)
    completed = await peer.ended(runs, _GIVE_UP)
    calls, effects = rig.asked.calls, _effects(peer)
    again = _again(calls, killed_at)
    if not again:
        # Whoever lost them is started anew for what comes next.
        await peer.attempt(lambda: peer.hold(Work("echo", input="Are you there?")), "it does not come back")
        return Found(f"not in {_GIVE_UP:g}", f"{completed} of {_RUNS}", "-", "-")
    more_calls = max(0, len(calls) - _RUNS * _CALLS)
    more_tools = max(0, effects - _RUNS * _TOOL_CALLS)
    return Found(again, f"{completed} of {_RUNS}", str(more_calls), str(more_tools))


async def _until_begun(peer: Peer, tools: int) -> None:
    give_up_at = time.monotonic() + _WITHIN
    while _effects(peer) < tools:
        if time.monotonic() > give_up_at:
            raise BenchError(f"{peer.name}: {tools} tools have not begun within {_WITHIN:g} s")
        await asyncio.sleep(0.005)


def _effects(peer: Peer) -> int:
    return len(peer.effects.read_text().splitlines())


def _again(calls: Sequence[Call], killed_at: float) -> list[float]:
    """For each run the seconds until the model was first asked after the kill."""
    first: dict[str, float] = {}
    for call in calls:
        if call.at > killed_at:
            first.setdefault(call.run, call.at - killed_at)
    return sorted(first.values())


def _seconds(found: Sequence[Found]) -> Values:
    times: list[float] = []
    for each in found:
        if isinstance(each.again, str):
            return each.again
        times += each.again
    return times


def _texts(found: dict[str, list[Found]], part: Callable[[Found], str]) -> dict[str, Values]:
    return {name: "; ".join(dict.fromkeys(map(part, each))) for name, each in found.items()}
