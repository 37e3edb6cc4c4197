"""Python functions as tools: the built-in ones, and those of the modules of ``PALAVER_TOOLS`` and
``PALAVER_INLINE_TOOLS``."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from contextlib import AbstractAsyncContextManager, nullcontext
from typing import Any

from palaver.config.settings import Settings
from palaver.tools import Tool, ToolContext, ToolDeclaration, load_tools
from palaver.vocabulary.names import some_of

from .containment import ToolAnswer, contained
from .port import RunBlocking, ToolSource

log = logging.getLogger("palaver.workers.sources.functions")


class Functions:
    """The source of these functions. Their arguments are validated against their signatures."""

    name = "PALAVER_TOOLS"

    def __init__(self, tools: Iterable[Tool], run_blocking: RunBlocking | None = contained) -> None:
        """``run_blocking`` runs those that are no coroutine functions. Without it only those are here that are, or that
        are inline: these take no time."""
        runnable = tuple(tool for tool in tools if run_blocking or tool.is_async or tool.inline)
        self._run_blocking = run_blocking or contained
        self._tools = {tool.name: tool for tool in runnable}
        self._on_loop = frozenset(tool.name for tool in runnable if tool.is_async)
        self.declarations = tuple(tool.declaration for tool in runnable)

    def check(self, declared: ToolDeclaration, text: str) -> dict[str, Any]:
        """As ``ToolSource``."""
        return self._tools[declared.name].parse(text)

    async def call(self, declared: ToolDeclaration, arguments: Mapping[str, Any], context: ToolContext) -> ToolAnswer:
        """As ``ToolSource``."""
        run = contained if declared.name in self._on_loop else self._run_blocking
        return await run(declared, self._tools[declared.name].bind(arguments, context))


def functions(settings: Settings, run_blocking: RunBlocking | None) -> AbstractAsyncContextManager[ToolSource]:
    """The functions for a worker that runs tools. The modules are imported here, and not where it is entered."""
    tools = load_tools(settings.tools, settings.inline_tools)
    source = Functions(tools, run_blocking)
    if left := {tool.name for tool in tools} - {declared.name for declared in source.declarations}:
        log.warning("not async, and left to workers with children (palaver tools): %s", some_of(sorted(left)))
    return nullcontext(source)


def inline_functions(settings: Settings, run_blocking: RunBlocking | None) -> AbstractAsyncContextManager[ToolSource]:
    """The functions for a model worker: those that run within the step of the model."""
    return nullcontext(Functions(load_tools((), settings.inline_tools), run_blocking))
