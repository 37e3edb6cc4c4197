"""A page that speaks AG-UI: the types of its own package judge each event, and it keeps messages as its client does."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import httpx
import orjson
from ag_ui.core import Event, RunAgentInput
from pydantic import TypeAdapter

from tests.unit.api_world import World
from tests.waiting import aeventually

_EVENT: TypeAdapter[Any] = TypeAdapter(Event)
PREFIXES = ("TEXT_MESSAGE", "REASONING_MESSAGE", "REASONING", "TOOL_CALL")


class Page:
    """A page with a thread."""

    def __init__(self, api: World, thread: str = "thread-1", agent: str = "support") -> None:
        self.api, self.thread, self.agent = api, thread, agent
        self.messages: list[dict[str, Any]] = []
        self.headers: dict[str, str] = {}
        self._runs = 0

    def body(self, run_id: str | None = None, **more: Any) -> dict[str, Any]:
        """A request, which the types of the package take."""
        self._runs += run_id is None
        body = {
            "threadId": self.thread,
            "runId": run_id or f"{self.thread}-run-{self._runs}",
            "protocolVersion": "1.0",
            "messages": self.messages,
            "tools": [],
            "context": [],
            "state": {},
            "forwardedProps": {},
            **more,
        }
        RunAgentInput.model_validate(body)
        return body

    def say(self, text: str) -> None:
        """Put words of the user into the thread."""
        self.messages.append({"id": f"u{len(self.messages)}", "role": "user", "content": text})

    async def post(self, body: dict[str, Any]) -> httpx.Response:
        """Send a request."""
        return await self.api.client.post(f"/ag-ui/agents/{self.agent}", json=body, headers=self.headers)

    def begin(self, body: dict[str, Any]) -> asyncio.Task[list[dict[str, Any]]]:
        """Send a request, and hear the run while others work on it."""
        return asyncio.create_task(self.run(body))

    async def run(self, body: dict[str, Any]) -> list[dict[str, Any]]:
        """The events of a run, whole and in order; the messages are as the client has them then."""
        answer = await self.post(body)
        assert answer.status_code == 200, answer.text
        assert answer.headers["content-type"].startswith("text/event-stream")
        events = read(answer.text)
        check(events, body)
        self.messages = shown(self.messages, events)
        return events

    async def active(self) -> dict[str, Any]:
        """The run that goes on in the thread."""

        async def look() -> str | None:
            listed = (await self.api.client.get("/v1/runs", headers=self.headers)).json()["data"]
            return next((run["id"] for run in listed if run["stop_reason"] is None and run["parent"] is None), None)

        run_id = await aeventually(look)
        run: dict[str, Any] = (await self.api.client.get(f"/v1/runs/{run_id}", headers=self.headers)).json()
        return run


def read(text: str) -> list[dict[str, Any]]:
    """The events of a stream. Each is one of the protocol, and says nothing beside it."""
    events = []
    for frame in text.split("\n\n"):
        if frame.startswith("data: "):
            event = orjson.loads(frame.removeprefix("data: "))
            parsed = _EVENT.validate_python(event)
            assert parsed.model_dump(mode="json", by_alias=True) == event, "null, or a field that there is not"
            assert not parsed.model_extra, parsed
            events.append(event)
    return events


def kinds(events: Sequence[dict[str, Any]]) -> list[str]:
    """The types, but for what is the server's own."""
    return [event["type"] for event in events if event["type"] != "CUSTOM"]


def check(events: Sequence[dict[str, Any]], body: dict[str, Any]) -> None:
    """What clients rely on: one beginning, one end, and what is opened is closed."""
    first, last = events[0], events[-1]
    assert (first["type"], first["threadId"], first["runId"]) == ("RUN_STARTED", body["threadId"], body["runId"])
    assert last["type"] in ("RUN_FINISHED", "RUN_ERROR"), last
    ends = [event for event in events if event["type"] in ("RUN_STARTED", "RUN_FINISHED", "RUN_ERROR")]
    assert len(ends) == 2
    open_ones: set[tuple[str, str]] = set()
    steps: set[str] = set()
    for event in events:
        kind = event["type"]
        prefix = next((each for each in PREFIXES if kind.startswith(each)), "")
        place = (prefix, event.get("messageId") or event.get("toolCallId") or "")
        if kind == "STEP_STARTED":
            assert event["stepName"] not in steps
            steps.add(event["stepName"])
        elif kind == "STEP_FINISHED":
            steps.remove(event["stepName"])
        elif kind.endswith("_START"):
            assert place not in open_ones, event
            open_ones.add(place)
        elif kind.endswith(("_CONTENT", "_ARGS")):
            assert place in open_ones, event
            assert event["delta"]
        elif kind.endswith("_END") and prefix:
            open_ones.remove(place)
    assert not open_ones, open_ones
    assert not steps


def shown(before: Sequence[dict[str, Any]], events: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """The messages of a client after these events."""
    messages = [dict(message) for message in before]

    def of(message_id: str, role: str) -> dict[str, Any]:
        for message in messages:
            if message["id"] == message_id:
                return message
        messages.append({"id": message_id, "role": role})
        return messages[-1]

    for event in events:
        match event["type"]:
            case "MESSAGES_SNAPSHOT":
                # As the client does it: what it has stays in its place, and what is new comes behind.
                told = {message["id"]: dict(message) for message in event["messages"]}
                had = [message["id"] for message in messages]
                kept = [told[known] for known in had if known in told]
                messages = [*kept, *(message for name, message in told.items() if name not in had)]
            case "TEXT_MESSAGE_START":
                of(event["messageId"], event["role"])
            case "TEXT_MESSAGE_CONTENT":
                message = of(event["messageId"], "assistant")
                message["content"] = message.get("content", "") + event["delta"]
            case "TOOL_CALL_START":
                function = {"name": event["toolCallName"], "arguments": ""}
                call = {"id": event["toolCallId"], "type": "function", "function": function}
                of(event["parentMessageId"], "assistant").setdefault("toolCalls", []).append(call)
            case "TOOL_CALL_ARGS":
                for message in messages:
                    for call in message.get("toolCalls", ()):
                        if call["id"] == event["toolCallId"]:
                            call["function"]["arguments"] += event["delta"]
            case "TOOL_CALL_RESULT":
                # The client has it as one more, whether it had one of this call or not.
                result = {"id": event["messageId"], "role": "tool", "content": event["content"]}
                messages.append({**result, "toolCallId": event["toolCallId"]})
    return messages
