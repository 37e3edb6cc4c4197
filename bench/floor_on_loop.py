"""The second floor, for information: the bare task as a coroutine on Palaver's asyncio pool, with aiohttp.

About the least that the same work costs on Celery: what Palaver needs beyond it is the store, the leases, the
feeds and the judgement of failures. The broker is set up as Palaver does it (no acknowledgements).
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import aiohttp
from celery import Celery

from bench.answer import Answer
from bench.floor import URL, request_body, turn
from bench.floor import app as plain
from workers.broker.pool import TaskPool
from workers.broker.transport import broker_settings

app = Celery("floor-on-loop")
app.conf.update(
    broker_settings(plain.conf.broker_url),
    broker_connection_retry_on_startup=True,
    task_default_queue="floor-on-loop",
    task_ignore_result=True,
)


@asynccontextmanager
async def _lifespan(_: TaskPool) -> AsyncIterator[None]:
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as app.client:
        yield


app.lifespan = _lifespan


@app.task(name="floor.step_on_loop")  # type: ignore[untyped-decorator]
async def step(run: str, model: str, messages: list[dict[str, Any]]) -> None:
    """Ask the model, run the tool that it asks for, and go on."""
    answer = Answer()
    headers = {"content-type": "application/json", "x-palaver-run": run}
    async with app.client.post(URL, data=request_body(model, messages), headers=headers) as response:
        response.raise_for_status()
        async for line in response.content:
            answer.add(line)
    new = turn(answer)
    if new[-1]["role"] == "tool":
        step.apply_async((run, model, messages + new))
