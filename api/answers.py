"""Answers in JSON."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from pydantic import BaseModel
from starlette.responses import Response

from api.headers import JSON
from api.native.links import run_json
from palaver.limits import beyond, most
from palaver.models import Run

POLL: Final[Mapping[str, str]] = {"Retry-After": "1"}
"""Seconds after which looking again may show something new."""
REPLAYED: Final[Mapping[str, str]] = {"Idempotency-Replayed": "true"}
"""An earlier request with the same key had the effect; this one had none."""


def is_full(size: int) -> bool:
    """Whether a page that has so many bytes already ends here."""
    if size <= most("answer_bytes"):
        return False
    beyond("answer_bytes")
    return True


def answer(model: BaseModel, status: int = 200, headers: Mapping[str, str] | None = None) -> Response:
    """``model`` as JSON, nulls included."""
    return answer_json(model.model_dump_json(by_alias=True).encode(), status, headers)


def answer_json(body: bytes, status: int = 200, headers: Mapping[str, str] | None = None) -> Response:
    """JSON that is written already."""
    return Response(body, status, {"Cache-Control": "no-store", **(headers or {})}, media_type=JSON)


def answer_run(run: Run, status: int = 200, headers: Mapping[str, str] | None = None) -> Response:
    """A run; with 202, looking again may show something new."""
    return answer_json(run_json(run), status, {**(headers or {}), **POLL} if status == 202 else headers)


def answer_asked(run: Run, headers: Mapping[str, str] | None = None) -> Response:
    """The run that something was asked of: 200 if it has ended by that, 202 if it goes on."""
    return answer_run(run, 200 if run.status.terminal else 202, headers)
