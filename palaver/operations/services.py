"""The services that tools call, as all workers together use them (ADR 0105)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime

from palaver.operations.acting import check_sees_installation
from palaver.operations.backend import Backend, within_deadline
from palaver.operations.catalog import KnownTools
from palaver.operations.queues import OutageState, state_of_outage
from palaver.schemas.fields import DataModel
from palaver.tools import ToolDeclaration
from palaver.tools.service import gate_of_service
from palaver.vocabulary.limits import count_exceeded, limit_of


class ServiceState(DataModel):
    """A service that tools call, by their ``limit_key``."""

    name: str
    tools: list[str]
    """The tools that call it."""
    cooling_until: datetime | None
    """The end of its cool-down, after an answer that asked for fewer calls; null: it has none."""
    waiting: int
    """Calls of tools that wait for it, in no queue and with no worker."""
    outages: list[OutageState]
    """Empty: calls are answered; else one."""
    in_flight: int | None
    """Calls under way; null without `max_in_flight`, they are not counted then."""
    max_in_flight: int | None
    calls_last_minute: int | None
    """Null without any limit."""
    per_minute: int | None


@dataclass
class _Declared:
    """A service as tools declare it."""

    tools: set[str] = field(default_factory=set)
    max_in_flight: int | None = None
    per_minute: int | None = None

    def add(self, tool: ToolDeclaration) -> None:
        """One of the tools that name it may say its limits; of several versions, the one that was seen last."""
        self.tools.add(tool.name)
        self.max_in_flight = self.max_in_flight or tool.max_in_flight
        self.per_minute = self.per_minute or tool.per_minute


async def read_services(backend: Backend) -> list[ServiceState]:
    """Return the services that tools of workers name, by name.

    Raises:
        Refused: ``operators_only``.
    """
    check_sees_installation()
    tools = await within_deadline(backend.catalog.tools())
    declared = _declared(tools or {})
    names = sorted(declared)[: limit_of("services")]
    if len(declared) > len(names):
        count_exceeded("services")
    if not names:
        return []
    by_gate = {gate_of_service(name): name for name in names}
    states = []
    for usage in await within_deadline(backend.store.providers.state(by_gate)):
        name = by_gate[usage.name]
        its = declared[name]
        states.append(
            ServiceState(
                name=name,
                tools=sorted(its.tools),
                cooling_until=usage.cooling_until,
                waiting=usage.waiting,
                outages=[state_of_outage(outage) for outage in usage.outages],
                in_flight=usage.in_flight if its.max_in_flight else None,
                max_in_flight=its.max_in_flight,
                calls_last_minute=usage.requests_last_minute if its.max_in_flight or its.per_minute else None,
                per_minute=its.per_minute,
            )
        )
    return states


def _declared(tools: KnownTools) -> Mapping[str, _Declared]:
    services: dict[str, _Declared] = {}
    for versions in tools.values():
        for tool in versions:
            if tool.limit_key is not None:
                services.setdefault(tool.limit_key, _Declared()).add(tool)
    return services
