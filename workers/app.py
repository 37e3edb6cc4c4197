"""The Celery app of ``palaver worker`` and ``palaver tools``: the one that Flower has, and what a worker does.

Its tasks are the functions with `@step` (workers/steps/step_functions.py).
"""

from __future__ import annotations

import atexit
import logging
import os
import signal
import sys
import time
from collections.abc import AsyncIterator, Collection, Mapping
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from threading import RLock, Thread
from typing import Any, Final

from billiard.process import current_process
from celery.concurrency.prefork import TaskPool as Prefork
from celery.signals import (
    after_setup_logger,
    after_setup_task_logger,
    celeryd_after_setup,
    celeryd_init,
    worker_init,
    worker_process_init,
    worker_process_shutdown,
    worker_ready,
    worker_shutting_down,
)

from palaver.config.exits import refusing
from palaver.config.providers import Provider, load_providers
from palaver.config.settings import Settings, settings
from palaver.config.variables import unread
from palaver.errors import ConfigurationError
from palaver.feature import brought
from palaver.processes.failpoints import failpoint
from palaver.processes.garbage import spare_loaded
from palaver.store.fleet import first_look
from palaver.store.server.preflight import Preflight
from palaver.telemetry.logs import name_process
from palaver.tools.declared import declarations_in
from palaver.vocabulary.limits import KIB
from palaver.vocabulary.step_kinds import KIND_OF, MODEL, TOOL, StepKind, kind_of, own_queues, queue_in_broker

from .broker import consumer
from .broker.celery_app import app as app
from .broker.consumer import Consumer
from .broker.consumer_watchdog import ConsumerWatchdog
from .broker.event_batcher import EventBatcher
from .broker.logs import set_formats
from .broker.pool import TaskPool
from .broker.transport import AckTimeout, consume_recovered_first
from .children import child, descriptors, environment, prefork
from .children.checking import check_tools
from .children.idle_slots import IdleSlots
from .children.output import Output
from .children.output_capture import OutputCapture
from .children.request import ChildRequest
from .loops.keeper import running, watched
from .loops.progress import Progress
from .loops.stops import stops_noticed
from .models.late_port import LateModelPort, load_ahead
from .sources import INLINE_SOURCES, Elsewhere, Toolbox, open_toolbox, sources_of
from .sources.importing import importing
from .steps import step_functions as step_functions  # each `@step` in it is a task
from .steps.capabilities import Capabilities, require_provider
from .steps.histograms import Histograms
from .steps.registry import StepTask, handler_of
from .steps.runtime import Runtime, worker_id

log = logging.getLogger("palaver.workers.app")
_NEXT_CHILD: Final = 1.0
"""Seconds between a child that cannot begin and the next one: what is short may be there again."""

_POOL_EXTRA = 5.0
"""Seconds that the pool waits longer than the keeper's grace: by then every lease is settled or handed back."""
_LEAST_PATIENCE = 10.0
"""Seconds that a tool may hold up a loop at least, however short leases are: a busy machine does so, too."""

app.conf.update(
    worker_consumer=Consumer,
    worker_prefetch_multiplier=1,
    worker_cancel_long_running_tasks_on_connection_loss=False,
    # Seconds in which a child imports its tools and is there; workers/children/checking.py gives them as many.
    worker_proc_alive_timeout=40.0,
    # Kibibytes; what a model worker has is not looked at.
    worker_max_memory_per_child=settings().tool_kept_memory * KIB or None,
    palaver_drain_grace=settings().drain_grace + _POOL_EXTRA,
)

_node = ""
_queues: tuple[str, ...] = (MODEL.queue,)
"""The queues that this worker consumes."""
_kinds: frozenset[StepKind] = frozenset({MODEL})
"""The kinds of the steps there."""
_hidden: frozenset[str] = frozenset()
"""Variables with keys of providers, where tools run."""
_providers: Mapping[str, Provider] = {}
"""The table of providers, where models are asked."""
_histograms: Histograms
_preflight: Preflight
_opened: AbstractAsyncContextManager[Toolbox]
"""The tools of a worker without children."""


@celeryd_init.connect
def _remember_node(sender: str, **_: Any) -> None:
    global _node
    _node = sender
    name_process(worker=sender)
    if os.getcwd() not in sys.path:
        # PALAVER_TOOLS may name modules beside where the worker is started; Celery looks there for `-A` only.
        sys.path.insert(0, os.getcwd())


