"""Sources of tools: one module each, and its row in ``SOURCES``, or a feature that is one.

Nothing else in the workers knows what a tool is made of: steps have declarations, check arguments and call by name.
"""

from __future__ import annotations

from typing import Final

from palaver.config.settings import Settings

from .elsewhere import Elsewhere
from .functions import functions, inline_functions
from .guests import ReadAhead, declared_sources
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
    "read_ahead",
    "sources_of",
]

SOURCES: Final[tuple[OpenSource, ...]] = (functions,)
"""The sources of every worker that runs tools. One that has nothing in the settings has no tools."""
INLINE_SOURCES: Final[tuple[OpenSource, ...]] = (inline_functions,)
"""The sources of a model worker, which runs quick tools within its steps and knows of all others by their
declarations."""


def sources_of(settings: Settings) -> tuple[OpenSource, ...]:
    """Every source of a worker that runs tools: these, and those that the file of ``PALAVER_TOOL_SOURCES`` declares.

    Raises:
        ConfigurationError: the file does not fit; says where.
    """
    return (*SOURCES, *(declared.opening for declared in declared_sources(settings.tool_sources)))


def read_ahead(settings: Settings) -> None:
    """In a main process, before it has children: read what each of them would otherwise read again.

    Raises:
        ConfigurationError: the file of ``PALAVER_TOOL_SOURCES`` does not fit, or it cannot be read.
    """
    for declared in declared_sources(settings.tool_sources):
        if isinstance(declared.guest, ReadAhead):
            declared.guest.read_ahead(declared.sections)
