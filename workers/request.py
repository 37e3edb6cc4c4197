"""How the tools worker's main process learns that a child died, and tells the store at once."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from typing import Any

from billiard.einfo import ExceptionWithTraceback
from billiard.exceptions import WorkerLostError
from celery.worker.request import Request

from palaver.deliveries import Publisher
from palaver.errors import StaleLease
from palaver.leases import Lease, Settled
from palaver.models import AgentSpec, ToolCall
from palaver.settings import settings
from palaver.store import Store
from palaver.store.due import Attention
from palaver.verdicts import Continue, ToolOutcome
from workers.guard import Ending
from workers.prefork import why_ended
from workers.runtime import worker_id

log = logging.getLogger(__name__)


class StepRequest(Request):  # type: ignore[misc]  # Celery is untyped
    """A delivery in a prefork worker. Without this, a dead child's lease would have to run out first."""

    def on_failure(self, exc_info: Any, send_failed_event: bool = True, return_ok: bool = False) -> Any:
        """Celery's own handling; and if the child is gone, its lease ends now."""
        result = super().on_failure(exc_info, send_failed_event=send_failed_event, return_ok=return_ok)
        error = exc_info.exception
        if isinstance(error, ExceptionWithTraceback):
            error = error.exc
        if isinstance(error, WorkerLostError) and self.worker_pid:
            run_id, conversation_id, step = self.args[:3]
            ending, worker = why_ended(self.worker_pid), worker_id(self.hostname, self.worker_pid)
            try:
                asyncio.run(_end_lease(run_id, conversation_id, step, worker, ending))
            except Exception as away:
                log.warning("lease of %s/%s runs out by itself: %s", run_id, step, type(away).__name__)
        return result


async def _end_lease(run_id: str, conversation_id: str, step: str, worker: str, ending: Ending | None) -> None:
    """Say why the child was ended, if it was; else act on the step now, as a sweeper would when the lease had run out.
    Safe to do at any time."""
    async with Store.connect(settings()) as store:
        settled: list[Settled] = []
        if ending is not None:
            with contextlib.suppress(StaleLease):
                settled = [await _answer(store, run_id, conversation_id, step, ending)]
        due = [Attention(each.upcoming, "start") for each in settled if each.upcoming]
        settled += await store.due.attend([Attention(run_id, step), *due], worker=worker)
    publisher = Publisher(settings().deliveries_url)
    publisher.publish([delivery for each in settled for delivery in each.deliveries])
    publisher.close()


async def _answer(store: Store, run_id: str, conversation_id: str, step: str, ending: Ending) -> Settled:
    """Settle the call in the dead child's name. Its fence came from the child: a wrong one is refused.

    Raises:
        StaleLease: the child has settled it, or has lost it.
    """
    call = ToolCall(id=step.partition("/")[2], name=ending.call.tool, arguments="{}")
    lease = Lease(
        run_id=run_id,
        conversation_id=conversation_id,
        step=step,
        fence=ending.call.fence,
        attempt=ending.call.try_number,
        try_number=ending.call.try_number,
        elapsed=0.0,
        time_left=0.0,
        agent=AgentSpec.model_construct(model=""),
        falls_back=False,
        call=call,
        position=0,
        entries=(),
    )
    return await store.steps.settle(lease, Continue(outcomes=(ToolOutcome.failed(call, ending.failure),)))
