"""Queues and providers: how much waits, how much runs, who works on it, and what holds it up."""

from __future__ import annotations

from typing import Literal

from pydantic import Field
from starlette.responses import Response

from palaver import operations
from palaver.operations import Backend, LackedState, ProviderState, QueueState, RoomState, ServiceState
from palaver.schemas.archive import ArchiveState
from palaver.schemas.fields import DataModel, is_none
from palaver.schemas.webhooks import WebhookState
from palaver.vocabulary.step_kinds import OWN_QUEUE

from ..http.answers import answer
from ..http.queries import Query
from .dialect import NATIVE


class QueuesQuery(Query):
    """For people or for an autoscaler."""

    format: Literal["full", "keda"] = Field(
        default="full", description="`keda`: one number for KEDA's metrics-api scaler, of `queue` or of all."
    )
    queue: str | None = Field(
        default=None,
        pattern=f"^{OWN_QUEUE.pattern}$",
        description="Only this queue; an unknown one is empty.",
    )


class QueueList(DataModel):
    """Every queue, every provider that the API knows, the services of tools, what steps lack a worker for, the webhooks
    that have something to be sent, how much room there is, and the archive."""

    data: list[QueueState]
    providers: list[ProviderState]
    services: list[ServiceState]
    no_worker: list[LackedState]
    webhooks: list[WebhookState]
    room: RoomState
    archive: ArchiveState | None = Field(default=None, exclude_if=is_none)
    """Absent where the API has none."""


class ScalerValue(DataModel):
    """The value for an autoscaler: ready and running steps. Ready ones alone would have busy workers stopped."""

    value: int


@NATIVE.route(
    "GET",
    "/v1/queues",
    scope="runs:read",
    tag="operations",
    summary="Look at the queues",
    answers={200: ('Every queue; with `format=keda` only `{"value": …}`.', QueueList | ScalerValue)},
    problems=("operators_only",),
)
async def queues(backend: Backend, query: QueuesQuery) -> Response:
    """Depths come from the store, not the broker: what a worker has fetched and not begun still counts."""
    states = [state for state in await operations.read_queues(backend) if query.queue in (None, state.name)]
    if query.format == "keda":
        return answer(ScalerValue(value=sum(state.ready + state.running for state in states)))
    providers = await operations.read_providers(backend)
    services = await operations.read_services(backend)
    lacked = await operations.read_lacked(backend)
    more = await operations.read_of_features(backend)
    room = await operations.read_room(backend)
    return answer(
        QueueList(
            data=states,
            providers=providers,
            services=services,
            no_worker=lacked,
            # The field is there also where the feature is not.
            webhooks=[*more.get("webhooks", ())],
            room=room,
            archive=await operations.read_archive(backend),
        )
    )
