"""Answers in JSON."""

from __future__ import annotations

from typing import Any

import orjson
from pydantic import BaseModel, RootModel
from starlette.responses import Response

from palaver.version import __version__

from ..answers import answer_json


class OpenHandsSuccess(BaseModel):
    """It is done."""

    success: bool = True


class ConversationInfo(RootModel[dict[str, Any]]):
    """A conversation as OpenHands' clients read it: docs/reference/openhands.md has the fields."""


class ConversationList(RootModel[list[ConversationInfo | None]]):
    """Several conversations."""


class Count(RootModel[int]):
    """How many there are."""


class OpenHandsServerInfo(BaseModel):
    """What answers."""

    title: str = "Palaver"
    version: str = __version__


class OpenHandsHealth(BaseModel):
    """Well."""

    status: str = "ok"


class ConversationsFound(BaseModel):
    """Conversations, in order."""

    items: list[ConversationInfo]
    next_page_id: str | None
    """Where the next page begins; null if there is none."""


class OpenHandsEvent(RootModel[dict[str, Any]]):
    """An event as OpenHands' clients read it, told apart by `kind`."""


class EventsFound(BaseModel):
    """Events, in order."""

    items: list[OpenHandsEvent]
    next_page_id: str | None
    """The first event of the next page; null if there is none."""


class FinalResponse(BaseModel):
    """What an agent answered."""

    response: str


class AgentAnswer(BaseModel):
    """What an agent answered to a question."""

    response: str


class GeneratedTitle(BaseModel):
    """What a conversation could be called."""

    title: str


def plain(value: Any, status: int = 200) -> Response:
    """Any JSON."""
    return answer_json(orjson.dumps(value), status)


def done() -> Response:
    """Nothing more is to be said."""
    return plain({"success": True})
