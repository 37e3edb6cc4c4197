"""The health of the process: it lives, and it can serve."""

from __future__ import annotations

from typing import Literal

from pydantic import Field
from starlette.responses import Response

from palaver import operations
from palaver.errors import ErrorClass, classify
from palaver.operations import Backend, Caller, LackedState, LostState, RefusedWorker
from palaver.schemas.archive import ArchiveState
from palaver.schemas.fields import DataModel, is_none

from ..http.answers import answer
from ..http.problems import RETRY_AFTER, Problem, storage_sentence
from .dialect import NATIVE


class Health(DataModel):
    """Well."""

    status: Literal["ok"] = "ok"


class Readiness(DataModel):
    """It can serve."""

    status: Literal["ok", "store_rewound"] = "ok"
    """`store_rewound` for a day after the store lost something, as after a restart of Redis without its last writes. It
    keeps no request away."""
    store_rewound: LostState | None = None
    """The last loss of the store, as far as counts tell. Null for strangers, and for tenants."""
    no_worker: list[LackedState] | None = None
    """The things that steps wait for because no worker that took them has them. They keep no request away. Null for
    strangers, and for tenants."""
    refused_workers: list[RefusedWorker] | None = None
    """Workers that do nothing, because their broker or their store refuses them. Null for strangers, and for
    tenants."""
    archive: ArchiveState | None = Field(default=None, exclude_if=is_none)
    """The archive, which keeps no request away that does without it. Absent where there is none, for strangers, and for
    tenants."""


@NATIVE.route(
    "GET",
    "/healthz",
    scope=None,
    tag="operations",
    summary="Is the process alive?",
    answers={200: ("It is.", Health)},
)
async def healthz() -> Response:
    """Says nothing about Redis: restarting this process would not bring that back."""
    return answer(Health())


@NATIVE.route(
    "GET",
    "/readyz",
    scope=None,
    tag="operations",
    summary="Can it serve?",
    answers={200: ("It can: Redis answers, and takes writes.", Readiness)},
    problems=("not_ready",),
)
async def readyz(backend: Backend, caller: Caller) -> Response:
    """503 while Redis is away or takes no writes, and once the process has to end: send requests elsewhere. Only a key
    that is not of a tenant, where there are keys, is told which things steps wait for that no worker has."""
    if backend.closing.is_set():
        raise _not_ready("The process was told to end.")
    try:
        lost = await operations.check_store(backend)
    except Exception as error:
        if classify(error).error_class is not ErrorClass.STORAGE:
            raise
        raise _not_ready(storage_sentence(error)) from None
    lacked: list[LackedState] | None = None
    refused: list[RefusedWorker] | None = None
    archive: ArchiveState | None = None
    try:
        lacked = await operations.read_lacked(backend) if caller.sees_installation else None
        refused = await operations.read_refused(backend) if caller.sees_installation else None
        archive = await operations.read_archive(backend) if caller.sees_installation else None
    except Exception as error:
        # A part of the store is away, which keeps no caller from the others.
        if classify(error).error_class is not ErrorClass.STORAGE:
            raise
    return answer(
        Readiness(
            status="store_rewound" if lost else "ok",
            store_rewound=lost if caller.sees_installation else None,
            no_worker=lacked,
            refused_workers=refused,
            archive=archive,
        )
    )


def _not_ready(why: str) -> Problem:
    return Problem("not_ready", why, headers={"Retry-After": str(RETRY_AFTER)})
