"""Palaver's own dialect: everything that no other has, ``/v1`` and the probes."""

from __future__ import annotations

from . import (
    audit,
    bulk,
    control,
    conversation_events,
    conversation_lists,
    conversations,
    events,
    health,
    history,
    keys,
    metrics,
    models,
    queues,
    runs,
    secrets,
    tokens,
    tools,
)
from .dialect import NATIVE

__all__ = [
    "NATIVE",
    "audit",
    "bulk",
    "control",
    "conversation_events",
    "conversation_lists",
    "conversations",
    "events",
    "health",
    "history",
    "keys",
    "metrics",
    "models",
    "queues",
    "runs",
    "secrets",
    "tokens",
    "tools",
]
