"""The engine of a test: the scripts of the store, the functions of steps and the use cases of the API, on one loop.

What a broker does is a list here, and one worker does all steps, one after another. Where only time is missing, the
clock skips it. What comes while a step goes on is not shown: how much of it would be is a matter of time.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Sequence
from dataclasses import replace
from secrets import token_hex
from typing import Final

from pydantic import SecretStr

from palaver.config.policy import NO_POLICY
from palaver.config.providers import Provider
from palaver.config.settings import Settings
from palaver.delivery.publishing import LoopPublisher, follow_up
from palaver.operations import Backend, Caller, act, cancel, read_events, read_messages, submit
from palaver.operations.catalog import Catalog
from palaver.operations.measured import Measured
from palaver.schemas.actions import Item
from palaver.schemas.conversation import ConversationMessage
from palaver.schemas.models import AgentSpec, Run, Submission
from palaver.steps.leases import Delivery
from palaver.store import Store
from palaver.store.reading.events import StoredEvent
from palaver.vocabulary.step_kinds import MODEL, TOOL, kind_of, queue_in_broker
from workers.sources import Toolbox
from workers.steps import step_functions as step_functions  # each `@step` in it is the work of a kind
from workers.steps.capabilities import Capabilities
from workers.steps.histograms import Histograms
from workers.steps.registry import handler_of
from workers.steps.runtime import Runtime
from workers.steps.step import StepFailed, make_attempt

from .functions import LocalFunctions, is_of_the_test
from .memory import Clock, connect, release
from .model import ScriptedModel
from .wire import ScriptedPort

_CAPACITY: Final = 100
"""Steps that the store may deliver at a time."""
_PAGE: Final = 1000
_NOTHING_DUE: Final = 86_400.0
"""The answer of the due index where it has nothing, in seconds."""
_PROVIDER: Final = Provider(base_url="http://model.invalid/v1", image_addresses=True)


class _Settings(Settings):
    """Settings that the environment has no part in."""

    @classmethod
    def given(cls) -> dict[str, str]:
        """Return nothing."""
        return {}


_SETTINGS: Final = _Settings(
    redis_url="redis://127.0.0.1:1/0",  # never connected to
    shards=1,
    secret_key=(SecretStr(token_hex(32)),),
)


class _Deliveries(LoopPublisher):
    """The broker."""

    def __init__(self) -> None:
        self.waiting: deque[Delivery] = deque()

    def publish_soon(self, deliveries: Sequence[Delivery]) -> None:
        """Keep them."""
        self.waiting.extend(deliveries)

    async def close(self) -> None:
        """Nothing is connected."""


class Engine:
    """Makes runs, and does their steps. It belongs to the loop that opens it."""

    def __init__(self, clock: Clock, model: ScriptedModel, functions: LocalFunctions) -> None:
        self.raise_errors = False
        """True: whatever a tool raises is raised in the test."""
        self._loop = asyncio.get_running_loop()
        self._clock = clock
        self._swept_at = clock.skipped
        self._model = model
        self._functions = functions
        self._providers: dict[str, Provider] = {}
        self._deliveries = _Deliveries()
        self._redis = connect(clock)
        store = Store(self._redis, _SETTINGS)
        store.memories._memory = None  # an archive that the environment names is not asked
        self._able = Capabilities(Toolbox([functions]), {})
        self._runtime = Runtime(
            _SETTINGS,
            Histograms(MODEL, TOOL, places=0),
            queues=(MODEL.queue, TOOL.queue),
            node="test",
            capacity=_CAPACITY,
            capabilities=self._able,
            model=ScriptedPort(self._providers, model),
            store=store,
        )
        self._runtime.publisher = self._deliveries
        self._backend = Backend(
            settings=_SETTINGS,
            store=store,
            publisher=self._deliveries,
            providers=self._providers,
            catalog=Catalog(store),
            policies={},
            policy=NO_POLICY,
            measured=Measured(store, ()),
        )

    def release(self) -> None:
        """Let the next engine have the server of its store."""
        release(self._redis)

    async def close(self) -> None:
        """Close what it has opened."""
        await self._backend.close()
        await self._runtime.close()
        await self._runtime.store.close()

    async def submit(self, submission: Submission, by: str | None) -> Run:
        """Take a run on, as the API does with a key of that name, and bring it as far as it goes. Raises as
        `palaver.operations.submit`, and as `resume`."""
        self._require_here()
        if submission.spec is not None:
            self._provide(submission.spec)
        await self._sweep()
        # It would know tools and providers of a moment ago.
        await self._backend.catalog.close()
        self._backend = replace(self._backend, catalog=Catalog(self._runtime.store))
        taken = await submit(self._backend, submission, Caller(trusted=True, name=by))
        return await self._go_on(taken.run.id)

    async def resume(self, run_id: str, items: Sequence[Item], by: str | None, *, cancelled: bool) -> Run:
        """Send input to a run and cancel it, as the API does; bring it to its end, or to where it waits for a person.

        Raises:
            AssertionError: the model was asked beyond its script, or the run waits for what does not come.
            BaseException: what a tool raised, as `raise_errors` says; and as `act` and `cancel` of
                `palaver.operations`.
        """
        self._require_here()
        caller = Caller(trusted=True, name=by)
        if items:
            await act(self._backend, run_id, items, caller)
        if cancelled:
            await cancel(self._backend, run_id, caller)
        return await self._go_on(run_id)

    def _provide(self, agent: AgentSpec) -> None:
        """Have the providers of an agent, and of those below it."""
        for model in agent.models:
            name = model.partition("/")[0]
            self._able.providers[name] = self._providers.setdefault(name, _PROVIDER)
        for below in agent.subagents.values():
            self._provide(below.agent)

    def _require_here(self) -> None:
        if asyncio.get_running_loop() is not self._loop:
            raise RuntimeError("the runs of one test are on one loop: use either run, or await arun")

    async def _go_on(self, run_id: str) -> Run:
        while True:
            while self._deliveries.waiting:
                await self._attempt(self._deliveries.waiting.popleft())
            if self._clock.skipped > self._swept_at:
                await self._sweep()
                continue
            run = await self._runtime.store.runs.get(run_id)
            if run.status.terminal or run.needs_somebody:
                return run
            await self._pass_time(run)

    async def read(self, run: Run) -> tuple[list[ConversationMessage], list[StoredEvent]]:
        """Return the messages of the run's conversation, and the events of the run, in order."""
        messages, events = list[ConversationMessage](), list[StoredEvent]()
        after, more = 0, True
        while more:
            page = await read_messages(self._backend, run.conversation_id, after=after, limit=_PAGE)
            messages, after, more = messages + page.data, page.next_after, page.has_more
        after, more = 0, True
        while more:
            told = await read_events(self._backend, run.id, after, _PAGE)
            events, after, more = [*events, *told.events], told.reached, told.more
        return messages, events

    async def _attempt(self, delivery: Delivery) -> None:
        kind = kind_of(queue_in_broker(delivery.queue) or "")
        ids = delivery.run_id, delivery.conversation_id, delivery.step
        try:
            await make_attempt(handler_of, self._runtime, kind, *ids)
        except Exception as told:
            # For Flower: a failure, or a RETRY of Celery's, which has it.
            if not isinstance(getattr(told, "exc", told), StepFailed):
                raise
        raised, self._functions.raised = self._functions.raised, []
        for error in raised:
            if self.raise_errors or is_of_the_test(error):
                raise error
        if self._model.beyond is not None:
            raise self._model.beyond

    async def _sweep(self) -> float:
        """Act on what is due. Returns the seconds until more is."""
        store, self._swept_at = self._runtime.store, self._clock.skipped
        await self._report()
        things, upcoming = await store.due.due()
        if things:
            await follow_up(store, self._runtime.publish, await store.due.sweep(things))
        return 0.0 if things else upcoming

    async def _pass_time(self, run: Run) -> None:
        """Skip the time until something is due. Raises AssertionError if nothing will be."""
        self._runtime.publish(await self._runtime.store.due.fill())
        upcoming = await self._sweep()
        if self._deliveries.waiting:
            return
        if upcoming == _NOTHING_DUE:
            raise AssertionError(f"the run is {run.status}, and nothing of it will be due: {run.waiting}")
        self._clock.advance(upcoming + 0.001)

    async def _report(self) -> None:
        """Say what this worker can do, as workers do with each heartbeat."""
        runtime = self._runtime
        runtime.renew_tools()
        await runtime.store.tools.publish(runtime.tool_set, runtime.queues)
        await runtime.report()
