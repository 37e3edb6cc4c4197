"""Queues and providers: how much waits, how much runs, who works on it, and what holds it up."""

from __future__ import annotations

from datetime import datetime
from typing import Literal

from fastapi import APIRouter, Request, Response
from pydantic import BaseModel, Field

from api.answers import answer
from api.backend import Backend, backend, prompt
from api.headers import JSON, accepted
from api.openapi import operation
from api.queries import Query, read_query

router = APIRouter(tags=["operations"])


class QueuesQuery(Query):
    """For people or for an autoscaler."""

    format: Literal["full", "keda"] = Field(
        default="full", description="`keda`: one number for KEDA's metrics-api scaler, of `queue` or of all."
    )
    queue: Literal["model", "tools"] | None = Field(default=None, description="Only this queue.")


class QueueWorker(BaseModel):
    """A worker process as it reports itself."""

    id: str
    in_flight: int
    capacity: int
    draining: bool


class QueueState(BaseModel):
    """A queue."""

    name: str
    ready: int
    """Steps that are delivered and that nobody works on yet."""
    oldest_ready_seconds: float
    running: int
    """Steps in flight on all its workers."""
    workers: list[QueueWorker]


class ProviderState(BaseModel):
    """A model provider, as all workers together use it."""

    name: str
    cooling_until: datetime | None
    """It asked for fewer requests: nobody calls it before, and few at first after that."""
    waiting: int
    """Model steps that wait for it, in no queue and with no worker."""
    in_flight: int | None
    """Calls under way; null without `max_in_flight`, they are not counted then."""
    max_in_flight: int | None
    requests_last_minute: int | None
    """Null without any limit, as are the tokens."""
    requests_per_minute: int | None
    tokens_last_minute: int | None
    tokens_per_minute: int | None


class RoomState(BaseModel):
    """What there is, and how much of it there may be before new runs are refused."""

    runs: int
    """Unfinished, about: those that are worked on or wait for a time count twice."""
    max_runs: int
    memory_bytes: int
    """That Redis uses."""
    max_memory_bytes: int | None
    """A share of Redis's `maxmemory`; null when that is not set."""


class QueueList(BaseModel):
    """Every queue, every provider that the API knows, and how much room there is."""

    data: list[QueueState]
    providers: list[ProviderState]
    room: RoomState


class ScalerValue(BaseModel):
    """What an autoscaler reads: ready and running steps. Ready ones alone would have busy workers stopped."""

    value: int


@router.get(
    "/v1/queues",
    summary="Look at the queues",
    openapi_extra=operation(
        query=QueuesQuery,
        answers={200: ('Every queue; with `format=keda` only `{"value": …}`.', QueueList | ScalerValue)},
    ),
)
async def queues(request: Request) -> Response:
    """Depths come from the store, not the broker: what a worker has fetched and not begun still counts."""
    accepted(request, JSON)
    query = read_query(request, QueuesQuery)
    states = [state for state in await _states(backend(request)) if query.queue in (None, state.name)]
    if query.format == "keda":
        return answer(ScalerValue(value=sum(state.ready + state.running for state in states)))
    here = backend(request)
    return answer(QueueList(data=states, providers=await _providers(here), room=await _room(here)))


async def _room(here: Backend) -> RoomState:
    memory = await prompt(here.store.room.memory())
    return RoomState(
        runs=await prompt(here.store.room.runs()),
        max_runs=here.settings.max_runs,
        memory_bytes=memory.used,
        max_memory_bytes=int(memory.limit) or None,
    )


async def _states(here: Backend) -> list[QueueState]:
    depths = await prompt(here.store.due.depths())
    workers = await prompt(here.store.fleet.workers())
    states = []
    for name, (ready, oldest) in depths.items():
        mine = [
            QueueWorker(id=each.id, in_flight=each.in_flight, capacity=each.capacity, draining=each.draining)
            for each in workers
            if each.queue == name
        ]
        states.append(
            QueueState(
                name=name,
                ready=ready,
                oldest_ready_seconds=round(max(oldest, 0.0), 3),
                running=sum(worker.in_flight for worker in mine),
                workers=mine,
            )
        )
    return states


async def _providers(here: Backend) -> list[ProviderState]:
    states = []
    for each in await prompt(here.store.providers.state(here.providers)):
        limits = here.providers[each.name].limits
        states.append(
            ProviderState(
                name=each.name,
                cooling_until=each.cooling_until,
                waiting=each.waiting,
                in_flight=each.in_flight if limits.max_in_flight else None,
                max_in_flight=limits.max_in_flight,
                requests_last_minute=each.requests_last_minute if limits else None,
                requests_per_minute=limits.requests_per_minute,
                tokens_last_minute=each.tokens_last_minute if limits else None,
                tokens_per_minute=limits.tokens_per_minute,
            )
        )
    return states
