"""Sources of tools: one module each, and its row in ``SOURCES``.

Nothing else in the workers knows what a tool is made of: steps have declarations, check arguments and call by name.
"""

from __future__ import annotations

from typing import Final

from .functions import functions
from .port import OpenSource, RunBlocking, ToolSource
from .toolbox import Toolbox, open_toolbox

__all__ = ["SOURCES", "OpenSource", "RunBlocking", "ToolSource", "Toolbox", "open_toolbox"]

SOURCES: Final[tuple[OpenSource, ...]] = (functions,)
"""Every source. One that has nothing in the settings has no tools."""
