"""Answers to a run that may come twice, late, or from two places at once: for clients that send all of theirs again."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from typing import Final

import orjson

from palaver.errors import StateConflict
from palaver.schemas.actions import Item
from palaver.schemas.models import Run

from .backend import Backend, Caller
from .control import act
from .waiting import read_run

_TRIES: Final = 3
_SETTLED: Final = frozenset(
    {"action_already_resolved", "action_expired", "unknown_action", "no_pending_action", "run_ended"}
)
"""Conflicts that mean that somebody, or the time, has settled an action since it was looked at."""


async def answer_run(backend: Backend, run_id: str, answers: Mapping[str, Item], caller: Caller) -> Run:
    """Answer the actions that a run waits for, and leave out the rest: ``answers`` are by the id of the action or of
    its call. What was settled before, by these answers or by others, stays as it is; the run's events say how.

    Raises:
        InsufficientScope: the caller's key is not for one of them.
        Refused: everything that is wrong with them.
        UnknownRun, StateConflict: there is no such run, or an answer is none to its action.
        NoRoom, NotDurable, StoreUnavailable: they were not taken, or not safely.
    """
    for tries in range(1, _TRIES + 1):
        run = await read_run(backend, run_id)
        items = pending_answers(run, answers)
        if not items:
            return run
        try:
            return (await act(backend, run_id, items, caller, key=_key_of(run_id, items, caller))).run
        except StateConflict as conflict:
            if conflict.code not in _SETTLED or tries == _TRIES:
                raise
    raise AssertionError


def pending_answers(run: Run, answers: Mapping[str, Item]) -> Sequence[Item]:
    """Return those of the answers that the run waits for, in the order of its actions."""
    found = (answers.get(action.id) or answers.get(action.call_id) for action in run.pending_actions)
    return [item for item in found if item is not None]


def _key_of(run_id: str, items: Sequence[Item], caller: Caller) -> str:
    """Return the key under which the same answers again change nothing."""
    said = orjson.dumps([run_id, caller.name, *(item.model_dump(mode="json") for item in items)])
    return f"answer:{hashlib.sha256(said).hexdigest()}"
