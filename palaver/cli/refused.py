"""Workers that are there and do nothing, because their Redis refuses them what a step takes."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime
from typing import Any, Final

from palaver.cli.text import one_line
from palaver.client.errors import ClientError
from palaver.schemas.models import Run
from palaver.vocabulary.lifecycle import StepState
from palaver.vocabulary.step_kinds import KINDS

_LONG: Final = 2.0
"""Seconds that a step may wait for a worker before anybody looks why."""


def refused_of(queue: str, worker: Mapping[str, Any]) -> str:
    """Why one of them does nothing, from an entry of ``refused`` of a queue."""
    names = [one_line(name) for name in worker.get("refused") or ()]
    if names == ["login"]:
        what = "its login at Redis is refused: correct the password in its address, or the server's users.acl"
    else:
        what = f"its Redis refuses it {', '.join(names)}: load the users.acl of its version (docs/how-to/upgrade.md)"
    return f"{one_line(queue)}: the worker {one_line(worker.get('id'))} does nothing: {what}"


def refused_lines(run: Run, queues: Callable[[], Mapping[str, Any]]) -> Iterator[str]:
    """A line for each of those that the run's steps might wait for; ``queues`` is asked if a step waits for long."""
    now = datetime.now(UTC)
    kinds = {
        step.kind
        for step in run.current_steps
        if step.state is StepState.READY and step.since and (now - step.since).total_seconds() > _LONG
    }
    if kinds:
        names = {kind.queue for kind in KINDS if kind.name in kinds}
        try:
            found = queues().get("data") or ()
        except ClientError:
            # The run is what was asked for.
            return
        for queue in found:
            for worker in queue.get("refused") or () if queue.get("name") in names else ():
                yield refused_of(str(queue.get("name")), worker)
