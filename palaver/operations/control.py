"""Control of an existing run: cancel, send input, delete."""

from __future__ import annotations

from collections.abc import Sequence

from palaver.errors import StateConflict
from palaver.late import dataclass
from palaver.operations.admission import admit_items, refuse_other_agents
from palaver.operations.backend import Backend, Caller, durable_reply, within_deadline
from palaver.operations.below import answered_below
from palaver.operations.scopes import require_scope
from palaver.operations.submitting import explained
from palaver.processes.failpoints import failpoint
from palaver.schemas.actions import ApprovalDecision, Item, Steering
from palaver.schemas.models import CancelMode, Run
from palaver.store.scripting.contracts.replies import RefusalCode


@dataclass(frozen=True, slots=True)
class InputOutcome:
    """The run after an input."""

    run: Run
    replayed: bool
    """An earlier request with the same key had the effect."""


async def cancel(
    backend: Backend, run_id: str, caller: Caller, *, mode: CancelMode = "now", reason: str | None = None
) -> Run:
    """Ask a run to stop: it ends as cancelled, whatever its worker brings later. Asking again changes nothing.

    Raises:
        Refused: the caller's key is for other agents.
        UnknownRun: there is no such run (any more).
        StateConflict: it has ended otherwise.
        NotDurable, StoreUnavailable: it may not be cancelled safely.
    """
    runs = backend.store.runs
    await _check_agent(backend, run_id, caller)
    settled, unsafe = await durable_reply(
        runs.cancel(run_id, mode=mode, reason=reason, by=caller.identity, acked_ms=caller.waited_ms)
    )
    failpoint("run.cancelled")
    await backend.follow_up(settled)
    if unsafe:
        raise unsafe
    return await within_deadline(runs.get(run_id))


async def act(
    backend: Backend, run_id: str, items: Sequence[Item], caller: Caller, *, key: str | None = None
) -> InputOutcome:
    """Send approvals, outputs of client tools, steering, pause and resume to a run: all take effect, or none.

    Answers of calls that wait below the run go to the run whose calls these are.

    Raises:
        InsufficientScope: the caller's key is not for one of them.
        Refused: everything that is wrong with them.
        UnknownRun, StateConflict: there is no such run, or it waits for nothing of that.
        IdempotencyMismatch, NoRoom, NotDurable, StoreUnavailable: they were not taken, or not safely.
    """
    for item in items:
        require_scope(caller, "actions:approve" if isinstance(item, ApprovalDecision) else "runs:act")
    if any(isinstance(item, Steering) for item in items):
        await within_deadline(backend.store.capacity.admit())
    await admit_items(run_id, items, backend, caller)
    try:
        acted, unsafe = await durable_reply(
            backend.store.control.act(run_id, items, by=caller.identity, idempotency_key=key)
        )
    except StateConflict as conflict:
        below = await answered_below(backend, run_id, items) if conflict.code == RefusalCode.UNKNOWN_ACTION else None
        if below is None:
            raise await explained(conflict, backend) from None
        # The record of the key itself is this run's.
        answered = await act(backend, below, items, caller, key=key and f"{key} {below}")
        return InputOutcome(await within_deadline(backend.store.runs.get(run_id)), answered.replayed)
    failpoint("run.acted")
    await backend.follow_up(acted.settled)
    if unsafe:
        raise unsafe
    return InputOutcome(await within_deadline(backend.store.runs.get(run_id)), acted.replayed)


async def hand_over(backend: Backend, run: Run, caller: Caller) -> None:
    """End a run that waits for outputs of its client alone, as the client takes its calls over. One that has ended, or
    whose calls were answered meanwhile, stays as it is.

    Raises:
        UnknownRun: there is no such run (any more).
        NotDurable, StoreUnavailable: it was not done, or not safely.
    """
    calls = [action.call_id for action in run.pending_actions]
    try:
        acted, unsafe = await durable_reply(backend.store.control.hand_over(run.id, calls, by=caller.identity))
    except StateConflict:
        return
    await backend.follow_up(acted.settled)
    if unsafe:
        raise unsafe


async def delete_run(backend: Backend, run_id: str, caller: Caller) -> None:
    """Delete a run that has ended, with its events and its messages.

    Raises:
        Refused: the caller's key is for other agents.
        UnknownRun, StateConflict: there is no such run, or it has not ended.
        NotDurable, StoreUnavailable: it may be there still.
    """
    await _check_agent(backend, run_id, caller)
    await within_deadline(backend.store.control.delete_run(run_id))


async def _check_agent(backend: Backend, run_id: str, caller: Caller) -> None:
    if caller.agents is not None:
        refuse_other_agents((await within_deadline(backend.store.runs.get(run_id))).agent, caller)
