"""Tools that name a queue (PALAVER_TOOLS of tests/process/test_own_queues.py)."""

from __future__ import annotations

import time

from palaver import ToolContext, tool
from tests.process.tools import Seconds, write_async


@tool(queue="gpu", idempotent=True)
def render(context: ToolContext, seconds: Seconds = 0) -> str:
    """For a worker that takes from there; may run twice."""
    write_async("begin", "render", context)
    time.sleep(seconds)
    write_async("end", "render", context)
    return "rendered"
