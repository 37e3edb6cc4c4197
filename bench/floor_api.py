"""The floor of the API: FastAPI and redis-py as their documentation shows them, one command of Redis a request.

This is an API for which a run is a hash: no keys, no limits, no request ids, no idempotency, no
conversations, no deadlines. It answers a read with the same hash that Palaver has, and a submit with the id of a hash
that one script has written, with a place in a list by time and a message for a worker.
"""

from __future__ import annotations

import os
import time
from typing import Any
from uuid import uuid4

from fastapi import FastAPI
from pydantic import BaseModel
from redis.asyncio import Redis

app = FastAPI()
redis = Redis.from_url(os.environ["PALAVER_REDIS_URL"], decode_responses=True)
submit = redis.register_script(
    """
    redis.call('HSET', KEYS[1], 'id', ARGV[1], 'status', 'queued', 'created_at', ARGV[2], 'agent', ARGV[3],
      'input', ARGV[4])
    redis.call('ZADD', KEYS[2], ARGV[2], ARGV[1])
    redis.call('LPUSH', KEYS[3], ARGV[1])
    return ARGV[1]
    """
)


class Agent(BaseModel):
    """Who answers."""

    model: str
    instructions: str = ""
    tools: list[str] = []


class Submission(BaseModel):
    """What is asked of it."""

    agent: Agent
    input: str


@app.get("/healthz")
async def healthz() -> dict[str, str]:
    """It is there."""
    return {"status": "ok"}


@app.get("/runs/{key}")
async def read(key: str) -> dict[str, Any]:
    """A hash, as it is."""
    return await redis.hgetall(key)  # type: ignore[return-value]


@app.post("/runs", status_code=202)
async def take_on(submission: Submission) -> dict[str, Any]:
    """Write a hash."""
    run_id = uuid4().hex
    agent = submission.agent.model_dump_json()
    await submit(
        keys=[f"floor:run:{run_id}", "floor:runs", "floor:waiting"], args=[run_id, time.time(), agent, submission.input]
    )
    return {"id": run_id, "status": "queued", "agent": submission.agent}
