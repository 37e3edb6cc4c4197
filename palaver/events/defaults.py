"""Fields that events have on the wire and not in storage: those that are as they are by default."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from pydantic import BaseModel

from palaver.events.classes import EVENTS, BaseEvent
from palaver.schemas.models import Message, ToolCall


def _defaults_of(model: type[BaseModel], without: type[BaseModel] = BaseModel) -> dict[str, Any]:
    return {
        name: field.default
        for name, field in model.model_fields.items()
        if name not in without.model_fields and not field.is_required()
    }


_LEFT_OUT: Final[Mapping[str, Mapping[str, Any]]] = {
    kind: defaults for kind, event_class in EVENTS.items() if (defaults := _defaults_of(event_class, BaseEvent))
}
"""For each kind what its writers may leave out."""
_OF_MESSAGES: Final = _defaults_of(Message)
_OF_CALLS: Final = _defaults_of(ToolCall)


def is_complete(kind: str) -> bool:
    """Tell whether the writers of a kind leave nothing out."""
    return kind not in _LEFT_OUT


def complete(kind: str, data: Mapping[str, Any]) -> dict[str, Any]:
    """Return an event's fields with the defaults that its writer left out."""
    whole = {**_LEFT_OUT.get(kind, {}), **data}
    if isinstance(message := whole.get("message"), dict):
        calls = [{**_OF_CALLS, **call} for call in message.get("tool_calls", ())]
        whole["message"] = {**_OF_MESSAGES, **message, "tool_calls": calls}
    return whole
