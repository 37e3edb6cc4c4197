"""Answers of calls that wait below a run: which run they are for."""

from __future__ import annotations

from collections.abc import Sequence

from palaver.errors import Refused
from palaver.operations.backend import Backend, within_deadline
from palaver.schemas.actions import ApprovalDecision, Item, QuestionAnswer, ToolOutput


async def answered_below(backend: Backend, run_id: str, items: Sequence[Item]) -> str | None:
    """Return the id of the run below ``run_id`` whose calls these items answer; None if they answer none below it.

    Raises:
        Refused: they are about several runs, which cannot be changed together; or it cannot be told which.
        StoreUnavailable: it was not known in time.
    """
    names = [_answered(item) for item in items]
    asked = dict.fromkeys(name for name in names if name is not None)
    owners = await within_deadline(backend.store.children.owners_of_actions(run_id, asked))
    if not owners:
        return None
    for index, name in enumerate(names):
        if name is not None and owners.get(name) == "":
            why = "is the id of calls of several runs: name the action, by its id"
            raise Refused.at(f"/items/{index}", why)
    whose = [owners.get(name, run_id) if name is not None else run_id for name in names]
    for index, each in enumerate(whose):
        if each != whose[0]:
            why = f"is for {each}, and the first one for {whose[0]}: send what is for each run by itself"
            raise Refused.at(f"/items/{index}", why)
    return whose[0]


def _answered(item: Item) -> str | None:
    match item:
        case ApprovalDecision() | QuestionAnswer():
            return item.action_id
        case ToolOutput():
            return item.call_id
    return None
