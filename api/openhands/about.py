"""What the server is, and whether it works."""

from __future__ import annotations

from starlette.responses import Response

from .. import operations
from ..answers import answer
from ..operations import Backend
from .answers import OpenHandsHealth, OpenHandsServerInfo
from .dialect import OPENHANDS


@OPENHANDS.route(
    "GET",
    "/openhands/server_info",
    tag="openhands",
    summary="Ask what the server is",
    answers={200: ("Its name and version.", OpenHandsServerInfo)},
    probe=True,
)
async def server_info() -> Response:
    """Wants no key. The version is Palaver's."""
    return answer(OpenHandsServerInfo())


@OPENHANDS.route(
    "GET",
    "/openhands/health",
    tag="openhands",
    summary="Is it there?",
    answers={200: ("It is.", OpenHandsHealth)},
    probe=True,
)
async def health() -> Response:
    """Wants no key, as clients send none here."""
    return answer(OpenHandsHealth())


@OPENHANDS.route(
    "GET",
    "/openhands/alive",
    tag="openhands",
    summary="Does it live?",
    answers={200: ("Yes.", OpenHandsHealth)},
    probe=True,
)
async def alive() -> Response:
    """Wants no key."""
    return answer(OpenHandsHealth())


@OPENHANDS.route(
    "GET",
    "/openhands/ready",
    tag="openhands",
    summary="Can it serve?",
    answers={200: ("It can: Redis answers.", OpenHandsHealth)},
    problems=("unavailable",),
    probe=True,
)
async def ready(backend: Backend) -> Response:
    """Wants no key."""
    await operations.check_store(backend)
    return answer(OpenHandsHealth())
