"""Restate: a run is a call of a service's handler, each model call and each tool call a `run` of its journal.

Served by hypercorn over HTTP/2, as Restate's own examples are. Its server holds the journal and calls the handler.
"""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Any

import restate

from bench.peers.apps import agent

service = restate.Service("agent")
_client: Any = None


def _shared() -> Any:
    global _client
    if _client is None:
        _client = agent.client()
    return _client


async def ask(job: agent.Job, messages: list[agent.Message]) -> agent.Message:
    """Ask the model."""
    return await agent.ask(_shared(), job, messages)


async def use(call: dict[str, Any]) -> agent.Message:
    """Run a tool; what blocks runs in a thread."""
    if call["function"]["name"] == "slow":
        return await asyncio.to_thread(agent.use, call)
    return agent.use(call)


@service.handler(inactivity_timeout=timedelta(minutes=2))
async def hold(ctx: restate.Context, job: agent.Job) -> str:
    """The conversation."""
    messages = agent.beginning(job)
    job["run"] = ctx.request().id
    while True:
        said = await ctx.run_typed("model", ask, job=job, messages=messages)
        calls = said.get("tool_calls")
        if not calls:
            return str(said["content"])
        messages = [*messages, said, *[await ctx.run_typed("tool", use, call=call) for call in calls]]


app = restate.app([service])