app.steps["consumer"].update((ConsumerWatchdog, AckTimeout, EventBatcher, Progress))
celeryd_after_setup.connect(consume_recovered_first)
after_setup_logger.connect(set_formats)
after_setup_task_logger.connect(set_formats)


@worker_init.connect
def _choose_pool(sender: Any, **_: Any) -> None:
    """Steps of users' code run on Celery's prefork, all others on the asyncio pool; it need not be asked for."""
    with refusing():
        _prepare(sender)


def _prepare(sender: Any) -> None:
    """Raises:
    ConfigurationError: for a worker that could do nothing, or nothing well.
    LookupError: no function is the work of its kind of steps.
    """
    global _kinds, _queues, _hidden, _providers, _histograms, _preflight, _opened
    queues = tuple(dict.fromkeys(queue_in_broker(name) or "" for name in sender.app.amqp.queues.consume_from))
    if not all(queues):
        raise ConfigurationError(f"a worker consumes queues of steps: -Q {' or -Q '.join(KIND_OF)}")
    if sender.pool_cls not in (Prefork, TaskPool):
        raise ConfigurationError("leave -P out: PALAVER_TOOL_POOL says where tools run, and all else runs on one loop")
    _kinds, _queues = frozenset(map(kind_of, queues)), queues
    for kind in _kinds:
        handler_of(kind)
    here = settings()
    sender.pool_cls = prefork.ToolPool if _in_children() else TaskPool
    if _in_children():
        StepTask.Request = ChildRequest
    if TOOL in _kinds:
        _hidden = environment.hidden_keys(here)
    if _for_tools_alone():
        # It ends no leases of others.
        first_look.drop()
        _say_what_nobody_reads(_hidden)
        environment.forget_keys(_hidden)
        here = settings()
    else:
        _providers = load_providers(here.providers)
        _say_what_nobody_reads(_hidden.union(provider.api_key_env or "" for provider in _providers.values()))
    if MODEL in _kinds:
        require_provider(_providers, here.inline_provider_hosts)
    if not _for_tools_alone():
        for require in brought("required"):
            require(here)
    if _in_children():
        child.expect()
        tools = check_tools(here, _hidden)
        prefork.idle_slots = IdleSlots(worker_id(_node, os.getpid()), _queues, tools, _refused)
        _say_what_is_not_named([tool.queue for tool in declarations_in(tools.text)])
    else:
        # Here, where no loop runs: it imports the modules of users.
        with importing():
            _opened = _tools_on_a_loop(here) if TOOL in _kinds else _inline_tools(here)
    app.capacity = sender.concurrency or 0
    # Last: it waits for Redis.
    _preflight = Preflight(here, "worker")
    _preflight.require()
    processes = app.capacity if _in_children() else 1
    _histograms = Histograms(*_kinds, places=0 if here.metrics_port is None else processes)
    if here.metrics_port is not None:
        from .loops.metrics_server import MetricsServer

        MetricsServer(here.metrics_host, here.metrics_port, _histograms.exposed)
    _preflight.start()


def _refused() -> tuple[str, ...]:
    """List what the store and the broker refuse this worker."""
    return tuple(dict.fromkeys((*_preflight.refused, *(("login",) if consumer.refused else ()))))


def _for_tools_alone() -> bool:
    """Tell whether users' code is all that this worker runs: it must not see the keys of providers."""
    return _kinds == {TOOL}


def _in_children() -> bool:
    """Tell whether each step of this worker has a process of its own, which can be ended."""
    return _for_tools_alone() and settings().tool_pool == "processes"


def _say_what_nobody_reads(keys: frozenset[str]) -> None:
    for sentence in unread(os.environ, keys.union(settings().tool_env)):
        log.warning("%s", sentence)


def _say_what_is_not_named(named: Collection[str | None]) -> None:
    """Warn of queues that no tool names: nothing comes from there, and a letter may be wrong."""
    for queue in own_queues(_queues):
        if queue not in named:
            log.warning("-Q %s: no tool of PALAVER_TOOLS names that queue, so nothing comes from there", queue)


def _inline_tools(here: Settings) -> AbstractAsyncContextManager[Toolbox]:
    """The tools of a worker that runs none but those within its own steps."""
    return open_toolbox(here, INLINE_SOURCES, elsewhere=Elsewhere())


