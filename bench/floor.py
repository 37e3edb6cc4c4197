"""The floor: the same conversation as one plain Celery task that calls the model and enqueues itself again.

This is what a Celery user writes when nothing has to survive, be seen or be stopped: no leases, no
log, no retries, no events, no cancel, no deadlines, results ignored, messages acknowledged early (Celery's
default; a kill loses the run). Stock pieces, with settings that are good for it:

- the `threads` pool, one process, as for any I/O bound task; no gossip, mingle or task events, `-l WARNING`;
- one httpx client for the process, connections kept alive without limit, the answer read by `iter_lines`;
- orjson for the request and for each chunk, as Palaver uses; the tool runs inside the task;
- the conversation so far travels in the task's arguments; these are small, 6 KB at the end.

Variants that were measured, in CPU ms a step with one run and with 50 at once, when this one took 2.5 and 2.7:
the conversation in Redis instead (RPUSH, LRANGE) 2.3 and 2.7; `-P prefork -c 4` 2.8 and 3.1; `http.client`
instead of httpx 2.1 and 2.1; that and a broker without acknowledgements 1.6 and 1.6. The second floor,
floor_on_loop.py, is below all of them with 50 at once.

All sides put the same questions: the bench compares the digests of the messages that the model server got.
"""

from __future__ import annotations

import os
from typing import Any

import httpx
import orjson
from celery import Celery

from bench.answer import Answer, result
from bench.conversation import INSTRUCTIONS
from palaver.tools.builtin import calculator

URL = f"{os.environ['BENCH_MODEL_URL']}/chat/completions"
_TOOLS = [
    {
        "type": "function",
        "function": {"name": "calculator", "description": calculator.description, "parameters": calculator.parameters},
    }
]

app = Celery("floor")
app.conf.update(
    broker_url=os.environ["BENCH_BROKER_URL"],
    broker_connection_retry_on_startup=True,
    task_default_queue="floor",
    task_ignore_result=True,
)

client = httpx.Client(
    timeout=60, trust_env=False, limits=httpx.Limits(max_connections=None, max_keepalive_connections=None)
)


def request_body(model: str, messages: list[dict[str, Any]]) -> bytes:
    """The request that Palaver makes for the same agent."""
    system = {"role": "system", "content": INSTRUCTIONS}
    options = {"model": model, "stream": True, "stream_options": {"include_usage": True}, "tools": _TOOLS}
    return orjson.dumps({**options, "messages": [system, *messages]})


def turn(answer: Answer) -> list[dict[str, Any]]:
    """The assistant's message and the results of its tool calls."""
    message = answer.message()
    return [message, *(result(call, calculator) for call in message.get("tool_calls", ()))]


@app.task(name="floor.step")  # type: ignore[untyped-decorator]
def step(run: str, model: str, messages: list[dict[str, Any]]) -> None:
    """Ask the model, run the tool that it asks for, and go on."""
    answer = Answer()
    headers = {"content-type": "application/json", "x-palaver-run": run}
    with client.stream("POST", URL, content=request_body(model, messages), headers=headers) as response:
        response.raise_for_status()
        answer.read(response.iter_lines())
    new = turn(answer)
    if new[-1]["role"] == "tool":
        step.apply_async((run, model, messages + new))
