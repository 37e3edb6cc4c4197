"""Fields that events have on the wire and not in storage: those that are as they are by default."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Any, Final

from pydantic import BaseModel

from palaver.schemas.models import Message, ToolCall


def _defaults_of(model: type[BaseModel], without: type[BaseModel] = BaseModel) -> dict[str, Any]:
    return {
        name: field.default
        for name, field in model.model_fields.items()
        if name not in without.model_fields and not field.is_required()
    }


@cache
def _left_out() -> Mapping[str, Mapping[str, Any]]:
    """Return for each kind what its writers may leave out."""
    # Not above: a process that reads no events does without their classes.
    from palaver.events.classes import EVENTS, BaseEvent

    return {kind: defaults for kind, each in EVENTS.items() if (defaults := _defaults_of(each, BaseEvent))}


_OF_MESSAGES: Final = _defaults_of(Message)
_OF_CALLS: Final = _defaults_of(ToolCall)


def is_complete(kind: str) -> bool:
    """Tell whether the writers of a kind leave nothing out."""
    return kind not in _left_out()


def complete(kind: str, data: Mapping[str, Any]) -> dict[str, Any]:
    """Return an event's fields with the defaults that its writer left out."""
    whole = {**_left_out().get(kind, {}), **data}
    if isinstance(message := whole.get("message"), dict):
        calls = [{**_OF_CALLS, **call} for call in message.get("tool_calls", ())]
        whole["message"] = {**_OF_MESSAGES, **message, "tool_calls": calls}
    return whole
