"""The ledger of usage: its columns, as the scripts write them and the API shows them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

NONE: Final = "-"
"""The agent of a run that gave it no name, or the key of one that was submitted without a named key."""
CALLS: Final = "model_calls"
UNPRICED: Final = "unpriced_calls"
"""Calls whose price is unknown: they are in no cost."""
COLUMNS: Final = (
    CALLS, "input_tokens", "cached_tokens", "cache_write_tokens", "output_tokens", "reasoning_tokens", "cost", UNPRICED,
)  # fmt: skip
"""The cost is in nano-dollars."""
SPENT: Final = "spent"
"""The money that counts against the tenant's caps, in nano-dollars: the sum of all costs, and what was reserved for
calls whose cost is unknown. It is of no row."""
OTHER: Final = "other"
"""The agent, the model and the key of what has no row of its own."""
NAMES: Final[Mapping[str, str]] = {
    "NONE": NONE,
    "CALLS": CALLS,
    "UNPRICED": UNPRICED,
    "SPENT": SPENT,
    "OTHERS": f" {OTHER} {OTHER} {OTHER}",
}
"""The names that scripts share."""
