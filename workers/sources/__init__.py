"""Sources of tools: one module each, and its row in ``SOURCES``.

Nothing else in the workers knows what a tool is made of: steps have declarations, check arguments and call by name.
"""

from __future__ import annotations

from typing import Final

from .elsewhere import Elsewhere
from .functions import functions, inline_functions
from .port import OpenSource, RunBlocking, ToolSource
from .toolbox import Toolbox, open_toolbox

__all__ = [
    "INLINE_SOURCES",
    "SOURCES",
    "Elsewhere",
    "OpenSource",
    "RunBlocking",
    "ToolSource",
    "Toolbox",
    "open_toolbox",
]

SOURCES: Final[tuple[OpenSource, ...]] = (functions,)
"""Every source of a worker that runs tools. One that has nothing in the settings has no tools."""
INLINE_SOURCES: Final[tuple[OpenSource, ...]] = (inline_functions,)
"""The sources of a model worker, which runs quick tools within its steps and knows of all others by their
declarations."""
