"""A whole Palaver under test: server, model server, API and workers as processes, and what happens to them."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import time
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from functools import cached_property
from pathlib import Path
from types import MappingProxyType
from typing import Any, Self, TypeVar

import httpx
import orjson
import redis

from deploy.check import logins
from features.stack.child import ChildCommand
from features.stack.plan import COMMANDS
from features.stack.ports import Ports, free_port
from features.stack.stack import Stack
from palaver.config.settings import Settings
from palaver.schemas.models import Run
from palaver.store import Store
from palaver.store.reading.events import StoredEvent
from tests.checkers import CHECKERS
from tests.model_server import LedgerEntry, read_ledger
from tests.process.broker import ON_RABBITMQ, Broker
from tests.process.gates import Gate
from tests.process.inputs import Inputs
from tests.process.rabbitmq import RabbitServer
from tests.process.tools import read_tool_ledger
from tests.redis_cluster import ON_CLUSTER, RedisCluster
from tests.sentinels import BY_SENTINEL, SentinelServer, client_of
from tests.waiting import PATIENCE, eventually

T = TypeVar("T")

LEASE = 2.0
GRACE = 1.0
"""PALAVER_LEASE_SECONDS and PALAVER_DRAIN_GRACE of the workers under test."""

PROVIDERS = """
[providers.fake]
base_url = "{url}/v1"

[providers.limited]
base_url = "{url}/v1"

[providers.hasty]
base_url = "{url}/v1"
timeouts = {{ first_token = 0.3, idle = 0.3, total = 2.0 }}

[providers.caching]
base_url = "{url}/v1"
cache = "auto"

[providers.claude]
protocol = "anthropic"
base_url = "{url}/v1"
thinking = "summarized"
max_output_tokens = 4096

[providers.responding]
protocol = "responses"
base_url = "{url}/v1"
thinking = "summarized"

[providers.busy]
base_url = "http://127.0.0.1:{busy_port}/v1"
prices."*" = {{ input = 10, output = 10 }}

[providers.busy-claude]
protocol = "anthropic"
base_url = "http://127.0.0.1:{busy_port}/v1"
thinking = "summarized"
max_output_tokens = 4096
prices."*" = {{ input = 10, output = 10 }}

[providers.busy-responding]
protocol = "responses"
base_url = "http://127.0.0.1:{busy_port}/v1"
thinking = "summarized"
prices."*" = {{ input = 10, output = 10 }}

[providers.narrow]
base_url = "{url}/v1"
max_in_flight = 2

[providers.priced]
base_url = "{url}/v1"
prices.tool-2 = {{ input = 3, output = 30 }}
prices."*" = {{ input = 10, output = 10 }}

