"""Palaver's own dialect: everything that no other has, ``/v1`` and the probes."""

from __future__ import annotations

from . import (
    agents,
    audit,
    bulk,
    callers,
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
    tenants,
    tokens,
    tools,
    usage,
)
from .dialect import NATIVE

__all__ = [
    "NATIVE",
    "agents",
    "audit",
    "bulk",
    "callers",
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
    "tenants",
    "tokens",
    "tools",
    "usage",
]
