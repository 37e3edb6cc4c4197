"""A tools worker in the test's own process: whole steps of tools, on the store under test."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any, Final

import pytest
from celery.exceptions import Retry

from palaver.config.settings import Settings
from palaver.schemas.models import AgentSpec, Message, ToolCall
from palaver.steps.leases import Delivery
from palaver.steps.verdicts import Continue, OpenCall
from palaver.store import Store
from palaver.tools import Tool
from palaver.vocabulary.step_kinds import TOOL
from tests.contract.store_driver import StoreDriver
from workers.sources.functions import Functions
from workers.sources.toolbox import Toolbox
from workers.steps import step_functions as step_functions  # each `@step` in it is the work of a kind
from workers.steps.capabilities import Capabilities
from workers.steps.histograms import Histograms
from workers.steps.registry import handler_of
from workers.steps.runtime import Runtime
from workers.steps.step import make_attempt

_WITHIN: Final = 20.0
"""Seconds for all attempts of a call."""


class ToolWorker:
    """Makes attempts of calls, one after the other."""

    def __init__(self, driver: StoreDriver, runtime: Runtime) -> None:
        self.driver = driver
        self.runtime = runtime
        self.limiter = runtime.limiter

    async def ask(self, tool: Tool, *ids: str, **agent: Any) -> tuple[str, list[Delivery]]:
        """A run whose model asks for calls of ``tool``, and their deliveries."""
        run_id, lease = await self.driver.begin(agent=AgentSpec(model="fake/echo", tools=(tool.name,), **agent))
        calls = tuple(ToolCall(id=call_id, name=tool.name) for call_id in ids or ("c1",))
        message = Message(role="assistant", content="", tool_calls=calls)
        opened = tuple(OpenCall(call, tool.idempotent) for call in calls)
        settled = await self.driver.store.steps.settle(lease, Continue(message, calls=opened))
        return run_id, list(settled.deliveries)

    async def attempt(self, delivery: Delivery) -> str:
        """One attempt: what Flower is shown of it."""
        ids = delivery.run_id, delivery.conversation_id, delivery.step
        try:
            return await make_attempt(handler_of, self.runtime, TOOL, *ids)
        except Retry as retried:
            return f"RETRY {retried.exc}; again in {retried.when} s"

    async def again(self, delivery: Delivery) -> str:
        """One more attempt, at the time for it."""
        (settled,) = await self.driver.hasten(delivery.run_id, delivery.step)
        return await self.attempt(settled.deliveries[0])

    async def follow(self, delivery: Delivery) -> list[str]:
        """Attempts until the call is answered: what Flower is shown of each. A service that is out is asked again only
        after some time, however often the step is."""
        give_up_at = time.monotonic() + _WITHIN
        shown = [await self.attempt(delivery)]
        while shown[-1].startswith(("RETRY", "waits")) and time.monotonic() < give_up_at:
            shown.append(await self.again(delivery))
        return shown


@asynccontextmanager
async def tool_worker(
    store: Store,
    redis: Any,
    settings: Settings,
    monkeypatch: pytest.MonkeyPatch,
    *tools: Tool,
    queues: Sequence[str] = (TOOL.queue,),
) -> AsyncIterator[ToolWorker]:
    """One that has these tools, and takes from these queues."""
    monkeypatch.setattr(Store, "connect", lambda *_, **__: store)
    able = Capabilities(Toolbox([Functions(tools)]), {})
    runtime = Runtime(settings, Histograms(TOOL, places=0), queues=queues, node="t", capacity=1, capabilities=able)
    try:
        yield ToolWorker(StoreDriver(store, redis), runtime)
    finally:
        await runtime.publisher.close()
