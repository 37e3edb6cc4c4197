"""What is measured, as processes of its own: a Redis, a model server, workers, an API. All end with the rig."""

from __future__ import annotations

import asyncio
import os
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from types import TracebackType
from typing import Final, NamedTuple, Self

from bench.asked import Asked, BenchError
from bench.conversation import INPUT
from features.stack.child import ChildCommand
from features.stack.ports import HOST, free_port
from features.stack.readiness import accepts, answers_ok
from features.stack.redis_server import RedisServer
from palaver.config.settings import Settings
from palaver.delivery.deliveries import Publisher
from palaver.schemas.actions import ApprovalDecision, Approvals
from palaver.schemas.models import AgentSpec, Message, Run, Submission
from palaver.store import Store


class Spoken(NamedTuple):
    """A protocol of models: its title, and what the table of a provider that speaks it has."""

    title: str
    table: str = ""


PROTOCOLS: Final[Mapping[str, Spoken]] = {
    "fake": Spoken("chat completions"),
    "claude": Spoken("Anthropic's Messages", 'protocol = "anthropic"\nmax_output_tokens = 4096\n'),
    "responding": Spoken("OpenAI's Responses", 'protocol = "responses"\n'),
}
"""By the name of a provider that speaks it; any other speaks chat completions."""
_APPROVALS: Final = Approvals()
_START_WITHIN: Final = 30.0
_STOP_WITHIN: Final = 5.0
_END_WITHIN: Final = 120.0


