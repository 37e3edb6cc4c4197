"""The same to many runs: their scripts are sent together, and the server does them in that order."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import TypeVar

from palaver.errors import NotDurable
from palaver.schemas.models import CancelMode, Retry, Run
from palaver.steps.leases import Settled
from palaver.store.runs.control import again_of
from palaver.store.runs.runs import Runs, Submitted, cancelled, taken_on, to_cancel
from palaver.store.scripting.contracts.declaration import Script
from palaver.store.scripting.idempotency import IdempotencyKey
from palaver.store.scripting.moving import outcome
from palaver.store.scripting.scripts import Scripts

R = TypeVar("R")
T = TypeVar("T")


class BulkControl:
    """Requests of clients about many runs at once. Each run succeeds or fails by itself: a failure is, in its place,
    the exception that the same request for that run alone would raise."""

    def __init__(self, scripts: Scripts, runs: Runs) -> None:
        self._scripts = scripts
        self._runs = runs

    async def cancel(
        self,
        runs: Sequence[Run],
        *,
        mode: CancelMode = "now",
        reason: str | None = None,
        by: str | None = None,
        acked_ms: int = 0,
    ) -> Sequence[Settled | Exception]:
        """Acknowledge a cancel of each, in order: for the runs of one conversation that should be from the last one to
        the first, so that none gets its turn because that before it ends.

        Raises:
            NotDurable: acknowledged, but not as safely as PALAVER_DURABILITY asks; again, it may be. Its ``reply`` is
                what would have been answered.
        """
        return await self._done(
            (
                to_cancel(run.id, run.conversation_id, mode=mode, reason=reason, by=by, acked_ms=acked_ms),
                partial(cancelled, run.id),
            )
            for run in runs
        )

    async def retry(
        self, retries: Sequence[tuple[Run, Retry]], *, by: str | None = None
    ) -> Sequence[Submitted | Exception]:
        """Go on with each run where it stopped, as `RunControl.retry`; their statuses must allow it.

        Raises:
            NotDurable: gone on with, but not as safely as PALAVER_DURABILITY asks. Its ``reply`` is what would have
                been answered.
        """
        submits = [
            await self._runs.to_submit(
                again_of(run, retry), run.conversation_id, "retry", IdempotencyKey(), by=by, retried_from=run.id
            )
            for run, retry in retries
        ]
        return await self._done((submit, partial(taken_on, submit)) for submit in submits)

    async def _done(self, pairs: Iterable[tuple[Script[R], Callable[[R], T]]]) -> Sequence[T | Exception]:
        """Return the outcome of each script, as the function beside it reads the reply."""
        pairs = list(pairs)
        replies, durable = await self._scripts.run_all_durably(script for script, _ in pairs)
        outcomes = [outcome(read, reply) for (_, read), reply in zip(pairs, replies, strict=True)]
        if not durable:
            raise NotDurable(outcomes)
        return outcomes
