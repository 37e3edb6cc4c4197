"""Dialects that packages offer, as entry points of the group ``palaver.dialects``.

The name of an entry point is what ``PALAVER_DIALECTS`` calls it, its object a `Dialect`. Only those that are chosen are
imported.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from importlib.metadata import EntryPoint, entry_points
from typing import Final

from palaver.config.variables import DIALECTS
from palaver.errors import ConfigurationError
from palaver.feature import brought, loaded
from palaver.vocabulary.names import did_you_mean

from ..kit.dialects import Dialect
from ..native import NATIVE

_ALWAYS: Final = "native"
_CONSOLE: Final = "console"


def dialects_of(chosen: Sequence[str], *, console: bool = False) -> tuple[Dialect, ...]:
    """Return the native dialect, and others by their names; ``*`` is all that are installed but the ``console``, which
    is no dialect to anybody but this API.

    Raises:
        ConfigurationError: none of that name is installed, or it cannot be imported.
    """
    names = [name for name in chosen if name != _ALWAYS]
    if not names and not console:
        return (NATIVE,)
    known = {entry.name: entry for entry in entry_points(group=DIALECTS)}
    selected = {name: None for name in known if name != _CONSOLE} if "*" in names else dict.fromkeys(names)
    if console:
        selected[_CONSOLE] = None
    return (NATIVE, *(_load(name, known) for name in selected))


def add_routes() -> None:
    """Add the routes of features to the dialects that they are of."""
    # To import a module with routes adds them.
    list(brought("routes"))


def _load(name: str, known: Mapping[str, EntryPoint]) -> Dialect:
    if name not in known:
        there = ", ".join(sorted({_ALWAYS, *known}))
        raise ConfigurationError(
            f"PALAVER_DIALECTS: no dialect {name!r} is installed, there is {there}{did_you_mean(name, known)}"
        )
    entry = known[name]
    try:
        dialect = loaded(entry)
    except (ImportError, AttributeError) as error:
        raise ConfigurationError(
            f"PALAVER_DIALECTS: {name!r} cannot be imported from {entry.module}: {error}"
        ) from error
    if not isinstance(dialect, Dialect):
        raise ConfigurationError(f"PALAVER_DIALECTS: {entry.value}, which {name!r} names, is no Dialect")
    return dialect
