"""The main process of a tools worker in place of a child process that cannot: it renews the child's lease, answers its
call, and ends the lease of a dead child.

Each is safe at any time: the fence, which the child has reported before its tool began, is refused if it is not the
newest. They are rare, so each opens a connection of its own.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Mapping

from celery.worker.state import active_requests

from palaver.config.settings import settings
from palaver.delivery.publishing import LoopPublisher, follow_up
from palaver.errors import Failure, StaleLease
from palaver.late import dataclass
from palaver.schemas.models import AgentSpec, ToolCall
from palaver.steps.leases import Lease, LogTail, Renewal, Settled
from palaver.steps.verdicts import Continue, ToolOutcome
from palaver.store import Store
from palaver.store.steps.due_items import DueItem
from palaver.vocabulary.ids import call_of
from palaver.vocabulary.step_kinds import TOOL

from .slots import ActiveCall

log = logging.getLogger("palaver.workers.children.child_leases")

_PATIENCE = 1.0
"""Seconds for Redis to answer; everything else of the main process waits meanwhile."""


@dataclass(frozen=True, slots=True)
class Ending:
    """Why a child was ended."""

    call: ActiveCall
    failure: Failure
    """The failure for the model."""


def renew(calls: Mapping[int, ActiveCall]) -> set[int]:
    """Renew the leases of these children, by process id; those whose call is not awaited any more."""
    args = {request.worker_pid: request.args for request in tuple(active_requests)}
    leases = {pid: _lease(args[pid][0], args[pid][1], args[pid][2], call) for pid, call in calls.items() if pid in args}
    try:
        answers = asyncio.run(_renew(list(leases.values())))
    except Exception as away:
        log.warning("leases of children that do not answer are not renewed: %s", type(away).__name__)
        return set()
    return {pid for pid, answer in zip(leases, answers, strict=True) if answer in (Renewal.GONE, Renewal.CANCELLING)}


async def _renew(leases: list[Lease]) -> list[Renewal | None]:
    async with asyncio.timeout(_PATIENCE), Store.connect(settings()) as store:
        return await store.steps.renew(leases)


async def end_lease(run_id: str, conversation_id: str, step: str, worker: str, ending: Ending | None) -> None:
    """Say why the child was ended, if it was; else act on the step now, as a sweeper would when the lease had run
    out."""
    async with Store.connect(settings(), send=True) as store:
        settled: list[Settled] = []
        if ending is not None:
            lease = _lease(run_id, conversation_id, step, ending.call)
            outcome = ToolOutcome.failed(lease.answers, ending.failure)
            with contextlib.suppress(StaleLease):
                settled = [await store.steps.settle(lease, Continue(outcomes=(outcome,)))]
        settled += await store.due.sweep([DueItem(run_id, step)], worker=worker)
        publisher = LoopPublisher(settings().deliveries_url)
        try:
            await follow_up(store, publisher.publish_soon, settled)
        finally:
            await publisher.close()


def _lease(run_id: str, conversation_id: str, step: str, call: ActiveCall) -> Lease:
    """As much of the child's lease as is known here: enough to renew it, and to answer its call."""
    return Lease(
        run_id=run_id,
        conversation_id=conversation_id,
        kind=TOOL,
        step=step,
        fence=call.fence,
        attempt=call.try_number,
        try_number=call.try_number,
        elapsed=0.0,
        time_left=0.0,
        agent=AgentSpec.model_construct(model=""),
        call=ToolCall(id=call_of(step) or "", name=call.tool, arguments="{}"),
        log=LogTail(),
    )
