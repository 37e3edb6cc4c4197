"""Tenants and their caps as requests change them and answers show them."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from palaver.schemas.fields import DataModel, Strict

_Weight = Annotated[int, Field(ge=1, le=1000)]
_Count = Annotated[int, Field(ge=1, le=1_000_000)]
_Tokens = Annotated[int, Field(ge=1, le=1_000_000_000)]
_Dollars = Annotated[float, Field(ge=0.000001, le=1_000_000)]


class Caps(DataModel):
    """The most that a tenant may have of what it shares with others, and its weight among them."""

    weight: int = 1
    """Its share of the turns where tenants take turns: one with 3 has three for one of a tenant with 1."""
    max_in_flight: int | None = None
    """Steps that execute at the same time; null: no cap, as in all of these."""
    max_queued: int | None = None
    """Runs that have not begun."""
    requests_per_minute: int | None = None
    """Calls of models."""
    tokens_per_minute: int | None = None
    """Tokens of calls of models, charged when a call has ended."""
    usd_per_day: float | None = None
    """The money that calls of models may cost on a day (UTC)."""
    usd_per_month: float | None = None
    """The money that they may cost in a month (UTC)."""


class TenantInfo(Caps):
    """A tenant with its caps."""

    name: str
    tag: str | None
    """The six characters that its ids carry; null for the default tenant."""


class TenantList(DataModel):
    """Tenants by name, the default one first."""

    data: list[TenantInfo]


class CapsChange(Strict):
    """Caps to set. Those that are left out stay as they are; null takes a cap away, and sets the weight back to 1."""

    weight: _Weight | None = None
    max_in_flight: _Count | None = None
    max_queued: _Count | None = None
    requests_per_minute: _Count | None = None
    tokens_per_minute: _Tokens | None = None
    usd_per_day: _Dollars | None = None
    usd_per_month: _Dollars | None = None
