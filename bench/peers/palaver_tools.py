"""The tools of the agent, as functions of Palaver's: what they do is the same for every peer.

BENCH_TOOLS says how they are run: inside the model step, as steps of their own in a child, or as steps on a loop.
"""

from __future__ import annotations

import asyncio
import os

from bench.peers.apps import agent
from palaver import tool

_HOW = os.environ.get("BENCH_TOOLS", "steps")


async def slow(expression: str) -> str:
    """Takes a second, and has an effect that can be counted."""
    agent.note()
    await asyncio.sleep(1)
    return expression


async def add(expression: str) -> str:
    """Takes no time."""
    return expression


if _HOW == "steps":
    add, slow = tool(agent.add), tool(agent.slow)
else:
    add, slow = tool(inline=_HOW == "inline")(add), tool(inline=_HOW == "inline")(slow)
