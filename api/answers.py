"""Answers in JSON."""

from __future__ import annotations

from collections.abc import Mapping

from pydantic import BaseModel
from starlette.responses import Response

from api.headers import JSON


def answer(model: BaseModel, status: int = 200, headers: Mapping[str, str] | None = None) -> Response:
    """``model`` as JSON, nulls included."""
    return Response(
        model.model_dump_json(by_alias=True).encode(),
        status,
        {"Cache-Control": "no-store", **(headers or {})},
        media_type=JSON,
    )
