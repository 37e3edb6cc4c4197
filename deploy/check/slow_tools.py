"""A tool that takes its time, and counts in the file TOOL_LEDGER how often it was started."""

from __future__ import annotations

import os
import time
from typing import Annotated

from pydantic import Field

from palaver import ToolContext, tool


@tool
def dawdle(seconds: Annotated[float, Field(ge=0, le=10)], context: ToolContext) -> str:
    """Take this long."""
    with open(os.environ["TOOL_LEDGER"], "a") as ledger:
        ledger.write(f"{context.idempotency_key}\n")
    time.sleep(seconds)
    return "done"
