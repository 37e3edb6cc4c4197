"""What workers can do, as they said a moment ago, and what fits their tools. The API has none of their code."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence, Sized
from dataclasses import dataclass
from itertools import islice
from typing import Any, Final, Generic, TypeVar

import jsonschema_rs

from palaver.errors import Fault
from palaver.limits import most
from palaver.names import did_you_mean
from palaver.store import Store
from palaver.store.sharing import Sharing
from palaver.tools import ToolDeclaration
from palaver.tools.schemas import misfits, said_of

from ..strict_json import pointer

KnownTools = Mapping[str, Sequence[ToolDeclaration]]
"""By name; while a deployment rolls a tool may have several declarations, those seen last first."""
_FRESH: Final = 2.0
"""Seconds for which what was read is used."""


@dataclass(frozen=True, slots=True)
class Known:
    """What an agent may name, as far as it was asked for."""

    tools: KnownTools
    providers: frozenset[str] | None
    """Those that a worker can call; none if none has told yet, None if some do not tell."""


S = TypeVar("S", bound=Sized | None)


class _Fresh(Generic[S]):
    """Something that is read again once it is older than a moment, or as long as there is nothing."""

    def __init__(self, reads: Sharing, read: Callable[[], Awaitable[S]]) -> None:
        self._reads = reads
        self._read = read
        self._kept: tuple[S, float] | None = None
        """What was read, and until when it is used."""

    async def get(self) -> S:
        """As it was a moment ago. Raises what reading raises."""
        if self._kept is None or time.monotonic() >= self._kept[1]:
            found = await self._reads.read(self, self._read)
            nothing = found is not None and not found
            self._kept = None if nothing else (found, time.monotonic() + _FRESH)
            return found
        return self._kept[0]


class Catalog:
    """What the store knows of the workers' abilities, read now and then."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._reads = Sharing(2)
        self._tools = _Fresh(self._reads, self._read_tools)
        self._providers = _Fresh(self._reads, store.fleet.providers)

    async def tools(self) -> KnownTools:
        """Every tool that a worker has, or had within the last hour. Raises what the store raises."""
        return await self._tools.get()

    async def providers(self) -> frozenset[str] | None:
        """Every provider that a worker can call, or could within the last hour; None if some workers do not tell.
        Raises what the store raises."""
        return await self._providers.get()

    async def close(self) -> None:
        """Read no more."""
        await self._reads.close()

    async def _read_tools(self) -> KnownTools:
        found: dict[str, list[ToolDeclaration]] = {}
        for declarations in (await self._store.tools.declared()).values():
            for each in declarations:
                found.setdefault(each.name, []).append(each)
        return found


def argument_faults(versions: Sequence[ToolDeclaration], arguments: Mapping[str, Any]) -> list[Fault]:
    """Why ``arguments`` fit none of a tool's declarations: what the newest says."""
    faults: list[Fault] = []
    for declared in reversed(versions):
        faults = list(islice(_faults(declared.parameters, arguments), most("faults")))
        if not faults:
            break
    return faults


def _faults(schema: dict[str, Any], arguments: Mapping[str, Any]) -> Iterator[Fault]:
    for error in misfits(schema, arguments):
        place, kind = tuple(error.instance_path), error.kind
        match kind:
            case jsonschema_rs.ValidationErrorKind.Required():
                yield Fault(pointer((*place, kind.property)), "invalid_arguments", "is required")
            case jsonschema_rs.ValidationErrorKind.AdditionalProperties():
                for name in kind.unexpected:
                    hint = did_you_mean(name, schema.get("properties", {})) if not place else ""
                    yield Fault(pointer((*place, name)), "invalid_arguments", f"is not a parameter{hint}")
            case _:
                yield Fault(pointer(place), "invalid_arguments", said_of(error))
