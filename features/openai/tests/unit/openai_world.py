"""The API on a fake Redis, served on a port, and OpenAI's own client at it; the tests play the workers."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final

from palaver.config.settings import Settings
from palaver.errors import ErrorClass, Failure
from palaver.schemas.models import Message, ToolCall
from palaver.steps.leases import Lease
from palaver.steps.verdicts import Continue, OpenCall, ToolOutcome
from palaver.vocabulary.lifecycle import RunStatus
from tests.unit.api_world import SETTINGS, World
from tests.unit.served_api import served
from tests.waiting import aeventually

AT: Final = datetime(2026, 1, 1, tzinfo=UTC)
MODEL: Final = "fake/tool-20"
LOOSE, STRICT = False, True
WEATHER: Final = {
    "type": "function",
    "name": "weather",
    "description": "The weather somewhere.",
    "parameters": {"type": "object", "properties": {"place": {"type": "string"}}},
}
CALCULATOR: Final = {"type": "mcp", "server_label": "palaver", "allowed_tools": ["calculator"]}


@dataclass
class OpenAiWorld:
    """An API, its address, and a client of it."""

    api: World
    url: str
    client: Any
    """OpenAI's own."""
    connections: set[Any]
    """Those that are open."""

    async def run_of(self, response: Any) -> dict[str, Any]:
        """The run of a response, by the native API."""
        answer = await self.api.client.get(f"/v1/runs/{response.metadata['palaver_run_id']}")
        assert answer.status_code == 200, answer.text
        run: dict[str, Any] = answer.json()
        return run

    async def claimed(self, response: Any) -> Lease:
        """Work on the response's present model step."""
        return await self.api.claim(await self.run_of(response))

    async def ask(self, response: Any, *calls: OpenCall, text: str = "") -> None:
        """Let the model ask for tools."""
        message = Message(role="assistant", content=text, tool_calls=tuple(each.call for each in calls))
        await self.api.store.steps.settle(await self.claimed(response), Continue(message, calls=calls))

    async def slip(self, response: Any, *slips: ToolCall, text: str = "") -> None:
        """Let the model make calls that are refused, and be told of it."""
        message = Message(role="assistant", content=text, tool_calls=slips)
        failure = Failure.of(ErrorClass.INVALID_TOOL_CALL, message="no such call")
        outcomes = tuple(ToolOutcome.failed(slip, failure) for slip in slips)
        await self.api.store.steps.settle(await self.claimed(response), Continue(message, outcomes=outcomes))

    async def answer(self, response: Any, step: str, text: str) -> None:
        """Let a tool bring its result."""
        run = await self.run_of(response)
        lease = await self.api.store.steps.claim(
            run["id"], run["conversation_id"], step, queues=("tools",), worker="w-2", nonce="n", known=None
        )
        assert isinstance(lease, Lease), lease
        call_id = step.partition("/")[2]
        message = Message(role="tool", call_id=call_id, name="calculator", content=text)
        await self.api.store.steps.settle(lease, Continue(outcomes=(ToolOutcome(message),)))

    async def newest(self) -> dict[str, Any]:
        """The run that was submitted last, once it is there."""
        runs: list[dict[str, Any]] = []

        async def look() -> bool:
            runs[:] = (await self.api.client.get("/v1/runs?limit=1")).json()["data"]
            return bool(runs) and runs[0]["status"] not in {each for each in RunStatus if each.terminal}

        await aeventually(look)
        run = runs[0]
        return {**run, "links": {"self": f"/v1/runs/{run['id']}"}}


@asynccontextmanager
async def serving_openai(
    *, strict: bool = STRICT, settings: Settings = SETTINGS, retries: int = 0, key: str = "any", **changes: Any
) -> AsyncIterator[OpenAiWorld]:
    """An API that is served, and a client."""
    import openai

    async with served(settings, **changes) as (api, url, connections):
        client = openai.AsyncOpenAI(
            base_url=f"{url}/openai/v1",
            api_key=key,
            max_retries=retries,
            timeout=60,
            _strict_response_validation=strict,
        )
        async with client:
            yield OpenAiWorld(api, url, client, connections)


def numbers(events: Sequence[Any]) -> list[int]:
    """Their sequence numbers."""
    return [event.sequence_number for event in events]


def kinds(events: Sequence[Any]) -> list[str]:
    """Their types, without that of the response."""
    return [event.type.removeprefix("response.") for event in events]


def plain(events: Sequence[Any]) -> list[dict[str, Any]]:
    """The events as they were on the wire."""
    return [event.to_dict() for event in events]
