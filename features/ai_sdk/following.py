"""Following the answer of a run: from its start, or from an answer to it on."""

from __future__ import annotations

from api.kit.projections import ViewStream
from palaver.operations import Backend
from palaver.schemas.models import Run

from .chunks import DONE, HEADERS
from .projection import ChatProjection


def stream_of(backend: Backend, run: Run, answered: frozenset[str] = frozenset()) -> ViewStream:
    """Return the response that follows the answer of a run. There is room for a watcher."""
    tools = frozenset(tool.name for tool in run.agent.client_tools)
    answer = ChatProjection(run.id, client_tools=tools, edge=run.last_event_id, answers=answered)
    return ViewStream(backend, run, answer, HEADERS, opening=[answer.opening()], closing_frame=DONE)
