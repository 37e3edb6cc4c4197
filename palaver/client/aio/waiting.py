"""Waiting for a run, and meanwhile answering its calls of the caller's functions."""

from __future__ import annotations

import time
import uuid
from collections.abc import Sequence
from typing import Final

from palaver.client.aio.transport import ApiTransport
from palaver.client.answers import run_of
from palaver.client.backoff import bearable
from palaver.client.errors import ClientError, Conflict, Unprocessable, WaitTimeout
from palaver.client.functions import ClientToolset, FunctionCall
from palaver.client.options import Until
from palaver.client.requests import runs
from palaver.client.tasks import AsyncFunctionCalls, sleep
from palaver.schemas.actions import ToolOutput
from palaver.schemas.models import Run
from palaver.vocabulary.lifecycle import RunStatus

LONG_POLL: Final = 30
"""Seconds that one request may wait for a run's end: below the idle limit of common proxies (60)."""
_TOO_LATE: Final = frozenset({"run_ended", "action_already_resolved", "action_expired"})
"""Why an output is not awaited any more."""


class RunWaiter:
    """A caller that waits for a run, at most ``timeout`` seconds ``since`` a moment, by default now."""

    def __init__(
        self,
        transport: ApiTransport,
        run_id: str,
        *,
        timeout: float | None,
        since: float | None = None,
        until: Until,
        toolset: ClientToolset,
    ) -> None:
        self._transport = transport
        self._run_id = run_id
        self._timeout = timeout
        self._ends = None if timeout is None else (time.monotonic() if since is None else since) + timeout
        self._until: Until = until
        self._watched: Until = "action" if toolset.functions else until
        self._toolset = toolset
        self._made: set[str] = set()
        """The actions whose functions were called."""
        self._status: RunStatus | None = None
        """The last one seen."""

    async def until_reached(self, run: Run | None = None) -> Run:
        """The run, once it has come so far; ``run`` is as it was a moment ago, if it was read."""
        self._status = run.status if run else None
        failures = idle = 0
        while True:
            if run is not None and (calls := self._new_calls(run)):
                await self._answer(calls)
            elif run is not None and self._reached(run):
                return run
            begun = time.monotonic()
            left = float(LONG_POLL) if self._ends is None else max(self._ends - begun, 0.0)
            poll = int(min(left, LONG_POLL))
            silence = self._transport.timeout
            if self._ends is not None:
                silence = min(silence, max(left - poll, 1.0))
            try:
                request = runs.get_run(self._run_id, poll, self._watched)
                response = await self._transport.send(request, poll + silence)
            except ClientError as error:
                run, failures = None, failures + 1
                await self._rest(bearable(failures, error))
                continue
            run = run_of(response)
            self._status, failures = run.status, 0
            if not self._reached(run) and not self._new_calls(run):
                # Before its time and not far enough: the run needs another party, or the server does not wait.
                idle = idle + 1 if time.monotonic() - begun < poll / 2 or poll == 0 else 0
                await self._rest(min(0.1 * 2.0**idle, 2.0) if idle else 0.0)

    def _reached(self, run: Run) -> bool:
        return run.status.terminal or (self._until == "action" and run.needs_somebody)

    def _new_calls(self, run: Run) -> Sequence[FunctionCall]:
        return [call for call in self._toolset.calls(run) if call.action.id not in self._made]

    async def _answer(self, calls: Sequence[FunctionCall]) -> None:
        """Make the calls of a turn at the same time, and send each output when it is there."""
        self._made.update(call.action.id for call in calls)
        async with AsyncFunctionCalls() as under_way:
            for call in calls:
                under_way.begin(call)
            for _ in calls:
                call, output = await under_way.finished()
                await self._deliver(call, output)

    async def _deliver(self, call: FunctionCall, output: ToolOutput) -> None:
        """Send an output, for as long as the run is waited for: the function is not to be called again for it."""
        request = runs.send_input(self._run_id, [output], uuid.uuid4().hex)
        failures = 0
        while True:
            try:
                await self._transport.send(request, self._transport.timeout)
                return
            except Conflict as conflict:
                if conflict.code in _TOO_LATE:
                    return
                raise
            except Unprocessable as error:
                if output.is_error:
                    raise
                output = call.refused(str(error))
                request = runs.send_input(self._run_id, [output], uuid.uuid4().hex)
                pause = 0.0
            except ClientError as error:
                failures += 1
                pause = bearable(failures, error)
            await self._rest(pause)

    async def _rest(self, seconds: float) -> None:
        """Do nothing for so long, or until the time is up. Raises `WaitTimeout` when it was up before."""
        if self._ends is not None and self._timeout is not None:
            left = self._ends - time.monotonic()
            if left <= 0:
                raise WaitTimeout(self._run_id, self._timeout, self._status)
            seconds = min(seconds, left)
        await sleep(max(seconds, 0.0))
