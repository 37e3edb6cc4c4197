"""Bodies of requests about webhooks."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated

from pydantic import Field

from palaver.schemas.fields import AtMost, Strict
from palaver.vocabulary.webhooks import DeliveryState, Format

from .terms import AnyEventType

_Url = Annotated[str, AtMost("webhook_url")]
_Types = Annotated[tuple[AnyEventType, ...], Field(min_length=1, max_length=20)]
_Description = Annotated[str, AtMost("webhook_description")]


class WebhookRequest(Strict):
    """A webhook to make."""

    url: _Url
    """The address that events are sent to, by POST."""
    types: _Types | None = None
    """The types of its events; null: all, those that come to be with newer versions, too."""
    format: Format = "palaver"
    """``openai``: bodies are those of OpenAI's ``response.*`` events, for clients that read these."""
    description: _Description | None = None


class WebhookChange(Strict):
    """Changes of a webhook. A field that is left out stays as it is."""

    url: _Url | None = None
    types: _Types | None = None
    """Null: all."""
    description: _Description | None = None
    enabled: bool | None = None
    """False: nothing is sent to it any more. True: it is on again, whatever turned it off."""


class ReplayRequest(Strict):
    """Deliveries to make again: those that are named, or those of a time."""

    deliveries: Annotated[tuple[Annotated[str, Field(max_length=80)], ...], AtMost("webhook_replay")] | None = None
    """By their ids."""
    since: datetime | None = Field(default=None, strict=False)
    """Or: all that have come since then,"""
    until: datetime | None = Field(default=None, strict=False)
    """and until then,"""
    state: DeliveryState | None = "failed"
    """of this state; null: of any. Those that are pending are not made again."""
