"""The asyncio client."""

from __future__ import annotations

import time
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import aclosing
from datetime import date, datetime
from functools import partial
from types import TracebackType
from typing import Any, Literal, Self, Unpack

from palaver.client.aio.agents import AsyncAgents
from palaver.client.aio.batches import AsyncBatches
from palaver.client.aio.control import AsyncRunControl
from palaver.client.aio.conversations import AsyncConversations
from palaver.client.aio.exporting import export
from palaver.client.aio.following import follow
from palaver.client.aio.keys import AsyncKeys
from palaver.client.aio.paging import pages
from palaver.client.aio.schedules import AsyncSchedules
from palaver.client.aio.tenants import AsyncTenants
from palaver.client.aio.transport import ApiTransport
from palaver.client.aio.waiting import LONG_POLL, RunWaiter
from palaver.client.aio.webhooks import AsyncWebhooks
from palaver.client.answers import models_of, object_of, run_count_of, run_of, runs_of
from palaver.client.config import Config
from palaver.client.errors import ClientError
from palaver.client.exported import Exported
from palaver.client.functions import ClientTools, ClientToolset
from palaver.client.options import SubmitOptions, Until, agent_object, check
from palaver.client.requests import agents, runs, tenants
from palaver.client.resuming import EventCursor
from palaver.errors import RunFailed
from palaver.events import Event
from palaver.schemas.filters import RunFilter
from palaver.schemas.listed_model import ListedModel
from palaver.schemas.models import Message, Run
from palaver.vocabulary.lifecycle import RunStatus


