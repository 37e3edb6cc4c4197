"""The caller itself."""

from __future__ import annotations

from starlette.responses import Response

from palaver import operations
from palaver.operations import Backend, Caller
from palaver.schemas.callers import CallerInfo
from palaver.vocabulary.scopes import SCOPES

from ..http.answers import answer
from .dialect import NATIVE


@NATIVE.route(
    "GET",
    "/v1/caller",
    scope=SCOPES,
    keeps_to=True,
    tag="operations",
    summary="Read what your key opens",
    answers={200: ("The bearer of the key or token that asks.", CallerInfo)},
)
async def read_caller(backend: Backend, caller: Caller) -> Response:
    """With a key or a token of any scope. A page knows by it what it may offer; what a request may do, the API decides
    each time."""
    return answer(await operations.read_caller(backend, caller))
