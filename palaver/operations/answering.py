"""Answers to a run that may come twice, late, or from two places at once: for clients that send all of theirs again."""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Mapping, Sequence
from typing import Final

import orjson

from palaver.errors import StateConflict
from palaver.operations.backend import Backend, Caller
from palaver.operations.control import act
from palaver.operations.waiting import read_run
from palaver.schemas.actions import Item, ToolOutput
from palaver.schemas.models import Run

_TRIES: Final = 3
_SETTLED: Final = frozenset(
    {"action_already_resolved", "action_expired", "unknown_action", "no_pending_action", "run_ended"}
)
"""Conflicts that mean that an action was settled, or expired, since it was looked at."""


async def answer_run(backend: Backend, run_id: str, answers: Mapping[str, Item], caller: Caller) -> Run:
    """Answer the actions that a run waits for, and leave out the rest: ``answers`` are by the id of the action or of
    its call. What was settled before, by these answers or by others, stays as it is; the run's events say how.

    Raises:
        InsufficientScope: the caller's key is not for one of them.
        Refused: everything that is wrong with them.
        UnknownRun, StateConflict: there is no such run, or an answer is none to its action.
        NoRoom, NotDurable, StoreUnavailable: they were not taken, or not safely.
    """
    conflicts = 0
    while True:
        run = await read_run(backend, run_id)
        items = pending_answers(run, answers)
        if not items:
            return run
        try:
            acted = await act(backend, run_id, items, caller, key=_key_of(run_id, items, caller))
            run = acted.run
            if acted.replayed or not pending_answers(run, answers):
                return run
        except StateConflict as conflict:
            conflicts += 1
            if conflict.code not in _SETTLED or conflicts == _TRIES:
                raise


def pending_answers(run: Run, answers: Mapping[str, Item]) -> Sequence[Item]:
    """Return those of the answers that the run waits for, in the order of its actions; then those that one of the runs
    below it waits for, which are known by the ids of actions alone."""
    found = [(action.id, answers.get(action.id) or answers.get(action.call_id)) for action in run.pending_actions]
    if own := [_addressed(item, action_id) for action_id, item in found if item is not None]:
        return own
    below = [action for action in run.pending_below if action.id in answers]
    return [answers[action.id] for action in below if action.run_id == below[0].run_id]


def answered_actions(run: Run, answers: Collection[str]) -> frozenset[str]:
    """Return the ids of those pending actions that these ids of actions and calls mean. If nothing of it is pending,
    the ids themselves: a call's id may come again in the run, so it is no name for an action that can be had."""
    own = [action.id for action in run.pending_actions if not {action.id, action.call_id}.isdisjoint(answers)]
    below = [action.id for action in run.pending_below if action.id in answers]
    return frozenset((*own, *below) or answers)


def _addressed(item: Item, action_id: str) -> Item:
    """Return the item with the id of its action: providers give the ids of calls again, and what has an effect once
    would have none on the second call."""
    return item.model_copy(update={"call_id": action_id}) if isinstance(item, ToolOutput) else item


def _key_of(run_id: str, items: Sequence[Item], caller: Caller) -> str:
    """Return the key under which the same answers again change nothing."""
    said = orjson.dumps([run_id, caller.identity, *(item.model_dump(mode="json") for item in items)])
    return f"answer:{hashlib.sha256(said).hexdigest()}"
