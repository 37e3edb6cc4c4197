"""A page with a chat of the AI SDK, at an API on a fake Redis: what it sends, and how it reads what comes."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, Final

import httpx
import orjson

from features.ai_sdk.assembly import AssembledMessage
from tests.unit.api_world import AGENT, LiveRequest, World, world
from tests.unit.mcp_host import publish

Chunk = dict[str, Any]
CHAT: Final = "/ui/agents/support/chat"
_FINISHES: Final = {"stop", "length", "content-filter", "tool-calls", "error", "interrupted", "other"}


def said(text: str, message_id: str = "m-1") -> dict[str, Any]:
    """A message of the user."""
    return {"id": message_id, "role": "user", "parts": [{"type": "text", "text": text}]}


def chunks_of(body: bytes) -> list[Chunk]:
    """The chunks of a stream; the mark of its end is one of the type ``[DONE]``."""
    found = []
    for block in body.decode().split("\n\n"):
        if block.startswith("data: "):
            text = block.removeprefix("data: ")
            found.append({"type": "[DONE]"} if text == "[DONE]" else orjson.loads(text))
        else:
            assert block.startswith(":") or not block, block
    return found


def check(chunks: Iterable[Chunk], known: Iterable[str] = (), *, whole: bool = True) -> None:
    """Check what a client relies on: it throws otherwise, or shows what was never said. ``known`` are calls that it has
    from before."""
    calls, approvals, open_parts = set(known), set[str](), set[str]()
    stepping = over = started = False
    for chunk in chunks:
        assert not over, f"{chunk} behind the end"
        assert None not in chunk.values(), chunk
        match chunk["type"]:
            case "start":
                assert not started
                started = True
                assert chunk["messageId"]
            case "start-step":
                assert not stepping
                assert not open_parts
                stepping = True
            case "finish-step":
                assert not open_parts
                stepping = False
            case "reset-step":
                assert stepping
                open_parts.clear()
            case "text-start" | "reasoning-start":
                assert stepping
                assert not open_parts, "one part at a time"
                open_parts.add(chunk["id"])
            case "text-delta" | "reasoning-delta":
                assert chunk["id"] in open_parts
                assert chunk["delta"]
            case "text-end" | "reasoning-end":
                open_parts.remove(chunk["id"])
            case "tool-input-available":
                assert isinstance(chunk["toolName"], str)
                assert "input" in chunk
                calls.add(chunk["toolCallId"])
            case "tool-approval-request":
                assert chunk["toolCallId"] in calls
                approvals.add(chunk["approvalId"])
            case "tool-approval-response":
                assert known or chunk["approvalId"] in approvals
                assert isinstance(chunk["approved"], bool)
            case "tool-output-available":
                assert chunk["toolCallId"] in calls
                assert "output" in chunk
            case "tool-output-error":
                assert chunk["toolCallId"] in calls
                assert isinstance(chunk["errorText"], str)
            case "tool-output-denied":
                assert chunk["toolCallId"] in calls
            case "steering-message":
                assert not stepping, "before the step that saw it"
                assert chunk["id"]
                assert chunk["parts"]
            case "file":
                assert chunk["url"]
                assert chunk["mediaType"]
            case "data-palaver-question":
                assert chunk["data"]["toolCallId"] in calls
            case "data-palaver-status" | "data-palaver-progress" | "data-palaver-approval":
                assert chunk["transient"] is True
            case "error":
                assert chunk["errorText"]
            case "abort":
                assert not stepping
            case "finish":
                assert not stepping
                assert chunk["finishReason"] in _FINISHES
                over = True
            case other:
                raise AssertionError(f"clients do not know {other}")
    assert over or not whole


@dataclass
class Page:
    """A page that shows one chat."""

    api: World
    chat_id: str = "chat-1"
    headers: dict[str, str] = field(default_factory=dict)

    def body(self, *messages: Mapping[str, Any], **fields: Any) -> bytes:
        """The body of a request."""
        return orjson.dumps({"id": self.chat_id, "messages": messages, "trigger": "submit-message", **fields})

    def send(self, *messages: Mapping[str, Any], **fields: Any) -> LiveRequest:
        """Send, and read the answer as it comes."""
        request = LiveRequest(self.api.app, "POST", CHAT, {"content-type": "application/json", **self.headers})
        request.feed(self.body(*messages, **fields))
        request.end()
        return request

    async def begin(self, *messages: Mapping[str, Any], **fields: Any) -> tuple[LiveRequest, dict[str, Any]]:
        """Send; the request and the run, once the answer has begun."""
        request = self.send(*messages, **fields)
        body = await request.until(lambda body: b'"start"' in body or request.over)
        assert request.status == 200, body
        return request, await self.run(chunks_of(body)[0]["messageId"])

    async def run(self, run_id: str) -> dict[str, Any]:
        """The run, as the native dialect has it."""
        run: dict[str, Any] = (await self.api.client.get(f"/v1/runs/{run_id}", headers=self.headers)).json()
        return run

    async def answer(self, *messages: Mapping[str, Any], **fields: Any) -> httpx.Response:
        """Send, and wait for the end."""
        headers = {"content-type": "application/json", **self.headers}
        return await self.api.client.post(CHAT, content=self.body(*messages, **fields), headers=headers)

    def resume(self) -> LiveRequest:
        """Come back to the answer."""
        return LiveRequest(self.api.app, "GET", f"{CHAT}/{self.chat_id}/stream", self.headers)

    async def stop(self, **body: Any) -> dict[str, Any]:
        """Stop the answer."""
        answer = await self.api.client.post(f"{CHAT}/{self.chat_id}/stop", json=body, headers=self.headers)
        assert answer.status_code == 200, answer.text
        stopped: dict[str, Any] = answer.json()
        return stopped

    async def messages(self, **query: Any) -> dict[str, Any]:
        """A page of the messages."""
        answer = await self.api.client.get(f"{CHAT}/{self.chat_id}/messages", params=query, headers=self.headers)
        assert answer.status_code == 200, answer.text
        listed: dict[str, Any] = answer.json()
        return listed


async def ended(request: LiveRequest) -> list[Chunk]:
    """The chunks of a stream that has come to its end."""
    body = await request.until(lambda _: request.over)
    chunks = chunks_of(body)
    assert chunks[-1] == {"type": "[DONE]"}, body
    return chunks[:-1]


def assembled(chunks: Iterable[Chunk]) -> dict[str, Any]:
    """The message that the client makes of chunks."""
    made = AssembledMessage()
    made.add(chunks)
    return made.shown()


def texts(message: Mapping[str, Any]) -> list[str]:
    """The texts of a message."""
    return [part["text"] for part in message["parts"] if part["type"] == "text"]


@asynccontextmanager
async def page(**agent: Any) -> AsyncIterator[Page]:
    """A page at an API with the agent ``support``."""
    async with world() as api:
        await publish(api, "support", **{**AGENT, **agent})
        yield Page(api)
