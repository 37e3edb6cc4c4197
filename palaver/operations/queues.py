"""Queues and providers: the steps that wait and run, the workers, and the causes of delays."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from palaver.errors import ErrorClassName
from palaver.feature import brought
from palaver.operations.acting import check_sees_installation
from palaver.operations.backend import Backend, within_deadline
from palaver.schemas.archive import ArchiveState
from palaver.schemas.fields import DataModel
from palaver.schemas.tenants import Caps
from palaver.store.fleet.fleet import WorkerReport
from palaver.store.fleet.provider_states import Outage
from palaver.store.fleet.turns import MOST_SHOWN
from palaver.store.redis.reach import is_reached
from palaver.store.redis.visits import note_missing
from palaver.vocabulary.step_kinds import QueueName


class QueueWorker(DataModel):
    """A worker process as it reports itself."""

    id: str
    in_flight: int
    """Its steps of this queue."""
    capacity: int
    """Its places; one that takes from several queues has them for all."""
    draining: bool
    lacks: tuple[str, ...]
    """The capabilities that its own settings name and that it lacks: `key:VARIABLE` of a provider, or
    `refused_key:PROVIDER`."""


class RefusedWorker(DataModel):
    """A worker process that does no steps: its broker or its store refuses commands that a step needs."""

    id: str
    refused: tuple[str, ...]
    """Commands of Redis, such as `blmpop`, that its user may not use; `login`: it is not let in."""


class TenantTurn(DataModel):
    """A tenant whose steps wait for their turn in a queue: more are ready than workers take at once."""

    tenant: str
    """Its name."""
    waiting: int
    """Its steps that wait."""
    first_waits_seconds: float
    """The time for which the one that comes first has waited."""
    in_flight: int
    """Its steps, of all queues, that are delivered or that a worker has."""
    max_in_flight: int | None
    """The cap of these; null: none."""
    at_cap: bool
    """True: it waits for its own steps to end. False: its turn comes, the sooner the greater its `weight`."""
    weight: int


class QueueState(DataModel):
    """A queue: of a kind of steps, or one that tools name."""

    name: QueueName
    ready: int
    """Steps that are ready and that no worker has claimed yet."""
    oldest_ready_seconds: float
    running: int
    """Steps in flight on all its workers."""
    workers: list[QueueWorker]
    refused: list[RefusedWorker]
    """Workers that are there and do no steps; they are not among ``workers``."""
    tenants: list[TenantTurn]
    """Tenants whose steps wait for their turn, 100 at most; empty as long as workers take what is ready at once."""


class OutageState(DataModel):
    """A provider that is out, or one of its models: calls failed in a row as in an outage."""

    model: str | None
    """Null: all of its models."""
    since: datetime
    error_class: ErrorClassName
    """The class of the last failure, which `code` and `message` are about, too."""
    code: str
    message: str
    next_probe: datetime
    """The time from which one call tries the provider; all others wait."""
    waiting: int
    """Model steps that wait for its end."""


class CoolDownState(DataModel):
    """A provider, or one of its models, that asked for fewer requests: no calls until then, and few at first."""

    model: str | None
    """Null: all of its models."""
    until: datetime
    waiting: int
    """Model steps that wait for it."""


class ProviderState(DataModel):
    """A model provider, as all workers together use it."""

    name: str
    cooling_until: datetime | None
    """The end of the last of its cool-downs; null: it has none."""
    cooling: list[CoolDownState]
    """Its cool-downs, after answers that ask for fewer requests."""
    waiting: int
    """Model steps that wait for it, in no queue and with no worker."""
    outages: list[OutageState]
    """Empty: calls are answered."""
    in_flight: int | None
    """Calls under way; null without `max_in_flight`, they are not counted then."""
    max_in_flight: int | None
    requests_last_minute: int | None
    """Null without any limit, as are the tokens."""
    requests_per_minute: int | None
    tokens_last_minute: int | None
    tokens_per_minute: int | None


class LackedState(DataModel):
    """A capability that steps wait for, because the workers that took them lack it; or a queue that they wait in,
    because no worker takes from it."""

    code: str
    """`tool:NAME`, `provider:NAME`, `key:VARIABLE`, `refused_key:PROVIDER` or `queue:NAME`; as in `waiting` of their
    runs."""
    steps: int
    """Steps that wait for it: with no worker, and in no queue but that of `queue:NAME`."""
    run_id: str | None
    """One of their runs; null if it is another tenant's."""


class LostState(DataModel):
    """A loss of the store when it was restarted, moved or restored, as far as its counts tell."""

    at: datetime
    """The time at which it was noticed."""
    runs: int
    """Runs that had been taken on and are gone, at least."""
    steps: int
    """Steps that had been done and are not any more, at least."""
    replaced: bool
    """True if it is another store than before, or an empty one."""


class RoomState(DataModel):
    """The use of what is limited, and the limits beyond which new runs are refused."""

    runs: int
    """Unfinished runs, about: those that are worked on or wait for a time count twice."""
    max_runs: int
    memory_bytes: int
    """Bytes that Redis uses."""
    max_memory_bytes: int | None
    """A share of Redis's `maxmemory`; null when that is not set."""


