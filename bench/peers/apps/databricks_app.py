"""The agent as a handler of Databricks' LongRunningAgentServer, on a PostgreSQL that is none of theirs.

The server's own class for its database logs in at Databricks: here it is given an engine of SQLAlchemy's at another
address instead. Everything else is as its own page has it.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from typing import Any
from uuid import uuid4

os.environ["LAKEBASE_INSTANCE_NAME"] = "bench"

import mlflow
import uvicorn
from databricks_ai_bridge.long_running import LongRunningAgentServer, db
from mlflow.genai.agent_server import invoke, stream
from mlflow.types.responses import ResponsesAgentRequest, ResponsesAgentResponse, ResponsesAgentStreamEvent
from sqlalchemy.ext.asyncio import create_async_engine

from bench.peers.apps import agent

mlflow.tracing.disable()


class OtherPostgres:
    """As its class for Lakebase, without the login there."""

    def __init__(self, *, pool_size: int, max_overflow: int, pool_pre_ping: bool, **_: str) -> None:
        url = os.environ["BENCH_DATABASE_URL"]
        self.engine = create_async_engine(
            url, pool_size=pool_size, max_overflow=max_overflow, pool_pre_ping=pool_pre_ping
        )


db.AsyncLakebaseSQLAlchemy = OtherPostgres


def done(item: dict[str, Any]) -> ResponsesAgentStreamEvent:
    """An item that is whole."""
    return ResponsesAgentStreamEvent(type="response.output_item.done", item={"id": f"item_{uuid4().hex}", **item})


@stream()
async def answer(request: ResponsesAgentRequest) -> AsyncIterator[ResponsesAgentStreamEvent]:
    """Ask the model, run its tool, and so on until it answers."""
    asked = request.model_dump()
    job = agent.Job(run="", model=asked["custom_inputs"]["model"], input="", tool=asked["custom_inputs"]["tool"])
    messages = agent.beginning(job)[:1] + [
        {"role": each["role"], "content": each["content"]} for each in asked["input"]
    ]
    async with agent.client() as client:
        while calls := (message := await agent.ask(client, job, messages)).get("tool_calls"):
            messages.append(message)
            for call in calls:
                told = {"call_id": call["id"], "name": call["function"]["name"]}
                yield done({"type": "function_call", **told, "arguments": call["function"]["arguments"]})
                result = await asyncio.to_thread(agent.use, call)
                messages.append(result)
                yield done({"type": "function_call_output", "call_id": call["id"], "output": result["content"]})
    content = [{"type": "output_text", "text": message["content"], "annotations": []}]
    yield done({"type": "message", "role": "assistant", "status": "completed", "content": content})


@invoke()
async def whole(request: ResponsesAgentRequest) -> ResponsesAgentResponse:
    """The same in one piece."""
    return ResponsesAgentResponse(output=[event.item async for event in answer(request)])


if __name__ == "__main__":
    server = LongRunningAgentServer("ResponsesAgent")
    uvicorn.run(server.app, host="127.0.0.1", port=int(os.environ["BENCH_PORT"]), log_level="info")
