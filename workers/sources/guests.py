"""Sources of tools that are no Python functions, which the TOML file of ``PALAVER_TOOL_SOURCES`` declares.

    [http.crm]
    ...

Each kind of source is a feature, which is imported if the file has a table of its kind. Servers that an agent names
itself are one's, too, which is imported with the first of them.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Collection, Mapping
from contextlib import AbstractAsyncContextManager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Final, Generic, Protocol, TypeVar, runtime_checkable

from pydantic import BaseModel, StringConstraints, create_model

from palaver.config.settings import Settings
from palaver.config.toml_file import read_strictly, read_toml
from palaver.errors import ConfigurationError
from palaver.feature import brought, features
from palaver.late import dataclass
from palaver.schemas.fields import Strict
from palaver.tools import ToolDeclaration
from palaver.tools.schemas import fitting
from palaver.vocabulary.limits import count_exceeded, limit_of
from palaver.vocabulary.names import did_you_mean

from .port import KeptLists, OpenSource, OwnServers, RunBlocking, ToolSource

VARIABLE: Final = "PALAVER_TOOL_SOURCES"
SourceName = Annotated[str, StringConstraints(pattern=r"^[a-z0-9][a-z0-9_-]{0,31}$")]
"""The name of a source: ``crm`` in ``[http.crm]``."""
S = TypeVar("S", bound=Strict)


@dataclass(frozen=True, slots=True)
class SourceFinding:
    """The state of one source, as ``palaver tools check`` found it."""

    source: str
    """Its table: ``http.crm``."""
    ok: bool
    found: str
    """A sentence."""
    tools: tuple[str, ...] = ()
    advice: str = ""
    """A sentence that says what to do; empty if it is well."""


class ToolsOfFile:
    """The part of a source whose tools stand in the file, or behind it: all that is known of them is their schema."""

    name = VARIABLE

    def check(self, declared: ToolDeclaration, text: str) -> dict[str, Any]:
        """As ``ToolSource``."""
        return fitting(declared, text)


class SourceKind(Protocol[S]):
    """A kind of source."""

    section: type[S]
    """The model of one table."""

    def open(
        self, settings: Settings, sections: Mapping[str, S], run_blocking: RunBlocking | None
    ) -> AbstractAsyncContextManager[ToolSource]:
        """Open one source with the tools of all ``sections``, by their names, as ``OpenSource``.

        A service that does not answer is no reason to raise: its tools are declared by the file, or left out with a
        line of the log, and its calls fail."""

    def check(self, settings: Settings, sections: Mapping[str, S]) -> AsyncIterator[SourceFinding]:
        """Look at each of them: whether it answers, and which tools it has."""


@runtime_checkable
class ReadAhead(Protocol):
    """A kind of source that has to read what takes long, and is the same in all processes of a worker."""

    def read_ahead(self, sections: Mapping[str, Any]) -> None:
        """Read it, in the main process and without importing code of users, so that children have it when they begin.

        Raises:
            ConfigurationError: it cannot be read."""


@dataclass(frozen=True, slots=True)
class SourceTables(Generic[S]):
    """A guest with its tables."""

    kind: str
    guest: SourceKind[S]
    sections: Mapping[str, S]

    @property
    def tables(self) -> Mapping[str, S]:
        """Its tables by their full names: ``http.crm``."""
        return {f"{self.kind}.{name}": section for name, section in self.sections.items()}

    def only(self, tables: Collection[str]) -> SourceTables[S]:
        """The same with these tables."""
        chosen = {name: section for name, section in self.sections.items() if f"{self.kind}.{name}" in tables}
        return replace(self, sections=chosen)

    @property
    def opening(self) -> OpenSource:
        """Opens it in a worker process."""
        return partial(_open, self)


def _open(
    declared: SourceTables[Any], settings: Settings, run_blocking: RunBlocking | None
) -> AbstractAsyncContextManager[ToolSource]:
    return declared.guest.open(settings, declared.sections, run_blocking)


def declared_sources(path: Path | None) -> tuple[SourceTables[Any], ...]:
    """The guests that the file names; none if there is no file.

    Raises:
        ConfigurationError: it cannot be read, a table is of no kind that there is, or something in it does not fit.
    """
    if path is None:
        return ()
    kinds = tuple(read_toml(path, VARIABLE))
    known = kinds_of_sources()
    for kind in kinds:
        if kind not in known:
            hint = did_you_mean(kind, known) or f"; there are: {', '.join(known)}"
            raise ConfigurationError(f"{VARIABLE}: {path}: [{kind}] is no kind of source{hint}")
    guests = {kind: _guest(kind, known[kind]) for kind in kinds}
    tables = _read(guests, path)
    if (number := sum(map(len, tables.values()))) > (most := limit_of("tool_sources")):
        count_exceeded("tool_sources")
        raise ConfigurationError(f"{VARIABLE}: {path}: {number} sources; at most {most}: give some to other workers")
    return tuple(SourceTables(kind, guests[kind], tables[kind]) for kind in kinds)


def kinds_of_sources() -> Mapping[str, Callable[[], SourceKind[Any]]]:
    """Return what loads each kind of source that is installed, by the name of its tables."""
    sources = ((feature, feature.source) for feature in features().values())
    return dict(sorted((source[0], partial(feature.load, source[1])) for feature, source in sources if source))


def _guest(kind: str, load: Callable[[], SourceKind[Any]]) -> SourceKind[Any]:
    try:
        return load()
    except ModuleNotFoundError as error:
        extra = f"pip install 'palaver[{kind}]'"
        raise ConfigurationError(f"{VARIABLE}: [{kind}.…] needs {error.name}: {extra}") from None


def _read(guests: Mapping[str, SourceKind[Any]], path: Path) -> Mapping[str, Mapping[str, Any]]:
    """Return the tables of each kind, as its guest's model."""
    if not guests:
        return {}
    tables: dict[str, Any] = {kind: (Mapping[SourceName, guest.section], ...) for kind, guest in guests.items()}  # type: ignore[name-defined]
    model: type[BaseModel] = create_model("ToolSources", __base__=Strict, **tables)
    read = read_strictly(model, path, VARIABLE)
    return {kind: getattr(read, kind) for kind in guests}


def open_own_servers(settings: Settings, lists: KeptLists) -> OwnServers:
    """Open them: nothing is asked yet. Raises ConfigurationError: no feature that is installed knows such servers."""
    for open_servers in brought("own_servers"):
        opened: OwnServers = open_servers(settings, lists)
        return opened
    raise ConfigurationError("an agent names servers of its own, and no feature that is installed knows them")
