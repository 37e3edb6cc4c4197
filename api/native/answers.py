"""Runs and pages as answers."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final, Literal

import orjson
from pydantic import BaseModel
from starlette.responses import Response

from palaver.operations import EventSlice, PlacedSlice, Taken
from palaver.schemas.models import Run

from ..http.answers import answer_json
from .links import location_of, next_page, run_json

_POLL: Final[Mapping[str, str]] = {"Retry-After": "1"}
"""Seconds after which looking again may show something new."""
REPLAYED: Final[Mapping[str, str]] = {"Idempotency-Replayed": "true"}
"""An earlier request with the same key had the effect; this one had none."""


def answer_run(
    run: Run, status: int = 200, headers: Mapping[str, str] | None = None, *, again: bool = False
) -> Response:
    """A run; with 202, looking again may show something new. One that was read may be read ``again`` as it is."""
    return answer_json(run_json(run, again=again), status, {**(headers or {}), **_POLL} if status == 202 else headers)


def answer_asked(run: Run, headers: Mapping[str, str] | None = None) -> Response:
    """The run that something was asked of: 200 if it has ended by that, 202 if it goes on."""
    return answer_run(run, 200 if run.status.terminal else 202, headers)


def headers_of(taken: Taken) -> dict[str, str]:
    """Return the headers of the answer about a run that was taken on."""
    headers = location_of(f"/v1/runs/{taken.run.id}")
    if taken.replayed:
        headers |= REPLAYED
    if taken.steered:
        headers["Palaver-Steered"] = "true"
    return headers


def answer_list(
    of: Literal["runs", "conversations"], query: BaseModel, listed: Iterable[bytes], next_cursor: str | None
) -> Response:
    """A page of what is ``listed``, as JSON; `Link` has the next one of what ``query`` asks for."""
    rest = {"next_cursor": next_cursor, "has_more": next_cursor is not None}
    return answer_json(_page(listed, rest), headers=next_page(f"/v1/{of}", query, cursor=next_cursor))


def answer_events(page: EventSlice | PlacedSlice) -> Response:
    """A page of events, which are passed on as they are stored."""
    rest = {"next_after": page.reached, "has_more": page.more}
    return answer_json(_page((event.to_json() for event in page.events), rest))


def _page(listed: Iterable[bytes], rest: Mapping[str, object]) -> bytes:
    return b'{"data":[%b],%b' % (b",".join(listed), orjson.dumps(rest)[1:])
