"""The tools that a file of tool sources declares, opened as a worker opens them."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

from palaver.config.settings import Settings
from workers.sources import SOURCES, OpenSource, Toolbox, open_toolbox
from workers.sources.guests import declared_sources


@asynccontextmanager
async def tools_of_file(folder: Path, text: str, *, beside: Sequence[OpenSource] = SOURCES) -> AsyncIterator[Toolbox]:
    """Those of a file in this folder that says ``text``, and the tools ``beside`` them: all that a worker has."""
    file = folder / "tools.toml"
    file.write_text(text)
    here = Settings(tool_sources=file, tool_lists=folder / "lists")
    async with open_toolbox(here, [*beside, *(declared.opening for declared in declared_sources(file))]) as tools:
        yield tools
