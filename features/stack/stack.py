"""Everything Palaver needs on one machine: a Redis, the fake provider, a process of each role; as child processes."""

from __future__ import annotations

import os
import secrets
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from signal import SIGKILL
from types import TracebackType
from typing import Final, Self

from .child import ChildCommand
from .child_output import ChildOutput
from .data_dir import DataDir
from .errors import StackError
from .plan import COMMANDS, Plan
from .ports import HOST, Ports, asked_at
from .redis_server import RedisServer, RedisServerError
from .supervision import Process
from .surroundings import Surroundings

_REDIS_FILE: Final = "redis/palaver.conf"
_URL_FILE: Final = "redis-url"


class Stack:
    """Everything Palaver needs on one machine, as child processes of this one.

        with Stack(data_dir, processes={"worker": 2, "flower": 0}) as stack:
            stack.kill("worker")
            stack.start("worker")

    `ports`: free ones unless given. `host`: the address of the API. `processes`: how many of a kind to run; 1 unless
    given, 0 leaves it out, and `fake_provider` is a kind, too. `commands`: by kind, in place of those of the roles;
    `fake_provider`: that of `fake`, in place of the feature's, which takes a host and a port. `redis_url`: a server to
    use instead of the embedded one. `environment`: added to this process's own; a PALAVER_PROVIDERS in it replaces the
    provider `fake`. `environments`: more, for single kinds. `redis_options`: of the embedded server's configuration;
    `redis_login`: the user and the password of this stack itself, where the server wants a login. `redis_config`: lines
    of a file for the embedded server, which then has a new password at each start; its address is in `redis-url` of the
    data directory. `output`: says where a process by its name writes, in place of logs in the data directory.
    `progress`: whether workers report it, for `Stalls`. `deadline`, `grace`: seconds until everything must be ready,
    and that stopping may take before what is left is killed. `report` is told of each process.

    Start it from a thread that outlives it: on Linux the processes end with the thread that started them.
    """

    def __init__(
        self,
        data_dir: Path,
        *,
        ports: Ports | None = None,
        processes: Mapping[str, int] | None = None,
        commands: Mapping[str, Sequence[str]] = COMMANDS,
        environment: Mapping[str, str] | None = None,
        environments: Mapping[str, Mapping[str, str]] | None = None,
        redis_options: Mapping[str, str] | None = None,
        redis_login: tuple[str, str] | None = None,
        redis_config: Sequence[str] = (),
        redis_url: str | None = None,
        host: str = HOST,
        output: Callable[[str], ChildOutput] | None = None,
        progress: bool = False,
        fake_provider: Sequence[str] | None = None,
        deadline: float = 60.0,
        grace: float = 20.0,
        report: Callable[[str], None] = lambda line: None,
    ) -> None:
        self._folder = DataDir(data_dir)
        self.data_dir = self._folder.path
        self.ports = ports or Ports.free()
        self._plan = Plan(
            self.data_dir,
            self.ports,
            commands,
            dict(environment or {}),
            environments or {},
            fake_provider=fake_provider,
            host=host,
            output=output,
            progress=progress,
        )
        self._counts = dict.fromkeys(("fake_provider", *commands), 1) | dict(processes or {})
        if unknown := self._counts.keys() - commands.keys() - {"fake_provider"}:
            raise StackError(f"there is no command for {', '.join(sorted(unknown))}")
        self._redis_config = redis_config
        self._password = secrets.token_hex(32)
        if redis_config:
            redis_login = ("default", self._password)
            redis_options = {**(redis_options or {}), "include": str(self.data_dir / _REDIS_FILE)}
        self._redis = RedisServer(
            port=self.ports.redis,
            data_dir=self.data_dir / "redis",
            deadline=deadline,
            options=redis_options,
            login=redis_login,
            output=output and output("redis"),
        )
        self._external_redis_url = redis_url
        self._deadline = deadline
        self._grace = grace
        self._report = report
        self._children: dict[str, list[ChildCommand]] = {}

    @classmethod
    def from_environment(cls, environment: Mapping[str, str], report: Callable[[str], None]) -> Stack:
        """The stack that PALAVER_DATA_DIR, PALAVER_REDIS_URL, PALAVER_PROVIDERS and the ports ask for. Raises as
        `Surroundings.of`."""
        here = Surroundings.of(environment)
        return cls(
            here.data_dir,
            ports=here.ports,
            environment={"PALAVER_CONSOLE": environment.get("PALAVER_CONSOLE") or "true", **here.variables},
            redis_url=here.redis_url,
            report=report,
        )

    def __enter__(self) -> Self:
        self.up()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    @property
    def host(self) -> str:
        """The address at which the API listens."""
        return self._plan.host

    @property
    def url(self) -> str:
        """The API, as this machine asks it."""
        return f"http://{asked_at(self.host)}:{self.ports.api}"

    @property
    def flower_url(self) -> str:
        """Flower."""
        return f"http://{HOST}:{self.ports.flower}"

    @property
    def model_url(self) -> str:
        """The fake provider, without the /v1 of its OpenAI-compatible routes."""
        return f"http://{HOST}:{self.ports.fake_provider}"

    @property
    def redis_url(self) -> str:
        """The URL of the Redis that the stack uses, embedded or not."""
        return self._external_redis_url or self._redis.url

    @property
    def processes(self) -> dict[str, Process]:
        """Every process the stack has started, running or not, by a name that counts: `worker-2`."""
        embedded: dict[str, Process] = {} if self._external_redis_url else {"redis": self._redis}
        return embedded | {child.name: child for child in self.children}

    @property
    def children(self) -> list[ChildCommand]:
        """All of these but its Redis, in the order in which they were first started, kind by kind."""
        return [child for group in self._children.values() for child in group]

    def up(self) -> None:
        """Start everything and return when all of it is ready.

        Raises StackError, with nothing left running, when a port or the data directory is taken, or a process
        exits or is not ready in time (with the end of its log).
        """
        try:
            self._take_data_dir()
            give_up_at = time.monotonic() + self._deadline
            names = [name for name in self._counts for _ in range(self._counts[name])]
            first = [] if self._external_redis_url else ["redis"]
            first += [name for name in names if name == "fake_provider"]
            rest = [name for name in names if name != "fake_provider"]
            for name in first + rest:
                self.ports.require(name)
            for name in first:
                self.start(name)
            for child in [self._launch(name) for name in rest]:
                self._wait(child, give_up_at)
        except BaseException:
            self.stop()
            raise

    def start(self, name: str) -> int:
        """Start `name` again if one has ended, else one more; return its process id when it is ready.

        `name`: a kind of process, `redis` or `fake_provider`. Raises StackError as `up` does.
        """
        if name != "redis":
            child = self._launch(name)
            self._wait(child, time.monotonic() + self._deadline)
            return child.pid
        self.ports.require(name)
        try:
            self._redis.start()
        except RedisServerError as error:
            raise StackError(f"redis: {error}") from error
        self._report(f"redis is ready (process {self._redis.pid})")
        return self._redis.pid

    def kill(self, name: str, index: int = 0, signal: int = SIGKILL) -> int:
        """Signal the `index`th running `name` and return its process id. After SIGKILL it has ended.

        SIGKILL, SIGSTOP and SIGCONT reach its children as well. Raises StackError when no such process runs.
        """
        pids = self.pids(name)
        if index >= len(pids):
            raise StackError(f"{name} number {index} does not run")
        if name != "redis":
            next(child for child in self._children[name] if child.pid == pids[index]).kill(signal)
        elif signal == SIGKILL:
            self._redis.kill()
        else:
            os.kill(pids[index], signal)
        return pids[index]

    def pids(self, name: str) -> list[int]:
        """The process ids of every `name` that runs, in the order of their numbers."""
        if name == "redis":
            return [self._redis.pid] if self._redis.running else []
        return [child.pid for child in self._children.get(name, ()) if child.running]

    def log(self, name: str, index: int = 0) -> str:
        """Return what the `index`th `name`, running or not, has written since its last start."""
        return self._children[name][index].output

    def stop(self) -> None:
        """End everything, last started first: SIGTERM, then SIGKILL after the grace. Redis goes last."""
        give_up_at = time.monotonic() + self._grace
        clients = [child for child in reversed(self.children) if child.name != "fake_provider-1"]
        for group in (clients, self._children.get("fake_provider", [])):
            for child in group:
                child.terminate()
            for child in group:
                child.reap(give_up_at)
        self._redis.stop()
        self._children.clear()
        self._folder.release()

    def _launch(self, name: str) -> ChildCommand:
        places = self._children.setdefault(name, [])
        child = next((child for child in places if not child.running), None)
        if child is None:
            child = self._plan.child(name, len(places) + 1, self.redis_url)
            places.append(child)
        self.ports.require(name)
        child.start()
        return child

    def _wait(self, child: ChildCommand, give_up_at: float) -> None:
        child.wait_until_ready(give_up_at)
        self._report(f"{child.name} is ready (process {child.pid})")

    def _take_data_dir(self) -> None:
        self._folder.take()
        if self._redis_config and not self._external_redis_url:
            # Not before: it is the password of the one that runs here.
            self._folder.write(_REDIS_FILE, *self._redis_config, f"requirepass {self._password}")
            self._folder.write(_URL_FILE, self.redis_url)
