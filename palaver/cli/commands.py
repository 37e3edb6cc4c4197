"""The shape of a command that has verbs: those of the core, and those that features bring."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class CommandGroup:
    """A command that has verbs of its own."""

    name: str
    about: str
    """The sentence of the help."""
    verbs: Mapping[str, Callable[..., None]]
    """The command of each, in the order of its help."""
    after: str | None = None
    """The command of the core that the help lists before it; None: it stands at the end."""
