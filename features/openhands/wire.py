"""Answers as clients read them."""

from __future__ import annotations

from typing import Any

import orjson
from pydantic import RootModel
from starlette.responses import Response

from api.http.answers import answer_json
from palaver.schemas.fields import DataModel
from palaver.version import __version__


class OpenHandsSuccess(DataModel):
    """It is done."""

    success: bool = True


class ConversationInfo(RootModel[dict[str, Any]]):
    """A conversation as OpenHands' clients read it: docs/reference/openhands.md has the fields."""


class ConversationList(RootModel[list[ConversationInfo | None]]):
    """Several conversations."""


class Count(RootModel[int]):
    """A number."""


class OpenHandsServerInfo(DataModel):
    """The server's name and version."""

    title: str = "Palaver"
    version: str = __version__


class OpenHandsHealth(DataModel):
    """Well."""

    status: str = "ok"


class ConversationSearchPage(DataModel):
    """A page of conversations, in order."""

    items: list[ConversationInfo]
    next_page_id: str | None
    """The id of the next page; null if there is none."""


class OpenHandsEvent(RootModel[dict[str, Any]]):
    """An event as OpenHands' clients read it, told apart by `kind`."""


class EventSearchPage(DataModel):
    """A page of events, in order."""

    items: list[OpenHandsEvent]
    next_page_id: str | None
    """The first event of the next page; null if there is none."""


class FinalResponse(DataModel):
    """The last answer of an agent."""

    response: str


class AgentAnswer(DataModel):
    """The answer of an agent to a question."""

    response: str


class GeneratedTitle(DataModel):
    """A title for a conversation."""

    title: str


def plain(value: Any, status: int = 200) -> Response:
    """Return an answer with any JSON."""
    return answer_json(orjson.dumps(value), status)


def done() -> Response:
    """Return the answer to a request that is done and has no result."""
    return plain({"success": True})
