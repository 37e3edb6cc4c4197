"""A catalog of the workers' tools and providers, as they declared them a moment ago, and a check of arguments for the
tools. The API has none of the workers' code."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Any, Final, TypeVar

from pydantic import BaseModel

from palaver.errors import ErrorClass, FieldError, classify
from palaver.schemas.json_pointers import pointer
from palaver.schemas.models import Waiting
from palaver.store import Store
from palaver.store.fleet.tools import DeclaredSet
from palaver.store.redis.single_flight import Fresh, SingleFlight
from palaver.tools import ToolDeclaration
from palaver.tools.schemas import misfits
from palaver.vocabulary.lifecycle import WaitReason
from palaver.vocabulary.limits import limit_of
from palaver.vocabulary.names import did_you_mean
from palaver.vocabulary.step_kinds import MODEL

P = TypeVar("P", bound=BaseModel)
KnownTools = Mapping[str, Sequence[ToolDeclaration]]
"""Declarations of tools by name. While a deployment rolls a tool may have several of them: the one seen last is
first."""
_LASTS: Final = 2.0
"""Seconds for which a reading is used."""


class Catalog:
    """The capabilities of the workers as the store has them, read now and then."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._reads = SingleFlight(2)
        self._sets: Mapping[str, DeclaredSet] = {}
        self._tools = Fresh(self._reads, self._read_tools, _LASTS)
        self._attended = Fresh(self._reads, store.fleet.taken_from, _LASTS)
        self._providers = Fresh(self._reads, store.fleet.providers, _LASTS)

    async def tools(self, wanted: Iterable[str] = ()) -> KnownTools | None:
        """Return every tool that a worker has, or that the last ones of a queue had; None if the store never had
        a worker that runs tools. Those that are wanted may come with a worker that has just begun. Raises what the
        store raises."""
        return await self._tools.get(lambda known: known is not None and known.keys() >= {*wanted})

    async def providers(self, wanted: Iterable[str] = ()) -> frozenset[str] | None:
        """Return every provider that a worker can call, or could within the last hour; None if some workers do not
        report theirs. Those that are wanted as above. Raises what the store raises."""
        return await self._providers.get(lambda known: known is None or known >= {*wanted})

    async def with_waiting(self, planned: Sequence[P], goes_on: Callable[[P], bool]) -> list[P]:
        """Return planned work; where no worker takes model steps, with ``waiting`` in those that go on. Raises
        what the store raises."""
        if not any(map(goes_on, planned)):
            return list(planned)
        if MODEL.queue in await self._attended.get(lambda known: MODEL.queue in known):
            return list(planned)
        waiting = Waiting(reason=WaitReason.NO_WORKER, code=f"queue:{MODEL.queue}")
        return [each.model_copy(update={"waiting": waiting}) if goes_on(each) else each for each in planned]

    async def close(self) -> None:
        """Read no more."""
        await self._reads.close()

    async def _read_tools(self) -> KnownTools | None:
        try:
            self._sets = sets = await self._store.tools.declared()
        except Exception as error:
            # They are on one server of a cluster, and others may take runs on.
            if not self._sets or classify(error).error_class is not ErrorClass.STORAGE:
                raise
            sets = self._sets
        tools: dict[str, list[ToolDeclaration]] = {}
        for declared in sets.values():
            for declaration in declared.tools:
                tools.setdefault(declaration.name, []).append(declaration)
        # Model workers run few tools themselves: who has seen no other cannot say that there is no such tool.
        return tools if any(declared.queues - {MODEL.queue} for declared in sets.values()) else None


def argument_faults(versions: Sequence[ToolDeclaration], arguments: Mapping[str, Any]) -> list[FieldError]:
    """Return the faults of ``arguments`` that fit none of a tool's declarations, by the newest one; none if they fit
    one."""
    faults: list[FieldError] = []
    for declared in reversed(versions):
        faults = faults_by_schema(declared.parameters, arguments)
        if not faults:
            break
    return faults


def faults_by_schema(schema: dict[str, Any], arguments: Mapping[str, Any]) -> list[FieldError]:
    """Return the faults of ``arguments`` by a schema, as many as are told."""
    return list(islice(_faults(schema, arguments), limit_of("faults")))


def _faults(schema: dict[str, Any], arguments: Mapping[str, Any]) -> Iterator[FieldError]:
    for misfit in misfits(schema, arguments):
        place = misfit.place
        if misfit.missing is not None:
            yield FieldError(pointer((*place, misfit.missing)), "invalid_arguments", "is required")
        elif misfit.unexpected:
            for name in misfit.unexpected:
                hint = did_you_mean(name, schema.get("properties", {})) if not place else ""
                yield FieldError(pointer((*place, name)), "invalid_arguments", f"is not a parameter{hint}")
        else:
            yield FieldError(pointer(place), "invalid_arguments", misfit.message)
