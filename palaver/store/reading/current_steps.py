"""The open steps of a run, from their records in Redis, as people see them."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any, Final

import orjson

from palaver.schemas.current_steps import MOST_SHOWN, CurrentStep, StepFailure, StepProgress
from palaver.schemas.models import Run
from palaver.store.reading.records import instant, moment
from palaver.store.redis.connection import Fields
from palaver.vocabulary.lifecycle import StepState
from palaver.vocabulary.step_kinds import kind_of_step

_ORDER: Final = (StepState.LEASED, StepState.READY, StepState.LATER, StepState.AWAITING, StepState.PARKED)
"""The order of the steps in the answer, with work in progress first: among many steps that is what people look for."""


def show_steps(run: Run, steps: Fields, progress: bytes | None) -> None:
    """Put the open ``steps`` on the run, with the progress of the model's answer that its worker reported."""
    all_steps = [(name.decode(), orjson.loads(record)) for name, record in steps.items()]
    shown = [(name, record) for name, record in all_steps if record["state"] in _ORDER]
    shown.sort(key=lambda item: (_ORDER.index(item[1]["state"]), item[1].get("since", 0), item[0]))
    run.current_step_count = len(shown)
    run.current_steps = tuple(_step(name, record, run.model, progress) for name, record in shown[:MOST_SHOWN])


def _step(name: str, record: Mapping[str, Any], model: str, progress: bytes | None) -> CurrentStep:
    state, losses = StepState(record["state"]), int(record["losses"])
    leased = state is StepState.LEASED
    kind, failed = kind_of_step(record["queue"], name), record.get("failed") or {}
    reported, ends = _reported(progress, record) if leased and kind.asks_model else (None, None)
    attempts = failed.get("attempts")
    return CurrentStep(
        step=name,
        kind=kind.name,
        queue=record["queue"],
        name=model if kind.asks_model else record.get("tool") or orjson.loads(record["call"])["name"],
        state=state,
        since=moment(record.get("since")),
        attempt=int(record["attempt"]) + losses,
        max_attempts=None if attempts is None else int(attempts) + losses + int(record.get("base", 0)),
        worker=record["worker"] if leased else None,
        progress=reported,
        last_failure=_failure(failed),
        gives_up_at=ends or _end(state, record),
        again_at=moment(record.get("until")) if state is StepState.LATER else None,
    )


def _reported(progress: bytes | None, record: Mapping[str, Any]) -> tuple[StepProgress | None, datetime | None]:
    """Return the progress that the worker of the step reported of its answer, and when it will give the attempt up."""
    fence, received, characters, at, ends = (progress or b"0 0 0 0 0").split()
    if int(fence) != int(record["fence"]):
        return None, None
    return StepProgress(at=instant(at), bytes=int(received), characters=int(characters)), instant(ends)


def _end(state: StepState, record: Mapping[str, Any]) -> datetime | None:
    if state is StepState.LEASED and "limit_ms" in record and "since" in record:
        return instant(record["since"] + record["limit_ms"])
    return moment(record.get("until")) if state is StepState.AWAITING else None


def _failure(failed: Mapping[str, Any]) -> StepFailure | None:
    if not failed:
        return None
    return StepFailure(
        error_class=failed["class"], code=failed["code"], message=failed["message"], at=instant(failed["at"])
    )
