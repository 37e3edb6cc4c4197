"""What a request meets in the store: runs in its way, told with what they wait for, and runs that are gone."""

from __future__ import annotations

from api.backend import Backend, prompt
from api.problems import Problem
from palaver.errors import StateConflict, UnknownRun
from palaver.models import Run
from palaver.store.runs import Submitted


async def conflict_problem(conflict: StateConflict, here: Backend) -> Problem:
    """The problem that a conflict is, with the pending actions of the run that stands in the way."""
    if conflict.run_id is None:
        return Problem.of_conflict(conflict)
    try:
        run = await prompt(here.store.runs.get(conflict.run_id))
    except UnknownRun:
        return Problem.of_conflict(conflict)
    return Problem.of_conflict(conflict, run.pending_actions)


async def run_of(made: Submitted, here: Backend) -> Run:
    """The run that a submission or a retry made.

    Raises:
        Problem: ``run_not_found``, an earlier request with the same key made it, and it was deleted since.
    """
    try:
        return await prompt(here.store.runs.get(made.run_id))
    except UnknownRun:
        raise Problem("run_not_found", "The run of this Idempotency-Key was deleted: use a new key.") from None
