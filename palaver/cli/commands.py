"""The shapes of commands and programs that features bring; those that have verbs, of the core as well."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Command:
    """A command without verbs."""

    name: str
    command: Callable[..., None]
    after: str | None = None
    """The command of the core that the help lists before it; None: it stands at the end."""


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


@dataclass(frozen=True, slots=True)
class Program:
    """A program for where workers run, which this process becomes; the help has it among what is on a server."""

    name: str
    about: str
    """The sentence of the help."""
    module: str
    """The module that is run, by its whole name."""
    after: str | None = None
    """The program of the core that the help lists before it; None: it stands at the end."""


@dataclass(frozen=True, slots=True)
class TenantVerb:
    """A verb of ``palaver tenants`` about one of them: ``palaver tenants erase NAME``."""

    name: str
    help: str
    """The words of the list of verbs."""
    description: str
    arguments: Callable[[ArgumentParser], None]
    """Declares what it takes besides the name."""
    run: Callable[[Any, Namespace], Awaitable[None]]
    """Does it: gets the store, and what was typed. Raises Refused and StateConflict with what is said."""
