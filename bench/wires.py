"""The streams of a run in each dialect: how one begins, and how a client begins to watch it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, NamedTuple

import httpx
import orjson

from bench.conversation import INPUT, INSTRUCTIONS, MODEL
from bench.rig import Rig
from palaver.schemas.models import AgentSpec, Submission
from palaver.steps.leases import Delivery

_KEY: Final = "Idempotency-Key"


class WatchRequest(NamedTuple):
    """A request that is answered with the stream of a run."""

    path: str
    body: Mapping[str, Any] | None = None
    """With one it is a POST."""
    key: str = ""
    """Where the same request again is how a client comes back: its idempotency key."""

    def written(self, host: str) -> bytes:
        """The request on the wire."""
        content = b"" if self.body is None else orjson.dumps(self.body)
        head = [f"{'GET' if self.body is None else 'POST'} {self.path} HTTP/1.1", f"Host: {host}"]
        head += ["Accept: text/event-stream", f"Content-Length: {len(content)}", "Content-Type: application/json"]
        head += [f"{_KEY}: {self.key}"] if self.key else []
        return "\r\n".join([*head, "", ""]).encode() + content


class Watchable(NamedTuple):
    """A run that no worker has: its first delivery, and how it is watched."""

    delivery: Delivery
    request: WatchRequest


async def begun(rig: Rig, url: str, wire: str) -> Watchable:
    """A new run that is watched over this wire."""
    if wire == "OpenAI chat":
        return await _completion(url)
    agent = AgentSpec(model=f"fake/{MODEL}", instructions=INSTRUCTIONS)
    run_id = (await rig.store.runs.submit(Submission(agent=agent, input=INPUT))).run_id
    conversation_id = (await rig.store.runs.get(run_id)).conversation_id
    return Watchable(_first(run_id, conversation_id), _request(wire, run_id, conversation_id))


WIRES: Final = ("native", "AI SDK", "AG-UI", "OpenAI Responses", "OpenAI chat")


def _request(wire: str, run: str, conversation: str) -> WatchRequest:
    match wire:
        case "native":
            return WatchRequest(f"/v1/runs/{run}/events")
        case "AI SDK":
            return WatchRequest(f"/ui/agents/any/chat/{conversation}/stream")
        case "AG-UI":
            return WatchRequest("/ag-ui", {"threadId": conversation, "runId": "any", "messages": []})
    return WatchRequest(f"/openai/v1/responses/{run.replace('run_', 'resp_', 1)}?stream=true")


async def _completion(url: str) -> Watchable:
    """A chat completion that is left: a client with the same key has the same run."""
    messages = [{"role": "system", "content": INSTRUCTIONS}, {"role": "user", "content": INPUT}]
    body = {"model": f"fake/{MODEL}", "messages": messages, "stream": True, "run": {"on_disconnect": "continue"}}
    async with httpx.AsyncClient(base_url=url, trust_env=False, timeout=30) as client:
        key = orjson.dumps(id(client)).decode()
        async with client.stream("POST", "/openai/v1/chat/completions", json=body, headers={_KEY: key}) as answer:
            run = answer.headers["x-run-id"]
        conversation = (await client.get(f"/v1/runs/{run}")).json()["conversation_id"]
    request = WatchRequest("/openai/v1/chat/completions", body, key)
    return Watchable(_first(run, conversation), request)


def _first(run: str, conversation: str) -> Delivery:
    """The delivery of its first step: no message asks for it while there are no workers."""
    return Delivery("model", run, conversation, "1", 1)