[providers.dear]
base_url = "{url}/v1"
prices."*" = {{ input = 100, output = 2500 }}
"""


class Cluster(Inputs):
    """One stack for the whole session; each test finds one worker of each kind and leaves as many."""

    kinds: tuple[str, ...] = ("fake_provider", "api", "worker", "tools")
    """The processes of which there is always one."""

    def __init__(
        self,
        folder: Path,
        redis_url: str | None = None,
        lease: float = LEASE,
        *,
        users: bool = bool(os.environ.get("PALAVER_TEST_ACL")),
        rabbitmq: bool = ON_RABBITMQ,
        processes: Mapping[str, int] = MappingProxyType({"flower": 0}),
        environment: Mapping[str, str] = MappingProxyType({}),
        environments: Mapping[str, Mapping[str, str]] = MappingProxyType({}),
        commands: Mapping[str, Sequence[str]] = COMMANDS,
        redis_options: Mapping[str, str] = MappingProxyType({}),
    ) -> None:
        """`users`: every process logs in as the user of its role; a given `redis_url` is for one user. `environments`:
        more, for kinds of processes that `commands` add."""
        self.folder = folder
        self.users = users and redis_url is None
        self.rabbitmq = RabbitServer(folder / "rabbitmq") if rabbitmq else None
        """The broker, where it is not the same Redis."""
        ports = Ports.free()
        self.sentinel = SentinelServer.of(ports.redis) if BY_SENTINEL and redis_url is None and not self.users else None
        """The way to the Redis for all processes, where that is under test."""
        self._masters = ExitStack()
        self.masters = RedisCluster(replicas=1) if ON_CLUSTER and redis_url is None and not self.users else None
        """The masters that have the store, where that is under test: the Redis of the stack has the deliveries."""
        self.tool_ledger_path = folder / "tools.jsonl"
        self.ledger_path = folder / "model-ledger.jsonl"
        """What the model server was asked."""
        self.busy_port = free_port()
        """Where a test may listen as the provider `busy`, and as those that speak other protocols there."""
        self.invariants: Iterable[str] = CHECKERS
        """What is judged after each test (tests/checkers)."""
        self.providers_path = folder / "providers.toml"
        """Read when the stack comes up; until then a test may add entries."""
        self.stack = Stack(
            folder / "stack",
            ports=ports,
            processes=processes,
            commands=commands,
            redis_url=redis_url,
            fake_provider=(sys.executable, "-m", "tests.model_server", "--ledger", str(self.ledger_path)),
            redis_options={
                # A kill must lose nothing, as far as a server can promise that; cutting its power is another test's.
                "appendfsync": "no",
                **({"aclfile": str(logins.write_users(folder / "users.acl"))} if self.users else {}),
                **redis_options,
            },
            redis_login=logins.admin() if self.users else None,
            environments={**(logins.environments(ports.redis) if self.users else {}), **environments},
            environment={
                "PALAVER_PROVIDERS": str(self.providers_path),
                "PALAVER_LEASE_SECONDS": str(lease),
                "PALAVER_DRAIN_GRACE": str(GRACE),
                "PALAVER_TOOLS": "tests.process.tools",
                "PALAVER_INLINE_TOOLS": environment.get("PALAVER_TOOLS", "tests.process.tools"),
                "TOOL_LEDGER": str(self.tool_ledger_path),
                "PALAVER_BROKER_URL": self.rabbitmq.url if self.rabbitmq else "",
                **({"PALAVER_REDIS_URL": self.sentinel.url} if self.sentinel else {}),
                **self._places(ports),
                **environment,
            },
        )
        self._store_url = (
            self.masters.url if self.masters else environment.get("PALAVER_REDIS_URL", self.stack.redis_url)
        )
        self.broker = Broker(self.rabbitmq.url if self.rabbitmq else self.stack.redis_url)
        self.providers_path.write_text(PROVIDERS.format(url=self.stack.model_url, busy_port=self.busy_port))
        self.http = httpx.Client(base_url=self.stack.url, timeout=40.0, trust_env=False)
        self.submitted: list[str] = []
        self.expected_in_logs: list[str] = []
        self._marks: dict[Path, int] = {}
        self._ledger_marks: dict[Path, int] = {}

    def _places(self, ports: Ports) -> Mapping[str, str]:
        """Where the store and the deliveries are, if the store is on masters of its own."""
        if self.masters is None:
            return {}
        self._masters.enter_context(self.masters)
        broker = self.rabbitmq.url if self.rabbitmq else f"redis://127.0.0.1:{ports.redis}/0"
        return {"PALAVER_REDIS_URL": self.masters.url, "PALAVER_BROKER_URL": broker}

    # Processes.

    def __enter__(self) -> Self:
        """Start everything; on return all of it is ready."""
        try:
            if self.rabbitmq:
                self.rabbitmq.start()
            if self.sentinel:
                self.sentinel.start()
            self.stack.up()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def start(self, name: str) -> int:
        """One more `model` worker (`worker`), `tools` worker, …: ready when this returns."""
        if name == "redis" and self.masters:
            self.masters.start_again()
        return self.stack.start(name)

    def kill(self, name: str, index: int = 0) -> None:
        """SIGKILL to a process and its children; to all servers of Redis, where there are more."""
        self.stack.kill(name, index)
        if name == "redis" and self.masters:
            self.masters.kill()

    def holder(self, run_id: str) -> int:
        """Which model worker made the newest try of the run, as an index for `kill` and `terminate`."""
        return self.stack.pids("worker").index(int(self.tries(run_id)[-1].rpartition("/")[2]))

    def tries(self, run_id: str) -> list[str]:
        """The worker of each try of a model step of the run."""
        starts = [event.data for event in self.events(run_id) if event.type == "step.started"]
        return [data["worker"] for data in starts if "/" not in data["step"]]

    def terminate(self, name: str, index: int = 0) -> ChildCommand:
        """SIGTERM to a process, as a deployment sends it; does not wait."""
        pid = self.stack.kill(name, index, signal.SIGTERM)
        return next(child for child in self.children(name) if child.pid == pid)

    def children_of(self, name: str, index: int = 0) -> list[int]:
        """Process ids of the children that a tools worker runs tools in."""
        parent = self.stack.pids(name)[index]
        listed = Path(f"/proc/{parent}/task/{parent}/children").read_text().split()
        return [int(pid) for pid in listed]

    def all_children(self) -> list[int]:
        """Those of the one tools worker, once each of its four places has had a call: it starts them as calls come."""

        def look() -> list[int]:
            found = self.children_of("tools")
            if len(found) == 4:
                return found
            self.ended(self.submit("parallel-4", tools=["record"]))
            return []

        return eventually(look)

    def takers(self) -> list[str]:
        """The connections, by Redis's numbers, on which workers take deliveries from it."""
        with self.deliveries() as server:
            return [each["id"] for each in server.client_list() if each["cmd"] == "blmpop"]

    def heal(self) -> None:
        """Back to one process of each kind."""
        for pid in self.stack.pids("redis") or [self.start("redis")]:
            os.kill(pid, signal.SIGCONT)
        if self.rabbitmq:
            self.rabbitmq.resume()
            self.rabbitmq.start()
        for name in self.kinds:
            for number in range(len(self.stack.pids(name))):
                self.stack.kill(name, number, signal.SIGCONT)
            surplus = self.children(name)
            running = [child for child in surplus if child.running]
            for child in running[1:]:
                child.kill(signal.SIGKILL)
            if not running:
                self.start(name)

    def reset(self) -> None:
        """New processes on an empty server."""
        for name in ("worker", "tools", "api"):
            for child in self.children(name):
                child.kill(signal.SIGKILL)
        for connection in (self.redis(), self.deliveries()):
            with connection as server:
                server.flushall()
        if self.rabbitmq:
            self.rabbitmq.start()
            self.broker.lose()
        self.heal()

    def forget_cool_downs(self) -> None:
        """Providers are as if nobody had asked for fewer requests: a test does not wait for the one before it."""
        with self.redis() as server:
            for name in server.scan_iter("{palaver:provider:*"):
                server.delete(name)

    def children(self, name: str) -> list[ChildCommand]:
        """The processes of a role, running or not."""
        processes = self.stack.processes.items()
        return [
            child for each, child in processes if each.rpartition("-")[0] == name and isinstance(child, ChildCommand)
        ]

    # Logs.

    def mark(self) -> None:
        """From here on, runs, logs and ledgers are those of what comes."""
        self.submitted.clear()
        self.mark_logs()
        self.mark_ledgers()

    def mark_logs(self) -> None:
        """From here on, `new_logs` shows what is written."""
        self.expected_in_logs = []
        self._marks = {path: path.stat().st_size for path in self._logs()}

    def new_logs(self) -> dict[str, str]:
        """What each process has written since the mark."""
        found = {}
        for path in self._logs():
            with path.open("rb") as log:
                log.seek(self._marks.get(path, 0))
                found[path.stem] = log.read().decode(errors="replace")
        return found

    def new_log(self, role: str) -> str:
        """What the processes of a role have written since the mark: it may have been started anew before."""
        return "".join(text for name, text in self.new_logs().items() if name.startswith(f"{role}-"))

    def expect_traceback(self, *words: str) -> None:
        """This test makes a worker log tracebacks, each with a line that has one of these in it."""
        self.expected_in_logs += words

    def _logs(self) -> Iterable[Path]:
        return (self.stack.data_dir / "logs").glob("*.log")

    # The store, past the API.

    def ask(self, question: Callable[[Store], Awaitable[T]]) -> T:
        """The answer of the store."""

        async def asking() -> T:
            async with Store.connect(self._settings) as store:
                return await question(store)

        return asyncio.run(asking())

    @cached_property
    def _settings(self) -> Settings:
        """Those of `ask`: to read them from the environment each time is a fifth of what a question costs."""
        return Settings(redis_url=self._store_url, broker_url=self.stack.redis_url)

    def denied(self) -> list[str]:
        """What the users of processes were refused."""
        if not self.users:
            return []
        with self.redis() as server:
            return logins.denied(server)

    @contextmanager
    def redis(self) -> Iterator[redis.Redis]:
        """A plain connection to the server that has the store, or to all that have it."""
        if self._whole is not None:
            yield self._whole
            return
        with client_of(self.stack.redis_url) as connection:
            yield connection

    @cached_property
    def _whole(self) -> Any:
        """The connections to all masters: to learn where they are takes longer than what is asked."""
        return None if self.masters is None else self._masters.enter_context(self.masters.whole())

    @contextmanager
    def deliveries(self) -> Iterator[Any]:
        """A plain connection to the Redis that has the deliveries, unless RabbitMQ has them: that of the stack."""
        with client_of(self.stack.redis_url) as connection:
            yield connection

    def of_the_store(self, name: str, server: Any = None) -> list[bytes]:
        """The keys of this name, without its hash tag, in all shards; `*` stands for anything. Who asks for many gives
        his connection: to make one takes longer than what is asked."""
        if server is None:
            with self.redis() as server:
                return self.of_the_store(name, server)
        return list(server.keys(f"{{p*}}:{name}"))

    @property
    def places(self) -> Mapping[str, str]:
        """The settings by which a process finds the store and the deliveries, as those of the stack do."""
        return {"PALAVER_REDIS_URL": self._store_url, "PALAVER_BROKER_URL": self.broker.url if self.masters else ""}

    # Runs, through the API.

    def body(
        self, model: str, text: str = "hello", *, tools: Iterable[str] = (), agent: Any = None, **more: Any
    ) -> dict[str, Any]:
        """What POST /v1/runs takes."""
        named = model if "/" in model else f"fake/{model}"
        return {"agent": {"model": named, "tools": list(tools), **(agent or {})}, "input": text, **more}

    def submit(self, model: str, text: str = "hello", *, key: str | None = None, **more: Any) -> str:
        """Submit a run; its id."""
        return self.post(self.body(model, text, **more), key)

    def post(self, body: dict[str, Any], key: str | None = None) -> str:
        """Submit the run that `body` asks for; its id."""
        answer = self.http.post("/v1/runs", json=body, headers={"Idempotency-Key": key} if key else {})
        assert answer.status_code == 202, answer.text
        run_id = str(answer.json()["id"])
        if run_id not in self.submitted:
            self.submitted.append(run_id)
        return run_id

    def ended(self, run_id: str, within: float = PATIENCE) -> Run:
        """The run once it is terminal."""

        def look() -> Run | None:
            run = self.run(run_id, wait=min(2, within))
            return run if run.status.terminal else None

        try:
            run = eventually(look, within=within, every=0.02)
        except AssertionError as error:
            raise AssertionError(f"{run_id} did not end: {self.run(run_id)!r}\n{self.timeline(run_id)}") from error
        assert run is not None
        return run

    def goes_on(self, run_id: str) -> Run:
        """The run's conversation takes the next one, and its history is one that a provider accepts."""
        conversation = self.run(run_id).conversation_id
        run = self.ended(self.submit("echo", "go on", conversation_id=conversation))
        assert (run.status, run.output) == ("completed", "echo: go on"), run
        return run

    def events(self, run_id: str) -> list[StoredEvent]:
        """All events so far."""

        async def read(store: Store) -> list[StoredEvent]:
            found: list[StoredEvent] = []
            while page := await store.feeds.page(run_id, after=found[-1].seq if found else 0):
                found += page
            return found

        return self.ask(read)

    def saw(self, run_id: str, kind: str, within: float = PATIENCE, **data: Any) -> StoredEvent:
        """The first event of this type with these data, once there is one."""

        def look() -> StoredEvent | None:
            return next((e for e in self.events(run_id) if e.type == kind and data.items() <= e.data.items()), None)

        event = eventually(look, within=within, why=f"{kind} {data} of {run_id}")
        assert event is not None
        return event

    def timeline(self, run_id: str) -> str:
        """The events of a run, for people."""
        return "\n".join(f"{e.seq} {e.at:%S.%f} {e.type} {str(e.data)[:160]}" for e in self.events(run_id))

    # Ledgers.

    def mark_ledgers(self) -> None:
        """From here on, ledgers show what is written: reading all of a session's would be the most that a test does."""
        ledgers = (self.ledger_path, self.tool_ledger_path)
        self._ledger_marks = {path: path.stat().st_size for path in ledgers if path.exists()}

    def model_calls(self, run_id: str | None = None) -> list[LedgerEntry]:
        """What the model server was asked, for one run or by all."""
        path = self.ledger_path
        found = read_ledger(path, self._ledger_marks.get(path, 0)) if path.exists() else []
        return [entry for entry in found if run_id in (None, entry.run)]

    def finished_calls(self, run_id: str) -> list[LedgerEntry]:
        """The model calls of the run, once all have ended: the model server notes status and outcome a moment behind
        the last byte, when the run may have ended."""

        def look() -> list[LedgerEntry]:
            found = self.model_calls(run_id)
            return [] if any(call.outcome == "open" for call in found) else found

        return eventually(look)

    def outcomes(self, run_id: str) -> list[str]:
        """How each model call of the run ended, once all have."""
        return [call.outcome for call in self.finished_calls(run_id)]

    def tool_ledger(self) -> list[dict[str, Any]]:
        """What tools have written."""
        return read_tool_ledger(self.tool_ledger_path, self._ledger_marks.get(self.tool_ledger_path, 0))

    def tool_starts(self, run_id: str, tool: str | None = None) -> list[dict[str, Any]]:
        """Each start of a tool for this run."""
        return [
            line
            for line in self.tool_ledger()
            if line["event"] == "begin" and line["call"].startswith(run_id) and tool in (None, line["tool"])
        ]

    def gate(self) -> Gate:
        """A gate that is shut."""
        return Gate(self.tool_ledger_path.parent)

    def close(self) -> None:
        """End everything at once: to let processes end by themselves takes as long as half of a start, and is for tests
        that end one."""
        self.http.close()
        for child in self.stack.processes.values():
            if isinstance(child, ChildCommand):
                child.kill(signal.SIGKILL)
        self.stack.stop()
        if self.rabbitmq:
            self.rabbitmq.close()
        if self.sentinel:
            self.sentinel.close()
        self._masters.close()


def stream(http: httpx.Client, path: str, **request: Any) -> Iterator[tuple[float, dict[str, Any]]]:
    """The events of a server-sent stream, each with the monotonic time it came at, until the server ends it."""
    with http.stream(**{"method": "GET", "url": path, "headers": {"Accept": "text/event-stream"}, **request}) as answer:
        assert answer.status_code in (200, 202), answer.read()
        fields: dict[str, str] = {}
        for line in answer.iter_lines():
            if line.startswith(":"):
                continue
            if line:
                name, _, value = line.partition(": ")
                fields[name] = value
            elif "data" in fields:
                data = orjson.loads(fields["data"])
                yield time.monotonic(), {"id": int(fields["id"]), "event": fields["event"], "data": data}
                fields = {}
