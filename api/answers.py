"""Answers in JSON."""

from __future__ import annotations

from collections.abc import Mapping

from pydantic import BaseModel
from starlette.responses import Response

from .headers import JSON


def answer(model: BaseModel, status: int = 200, headers: Mapping[str, str] | None = None) -> Response:
    """Return ``model`` as JSON, nulls included."""
    return answer_json(model.model_dump_json(by_alias=True).encode(), status, headers)


def answer_json(body: bytes, status: int = 200, headers: Mapping[str, str] | None = None) -> Response:
    """Return JSON that is written already."""
    return Response(body, status, {"Cache-Control": "no-store", **(headers or {})}, media_type=JSON)
