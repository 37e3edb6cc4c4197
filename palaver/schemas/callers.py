"""Callers: what a key or a token stands for."""

from __future__ import annotations

from palaver.schemas.fields import DataModel
from palaver.vocabulary.scopes import Scope


class CallerInfo(DataModel):
    """The bearer of a key or a token, or anybody where the API wants none."""

    name: str | None
    """The name under which its acts are recorded; null: it has none."""
    tenant: str | None
    """The tenant whose things it sees; null: the one that is known by its tag alone is gone."""
    operator: bool
    """True if it sees all tenants."""
    scopes: tuple[Scope, ...]
    """The parts of the API that it opens."""
    agents: tuple[str, ...] | None
    """The agents that it is held to, each ``name`` or ``name@version``; null: any, also inline ones."""
    conversation: str | None
    """The conversation that it is held to; null: any."""
    keyed: bool
    """True if the API wants a key."""
