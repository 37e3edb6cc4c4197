"""Which tools there are: the built-in ones and those of the modules in ``PALAVER_TOOLS``."""

from __future__ import annotations

import difflib
import importlib
from collections.abc import Iterable, Iterator, Mapping

from palaver.errors import ConfigurationError, UnknownTool
from palaver.tools import builtin
from palaver.tools.declaration import Tool


class Registry(Mapping[str, Tool]):
    """Tools by name."""

    def __init__(self, tools: Iterable[Tool]) -> None:
        self._tools: dict[str, Tool] = {}
        for each in tools:
            if self._tools.setdefault(each.name, each) is not each:
                raise ConfigurationError(f"two tools are named {each.name!r}; give one of them another `name`")

    def __getitem__(self, name: str) -> Tool:
        try:
            return self._tools[name]
        except KeyError:
            close = difflib.get_close_matches(name, self._tools, n=1)
            hint = f"; did you mean {close[0]!r}?" if close else f"; there are {', '.join(sorted(self._tools))}"
            raise UnknownTool(f"there is no tool {name!r}{hint}") from None

    def __contains__(self, name: object) -> bool:
        return name in self._tools

    def __iter__(self) -> Iterator[str]:
        return iter(self._tools)

    def __len__(self) -> int:
        return len(self._tools)


def load_tools(modules: Iterable[str]) -> Registry:
    """The built-in tools and every ``Tool`` at the top level of ``modules``.

    Raises:
        ConfigurationError: when a module cannot be imported, has no tool, or a name is taken.
    """
    found: list[Tool] = list(_of(builtin))
    for name in modules:
        try:
            module = importlib.import_module(name)
        except Exception as error:
            why = f"{type(error).__name__}: {error}"
            raise ConfigurationError(f"PALAVER_TOOLS: cannot import {name!r}: {why}") from error
        tools = [each for each in _of(module) if each not in found]
        if not tools:
            raise ConfigurationError(f"PALAVER_TOOLS: module {name!r} declares no tool (a function with @tool)")
        found += tools
    return Registry(found)


def _of(module: object) -> list[Tool]:
    return [value for value in vars(module).values() if isinstance(value, Tool)]
