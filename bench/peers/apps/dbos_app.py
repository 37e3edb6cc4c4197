"""DBOS: a run is a workflow, each model call and each tool call a step of it; FastAPI in the same process.

Workflows are started where they were asked for: a queue would have them wait until it is looked at, each second.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any
from uuid import uuid4

import uvicorn
from dbos import DBOS, SetWorkflowID
from fastapi import FastAPI

from bench.peers.apps import agent

DBOS(
    config={
        "name": "bench",
        "system_database_url": os.environ["BENCH_DATABASE_URL"],
        "sys_db_pool_size": 50,
        "log_level": "WARNING",
    }
)


@DBOS.step(preemptible=True)
async def ask(job: agent.Job, messages: list[agent.Message]) -> agent.Message:
    """Ask the model."""
    return await agent.ask(app.state.client, job, messages)


@DBOS.step()
async def use(call: dict[str, Any]) -> agent.Message:
    """Run a tool; what blocks runs in a thread."""
    if call["function"]["name"] == "slow":
        return await asyncio.to_thread(agent.use, call)
    return agent.use(call)


@DBOS.workflow()
async def hold(job: agent.Job) -> str:
    """The conversation."""
    messages = agent.beginning(job)
    while True:
        said = await ask(job, messages)
        calls = said.get("tool_calls")
        if not calls:
            return str(said["content"])
        messages = [*messages, said, *[await use(call) for call in calls]]


@asynccontextmanager
async def lifespan(app: FastAPI) -> AsyncIterator[None]:
    """Start DBOS, which goes on with what was left unfinished."""
    app.state.client = agent.client()
    DBOS.launch()
    yield
    DBOS.destroy()


app = FastAPI(lifespan=lifespan)


async def _begin(job: agent.Job) -> Any:
    job["run"] = str(uuid4())
    with SetWorkflowID(job["run"]):
        return await DBOS.start_workflow_async(hold, job)


@app.post("/runs")
async def submit(job: agent.Job) -> dict[str, Any]:
    """Begin a run."""
    return {"id": (await _begin(job)).workflow_id}


@app.post("/runs/wait")
async def submit_and_wait(job: agent.Job) -> dict[str, Any]:
    """Begin a run and wait for its end."""
    handle = await _begin(job)
    return {"id": handle.workflow_id, "output": await handle.get_result()}


@app.get("/runs/{run}")
async def status(run: str) -> dict[str, Any]:
    """Where a run is."""
    found = await DBOS.get_workflow_status_async(run)
    return {"id": run, "status": found and found.status}


@app.post("/runs/{run}/cancel")
async def cancel(run: str) -> dict[str, Any]:
    """Stop a run."""
    await DBOS.cancel_workflow_async(run)
    return {"id": run}


if __name__ == "__main__":
    uvicorn.run(app, host="127.0.0.1", port=int(os.environ["BENCH_PORT"]), log_level="warning", access_log=False)
