"""Whether the process lives, and whether it can serve."""

from __future__ import annotations

from typing import Literal

from fastapi import APIRouter, Request, Response
from pydantic import BaseModel

from api.answers import answer
from api.backend import backend, prompt
from api.openapi import operation
from api.problems import unavailable

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
    openapi_extra=operation(answers={200: ("It can: Redis answers.", Health)}, secured=False),
)
async def readyz(request: Request) -> Response:
    """503 while Redis is away, and once the process was told to end: send requests elsewhere."""
    here = backend(request)
    if here.closing.is_set():
        raise unavailable()
    await prompt(here.store.ping())
    return answer(Health())
