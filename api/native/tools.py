"""Tools: what agents may ask for, and which workers have it."""

from __future__ import annotations

from starlette.responses import Response

from palaver import operations
from palaver.operations import Backend, ToolState
from palaver.schemas.fields import DataModel

from ..http.answers import answer
from .dialect import NATIVE


class ToolList(DataModel):
    """Every tool that a worker has, or that the last ones of a queue had, by name."""

    data: list[ToolState]


@NATIVE.route(
    "GET",
    "/v1/tools",
    scope="runs:read",
    tag="operations",
    summary="List the tools",
    answers={200: ("Every tool with its schema, its flags and the workers that have it.", ToolList)},
)
async def tools(backend: Backend) -> Response:
    """Workers tell what they have with each heartbeat; what the last ones of a queue had stays."""
    return answer(ToolList(data=await operations.read_tools(backend)))
