"""Answers in JSON, and in other texts: no cache keeps them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from pydantic import BaseModel
from starlette.responses import Response

from .headers import JSON

_KEPT_NOWHERE: Final = {"Cache-Control": "no-store"}


def answer(model: BaseModel, status: int = 200, headers: Mapping[str, str] | None = None) -> Response:
    """Return ``model`` as JSON, nulls included."""
    return answer_json(model.model_dump_json(by_alias=True).encode(), status, headers)


def answer_json(body: bytes, status: int = 200, headers: Mapping[str, str] | None = None) -> Response:
    """Return JSON that is written already."""
    return Response(body, status, {**_KEPT_NOWHERE, **(headers or {})}, media_type=JSON)


def answer_text(body: bytes | str, kind: str, headers: Mapping[str, str] | None = None) -> Response:
    """Return a text of another media type, such as a table."""
    return Response(body, headers={**_KEPT_NOWHERE, **(headers or {})}, media_type=kind)
