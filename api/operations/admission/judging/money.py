"""Budgets in dollars, which need a price of each model that may be called."""

from __future__ import annotations

from collections.abc import Iterator

from palaver.errors import FieldError
from palaver.schemas.models import Budget

from ..lookup import needs_prices
from ..tree import AgentModels


def price_faults(budget: Budget | None, models: AgentModels, owner: str = "") -> Iterator[FieldError]:
    """Yield a fault for each model whose use cannot be counted in dollars, if ``budget`` limits these. ``owner`` has
    the agent, if the request has none."""
    for model in models.all if needs_prices(budget) else ():
        provider, _, name = model.name.partition("/")
        if model.provider.price(name) is None:
            why = f"has no price: a budget in dollars needs one, in [providers.{provider}.prices] of PALAVER_PROVIDERS"
            if owner:
                yield FieldError("/budget/cost_usd", "unknown_price", f"the {owner}'s {model.pointer} {why}")
            else:
                yield FieldError(model.pointer, "unknown_price", why)