def _tools_on_a_loop(here: Settings) -> AbstractAsyncContextManager[Toolbox]:
    """The tools of a worker that runs them in its main process: what a child does about them, as far as it goes."""
    printed, elsewhere = OutputCapture(here.tool_output), None if _for_tools_alone() else Elsewhere()
    with environment.narrowed(here, _hidden):
        opened = open_toolbox(here, sources_of(here), run_blocking=None, watch=printed.during, elsewhere=elsewhere)
    return _contained(here, opened, printed)


@asynccontextmanager
async def _contained(
    here: Settings, opened: AbstractAsyncContextManager[Toolbox], printed: OutputCapture
) -> AsyncIterator[Toolbox]:
    sys.stdout = sys.stderr = printed
    async with AsyncExitStack() as entered:
        await entered.enter_async_context(watched(max(here.lease_seconds, _LEAST_PATIENCE)))
        with environment.narrowed(here, _hidden):
            tools = await entered.enter_async_context(opened)
        yield tools


@asynccontextmanager
async def _lifespan(pool: TaskPool) -> AsyncIterator[None]:
    async with AsyncExitStack() as opened:
        with refusing():
            here = settings()
            tools = await opened.enter_async_context(_opened)
            able = Capabilities(tools, _providers, here.inline_provider_hosts)
            runtime = Runtime(
                here,
                _histograms,
                queues=_queues,
                node=_node,
                capacity=app.capacity,
                capabilities=able,
                model=None if _for_tools_alone() else LateModelPort(_providers),
                refused=_refused,
            )
            if MODEL in _kinds:
                runtime.in_place.pool = pool
            if TOOL in _kinds:
                _say_what_is_not_named(tools.queues)
            await opened.enter_async_context(running(runtime, sweeps=not _for_tools_alone()))
            if TOOL in _kinds:
                # Now: what else runs here has read what tools must not see.
                opened.enter_context(environment.narrowed(here, _hidden))
        for name, variable in able.missing_keys.items():
            log.warning("%s is not set: this worker leaves the provider %s to others", variable, name)
        StepTask.runtime, app.draining = runtime, runtime.draining
        spare_loaded()
        await opened.enter_async_context(stops_noticed(_histograms.loop_stopped, lambda: runtime.active))
        yield


app.lifespan = _lifespan


@worker_ready.connect
def _load_what_calls(**_: Any) -> None:
    """So that the first call of a model does not wait for it: in a thread, as steps may have come already."""
    if MODEL in _kinds:
        Thread(target=load_ahead, name="palaver-first-call", daemon=True).start()


@worker_process_init.connect
def _start_child(**_: Any) -> None:
    """A child of a tools worker, or none: to Celery one whose start has failed is as good as any other, and it would
    give it calls."""
    try:
        _become_child()
    except BaseException as error:
        sentence = "A child of this tools worker cannot begin; the next try is in %s s: %s"
        log.critical(sentence, _NEXT_CHILD, error, exc_info=not isinstance(error, ConfigurationError))
        time.sleep(_NEXT_CHILD)
        os._exit(os.EX_TEMPFAIL)


def _become_child() -> None:
    """In a session of its own, with what tools may see, before it imports any of them."""
    os.setsid()
    failpoint.worker = os.getppid()
    here, place = settings(), current_process().index
    environment.narrow(here, _hidden)
    ends = prefork.pipes.taken(place)
    own = descriptors.pipes_of(current_process()) | {*ends, *child.heard()}
    descriptors.leave_behind(prefork.inherited, keep=own)
    output = Output(ends, here.tool_output)
    _histograms.move_to(place)
    child.start(here, _queues, _node, child.ChildPlace(place, prefork.slots, output, _histograms, prefork.told_tools))


@worker_process_shutdown.connect
def _stop_child(**_: Any) -> None:
    child.stop()


# Celery sends this signal from its handlers of SIGTERM and SIGINT, and one of them can interrupt another: with a lock
# that its holder cannot take again, the main thread would wait for itself, and the worker would never end.
worker_shutting_down.lock = RLock()


@atexit.register
def _outlast_signals() -> None:
    """Ignore the signals that end a worker: it is about to exit, with the status that says how.

    The interpreter gives up handlers before it is done, and one more signal then would be what it died of.
    """
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, signal.SIG_IGN)


@worker_shutting_down.connect
def _drain_children(**_: Any) -> None:
    child.drain()
