"""The calls of runs below a run that wait for an action: read where they are, from the runs whose calls they are."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

import orjson

from palaver.schemas.actions import PendingBelow
from palaver.schemas.models import Run
from palaver.store.reading import records
from palaver.store.redis import keys
from palaver.store.redis.connection import Connection
from palaver.vocabulary.limits import count_exceeded, limit_of

_FIELDS: Final = ("actions", "children", "ended_at")
Path = tuple[str, ...]
"""The ids of runs that lead down to one, and its own."""


class _Found(NamedTuple):
    """A run that is shown, and the way from it to one where calls wait."""

    run: Run
    path: Path


async def say_what_waits_below(redis: Connection, runs: Sequence[Run]) -> None:
    """Put on each of the runs the calls that wait below it, the nearest first. Runs without such a child cost nothing.
    Raises what Redis raises."""
    level = [_Found(run, (child,)) for run in runs for child in _waiting_children(run)]
    shown: dict[int, list[PendingBelow]] = {id(found.run): [] for found in level}
    for _ in range(limit_of("subagent_depth")):
        if not level:
            break
        level = await _descend(redis, level, shown)
    for run in runs:
        # At once: another request may be showing this run.
        run.pending_below = tuple(shown.get(id(run), ())[: limit_of("pending_below")])


def _waiting_children(run: Run) -> Iterator[str]:
    if not run.status.terminal:
        yield from [child.run_id for child in run.children if child.pending_actions][: limit_of("pending_below")]


async def _descend(redis: Connection, level: Sequence[_Found], shown: dict[int, list[PendingBelow]]) -> list[_Found]:
    """Add the calls of these runs that wait; return their children where some do."""
    pipeline = redis.pipeline(transaction=False)
    for found in level:
        pipeline.hmget(keys.run(found.path[-1]), _FIELDS)
    below: list[_Found] = []
    # Below each of them something waits: so many fill the places that are left.
    ways: Counter[int] = Counter()
    for found, (actions, children, ended) in zip(level, await pipeline.execute(), strict=True):
        of = id(found.run)
        room = limit_of("pending_below") - len(shown[of])
        if ended is not None or room <= 0:
            continue
        shown[of] += [_pending(action, found.path) for action in _json(actions)[:room]]
        waiting = [child["run_id"] for child in _json(children) if child.get("pending_actions")]
        waiting = waiting[: max(0, room - ways[of])]
        ways[of] += len(waiting)
        below += [_Found(found.run, (*found.path, child)) for child in waiting]
    return below


def _pending(fields: dict[str, Any], path: Path) -> PendingBelow:
    return PendingBelow(**records.action(fields).model_dump(), run_id=path[-1], path=path)


async def owners_of_actions(redis: Connection, run_id: str, names: Collection[str]) -> Mapping[str, str]:
    """Return the ids of the runs below ``run_id`` that have, or had, actions of these ids, or calls of these ids that
    wait; of no more than the first ``runs_below``. An id of a call that several of the nearest wait for is that of
    none: an empty text. Raises what Redis raises."""
    resolved = [f"act:{name}" for name in names]
    owners: dict[str, str] = {}
    had: dict[str, str] = {}
    level, left = [run_id], limit_of("runs_below")
    while level and len({*owners, *had}) < len(names):
        pipeline = redis.pipeline(transaction=False)
        for each in level:
            pipeline.hmget(keys.run(each), ("children", "actions", *resolved))
        below: list[str] = []
        for each, (children, actions, *known) in zip(level, await pipeline.execute(), strict=True):
            waiting = {each_name for action in _json(actions) for each_name in (action["id"], action["call_id"])}
            for name, how in zip(names, known, strict=True):
                if each != run_id and name in waiting:
                    # Ids of actions are of one run; providers give those of calls, and may give one twice.
                    owners[name] = each if name not in owners else ""
                elif each != run_id and how is not None:
                    had.setdefault(name, each)
            below += _those_that_wait_first(_json(children))
        if len(below) > left:
            count_exceeded("runs_below")
        level = below[:left]
        left -= len(level)
    return had | owners


def _those_that_wait_first(children: Sequence[dict[str, Any]]) -> list[str]:
    return [child["run_id"] for child in sorted(children, key=lambda child: not child.get("pending_actions"))]


def _json(text: bytes | None) -> list[dict[str, Any]]:
    return [] if text is None else list(orjson.loads(text))
