"""What the agent of the shop can do. Workers import it, the application does not."""

from __future__ import annotations

import time

from palaver import tool


@tool
def order_status(number: int) -> str:
    """Look an order up."""
    time.sleep(1)  # A tool may block: each call has a process of its own.
    return f"Order {number} has left the house."
