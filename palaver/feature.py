"""Features: what stands beside the core, each in a folder of its own that can be carried out.

A feature is a package with a `Feature`, named by an entry point of the group ``palaver.features``. It says what the
feature brings to which place of the core; that place imports it when it needs it, and the core imports no feature. The
fields of `Feature` are the doors, and each is optional.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from importlib import import_module
from importlib.metadata import EntryPoint, entry_points
from importlib.util import find_spec
from types import MappingProxyType
from typing import Any, Final, Literal, NamedTuple, Protocol, TypeVar

GROUP: Final = "palaver.features"
"""The group of entry points."""
CHOICE: Final = "PALAVER_FEATURES"
"""The variable of the environment that switches features off."""
R = TypeVar("R", bound="NamedRow")
_OURS: Final = "palaver.features."
"""Palaver's own in an installed wheel; a checkout has ``features`` beside ``palaver``."""


class NoSuchFeature(ValueError):
    """PALAVER_FEATURES names something else than features that are installed. `refusing` says so."""


class OperationGroup(NamedTuple):
    """A group of operations in /openapi.json."""

    name: str
    about: str
    after: str | None = None
    """The group of the core that it stands behind; None: in front of the last, which is about the server."""


class Beside(NamedTuple):
    """Something that a feature has beside the processes of one machine."""

    variables: Mapping[str, str]
    """Variables for these."""
    line: str
    """A line for who runs them: what it is, and what to set for another one."""


class NamedRow(Protocol):
    """A row of a table of the core."""

    @property
    def name(self) -> str: ...


@dataclass(frozen=True, slots=True)
class Feature:
    """A feature, and its parts. Each is ``module:attribute`` within its package, imported when it is asked for."""

    package: str
    """Its package: ``__name__`` of where this is made."""
    hash_tag: str | None = None
    """The hash tag of its own keys, as ``{palaver:notes}``: users of Redis have access to these."""
    scripts: str | None = None
    """The declarations of its scripts, a tuple. Their files are in ``lua/`` of its package."""
    hooks: Mapping[str, str] = field(default_factory=dict)
    """Its parts in scripts of the core, by their places (`palaver.store.scripting.hooks.PLACES`): the name of a file in
    ``lua/``, without the ``_`` in front. It sees each run, or those that its part at ``run_submitted`` shows to it:
    these are left alone by processes without it."""
    may_miss: bool = False
    """True: its parts only take note, and runs are not left alone by processes without it. It misses what these do."""
    switch: str | None = None
    """A variable of the environment: where neither it nor the one with ``_FILE`` is set, the feature has no parts in
    scripts of the core, holds nothing and recalls nothing. None: there is none."""
    holds: bool = False
    """True: what has ended stays in the store until the feature lets it go."""
    recall: str | None = None
    """A function of a `palaver.store.sides.Ground` that returns a `palaver.store.reading.recall.Remembering`, or None.
    It has runs and conversations that the store does not have any more."""
    names: str | None = None
    """The enums that its scripts write as Python does (`Switch.ON`), a tuple."""
    store: str | None = None
    """A `palaver.store.sides.StoreSide`."""
    events: tuple[str, ...] = ()
    """The types of events that its scripts tell of (`_tell.lua`), as ``batch.ended``: a feature that hears of these
    brings them to users."""
    planned: str | None = None
    """A function that makes a `palaver.operations.planned.Planned` of a backend. Model workers import it once there is
    anything in its index ``due``, and carry out what is due."""
    tokens: str | None = None
    """A function of the settings and the store that returns a `palaver.operations.live_keys.TokenReader`, or None where
    the settings ask for none."""
    loops: str | None = None
    """A function of the settings, the store and the name of the worker that returns what a worker runs beside its
    steps: coroutine functions, each begun again when it breaks down. It may raise ConfigurationError."""
    required: str | None = None
    """A function of the settings, called where a worker starts that may run its loops. It raises ConfigurationError for
    an environment that asks for what the feature cannot do."""
    queues: str | None = None
    """A coroutine function of a backend that returns what `GET /v1/queues` says of it, by field."""
    checks: str | None = None
    """A function of the settings that returns findings for `palaver check`."""
    source: tuple[str, str] | None = None
    """A source of tools: the name of its tables in the file of PALAVER_TOOL_SOURCES, and where its
    `workers.sources.guests.SourceKind` stands."""
    tool_classes: Mapping[tuple[str, str], str] = field(default_factory=dict)
    """Classes of tools in modules of users, by package and name, with a function each: of such a tool it returns a
    `palaver.tools.facts.ToolFacts`, or None if it is turned off. It may raise ConfigurationError."""
    own_servers: str | None = None
    """A function of the settings and the kept lists of tools that returns a `workers.sources.port.OwnServers`: servers
    that an agent names itself."""
    routes: str | None = None
    """A module that adds routes to the native dialect, or to one of its own; without an attribute."""
    group: OperationGroup | None = None
    """The group of its routes."""
    limits: str | None = None
    """Its rows among `palaver.vocabulary.limits.all_limits`, by the limit of the core that each stands behind."""
    metrics: str | None = None
    """Its rows among `palaver.telemetry.metrics.all_metrics`, by the metric of the core that each stands behind."""
    problems: str | None = None
    """The codes of problems that the API answers with for it, each a `palaver.errors.problem_codes.ProblemCode`."""
    beside: str | None = None
    """A function of the data directory and the environment of ``palaver up`` or ``palaver serve`` that returns a
    `Beside`."""
    commands: str | None = None
    """A tuple of `Command`, `CommandGroup` and `Program` of `palaver.cli.commands`. Imported for the help, and when a
    command is asked for that the core does not have."""
    tenant_verbs: str | None = None
    """A tuple of `palaver.cli.commands.TenantVerb`."""
    variables: tuple[str, ...] = ()
    """Variables of the environment that it reads and that are no settings of the core, by their whole names."""

    @property
    def on(self) -> bool:
        """True where its switch is, if it has one."""
        return self.switch is None or is_set(self.switch)

    @property
    def due(self) -> str | None:
        """The key of its index of what is due at a time (`palaver.store.redis.due`); None if nothing of it is."""
        return f"{self.hash_tag}:due" if self.planned else None

    @property
    def told(self) -> str | None:
        """The key of the list of tenants that it told of events (`palaver.store.redis.told_keys`); None if it tells of
        none."""
        return f"{self.hash_tag}:events" if self.events else None

    def load(self, place: str) -> Any:
        """Return what stands at ``module:attribute`` of its package, or the module."""
        module, _, attribute = place.partition(":")
        found = import_module(f"{self.package}.{module}")
        return getattr(found, attribute) if attribute else found


