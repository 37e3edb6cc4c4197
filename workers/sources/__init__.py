"""Sources of tools: one module each, and its row in ``SOURCES``, or a guest with a row in ``guests.KINDS``.

Nothing else in the workers knows what a tool is made of: steps have declarations, check arguments and call by name.
"""

from __future__ import annotations

from typing import Final

from palaver.config.settings import Settings

from .functions import functions
from .guests import declared_sources
from .port import OpenSource, RunBlocking, ToolSource
from .toolbox import Toolbox, open_toolbox

__all__ = ["SOURCES", "OpenSource", "RunBlocking", "ToolSource", "Toolbox", "open_toolbox", "sources_of"]

SOURCES: Final[tuple[OpenSource, ...]] = (functions,)
"""The sources that every worker has. One that has nothing in the settings has no tools."""


def sources_of(settings: Settings) -> tuple[OpenSource, ...]:
    """Every source: these, and those that the file of ``PALAVER_TOOL_SOURCES`` declares.

    Raises:
        ConfigurationError: the file does not fit; says where.
    """
    return (*SOURCES, *(declared.opening for declared in declared_sources(settings.tool_sources)))
