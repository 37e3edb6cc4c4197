"""The floor: the same conversation as one plain Celery task that calls the model and enqueues itself again.

This is what somebody who knows Celery writes when nothing has to survive, be seen or be stopped: no leases, no
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
from collections.abc import Iterable
from typing import Any

import httpx
import orjson
from celery import Celery

from bench.conversation import INSTRUCTIONS
from palaver.tools.builtin import calculator

URL = f"{os.environ['BENCH_MODEL_URL']}/chat/completions"
_TOOLS = [
    {
        "type": "function",
        "function": {"name": "calculator", "description": calculator.description, "parameters": calculator.schema},
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


class Answer:
    """The assistant's message, put together from the lines of the stream."""

    def __init__(self) -> None:
        self._content: list[str] = []
        self._calls: dict[int, dict[str, str]] = {}

    def read(self, lines: Iterable[str | bytes]) -> None:
        """Take in all of the lines."""
        for line in lines:
            self.add(line)

    def add(self, line: str | bytes) -> None:
        """Take in one line."""
        text = line.encode() if isinstance(line, str) else line.rstrip()
        if not text.startswith(b"data: ") or text == b"data: [DONE]":
            return
        for choice in orjson.loads(text[6:])["choices"]:
            delta = choice["delta"]
            if delta.get("content"):
                self._content.append(delta["content"])
            for part in delta.get("tool_calls") or ():
                call = self._calls.setdefault(part["index"], {"id": "", "name": "", "arguments": ""})
                call["id"] += part.get("id") or ""
                call["name"] += part["function"].get("name") or ""
                call["arguments"] += part["function"].get("arguments") or ""

    def messages(self) -> list[dict[str, Any]]:
        """The assistant's message and the results of its tool calls."""
        text, calls = "".join(self._content), list(self._calls.values())
        if not calls:
            return [{"role": "assistant", "content": text}]
        wire = [
            {"id": call["id"], "type": "function", "function": {"name": call["name"], "arguments": call["arguments"]}}
            for call in calls
        ]
        results = [
            {"role": "tool", "tool_call_id": call["id"], "content": calculator(**orjson.loads(call["arguments"]))}
            for call in calls
        ]
        return [{"role": "assistant", "content": text or None, "tool_calls": wire}, *results]


@app.task(name="floor.step")  # type: ignore[untyped-decorator]
def step(run: str, model: str, messages: list[dict[str, Any]]) -> None:
    """Ask the model, run the tool that it asks for, and go on."""
    answer = Answer()
    headers = {"content-type": "application/json", "x-palaver-run": run}
    with client.stream("POST", URL, content=request_body(model, messages), headers=headers) as response:
        response.raise_for_status()
        answer.read(response.iter_lines())
    new = answer.messages()
    if new[-1]["role"] == "tool":
        step.apply_async((run, model, messages + new))
