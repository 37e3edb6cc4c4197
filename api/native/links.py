"""The places of things in this dialect, and runs as it shows them: with links."""

from __future__ import annotations

from collections import OrderedDict
from typing import Any, Final
from urllib.parse import urlencode

import orjson
from pydantic import BaseModel

from palaver.schemas import models
from palaver.schemas.fields import DataModel
from palaver.vocabulary.limits import KIB

from ..http.requests import below_root

_RUNS: Final = 256
_LARGE: Final = 16 * KIB
"""Bytes from which on the JSON of a run is not kept."""
_latest: Final[OrderedDict[str, tuple[models.Run, bytes]]] = OrderedDict()


class Links(DataModel):
    """Links to other places."""

    self: str
    events: str
    conversation: str


class Run(models.Run):
    """One execution of the agent over a conversation, from an input to a stop."""

    links: Links


class RunList(DataModel):
    """A page of runs, newest first."""

    data: list[Run]
    next_cursor: str | None
    has_more: bool


def location_of(path: str) -> dict[str, str]:
    """Return the header with the place of what was made, which is at this path."""
    return {"Location": below_root(path)}


def next_page(path: str, query: BaseModel, **begin: str | int | None) -> dict[str, str]:
    """Return the header with the next page of a list at this path, as ``query`` asks for it: the one that has ``begin``
    in its query. None of it is a last page, which has no such header."""
    if None in begin.values():
        return {}
    parameters = query.model_dump(mode="json", exclude_defaults=True) | begin
    asked = urlencode({name: _in_url(value) for name, value in parameters.items()})
    return {"Link": f'<{below_root(path)}?{asked}>; rel="next"'}


def _in_url(value: Any) -> object:
    match value:
        case bool():
            return str(value).lower()
        case list():
            return ",".join(value)
        case dict():
            return orjson.dumps(value).decode()
    return value


def run_json(run: models.Run, *, again: bool = False) -> bytes:
    """A ``Run`` on the wire. To make one first would take a tenth of the time of a request. What is written of one that
    may be read ``again`` is kept."""
    path = below_root(f"/v1/runs/{run.id}")
    conversation = below_root(f"/v1/conversations/{run.conversation_id}")
    links = {"self": path, "events": f"{path}/events", "conversation": conversation}
    return b'%b,"links":%b}' % (_written(run) if again else _begun(run), orjson.dumps(links))


def _begun(run: models.Run) -> bytes:
    """A run without the end of its JSON."""
    return run.model_dump_json().encode()[:-1]


def _written(run: models.Run) -> bytes:
    """The same; of one that was read again, and is as it was, what was written of it before."""
    known = _latest.get(run.id)
    if known is not None and known[0] is run:
        return known[1]
    text = _begun(run)
    if len(text) <= _LARGE:
        _latest[run.id] = run, text
        _latest.move_to_end(run.id)
        if len(_latest) > _RUNS:
            _latest.popitem(last=False)
    return text
