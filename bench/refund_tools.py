"""The refund as tools of Palaver's: one that must not run twice, one that may, since the bank goes by its key, and one
that needs an approval."""

from __future__ import annotations

from bench.bank import pay
from palaver import ToolContext, tool


@tool
def refund(order: str) -> str:
    """Pay an order back."""
    return pay(order)


@tool(idempotent=True)
def refund_by_key(order: str, context: ToolContext) -> str:
    """Pay an order back; the bank does it once for each key."""
    return pay(order, context.idempotency_key.replace(":", "-"))


@tool(risky=True)
def refund_approved(order: str) -> str:
    """Pay an order back, if it is approved."""
    return pay(order)