class Rig:
    """A Redis, a model server and a store to submit with; workers are started as a measurement needs them.

    ``lease_seconds`` is what the workers are given; all ``providers`` are the ``model_server``, a module.
    The broker is the same Redis, or what PALAVER_BROKER_URL says; with a ``store_url`` the store is there. Use it in
    the main thread: its processes end with that.
    """

    def __init__(
        self,
        *,
        lease_seconds: float = 15.0,
        providers: Sequence[str] = ("fake",),
        model_server: str = "tests.model_server",
        store_url: str | None = None,
    ) -> None:
        self._broker_url = os.environ.get("PALAVER_BROKER_URL")
        self._store_url = store_url
        self._lease_seconds = lease_seconds
        self._providers = providers
        self._model_server = model_server
        self._open = AsyncExitStack()
        self._children: list[ChildCommand] = []

    async def __aenter__(self) -> Self:
        try:
            await self._start()
        except BaseException:
            await self._open.aclose()
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if isinstance(error, BenchError):
            error.add_note(self._logs())
        await self._open.aclose()

    async def _start(self) -> None:
        self._folder = Path(self._open.enter_context(tempfile.TemporaryDirectory(prefix="palaver-bench-")))
        self.redis = self._open.enter_context(RedisServer(data_dir=self._folder / "redis"))
        self._open.callback(self._stop)
        port = free_port()
        self.model_url = base_url = f"http://{HOST}:{port}/v1"
        providers, ledger = self._folder / "providers.toml", self._folder / "ledger.jsonl"
        for name in self._providers:
            self.add_provider(name, base_url, PROTOCOLS.get(name, PROTOCOLS["fake"]).table)
        if self._store_url is not None:
            self._broker_url = self._broker_url or self.redis.url
        store_url = self._store_url or self.redis.url
        self._environment = {
            **os.environ,
            "PALAVER_REDIS_URL": store_url,
            "PALAVER_BROKER_URL": self._broker_url or "",
            "PALAVER_API_KEYS": "",
            "PALAVER_PROVIDERS": str(providers),
            "PALAVER_LEASE_SECONDS": str(self._lease_seconds),
            "BENCH_BROKER_URL": self.floor_broker_url,
            "BENCH_MODEL_URL": base_url,
        }
        self.model_server = self.start(self._model_server, "--port", str(port), "--ledger", str(ledger))
        await self.until(lambda: accepts(port), "the model server listens")
        self.asked = Asked(ledger)
        self._settings = settings = Settings(
            redis_url=store_url, broker_url=self._broker_url, lease_seconds=self._lease_seconds
        )
        self.store = await self._open.enter_async_context(Store.connect(settings))
        self._publisher = Publisher(settings.deliveries_url)
        self._open.callback(self._publisher.close)

    def add_provider(self, name: str, base_url: str, table: str = "") -> None:
        """One more, with more lines of its table, for processes that start from now on."""
        with (self._folder / "providers.toml").open("a") as providers:
            providers.write(f'[providers.{name}]\nbase_url = "{base_url}"\n{table}')

    @property
    def names_of_scripts(self) -> Mapping[str, str]:
        """The name of each script by its SHA: as they are, and as workers have them, whose scripts send deliveries."""
        return {**self.store.scripts.names, **Store.connect(self._settings, send=True).scripts.names}

    @property
    def floor_broker_url(self) -> str:
        """The same Redis, another database: the floor's queues."""
        return self.broker_url(1)

    def broker_url(self, database: int) -> str:
        """A database of the same Redis, as a broker of its own."""
        return f"{self.redis.url.rsplit('/', 1)[0]}/{database}"

    def start_publisher(self, broker_url: str) -> Publisher:
        """A publisher to that broker; it closes with the rig."""
        publisher = Publisher(broker_url)
        self._open.callback(publisher.close)
        return publisher

    def start(self, module: str, *arguments: str, environment: Mapping[str, str] | None = None) -> ChildCommand:
        """Start a Python module as a program; does not wait for it."""
        command = (sys.executable, "-m", module, *arguments)
        return self.start_foreign(module, command, {**self._environment, **(environment or {})})

    def start_foreign(self, name: str, command: Sequence[str], environment: Mapping[str, str]) -> ChildCommand:
        """Start a program with this environment and nothing else; does not wait for it."""
        child = ChildCommand(
            name,
            command,
            environment=environment,
            log_path=self._folder / f"{len(self._children)}.log",
            ready=lambda _: True,
        )
        self._children.append(child)
        child.start()
        return child

    def start_celery(self, app: str, *arguments: str, environment: Mapping[str, str] | None = None) -> ChildCommand:
        """Start a Celery worker that sends no events and says no more than warnings; does not wait for it."""
        return self._start_worker("celery", app, *arguments, environment=environment)

    @property
    def environment(self) -> Mapping[str, str]:
        """What the programs of Palaver are started with."""
        return self._environment

    def start_redis(self, name: str, options: Mapping[str, str] | None = None) -> RedisServer:
        """Another server, with its files below ``folder``; it ends with the rig."""
        server = RedisServer(data_dir=self._folder / name, options=options)
        return self._open.enter_context(server)

    @property
    def folder(self) -> Path:
        """Files of this rig; gone when it ends."""
        return self._folder

    def start_worker(self, capacity: int, environment: Mapping[str, str] | None = None, *more: str) -> ChildCommand:
        """Start a model worker of Palaver's, with ``more`` options; does not wait for it."""
        words = ("-Q", "model", "-c", str(capacity), *more)
        return self._start_worker("workers", "workers.app", *words, environment=environment)

    def start_tools(self, environment: Mapping[str, str] | None = None, *more: str) -> ChildCommand:
        """Start a tools worker of Palaver's with four children, and ``more`` options; does not wait for it."""
        words = ("-Q", "tools", "-c", "4", *more)
        return self._start_worker("workers", "workers.app", *words, environment=environment)

    def _start_worker(
        self, program: str, app: str, *arguments: str, environment: Mapping[str, str] | None
    ) -> ChildCommand:
        options = ("-n", f"bench.{len(self._children)}@%h", "--without-gossip", "--without-mingle", "-l", "WARNING")
        return self.start(program, "-A", app, "worker", *options, *arguments, environment=environment)

    async def start_api(self, **environment: str) -> tuple[str, ChildCommand]:
        """Start the API and wait until it answers; its URL, and the process."""
        port = free_port()
        options = ("--host", HOST, "--port", str(port), "--log-level", "warning")
        api = self.start("api", *options, environment=environment)
        url = f"http://{HOST}:{port}"
        await self.until(lambda: answers_ok(f"{url}/readyz"), "the API answers")
        return url, api

    async def workers_ready(self, *workers: ChildCommand, every: float = 0.05) -> None:
        """Wait until each of these workers of Palaver's has reported; looks ``every`` so many seconds."""
        give_up_at = time.monotonic() + _START_WITHIN
        expected = {str(worker.pid) for worker in workers}
        while not expected <= {report.id.rpartition("/")[2] for report in await self.store.fleet.workers()}:
            self._check(give_up_at, "the workers report")
            await asyncio.sleep(every)

    async def until(self, condition: Callable[[], bool], what: str) -> None:
        """Wait until a process that was just started does its work. Raises BenchError."""
        give_up_at = time.monotonic() + _START_WITHIN
        while not condition():
            self._check(give_up_at, what)
            await asyncio.sleep(0.02)

    def _check(self, give_up_at: float, what: str) -> None:
        if time.monotonic() > give_up_at:
            raise BenchError(f"{what}: not within {_START_WITHIN:g} s")

    def _logs(self) -> str:
        """The end of what each process has written."""
        return "\n".join(f"--- {child.name}\n{child.output[-2000:]}" for child in self._children if child.output)

    async def submit(
        self,
        model: str,
        *,
        tools: tuple[str, ...] = (),
        instructions: str = "",
        input: str | tuple[Message, ...] = INPUT,
        conversation: str | None = None,
        publisher: Publisher | None = None,
        max_steps: int = 100,
        approvals: Approvals = _APPROVALS,
    ) -> str:
        """Submit a run, in a new conversation or in this one, and send its first delivery, as the API does, or to
        another broker; the run's id."""
        agent = AgentSpec(
            model=model if "/" in model else f"fake/{model}",
            instructions=instructions,
            tools=tools,
            max_steps=max_steps,
            approvals=approvals,
        )
        submission = Submission(agent=agent, input=input, conversation_id=conversation)
        submitted = await self.store.runs.submit(submission)
        (publisher or self._publisher).publish(submitted.deliveries)
        return submitted.run_id

    async def approve(self, run_id: str) -> int:
        """Approve what the run waits for, once it does; how many calls. Raises BenchError."""
        give_up_at = time.monotonic() + _END_WITHIN
        while not (waiting := (await self.store.runs.get(run_id)).pending_actions):
            self._check(give_up_at, f"{run_id} waits for an approval")
            await asyncio.sleep(0.02)
        decision = ApprovalDecision(type="approval", action_id="all", decision="approve")
        self._publisher.publish((await self.store.control.act(run_id, [decision])).settled.deliveries)
        return len(waiting)

    async def ended(self, run_ids: Sequence[str], every: float = 0.1) -> list[Run]:
        """The runs, once the last one has ended; looks ``every`` so many seconds. Raises BenchError."""
        give_up_at = time.monotonic() + _END_WITHIN
        found = [await self.store.runs.get(run_id) for run_id in run_ids]
        while unfinished := sum(not run.status.terminal for run in found):
            if time.monotonic() > give_up_at:
                raise BenchError(f"{unfinished} of {len(found)} runs have not ended")
            await asyncio.sleep(every)
            found = [run if run.status.terminal else await self.store.runs.get(run.id) for run in found]
        return found

    def _stop(self) -> None:
        give_up_at = time.monotonic() + _STOP_WITHIN
        for child in reversed(self._children):
            child.terminate()
        for child in reversed(self._children):
            child.reap(give_up_at)