@cache
def is_set(switch: str) -> bool:
    """Tell whether a variable, or the one with ``_FILE``, was set when that was first asked: a process stays what it
    is."""
    return any(os.environ.get(switch + suffix) for suffix in ("", "_FILE"))


@cache
def features() -> Mapping[str, Feature]:
    """Return the features that are installed and not switched off, by name and in its order. Raises as `entries` and
    `loaded`."""
    return MappingProxyType({name: loaded(entry) for name, entry in entries().items()})


@cache
def entries() -> Mapping[str, EntryPoint]:
    """Return the entry points of these features. Raises NoSuchFeature for a PALAVER_FEATURES that does not fit."""
    found = {entry.name: entry for entry in sorted(entry_points(group=GROUP), key=lambda entry: entry.name)}
    for name in (each.strip() for each in os.environ.get(CHOICE, "").split(",")):
        if name and not name.startswith("-"):
            raise NoSuchFeature(f"{CHOICE}: {name!r} is no feature that is switched off, such as -{name}")
        if name and found.pop(name[1:], None) is None:
            raise NoSuchFeature(f"{CHOICE}: there is no feature {name[1:]!r} to switch off, but {', '.join(found)}")
    return MappingProxyType(found)


def switched_on() -> frozenset[str]:
    """Return the names of those that are on. To be asked before variables are hidden from tools."""
    return frozenset(name for name, feature in features().items() if feature.on)


def hash_tags() -> list[str]:
    """Return the hash tags of their own keys."""
    return [feature.hash_tag for feature in features().values() if feature.hash_tag]


def told_events() -> Mapping[str, str]:
    """Return the types of events that features tell of, each with the name of the feature. Raises ValueError for two of
    one type."""
    found: dict[str, str] = {}
    for name, feature in features().items():
        for event_type in feature.events:
            if found.setdefault(event_type, name) != name:
                raise ValueError(f"two features tell of {event_type}: {found[event_type]} and {name}")
    return MappingProxyType(found)


def seeing() -> frozenset[str]:
    """Return the names of those that see what becomes of runs."""
    return frozenset(name for name in switched_on() if (each := features()[name]).hooks and not each.may_miss)


def holding() -> bool:
    """Tell whether one of them holds what has ended."""
    return any(feature.holds and feature.on for feature in features().values())


def brought(
    part: Literal[
        "scripts",
        "names",
        "store",
        "planned",
        "loops",
        "required",
        "queues",
        "tokens",
        "checks",
        "own_servers",
        "routes",
        "limits",
        "metrics",
        "problems",
        "commands",
        "tenant_verbs",
    ],
) -> Iterator[Any]:
    """Yield this part of each feature that has one."""
    for feature in features().values():
        if (place := getattr(feature, part)) is not None:
            yield feature.load(place)


def put_behind(order: list[str], name: str, after: str | None, *, otherwise: int | None = None) -> None:
    """Put a name into an order behind another one; if that is not there, at the place ``otherwise``, or at the end."""
    order.insert(order.index(after) + 1 if after in order else len(order) if otherwise is None else otherwise, name)


def with_rows(own: Mapping[str, R], part: Literal["limits", "metrics"]) -> Mapping[str, R]:
    """Return rows of the core by their names, and each of features behind the row of the core that it says; at the end,
    where there is none of that name. Raises ValueError for two rows of one name."""
    rows = [*own.values()]
    for placed in brought(part):
        for name, more in placed.items():
            place = rows.index(own[name]) + 1 if name in own else len(rows)
            rows[place:place] = more
    named = {row.name: row for row in rows}
    if len(named) < len(rows):
        twice = next(row.name for row in rows if named[row.name] is not row)
        raise ValueError(f"two features, or one and the core, have {part} of one name: {twice}")
    return MappingProxyType(named)


def loaded(entry: EntryPoint) -> Any:
    """Return the object of an entry point: in a checkout, modules of ours are not below ``palaver``.

    Raises ImportError or AttributeError if it leads nowhere.
    """
    module = entry.module
    if module.startswith(_OURS) and find_spec(_OURS.removesuffix(".")) is None:
        module = module.removeprefix("palaver.")
    return getattr(import_module(module), entry.attr)
