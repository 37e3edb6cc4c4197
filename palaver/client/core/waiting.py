"""Waiting for a run, and meanwhile answering its calls of the caller's functions."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from palaver.actions import ToolOutput
from palaver.client import answers, controls, patience, requests
from palaver.client.core.base import Base
from palaver.client.errors import ClientError, Conflict, Unprocessable, WaitTimeout
from palaver.client.flow import Begin, Finish, Finished, Flow, Lost, Request, Response, Send, Sleep
from palaver.client.functions import ClientTools, FunctionCall, Offer
from palaver.client.requests import Until
from palaver.lifecycle import RunStatus
from palaver.models import Run

LONG_POLL: Final = 30
"""Seconds that one request may wait for a run's end: below the idle limit of common proxies (60)."""
_TOO_LATE: Final = frozenset({"run_ended", "action_already_resolved", "action_expired"})
"""Why nobody waits for an output any more."""


def reached(run: Run, until: Until) -> bool:
    """Whether the run has come so far."""
    needs_somebody = run.status is RunStatus.PAUSED or bool(run.pending_actions)
    return run.status.terminal or (until == "action" and needs_somebody)


@dataclass(slots=True)
class _Stay:
    """How long somebody stays with a run."""

    run_id: str
    timeout: float | None
    now: Callable[[], float]
    ends: float | None
    status: RunStatus | None = None
    """The last one seen."""

    def rest(self, seconds: float) -> Flow[None]:
        """Do nothing for so long, or until the time is up. Raises `WaitTimeout` when it was up before."""
        if self.ends is not None and self.timeout is not None:
            if self.now() >= self.ends:
                raise WaitTimeout(self.run_id, self.timeout, self.status)
            seconds = min(seconds, self.ends - self.now())
        yield Sleep(max(seconds, 0.0))


class Waiting(Base):
    """Staying with a run."""

    __slots__ = ()

    def wait(
        self,
        run_id: str,
        timeout: float | None = None,
        *,
        until: Until = "terminal",
        client_tools: ClientTools = (),
    ) -> Flow[Run]:
        """Wait until the run has ended, in whichever way, and return it.

        With ``until="action"`` it also returns once it is paused or waits for what nobody here answers: that is in
        its ``pending_actions``. Calls of functions in ``client_tools`` are answered here: those of a turn are made
        at the same time, each output is sent when it is there, and what a function raises is told to the model.

        ``timeout`` is in seconds; None waits as long as it takes, 0 looks once. Until then it keeps trying
        over 429, 5xx and network errors. A server that does not answer at all may cost a second more, and a
        function that was called is not left before it returns.

        Raises:
            WaitTimeout: it did not come so far in time; it goes on.
            NotFound: there is no such run.
            APIError: any other 4xx.
            ValueError, ConfigurationError: something in ``client_tools`` cannot be a tool.
        """
        return self._stay(run_id, None, timeout, until, Offer.of(client_tools))

    def _stay(self, run_id: str, seen: Run | None, timeout: float | None, until: Until, offer: Offer) -> Flow[Run]:
        """As `wait`; ``seen`` is the run as it was a moment ago, if somebody has looked."""
        ends = None if timeout is None else self.now() + timeout
        stay = _Stay(run_id, timeout, self.now, ends, seen.status if seen else None)
        watched: Until = "action" if offer.functions else until
        made: set[str] = set()
        failures = idle = 0
        run = seen
        while True:
            calls = [] if run is None else [call for call in offer.calls(run) if call.action.id not in made]
            if calls:
                made.update(call.action.id for call in calls)
                yield from self._answer_calls(calls, stay)
            elif run is not None and reached(run, until):
                return run
            begun = self.now()
            left = float(LONG_POLL) if stay.ends is None else max(stay.ends - begun, 0.0)
            poll = int(min(left, LONG_POLL))
            patient = self.timeout if stay.ends is None else min(self.timeout, max(left - poll, 1.0))
            request = requests.get_run(run_id, poll, watched)
            answer: Response | Lost = yield Send(request, poll + patient)
            if isinstance(answer, Response) and answer.ok:
                run = answers.run_of(answer)
                stay.status, failures = run.status, 0
                if reached(run, until) or any(call.action.id not in made for call in offer.calls(run)):
                    continue
                # Before its time and not far enough: the run needs somebody else, or the server does not wait.
                idle = idle + 1 if self.now() - begun < poll / 2 or poll == 0 else 0
                yield from stay.rest(min(0.1 * 2.0**idle, 2.0) if idle else 0.0)
            else:
                run, failures = None, failures + 1
                yield from stay.rest(self._borne(request, answer, failures))

    def _answer_calls(self, calls: Sequence[FunctionCall], stay: _Stay) -> Flow[None]:
        for call in calls:
            yield Begin(call)
        for _ in calls:
            finished: Finished = yield Finish()
            yield from self._deliver(*finished, stay)

    def _deliver(self, call: FunctionCall, output: ToolOutput, stay: _Stay) -> Flow[None]:
        """Send an output, for as long as the run is waited for: the function is not to be called again for it."""
        request = controls.send_input(stay.run_id, [output], uuid.uuid4().hex)
        failures = 0
        while True:
            answer: Response | Lost = yield Send(request, self.timeout)
            if isinstance(answer, Response) and answer.ok:
                return
            failures += 1
            try:
                pause = self._borne(request, answer, failures)
            except Conflict as conflict:
                if conflict.code in _TOO_LATE:
                    return
                raise
            except Unprocessable as error:
                if output.is_error:
                    raise
                output = call.refused(str(error))
                request = controls.send_input(stay.run_id, [output], uuid.uuid4().hex)
                pause = 0.0
            yield from stay.rest(pause)

    def _borne(self, request: Request, answer: Response | Lost, failures: int) -> float:
        """Seconds until it is tried again. Raises the error that the answer means if that would not help."""
        error: ClientError = patience.failure(self.url, request, answer)
        if not patience.passing(error):
            raise error
        return patience.capped(failures, error)