async def read_queues(backend: Backend) -> list[QueueState]:
    """Return every queue. Depths come from the store, not the broker: a step that a worker has fetched and not begun
    still counts.

    Raises:
        Refused: ``operators_only``.
    """
    check_sees_installation()
    depths = await within_deadline(backend.store.due.depths())
    workers = await within_deadline(backend.store.fleet.workers())
    turns = await _read_turns(backend)
    states = []
    for name, (ready, oldest) in depths.items():
        mine = [
            QueueWorker(
                id=worker.id,
                in_flight=worker.in_flight_of(name),
                capacity=worker.capacity,
                draining=worker.draining,
                lacks=worker.lacks,
            )
            for worker in workers
            if name in worker.queues and not worker.refused
        ]
        states.append(
            QueueState(
                name=name,
                ready=ready,
                oldest_ready_seconds=round(max(oldest, 0.0), 3),
                # What a refused one has begun it may still end.
                running=sum(worker.in_flight_of(name) for worker in workers if name in worker.queues),
                workers=mine,
                refused=_refused(workers, name),
                tenants=turns[name],
            )
        )
    return states


async def _read_turns(backend: Backend) -> Mapping[str, list[TenantTurn]]:
    store = backend.store
    waiting = await within_deadline(store.waiting_tenants.by_queue())
    if not any(waiting.values()):
        return {queue: [] for queue in waiting}
    names = {tenant.tag: tenant.name for tenant in await within_deadline(store.tenants.list())}
    caps = defaultdict(Caps, await within_deadline(store.caps.of_all()))
    return {
        queue: [
            TenantTurn(
                tenant=names.get(tenant.tag, tenant.tag),
                waiting=tenant.waiting,
                first_waits_seconds=round(tenant.first_for, 3),
                in_flight=tenant.in_flight,
                max_in_flight=caps[tenant.tag].max_in_flight,
                at_cap=tenant.at_cap,
                weight=caps[tenant.tag].weight,
            )
            for tenant in tenants[:MOST_SHOWN]
        ]
        for queue, tenants in waiting.items()
    }


def _refused(workers: Iterable[WorkerReport], *queues: str) -> list[RefusedWorker]:
    """Return the workers that are refused something, of all queues unless some are named."""
    return [
        RefusedWorker(id=worker.id, refused=worker.refused)
        for worker in workers
        if worker.refused and (not queues or not set(queues).isdisjoint(worker.queues))
    ]


async def read_refused(backend: Backend) -> list[RefusedWorker]:
    """Return every worker that does no steps, because its broker or its store refuses commands that they need."""
    return _refused(await within_deadline(backend.store.fleet.workers()))


async def read_providers(backend: Backend) -> list[ProviderState]:
    """Return every provider that the API knows."""
    states = []
    for usage in await within_deadline(backend.store.providers.state(backend.providers)):
        limits = backend.providers[usage.name].limits
        states.append(
            ProviderState(
                name=usage.name,
                cooling_until=usage.cooling_until,
                cooling=[
                    CoolDownState(model=gate.model, until=gate.until, waiting=gate.waiting) for gate in usage.cooling
                ],
                waiting=usage.waiting,
                outages=[state_of_outage(outage) for outage in usage.outages],
                in_flight=usage.in_flight if limits.max_in_flight else None,
                max_in_flight=limits.max_in_flight,
                requests_last_minute=usage.requests_last_minute if limits else None,
                requests_per_minute=limits.requests_per_minute,
                tokens_last_minute=usage.tokens_last_minute if limits else None,
                tokens_per_minute=limits.tokens_per_minute,
            )
        )
    return states


def state_of_outage(outage: Outage) -> OutageState:
    """Return an outage as it is shown."""
    return OutageState(
        model=outage.model,
        since=outage.since,
        error_class=outage.failure.error_class,
        code=outage.failure.code,
        message=outage.failure.message,
        next_probe=outage.next_probe,
        waiting=outage.waiting,
    )


async def read_lacked(backend: Backend) -> list[LackedState]:
    """Return every capability that steps wait for because no worker that took them has it, or takes them.

    Raises:
        Refused: ``operators_only``.
    """
    check_sees_installation()
    lacked = await within_deadline(backend.store.lacking.read())
    return [
        LackedState(code=lack.code, steps=lack.steps, run_id=lack.run_id if is_reached(lack.run_id) else None)
        for lack in lacked
    ]


async def read_of_features(backend: Backend) -> Mapping[str, Sequence[Any]]:
    """Return what features say of what waits, by field. Raises as `read_lacked`."""
    found: dict[str, Sequence[Any]] = {}
    for read in brought("queues"):
        found |= await read(backend)
    return found


async def read_archive(backend: Backend) -> ArchiveState | None:
    """Return how it stands with the archive; None if this process has none. Raises as `read_lacked`."""
    check_sees_installation()
    return await within_deadline(backend.store.memories.state())


async def read_room(backend: Backend) -> RoomState:
    """Return the use of what is limited."""
    memory = await within_deadline(backend.store.capacity.memory())
    return RoomState(
        runs=await within_deadline(backend.store.capacity.runs()),
        max_runs=backend.settings.max_runs,
        memory_bytes=memory.used,
        max_memory_bytes=int(memory.limit) or None,
    )


async def check_store(backend: Backend) -> LostState | None:
    """See that the store answers, and takes writes. Return its latest loss; None if it lost nothing. Raises what keeps
    it from that: a part of it that is away does not."""
    note_missing(backend.store.missing())
    loss = await within_deadline(backend.store.rewinds.last())
    await within_deadline(backend.store.capacity.require_writes())
    if loss is None:
        return None
    return LostState(at=datetime.fromtimestamp(loss.at, UTC), runs=loss.runs, steps=loss.steps, replaced=loss.replaced)
