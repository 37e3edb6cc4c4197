"""Everything Palaver needs on one machine: a Redis, the fake provider, a process of each role; as child processes."""

from __future__ import annotations

import fcntl
import os
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from signal import SIGKILL
from types import TracebackType
from typing import IO, Self

from palaver.config.secret_files import secret_of
from palaver.feature import features

from .child import ChildCommand
from .errors import StackError
from .plan import COMMANDS, Plan
from .ports import HOST, Ports
from .redis_server import RedisServer, RedisServerError
from .supervision import Process


class Stack:
    """Everything Palaver needs on one machine, as child processes of this one.

        with Stack(data_dir, processes={"worker": 2, "flower": 0}) as stack:
            stack.kill("worker")
            stack.start("worker")

    `ports`: free ones unless given. `processes`: how many of a kind to run; 1 unless given, 0 leaves it out.
    `commands`: by kind, in place of those of the roles; `fake_provider`: that of `fake`, in place of the
    feature's, which takes a host and a port. `redis_url`: a server to use instead of the embedded one.
    `environment`: added to this process's own; a PALAVER_PROVIDERS in it replaces the provider `fake`.
    `environments`: more, for single kinds. `redis_options`: of the embedded server's configuration; `redis_login`: the
    user and the password of this stack itself, where the server wants a login. `deadline`, `grace`: seconds until
    everything must be ready, and that stopping may take before what is left is killed. `report`
    is told of each process.

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
        redis_url: str | None = None,
        fake_provider: Sequence[str] | None = None,
        deadline: float = 60.0,
        grace: float = 20.0,
        report: Callable[[str], None] = lambda line: None,
    ) -> None:
        self.data_dir = data_dir.resolve()
        self.ports = ports or Ports.free()
        self._plan = Plan(
            self.data_dir, self.ports, commands, dict(environment or {}), environments or {}, fake_provider
        )
        self._counts = dict.fromkeys(commands, 1) | dict(processes or {})
        if unknown := self._counts.keys() - commands.keys():
            raise StackError(f"there is no command for {', '.join(sorted(unknown))}")
        self._redis = RedisServer(
            port=self.ports.redis,
            data_dir=self.data_dir / "redis",
            deadline=deadline,
            options=redis_options,
            login=redis_login,
        )
        self._external_redis_url = redis_url
        self._deadline = deadline
        self._grace = grace
        self._report = report
        self._children: dict[str, list[ChildCommand]] = {}
        self._lock: IO[str] | None = None

    @classmethod
    def from_environment(cls, environment: Mapping[str, str], report: Callable[[str], None]) -> Stack:
        """The stack that PALAVER_DATA_DIR, PALAVER_REDIS_URL, PALAVER_PROVIDERS and the ports ask for.

        Raises SystemExit, with a sentence, for a port that is none, and ConfigurationError if the file that has the
        address of the Redis cannot be read.
        """
        providers = environment.get("PALAVER_PROVIDERS")
        data_dir = Path(environment.get("PALAVER_DATA_DIR") or ".palaver").resolve()
        brought: dict[str, str] = {}
        for feature in features().values():
            if feature.beside_up:
                brought |= feature.load(feature.beside_up)(data_dir, environment)
        return cls(
            data_dir,
            ports=Ports.from_environment(environment),
            environment={
                "PALAVER_CONSOLE": environment.get("PALAVER_CONSOLE") or "true",
                **({"PALAVER_PROVIDERS": str(Path(providers).resolve())} if providers else {}),
                **brought,
            },
            redis_url=secret_of("PALAVER_REDIS_URL", environment),
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
    def url(self) -> str:
        """The API."""
        return f"http://{HOST}:{self.ports.api}"

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
        return embedded | {child.name: child for group in self._children.values() for child in group}

    def up(self) -> None:
        """Start everything and return when all of it is ready.

        Raises StackError, with nothing left running, when a port or the data directory is taken, or a process
        exits or is not ready in time (with the end of its log).
        """
        try:
            self._take_data_dir()
            give_up_at = time.monotonic() + self._deadline
            names = [name for name in self._counts for _ in range(self._counts[name])]
            first = ["fake_provider"] if self._external_redis_url else ["redis", "fake_provider"]
            for name in first + names:
                self.ports.require(name)
            for name in first:
                self.start(name)
            for child in [self._launch(name) for name in names]:
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
        started = [child for group in self._children.values() for child in group]
        clients = [child for child in reversed(started) if child.name != "fake_provider-1"]
        for group in (clients, self._children.get("fake_provider", [])):
            for child in group:
                child.terminate()
            for child in group:
                child.reap(give_up_at)
        self._redis.stop()
        self._children.clear()
        if self._lock is not None:
            self._lock.close()
            self._lock = None

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
        (self.data_dir / "logs").mkdir(parents=True, exist_ok=True)
        # Conversations and logs: only for the user who started it, also where an older version made the folder.
        self.data_dir.chmod(0o700)
        self._lock = (self.data_dir / "lock").open("w")
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            raise StackError(
                f"another stack runs in {self.data_dir}: stop it, or set PALAVER_DATA_DIR to another place"
            ) from error
