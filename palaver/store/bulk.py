"""The same to many runs: their scripts are sent together, and the server does them in that order."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import TypeAlias, TypeVar

from palaver.errors import NoRoom, StateConflict, UnknownConversation, UnknownRun
from palaver.leases import Settled
from palaver.models import CancelMode, Retry, Run
from palaver.store.control import again_of
from palaver.store.runs import IdempotencyKey, Runs, Submitted, cancelled, taken_on, to_cancel
from palaver.store.scripts import Scripts

T = TypeVar("T")
Hindrance: TypeAlias = StateConflict | NoRoom | UnknownRun
"""Why it was not done to a run."""


class BulkControl:
    """What clients do with many runs at once. Each of them is done, or not, by itself."""

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
    ) -> Sequence[Settled | Hindrance]:
        """Acknowledge a cancel of each, in order: for the runs of one conversation that should be from the last one to
        the first, so that none gets its turn because that before it ends.

        Raises:
            NotDurable: acknowledged, but not as safely as PALAVER_DURABILITY asks; again, it may be.
        """
        replies = await self._scripts.promise_all(
            to_cancel(run.id, run.conversation_id, mode=mode, reason=reason, by=by, acked_ms=acked_ms) for run in runs
        )
        return [
            _either(partial(cancelled, run.id, run.conversation_id, reply))
            for run, reply in zip(runs, replies, strict=True)
        ]

    async def retry(self, runs: Sequence[Run], *, by: str | None = None) -> Sequence[Submitted | Hindrance]:
        """Go on with each where it stopped, as `RunControl.retry`; their statuses must allow it.

        Raises:
            NotDurable: gone on with, but not as safely as PALAVER_DURABILITY asks.
        """
        submits = [
            await self._runs.to_submit(
                again_of(run, Retry()), run.conversation_id, "retry", IdempotencyKey(), by=by, retried_from=run.id
            )
            for run in runs
        ]
        replies = await self._scripts.promise_all(submits)
        return [_either(partial(taken_on, submit, reply)) for submit, reply in zip(submits, replies, strict=True)]


def _either(read: Callable[[], T]) -> T | Hindrance:
    try:
        return read()
    except (StateConflict, NoRoom, UnknownRun) as hindrance:
        return hindrance
    except UnknownConversation as gone:
        return UnknownRun(str(gone))
