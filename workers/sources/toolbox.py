"""All tools of a worker process, wherever they come from."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from contextlib import AbstractContextManager, AsyncExitStack, asynccontextmanager, nullcontext
from typing import Any

from palaver.config.providers import Limits
from palaver.config.settings import Settings
from palaver.errors import ConfigurationError, UnknownTool
from palaver.tools import ToolContext, ToolDeclaration
from palaver.vocabulary.names import did_you_mean

from .containment import ToolAnswer, contained, left_behind
from .port import OpenSource, RunBlocking, ToolSource

Watch = Callable[[ToolDeclaration], AbstractContextManager[None]]
"""A context around each call of a tool."""


def _unwatched(_: ToolDeclaration) -> AbstractContextManager[None]:
    return nullcontext()


class Toolbox:
    """The tools of these sources, by name. Steps know no more of tools than this."""

    def __init__(
        self, sources: Iterable[ToolSource], watch: Watch = _unwatched, *, leaves_behind: bool = False
    ) -> None:
        """Raises:
        ConfigurationError: two tools have one name, or declare different limits for one service.
        """
        self._watch = watch
        self._leaves_behind = leaves_behind
        self._tools: dict[str, tuple[ToolDeclaration, ToolSource]] = {}
        for source in sources:
            for declaration in source.declarations:
                if declaration.name in self._tools:
                    other = self._tools[declaration.name][1].name
                    where = f"both in {other}" if other == source.name else f"one in {other}, one in {source.name}"
                    raise ConfigurationError(
                        f"two tools are named {declaration.name!r}, {where}: give one another name"
                    )
                self._tools[declaration.name] = declaration, source
        self.services = _services(self.declarations)
        """The limits of the services that tools call, by ``limit_key``."""

    @property
    def declarations(self) -> tuple[ToolDeclaration, ...]:
        """Every tool."""
        return tuple(declared for declared, _ in self._tools.values())

    def __contains__(self, name: object) -> bool:
        return name in self._tools

    def __getitem__(self, name: str) -> ToolDeclaration:
        """Raises:
        UnknownTool: there is none of this name here; says which one may be meant.
        """
        return self._of(name)[0]

    def check(self, name: str, text: str) -> tuple[ToolDeclaration, dict[str, Any]]:
        """The tool, and the arguments in ``text``, which fit it.

        Raises:
            UnknownTool: there is none of this name here.
            InvalidToolCall: the arguments do not fit.
        """
        declared, source = self._of(name)
        return declared, source.check(declared, text)

    async def call(self, name: str, arguments: Mapping[str, Any], context: ToolContext) -> ToolAnswer:
        """Call a tool; return the result for the model.

        Raises:
            ToolFailure: for the model, in place of a result.
        """
        declared, source = self._of(name)
        with self._watch(declared):
            call = source.call(declared, arguments, context)
            return await (left_behind(declared, call) if self._leaves_behind else call)

    def _of(self, name: str) -> tuple[ToolDeclaration, ToolSource]:
        try:
            return self._tools[name]
        except KeyError:
            hint = did_you_mean(name, self._tools) or f"; there are {', '.join(sorted(self._tools))}"
            raise UnknownTool(f"there is no tool {name!r}{hint}") from None


def _services(tools: Iterable[ToolDeclaration]) -> dict[str, Limits]:
    limits: dict[str, Limits] = {}
    declared_by: dict[str, str] = {}
    for tool in tools:
        if (key := tool.limit_key) is None:
            continue
        its = Limits(tool.max_in_flight, tool.per_minute)
        if its and limits.get(key) and limits[key] != its:
            both = f"the tools {declared_by[key]!r} and {tool.name!r}"
            raise ConfigurationError(f"{both} declare different limits for {key!r}: one of them is enough")
        if its or key not in limits:
            limits[key], declared_by[key] = its, tool.name
    return limits


@asynccontextmanager
async def open_toolbox(
    settings: Settings,
    sources: Iterable[OpenSource],
    *,
    run_blocking: RunBlocking | None = contained,
    watch: Watch = _unwatched,
) -> AsyncIterator[Toolbox]:
    """Open these sources, for as long as the block lasts. Without ``run_blocking`` there is no tool that may block, and
    a call that does not stop when it must is left behind: others share its loop.

    Raises:
        ConfigurationError: the settings of a source do not fit, or two tools have one name.
    """
    async with AsyncExitStack() as opened:
        entered = [await opened.enter_async_context(opening(settings, run_blocking)) for opening in sources]
        yield Toolbox(entered, watch, leaves_behind=run_blocking is None)
