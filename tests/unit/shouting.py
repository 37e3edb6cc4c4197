"""A guest among the sources of tools, as a file declares it: tools that shout."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

from palaver.config.settings import Settings
from palaver.schemas.fields import Strict
from palaver.tools import ToolContext, ToolDeclaration
from workers.sources.containment import ToolAnswer, contained
from workers.sources.guests import SourceFinding, ToolsOfFile
from workers.sources.port import RunBlocking, ToolSource


class Shouting(Strict):
    """A table ``[shout.NAME]``."""

    marks: int = 1
    broken: bool = False


class _Source(ToolsOfFile):
    def __init__(self, sections: Mapping[str, Shouting]) -> None:
        self._sections = sections
        self.declarations = [
            ToolDeclaration(name=f"shout_{name}", description="Shout.", timeout=1) for name in sections
        ]

    async def call(self, declared: ToolDeclaration, arguments: Mapping[str, Any], context: ToolContext) -> ToolAnswer:
        section = self._sections[declared.name.removeprefix("shout_")]
        return await contained(declared, partial("{}{}".format, "HEY", "!" * section.marks))


class _Kind:
    section = Shouting

    @asynccontextmanager
    async def open(
        self, settings: Settings, sections: Mapping[str, Shouting], run_blocking: RunBlocking | None
    ) -> AsyncIterator[ToolSource]:
        yield _Source(sections)

    async def check(self, settings: Settings, sections: Mapping[str, Shouting]) -> AsyncIterator[SourceFinding]:
        for name, section in sections.items():
            if section.broken:
                yield SourceFinding(f"shout.{name}", ok=False, found="It is hoarse.", advice="Give it tea.")
            else:
                yield SourceFinding(f"shout.{name}", ok=True, found="It shouts.", tools=(f"shout_{name}",))


KIND = _Kind()
