"""Tools that only some machines can import (PALAVER_TOOLS of test_importing_tools.py)."""

from __future__ import annotations

import os

from palaver import tool

if "SHOP_GPU" not in os.environ:
    raise RuntimeError("no GPU here")


@tool(idempotent=True, inline=True)
async def embed(text: str) -> str:
    """Make a vector of a text."""
    return f"[{len(text)}]"