class AsyncPalaver(
    AsyncRunControl,
    AsyncConversations,
    AsyncAgents,
    AsyncSchedules,
    AsyncBatches,
    AsyncKeys,
    AsyncTenants,
    AsyncWebhooks,
):
    """Palaver's API on asyncio; the methods, arguments and errors are those of `Palaver`, awaited.

    ``base_url`` and ``api_key`` default to ``PALAVER_URL`` (else http://127.0.0.1:8080) and ``PALAVER_API_KEY``;
    ``timeout``: seconds that the API may be silent before a request counts as lost, and that a new run waits when the
    API has no room for it. ``on_wait`` is called with the reason and the seconds each time that a request waits before
    it is sent again. Raises ConfigurationError for a URL or key that cannot be one. Functions of client tools are
    awaited, those that are no coroutines run in threads. Close an iterator that you leave early
    (``contextlib.aclosing``).
    """

    def __init__(
        self,
        base_url: str | None = None,
        api_key: str | None = None,
        *,
        timeout: float = 30.0,
        on_wait: Callable[[ClientError, float], None] | None = None,
    ) -> None:
        self._transport = ApiTransport(Config.of(base_url, api_key), timeout, on_wait)

    @property
    def base_url(self) -> str:
        """The address of the API."""
        return self._transport.url

    async def submit(
        self,
        input: str | Sequence[Message | Mapping[str, Any]],
        *,
        wait: int = 0,
        **options: Unpack[SubmitOptions],
    ) -> Run:
        """Submit a run; returns it as it is then, mostly queued.

        Say who answers with ``agent``, whole or the name of one on the server, or with ``model`` and, if wanted,
        ``instructions``, ``tools``, ``approvals`` and ``max_steps``, or with neither to go on with the conversation's
        own. ``client_tools`` go with a whole agent or a model; here they are only declared (`wait` answers calls of
        functions, `answer` those of others).

        The request carries an idempotency key, a fresh one unless given, so that it is sent again after a lost
        answer without making a second run. With ``wait`` the answer comes when the run has ended or needs
        an action, or after so many seconds. With ``on_conflict="steer"`` it may be the run that is going on.

        Raises:
            APIError: the API refused it; `Unprocessable` names the fields, `Conflict` says what is in the way.
            ConnectionFailed: no answer, several times. With your own ``idempotency_key`` you may try again.
            ValueError: arguments that do not go together, or a time without a zone.
            ConfigurationError: a function in ``client_tools`` cannot be a tool.
        """
        check(options, SubmitOptions)
        toolset = ClientToolset.of(options.get("client_tools", ()))
        agent = agent_object(options, toolset)
        if agent is None and toolset.declarations:
            raise ValueError("client_tools given without a model or an agent: no agent would be told of them")
        return run_of(await self._transport.call(runs.submit_run(input, agent, options, wait), wait))

    async def run(
        self,
        input: str | Sequence[Message | Mapping[str, Any]],
        *,
        timeout: float | None = None,
        until: Until = "action",
        raise_on_failure: bool = True,
        **options: Unpack[SubmitOptions],
    ) -> Run:
        """`submit` and `wait` in one; calls of functions in ``client_tools`` are answered here.

        Returns the ended run, or one that is paused or needs an action: then it has ``pending_actions``, and `wait`
        goes on with it. With ``until="terminal"`` it waits until the action was taken.
        With neither a whole ``agent`` nor a ``model``, functions answer for the agent that is named, or that the
        conversation has.

        Raises:
            RunFailed: the run's status is ``failed``, unless ``raise_on_failure`` is False. Other ends return.
            WaitTimeout: the run did not come so far within ``timeout`` seconds; it goes on.
            APIError, ConnectionFailed, ValueError, ConfigurationError: as `submit` and `wait`.
        """
        begun = time.monotonic()
        toolset = ClientToolset.of(options.get("client_tools", ()))
        described = options.get("model") is not None or not isinstance(options.get("agent"), str | None)
        if not described and len(toolset.functions) == len(toolset.declarations):
            options["client_tools"] = ()
        run = await self.submit(input, wait=LONG_POLL if timeout is None else int(min(timeout, LONG_POLL)), **options)
        waiter = RunWaiter(self._transport, run.id, timeout=timeout, since=begun, until=until, toolset=toolset)
        run = await waiter.until_reached(run)
        if raise_on_failure and run.status is RunStatus.FAILED:
            raise RunFailed(run.error or {}, run.id)
        return run

    async def wait(
        self,
        run_id: str,
        timeout: float | None = None,
        *,
        until: Until = "terminal",
        client_tools: ClientTools = (),
    ) -> Run:
        """Wait until the run has ended, in whichever way, and return it.

        With ``until="action"`` it also returns once it is paused or waits for an action that this client does not
        answer: see its ``pending_actions``. Calls of functions in ``client_tools`` are answered here: those of a turn
        are made at the same time, each output is sent when it is there, and an exception of a function becomes an
        output for the model.

        ``timeout`` is in seconds; None waits as long as it takes, 0 looks once. Until then it keeps trying
        over 429, 5xx and network errors. A server that does not answer at all may cost a second more, and a
        function that was called is not left before it returns.

        Raises:
            WaitTimeout: the run did not come so far in time; it goes on.
            NotFound: there is no such run.
            APIError: any other 4xx.
            ValueError, ConfigurationError: something in ``client_tools`` cannot be a tool.
        """
        waiter = RunWaiter(
            self._transport, run_id, timeout=timeout, until=until, toolset=ClientToolset.of(client_tools)
        )
        return await waiter.until_reached()

    async def get(self, run_id: str, wait: int = 0) -> Run:
        """The run as it is now, or once it has ended or ``wait`` seconds are over.

        Raises:
            NotFound: there is no such run (any more).
            APIError, ConnectionFailed: it cannot be had.
        """
        return run_of(await self._transport.call(runs.get_run(run_id, wait), wait))

    async def list(self, *, limit: int | None = None, **filters: Unpack[RunFilter]) -> AsyncGenerator[Run, None]:
        """Runs that fit all conditions, newest first, page by page as you iterate; at most ``limit`` of them.

        ``agent`` is an agent's name.

        Raises:
            APIError, ConnectionFailed: a page cannot be had.
            ValueError: a time without a zone, or an empty ``status``.
        """
        check(filters, RunFilter)
        admitted = runs.run_filter(filters)
        async with aclosing(pages(self._transport, partial(runs.list_runs, admitted), limit)) as run_pages:
            async for page, response in run_pages:
                for run in runs_of(page, response):
                    yield run

    async def count(
        self, *, created_after: datetime | None = None, created_before: datetime | None = None
    ) -> Mapping[RunStatus, int]:
        """Count the runs in each status; of those that were submitted between these times, if they are given. Raises as
        `list`."""
        return run_count_of(await self._transport.call(runs.count_runs(created_after, created_before)))

    async def events(
        self, run_id: str, after: int = 0, *, include: Literal["reasoning"] | None = None
    ) -> AsyncGenerator[Event, None]:
        """The run's events behind sequence number ``after``, each once and in order, until ``run.finished``; those that
        tell what the model thinks if ``include`` asks for it.

        A broken connection is made again, after as long as the server asked, behind the last event that
        arrived. Types that this version does not know come through as they are.

        Raises:
            NotFound: there is no such run.
            APIError: any other 4xx.
            ConnectionFailed, Unavailable: never connected, or no sign of life for five minutes.
        """
        async with aclosing(follow(self._transport, EventCursor(run_id, after), include)) as events:
            async for event in events:
                yield event

    async def export(
        self, *ids: str, exported: Exported | None = None, **filters: Unpack[RunFilter]
    ) -> AsyncGenerator[dict[str, Any], None]:
        """Records of the runs and conversations with these ids, or of all runs that have ended and fit the conditions.

        A run has several records: a ``message`` for each of its conversation's that was not there yet, the
        ``conversation``, an ``event`` for each of its events but token deltas, and last the ``run``: once that is
        there, so is all the rest. Records of ``exported`` are left out, and new ones are added to it. So is a run left
        out that is deleted meanwhile, or whose retention passes.

        Raises:
            NotFound: an id is of nothing that is there (any more).
            APIError, ConnectionFailed: not everything was brought. Asking again with ``exported`` brings the rest.
            ValueError: ids together with filters, a time without a zone, or an empty ``status``.
        """
        check(filters, RunFilter)
        known = Exported() if exported is None else exported
        async with aclosing(export(self._transport, ids, filters, known)) as records:
            async for record in records:
                yield record

    async def models(self) -> AsyncGenerator[ListedModel, None]:
        """The models that runs may name, by id, page by page as you iterate; ``provider/*`` is any other name.

        Raises:
            APIError, ConnectionFailed: a page cannot be had.
        """
        async with aclosing(pages(self._transport, agents.list_models)) as model_pages:
            async for page, response in model_pages:
                for model in models_of(page, response):
                    yield model

    async def queues(self) -> dict[str, Any]:
        """Return the queues as the API says it: how much waits, since when, and who works. Raises as `get`."""
        return object_of(await self._transport.call(agents.get_queues()))

    async def usage(
        self, *, start: date | None = None, end: date | None = None, group_by: Sequence[str] = ("day",)
    ) -> dict[str, Any]:
        """Return what models used on these days (UTC), 30 unless they are named, as the API says it: ``data`` has a row
        for each ``day``, ``agent``, ``model`` and ``key`` that ``group_by`` names, ``total`` their sum. Raises as
        `get`."""
        return object_of(await self._transport.call(tenants.get_usage(start, end, group_by)))

    async def statistics(
        self, *, window: Literal["hour", "day", "week"] = "hour", tenant: str | None = None
    ) -> dict[str, Any]:
        """Return what became of runs, steps and calls of models of late, as the API says it: ``data`` has a row for
        each minute of the hour, quarter of an hour of the day or two hours of the week in which anything happened,
        ``total`` their sum. Operators may name a ``tenant``. Raises as `get`."""
        return object_of(await self._transport.call(tenants.get_statistics(window, tenant)))

    async def aclose(self) -> None:
        """Close the connections."""
        await self._transport.aclose()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()
