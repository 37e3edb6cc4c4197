"""Finds the tools: the built-in ones and those of the modules in ``PALAVER_TOOLS`` and ``PALAVER_INLINE_TOOLS``."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterable
from typing import Any, cast

from palaver.errors import ConfigurationError
from palaver.tools.declaration import Tool, tool
from palaver.tools.foreign import foreign_tool


def load_tools(modules: Iterable[str], inline_modules: Iterable[str] = ()) -> tuple[Tool, ...]:
    """The built-in tools and every tool at the top level of these modules, each once: a ``Tool``, or one of another
    framework. A module may be among both.

    Raises:
        ConfigurationError: when a module cannot be imported, or has no tool.
    """
    # Not above: an API has the declarations alone.
    from palaver.tools import builtin

    settings = dict.fromkeys(modules, "PALAVER_TOOLS") | dict.fromkeys(inline_modules, "PALAVER_INLINE_TOOLS")
    loaded = _of(builtin)
    for name, setting in settings.items():
        try:
            module = importlib.import_module(name)
        except Exception as error:
            raise ConfigurationError(f"{setting}: cannot import {name!r}: {type(error).__name__}: {error}") from error
        tools = _of(module)
        if not tools.keys() - loaded.keys():
            raise ConfigurationError(f"{setting}: module {name!r} declares no tool (a function with @tool)")
        loaded |= tools
    return tuple(loaded.values())


def _of(module: object) -> dict[int, Tool]:
    """The tools of ``module``, by the identity of what stands there: a module may have two names for one tool, and
    others may import it."""
    tools = {}
    for value in vars(module).values():
        if isinstance(value, Tool):
            tools[id(value)] = value
        elif foreign_tool(value) is not None:
            tools[id(value)] = tool(cast("Callable[..., Any]", value))
    return tools
