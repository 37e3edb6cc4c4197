"""The state that one worker process shares among its steps, and the tasks on its loop that keep them alive."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import secrets
import socket
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Final

from palaver.config.settings import Settings
from palaver.delivery.publishing import LoopPublisher, follow_up
from palaver.errors import ConfigurationError, ErrorClass, classify
from palaver.processes.existence import named_processes
from palaver.steps.leases import Delivery, Lease, Settled
from palaver.steps.verdicts import Postpone
from palaver.store import Store
from palaver.store.fleet.fleet import WorkerReport
from palaver.telemetry.outage_log import OutageLog
from palaver.tools import ToolDeclaration, ToolSet
from palaver.vocabulary.ids import call_of
from palaver.vocabulary.step_kinds import TOOL, StepKind, kind_of

from ..models.model_terms import ModelTerms
from ..models.provider_limiter import ProviderLimiter
from ..models.refused_tools import RefusedTools
from ..sources.guests import open_own_servers
from ..sources.port import OwnServers
from .active_step import ActiveStep, InterruptReason
from .capabilities import Capabilities
from .conversation_cache import ConversationCache
from .declared_tools import DeclaredTools
from .delta_writer import DeltaWriter
from .histograms import Histograms
from .in_place import InPlace
from .opened_secrets import SecretCache
from .service_permit import services_of
from .tool_versions import ToolVersions

if TYPE_CHECKING:
    from ..models.late_port import LateModelPort

log = logging.getLogger("palaver.workers.steps.runtime")


_LIFE: Final = secrets.token_hex(4)
"""A mark of this process, or of the one that forked it: a container that starts again has its name and its process ids
again, and it could not be told that the worker before it is dead."""


def worker_id(node: str, pid: int) -> str:
    """A worker process as the store knows it: what it holds, and where it hears of cancels."""
    return f"{node or socket.gethostname()}~{_LIFE}/{pid}"


class Runtime:
    """The store, the publisher, the model port and the active steps of one worker process."""

    def __init__(
        self,
        settings: Settings,
        histograms: Histograms,
        *,
        queues: Sequence[str],
        node: str,
        capacity: int,
        capabilities: Capabilities,
        model: LateModelPort | None = None,
        alone: bool = False,
        refused: Callable[[], tuple[str, ...]] = tuple,
        tell_tools: Callable[[ToolSet], None] | None = None,
        store: Store | None = None,
    ) -> None:
        """Without a ``store`` it connects one of its own, as the settings say."""
        self.settings = settings
        self.worker_id = worker_id(node, os.getpid())
        self._processes = named_processes(os.getpid(), *([os.getppid()] if alone else []))
        self.queues = tuple(queues)
        """The queues that it takes from."""
        self.kinds = frozenset(map(kind_of, queues))
        """The kinds of the steps there."""
        self._queues_of = {kind: tuple(queue for queue in queues if kind_of(queue) is kind) for kind in self.kinds}
        self.capacity = capacity
        self.capabilities = capabilities
        self.alone = alone
        """True if steps have the process to themselves, one at a time."""
        self.refused = refused
        """Lists what the broker or the store refuses this process; nothing, if its parent tells."""
        self.histograms = histograms
        self.tools = capabilities.tools
        self.store = store or Store.connect(settings, shared=True, send=True)
        self.model = model
        """The port that calls models, where steps of them are done."""
        self.terms: ModelTerms = model or ModelTerms(capabilities.providers)
        # After the keys of the providers are known: none may stand in what is told of the tools.
        self.tool_set = ToolSet.of(self.tools.declarations)
        self._tell_tools = tell_tools
        if self.tools.elsewhere is not None:
            capabilities.declared = DeclaredTools(self.store, self.tools, self.tools.elsewhere, self._tools_in_use)
        self._versions = (
            ToolVersions(self.store, self.tools, self.queues, settings.heartbeat) if TOOL in self.kinds else None
        )
        self.limiter = ProviderLimiter(
            self.store,
            capabilities.providers,
            self.publish,
            settings.heartbeat,
            names=capabilities.provider_names,
            services=services_of(self.tools.services) if TOOL in self.kinds else {},
        )
        self.conversations = ConversationCache(capacity)
        self.secrets = SecretCache(self.store.vault)
        self.refused_tools = RefusedTools()
        self.deltas = DeltaWriter(self.store, settings.delta_interval)
        self.publisher = LoopPublisher(settings.deliveries_url)
        self.unsettled = OutageLog(
            logging.getLogger("palaver.workers.steps.outages"), "cannot settle %s yet: %s", "step"
        )
        self.draining = asyncio.Event()
        self.active: set[ActiveStep] = set()
        """There are several for a step that was delivered several times: usually one has the lease, the others are
        strays."""
        self.in_place = InPlace(settings, self.worker_id, capacity, self.active, self.queues)
        self._own_servers: OwnServers | None = None

    def _tools_in_use(self) -> frozenset[str]:
        """List the tools that models are offered by steps under way."""
        leases = (active.lease for active in self.active)
        return frozenset(name for lease in leases if lease is not None for name in lease.agent.tools)

    @property
    def own_servers(self) -> OwnServers:
        """The MCP servers that agents name themselves. Nothing of it is there before the first of them."""
        if self._own_servers is None:
            self._own_servers = open_own_servers(self.settings, self.store.server_lists)
        return self._own_servers

    async def close(self) -> None:
        """Close what its steps have opened."""
        if self._versions is not None:
            await self._versions.close()
        if self._own_servers is not None:
            await self._own_servers.close()
        if self.model is not None:
            await self.model.close()

    def queues_of(self, kind: StepKind) -> tuple[str, ...]:
        """The queues of a kind that it takes from."""
        return self._queues_of[kind]

    def makes_calls_of(self, tool: ToolDeclaration) -> bool:
        """Tell whether steps of the tool may be done here: its queue is one of this worker, which has its code."""
        return (tool.queue or TOOL.queue) in self.queues and self.tools.has_here(tool.name)

    def _queue_of(self, lease: Lease) -> str:
        """The queue of a step that this worker has."""
        if lease.kind is not TOOL:
            return lease.kind.queue
        its, name = self._queues_of[TOOL], lease.answers.name
        queue = (self.tools[name].queue if self.tools.has_here(name) else None) or TOOL.queue
        # The tool may name another one by now than when it was asked for.
        return queue if queue in its else its[0]

    @contextlib.contextmanager
    def working_on(self, run_id: str, step: str) -> Iterator[ActiveStep]:
        """Work on a step: from before its claim until it is settled, a cancel of its run finds it here. One that begins
        in place has its lease."""
        active = self.in_place.begin(run_id, step) or ActiveStep(run_id, step)
        self.active.add(active)
        try:
            yield active
        finally:
            self.active.remove(active)

    def interrupt(self, run_id: str, reason: InterruptReason) -> None:
        """Interrupt every active step of a run; a pause only its model call."""
        for active in tuple(self.active):
            if active.run_id == run_id and not (reason is InterruptReason.PAUSED and call_of(active.step)):
                active.interrupt(reason)

    def publish(self, deliveries: Sequence[Delivery]) -> None:
        """Send deliveries soon, without waiting. The sweeper finds lost ones in the ready index."""
        self.publisher.publish_soon(deliveries)

    def renew_tools(self) -> None:
        """Have the tools that its sources have by now. Limits of services are those of its start."""
        if not self.tools.renew():
            return
        try:
            self.tool_set = ToolSet.of(self.tools.declarations)
        except ConfigurationError as error:
            log.error("what is told of the tools stays as it was: %s", error)
            return
        if self._tell_tools is not None:
            self._tell_tools(self.tool_set)

    async def report(self) -> None:
        """Say that this process is there, what it does, and what it can do."""
        leases = [active.lease for active in self.active if active.lease is not None]
        steps = Counter(map(self._queue_of, leases))
        await self.store.fleet.report(
            WorkerReport(
                id=self.worker_id,
                queues=self.queues,
                in_flight=len(leases),
                capacity=self.capacity,
                draining=self.draining.is_set(),
                tools=self.tool_set.digest,
                providers=self.capabilities.provider_names,
                lacks=self.capabilities.lacks,
                refused=self.refused(),
                processes=self._processes,
                by_queue=tuple(steps[queue] for queue in self.queues),
            ),
            connected=True,
        )

    async def publish_queues(self) -> None:
        """Say which queues of tools there are. One that shares its place with others leaves that to them.

        Raises:
            ConfigurationError: they are too many.
        """
        if not self.alone:
            await self.store.queues.publish((*self.queues, *self.tools.queues))

    async def with_another_version(self, lease: Lease) -> Postpone | None:
        """Gives a call up for a worker whose version of the tool is that of the call, if it is not that of this one."""
        return await self._versions.elsewhere(lease) if self._versions is not None and lease.kind is TOOL else None

    async def with_another_key(self, lease: Lease) -> Postpone | None:
        """Gives a step up for a worker whose key its provider may take, if it refuses the one of this worker."""
        return await self.capabilities.refused_keys.pass_on(self.store.fleet, self.worker_id, lease)

    async def key_refused(self, lease: Lease) -> Postpone | None:
        """The provider of a step refused the key of this worker: others hear of it, and take the step, if they can."""
        if self.capabilities.refused_keys.note_refusal(lease.agent.provider):
            await self.report()
        return await self.with_another_key(lease)

    async def follow_up(self, settled: Settled) -> None:
        """Follow up a change in the store: publish deliveries, and start the conversation's next run."""
        await follow_up(self.store, self.publish, [settled])


def is_store_outage(error: Exception) -> bool:
    """Tell whether Redis or the broker is away, or refuses for a while."""
    return classify(error).error_class is ErrorClass.STORAGE
