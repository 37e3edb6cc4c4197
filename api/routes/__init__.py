"""The routes, by what they are about."""

from __future__ import annotations

from typing import Final

from fastapi import APIRouter

from api.routes import bulk, control, conversations, events, health, queues, runs

ROUTERS: Final[tuple[APIRouter, ...]] = (
    runs.router,
    bulk.router,
    control.router,
    events.router,
    conversations.router,
    queues.router,
    health.router,
)
