"""What the agent of every peer does: ask the model, and run a tool. How steps follow each other is the peers' own.

The client is httpx, which the SDKs of model providers are made of; on an event loop over aiohttp's transport, as
Palaver's. Calls of tools are asked for in one piece, which costs less than a stream, and texts are streamed.
"""

from __future__ import annotations

import os
import time
from typing import Any

import httpx
import orjson
from typing_extensions import TypedDict

from bench.answer import Answer, result
from bench.conversation import INSTRUCTIONS

_HEADERS = {"content-type": "application/json"}
_LIMITS = httpx.Limits(max_connections=None, max_keepalive_connections=None)
_TIMEOUT = 120.0

Message = dict[str, Any]


class Job(TypedDict):
    """A run, as it is submitted; `tool` is the name of its one tool, or empty."""

    run: str
    model: str
    input: str
    tool: str


def add(expression: str) -> str:
    """Takes no time."""
    return expression


def slow(expression: str) -> str:
    """Takes a second, and has an effect that can be counted."""
    note()
    time.sleep(1)
    return expression


def note() -> None:
    """The effect of a tool: a line in a file."""
    with open(os.environ["BENCH_TOOL_EFFECTS"], "a") as effects:
        effects.write(f"{os.getpid()}\n")


TOOLS = {"add": add, "slow": slow}


def beginning(job: Job) -> list[Message]:
    """What the conversation begins with."""
    return [{"role": "system", "content": INSTRUCTIONS}, {"role": "user", "content": job["input"]}]


def use(call: dict[str, Any]) -> Message:
    """Run the tool that a call names; the message that answers it."""
    return result(call, TOOLS[call["function"]["name"]])


async def ask(client: httpx.AsyncClient, job: Job, messages: list[Message]) -> Message:
    """Ask the model; its message."""
    request = client.build_request("POST", **_asked(job, messages))
    if job["tool"]:
        return _whole(await client.send(request))
    answer = Answer()
    response = await client.send(request, stream=True)
    try:
        response.raise_for_status()
        async for piece in response.aiter_raw():
            answer.feed(piece)
    finally:
        await response.aclose()
    return answer.message()


def ask_blocking(client: httpx.Client, job: Job, messages: list[Message]) -> Message:
    """The same in a thread."""
    if job["tool"]:
        return _whole(client.post(**_asked(job, messages)))
    answer = Answer()
    with client.stream("POST", **_asked(job, messages)) as response:
        response.raise_for_status()
        for piece in response.iter_raw():
            answer.feed(piece)
    return answer.message()


def client() -> httpx.AsyncClient:
    """A client for an event loop."""
    from httpx_aiohttp import HttpxAiohttpClient

    made: httpx.AsyncClient = HttpxAiohttpClient(timeout=_TIMEOUT, trust_env=False, limits=_LIMITS)
    return made


def blocking_client() -> httpx.Client:
    """A client for threads."""
    return httpx.Client(timeout=_TIMEOUT, trust_env=False, limits=_LIMITS)


def _asked(job: Job, messages: list[Message]) -> dict[str, Any]:
    body: dict[str, Any] = {"model": job["model"], "stream": not job["tool"], "messages": messages}
    if job["tool"]:
        body["tools"] = [_declared(job["tool"])]
    return {
        "url": f"{os.environ['BENCH_MODEL_URL']}/chat/completions",
        "content": orjson.dumps(body),
        "headers": {**_HEADERS, "x-palaver-run": job["run"]},
    }


def _declared(name: str) -> dict[str, Any]:
    schema = {"type": "object", "properties": {"expression": {"type": "string"}}, "required": ["expression"]}
    return {"type": "function", "function": {"name": name, "description": TOOLS[name].__doc__, "parameters": schema}}


def _whole(response: httpx.Response) -> Message:
    response.raise_for_status()
    message = orjson.loads(response.content)["choices"][0]["message"]
    return {name: message[name] for name in ("role", "content", "tool_calls") if name in message}
