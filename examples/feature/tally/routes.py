"""``GET /v1/tally``. PALAVER_TALLY_HIDDEN has statuses that it does not show."""

from __future__ import annotations

from pydantic import Field, Json, RootModel
from starlette.responses import Response

from palaver.api.http.answers import answer
from palaver.api.native.dialect import NATIVE
from palaver.config.environment import FromEnvironment
from palaver.operations import Backend, Caller

from .store import Tallies


class TallySettings(FromEnvironment, prefix="PALAVER_TALLY_"):
    hidden: Json[frozenset[str]] = Field(default=frozenset(), validate_default=False)


class Tally(RootModel[dict[str, int]]):
    """How many runs ended so, by status."""


@NATIVE.route(
    "GET", "/v1/tally", tag="tally", scope="runs:read", summary="Count ends", answers={200: ("The counts.", Tally)}
)
async def read_tally(backend: Backend, caller: Caller) -> Response:
    """Of the tenant of the key."""
    counts = await backend.store.part(Tallies).of(caller.tenant)
    return answer(Tally({name: counts[name] for name in counts if name not in TallySettings().hidden}))
