"""All tools of a worker process, wherever they come from."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from contextlib import (
    AbstractAsyncContextManager,
    AbstractContextManager,
    AsyncExitStack,
    asynccontextmanager,
    nullcontext,
)
from typing import Any

from palaver.config.providers import Limits
from palaver.config.settings import Settings
from palaver.errors import ConfigurationError, UnknownTool
from palaver.tools import ToolContext, ToolDeclaration
from palaver.tools.declared import check_queue
from palaver.tools.schemas import fitting
from palaver.vocabulary.names import did_you_mean, some_of
from palaver.vocabulary.step_kinds import own_queues

from .containment import ToolAnswer, contained, left_behind
from .elsewhere import Elsewhere
from .port import OpenSource, RunBlocking, ToolSource

log = logging.getLogger("palaver.workers.sources.toolbox")

Watch = Callable[[ToolDeclaration], AbstractContextManager[None]]
"""A context around each call of a tool."""


def _unwatched(_: ToolDeclaration) -> AbstractContextManager[None]:
    return nullcontext()


class Toolbox:
    """The tools of these sources, by name, and those ``elsewhere``, whose calls are steps of other workers. Steps know
    no more of tools than this."""

    def __init__(
        self,
        sources: Iterable[ToolSource],
        watch: Watch = _unwatched,
        *,
        leaves_behind: bool = False,
        elsewhere: Elsewhere | None = None,
    ) -> None:
        """Raises:
        ConfigurationError: two tools have one name, declare different limits for one service, or have a queue that
            they cannot have.
        """
        self.elsewhere = elsewhere
        """None where all tools that may be asked for are at hand."""
        self._watch = watch
        self._leaves_behind = leaves_behind
        self._sources = tuple(sources)
        self._taken: tuple[Sequence[ToolDeclaration], ...] = ()
        self._tools: Mapping[str, tuple[ToolDeclaration, ToolSource]] = {}
        self.services: Mapping[str, Limits] = {}
        """The limits of the services that tools call, by ``limit_key``."""
        self._take()

    def renew(self) -> bool:
        """Take what sources have by now; tell whether any has other tools. Where those do not fit together, all stays
        as it was: this process would not be started again."""
        if all(taken is source.declarations for taken, source in zip(self._taken, self._sources, strict=True)):
            return False
        try:
            self._take()
        except ConfigurationError as error:
            log.error("tools stay as they were: %s", error)
            return False
        return True

    def _take(self) -> None:
        taken = tuple(source.declarations for source in self._sources)
        tools: dict[str, tuple[ToolDeclaration, ToolSource]] = {}
        self._taken = taken
        for source, declarations in zip(self._sources, taken, strict=True):
            for declaration in declarations:
                if declaration.name in tools:
                    other = tools[declaration.name][1].name
                    where = f"both in {other}" if other == source.name else f"one in {other}, one in {source.name}"
                    raise ConfigurationError(
                        f"two tools are named {declaration.name!r}, {where}: give one another name"
                    )
                check_queue(declaration.name, declaration.queue, inline=declaration.inline)
                tools[declaration.name] = declaration.digested(), source
        self.services, self._tools = _services(declared for declared, _ in tools.values()), tools

    @property
    def declarations(self) -> tuple[ToolDeclaration, ...]:
        """Every tool that this process has itself."""
        return tuple(declared for declared, _ in self._tools.values())

    @property
    def queues(self) -> tuple[str, ...]:
        """The queues that tools name, each once."""
        return own_queues(declared.queue for declared, _ in self._tools.values() if declared.queue)

    def __contains__(self, name: object) -> bool:
        return name in self._tools or name in (self.elsewhere or ())

    def has_here(self, name: str) -> bool:
        """Tell whether this process can make calls of the tool."""
        return name in self._tools

    def __getitem__(self, name: str) -> ToolDeclaration:
        """Raises:
        UnknownTool: there is none of this name here; says which one may be meant.
        """
        there = self._others_with(name)
        return self._of(name)[0] if there is None else there[name]

    def named_behind(self, prefix: str) -> str | None:
        """The name of a tool, here or elsewhere, that begins with ``prefix``; None if there is none."""
        names = (*self._tools, *(self.elsewhere or ()))
        return next((name for name in names if name.startswith(prefix)), None)

    def check(
        self, name: str, text: str, offered: ToolDeclaration | None = None
    ) -> tuple[ToolDeclaration, dict[str, Any]]:
        """The tool, and the arguments in ``text``, which fit it, as far as this process can say; of one elsewhere, as
        it was ``offered`` to the model.

        Raises:
            UnknownTool: there is none of this name here.
            InvalidToolCall: the arguments do not fit.
        """
        there = self._others_with(name)
        if there is not None and not self._is_here(offered or there[name]):
            return there.check(name, text, offered)
        declared, source = self._of(name)
        return there[name] if there is not None else declared, source.check(declared, text)

    def require_fit(self, name: str, text: str, offered: ToolDeclaration | None = None) -> None:
        """Before a person decides on a call that `check` let pass.

        Raises:
            InvalidToolCall: the arguments do not fit the schema of a tool elsewhere.
        """
        there = self._others_with(name)
        if there is not None and not self._is_here(declared := offered or there[name]):
            fitting(declared, text)

    async def call(
        self, name: str, arguments: Mapping[str, Any], context: ToolContext, most: int | None = None
    ) -> ToolAnswer:
        """Call a tool; return the result for the model, in as many characters as the tool says, or in ``most``.

        Raises:
            ToolFailure: for the model, in place of a result.
        """
        declared, source = self._of(name)
        with self._watch(declared):
            call = source.call(declared.within(most), arguments, context)
            return await (left_behind(declared, call) if self._leaves_behind else call)

    def _others_with(self, name: str) -> Elsewhere | None:
        """The declarations of other workers, if its calls are theirs to make."""
        there, here = self.elsewhere, self._tools.get(name)
        return there if there is not None and name in there and not (here and here[0].inline) else None

    def _is_here(self, tool: ToolDeclaration) -> bool:
        """Tell whether this very version of a tool is at hand: then its code judges the arguments."""
        here = self._tools.get(tool.name)
        return here is not None and here[0].digest == tool.digest

    def _of(self, name: str) -> tuple[ToolDeclaration, ToolSource]:
        try:
            return self._tools[name]
        except KeyError:
            names = {*self._tools, *(self.elsewhere or ())}
            hint = did_you_mean(name, names) or f"; there are: {some_of(sorted(names)) or 'none'}"
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


def open_toolbox(
    settings: Settings,
    sources: Iterable[OpenSource],
    *,
    run_blocking: RunBlocking | None = contained,
    watch: Watch = _unwatched,
    elsewhere: Elsewhere | None = None,
) -> AbstractAsyncContextManager[Toolbox]:
    """Open these sources: what they import is imported here, in the main thread and before there is a loop; what is
    returned is entered on the loop. Without ``run_blocking`` there is no tool that may block, and a call that does not
    stop when it must is left behind: others share its loop.

    Raises:
        ConfigurationError: the settings of a source do not fit. Also when it is entered, or if two tools have one name.
    """
    opened = [opening(settings, run_blocking) for opening in sources]
    return _entered(opened, watch, leaves_behind=run_blocking is None, elsewhere=elsewhere)


@asynccontextmanager
async def _entered(
    sources: Sequence[AbstractAsyncContextManager[ToolSource]],
    watch: Watch,
    *,
    leaves_behind: bool,
    elsewhere: Elsewhere | None,
) -> AsyncIterator[Toolbox]:
    async with AsyncExitStack() as opened:
        entered = [await opened.enter_async_context(source) for source in sources]
        yield Toolbox(entered, watch, leaves_behind=leaves_behind, elsewhere=elsewhere)
