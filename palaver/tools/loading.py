"""Finds the functions that are tools: the built-in ones and those of the modules in ``PALAVER_TOOLS``."""

from __future__ import annotations

import importlib
from collections.abc import Iterable

from palaver.errors import ConfigurationError
from palaver.tools import builtin
from palaver.tools.declaration import Tool


def load_tools(modules: Iterable[str]) -> tuple[Tool, ...]:
    """The built-in tools and every ``Tool`` at the top level of ``modules``, each once.

    Raises:
        ConfigurationError: when a module cannot be imported, or has no tool.
    """
    loaded = _of(builtin)
    for name in modules:
        try:
            module = importlib.import_module(name)
        except Exception as error:
            why = f"{type(error).__name__}: {error}"
            raise ConfigurationError(f"PALAVER_TOOLS: cannot import {name!r}: {why}") from error
        tools = [tool for tool in _of(module) if tool not in loaded]
        if not tools:
            raise ConfigurationError(f"PALAVER_TOOLS: module {name!r} declares no tool (a function with @tool)")
        loaded += tools
    return tuple(loaded)


def _of(module: object) -> list[Tool]:
    # A module may have two names for one tool.
    return list({id(value): value for value in vars(module).values() if isinstance(value, Tool)}.values())
