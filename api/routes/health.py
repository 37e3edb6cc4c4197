"""Whether the process lives, and whether it can serve."""

from __future__ import annotations

from typing import Literal

from fastapi import APIRouter, Request, Response
from pydantic import BaseModel

from api.answers import answer
from api.backend import backend, prompt
from api.edge import caller_of
from api.openapi import operation
from api.problems import RETRY_AFTER, Problem
from palaver.errors import ErrorClass, classify

router = APIRouter(tags=["operations"])


class Health(BaseModel):
    """Well."""

    status: Literal["ok"] = "ok"


@router.get(
    "/healthz",
    summary="Is the process alive?",
    openapi_extra=operation(answers={200: ("It is.", Health)}, secured=False),
)
async def healthz(request: Request) -> Response:
    """Says nothing about Redis: restarting this process would not bring that back."""
    return answer(Health())


@router.get(
    "/readyz",
    summary="Can it serve?",
    openapi_extra=operation(answers={200: ("It can: Redis answers.", Health)}, problems=("not_ready",), secured=False),
)
async def readyz(request: Request) -> Response:
    """503 while Redis is away, and once the process was told to end: send requests elsewhere. Only who has a key, where
    there are keys, hears why."""
    here = backend(request)
    if here.closing.is_set():
        raise _not_ready(request, "The process was told to end.")
    try:
        await prompt(here.store.ping())
    except Exception as error:
        if not isinstance(error, Problem) and classify(error).error_class is not ErrorClass.STORAGE:
            raise
        raise _not_ready(request, "The store does not answer.") from None
    return answer(Health())


def _not_ready(request: Request, why: str) -> Problem:
    detail = why if caller_of(request).trusted else None
    return Problem("not_ready", detail, headers={"Retry-After": str(RETRY_AFTER)})
