"""Tools of other frameworks, known by their classes, which features name."""

from __future__ import annotations

import sys
from typing import Final

from palaver.feature import features
from palaver.tools.facts import ToolFacts

_NO_FRAMEWORKS: Final = sys.stdlib_module_names | {"palaver"}


def foreign_tool(value: object) -> ToolFacts | None:
    """Return the facts about ``value`` if it is a tool of a framework that a feature knows; None if it is not, or is
    turned off.

    Raises:
        ConfigurationError: it needs what only its framework has.
    """
    for cls in type(value).__mro__:
        package = cls.__module__.partition(".")[0]
        # Features are not looked up for functions and other things of Python's own.
        if package in _NO_FRAMEWORKS:
            continue
        for feature in features().values():
            if (place := feature.tool_classes.get((package, cls.__name__))) is not None:
                made: ToolFacts | None = feature.load(place)(value)
                return made
    return None
