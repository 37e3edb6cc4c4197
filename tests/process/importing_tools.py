"""Tools of a module that does, when it is imported, what works in a program and not within a loop, nor with output that
is no file (PALAVER_TOOLS of test_importing_tools.py)."""

from __future__ import annotations

import asyncio
import logging
import os
import sys

from palaver import Tool, tool

for stream in (sys.stdout, sys.stderr):
    os.fstat(stream.fileno())
print("imported", file=sys.stdout, flush=True)
log = logging.getLogger("importing_tools")
log.propagate = False
log.addHandler(logging.StreamHandler(sys.stdout))


async def _settings() -> str:
    """Read something before the first call, as from a service of secrets."""
    await asyncio.sleep(0)
    return "hello"


GREETING = asyncio.run(_settings())


@tool(idempotent=True)
async def greet(name: str) -> str:
    """Greet somebody."""
    log.warning("greeting %s", name)
    return f"{GREETING} {name}"


@tool(idempotent=True, inline=True)
def greet_inline(name: str) -> str:
    """Greet somebody at once."""
    return f"{GREETING} {name}"


async def _count(orders: list[dict[str, int]]) -> int:
    return sum(order["amount"] for order in orders)


count = Tool(
    "count",
    "Count all pieces of some orders.",
    {
        "type": "object",
        "properties": {
            "orders": {
                "type": "array",
                "items": {"type": "object", "properties": {"amount": {"type": "integer"}}, "required": ["amount"]},
            }
        },
        "required": ["orders"],
    },
    _count,
    idempotent=True,
)
