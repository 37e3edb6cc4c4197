"""Processes of a role that start in a fifth of the time: a warm parent has imported their program, and forks.

    with Zygote(cluster, "worker", PALAVER_LEASE_SECONDS="1") as zygote:
        victim = zygote.child(armed="step.claimed=kill@3")
        victim.start()

What runs is the program of the role, in a session and with a log of its own; it ends when its parent ends, and the
parent with the tests. As a program, `python -m tests.chaos.zygote workers|api SOCKET`, this is that parent. It is
itself a fork of the one that all processes of tests have (tests/process/warm.py), and has more of its role.
"""

from __future__ import annotations

import gc
import importlib
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from types import TracebackType
from typing import IO, Any, Final, NoReturn, Self, TextIO

from features.stack.child import ChildCommand, Spawned
from features.stack.ports import free_port
from features.stack.readiness import accepts
from palaver.config.roles import command
from palaver.config.settings import settings
from palaver.processes.failpoints import failpoint
from tests import once
from tests.process.cluster import Cluster
from tests.processes import fork_session, write_to

_PRELOADED: Final[Mapping[str, str]] = {
    "workers": """
        workers.app workers.__main__ celery.bin.worker celery.loaders.app celery.apps.worker celery.app.log
        celery.app.amqp celery.app.control celery.app.events celery.events.receiver celery.worker.autoscale
        celery.worker.consumer celery.worker.consumer.delayed_delivery celery.worker.strategy kombu.pidbox
        billiard.popen_fork billiard.sharedctypes httpx aiohttp workers.connections.guarded_resolver
    """,
    "api": """
        api.serving api.app api.edge.connections api.edge.descriptors
        features.ag_ui features.ai_sdk features.openai features.openhands
        uvicorn.lifespan.on uvicorn.loops.asyncio uvicorn.loops.auto uvicorn.protocols.http.httptools_impl
    """,
}
"""What a program imports until it works."""
_SENDER: Final = "features.tracing.sender"
"""What a worker imports that sends traces: as much again."""
_PATIENCE: Final = 60.0
"""Seconds for what a warm parent does."""


class Zygote:
    """The warm parent of processes of one role; `more` is added to what the cluster's have in their
    environment."""

    def __init__(self, cluster: Cluster, line: str, **more: str) -> None:
        self.ledger = cluster.folder / "failpoints"
        """Has a line for each process that died at a point."""
        self.environment = {**cluster.children(line)[0].environment, **more}
        self._line = line
        self._logs = cluster.stack.data_dir / "logs"
        self._children: list[ChildCommand] = []
        self._named = 0

    def __enter__(self) -> Self:
        with TemporaryDirectory(prefix="zygote-") as folder, socket.socket(socket.AF_UNIX) as server:
            server.bind(address := os.path.join(folder, "socket"))
            server.listen(1)
            server.settimeout(_PATIENCE)
            self._process = ChildCommand(
                f"zygote-{self._line}",
                [sys.executable, "-m", "tests.chaos.zygote", command(self._line)[2], address],
                environment=self.environment,
                log_path=self._logs / f"zygote-{self._line}.log",
                ready=lambda child: True,
            )
            self._process.start()
            with server.accept()[0] as connection:
                connection.settimeout(_PATIENCE)
                self._stream = connection.makefile("rw")
        assert self._read() == "ready"
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.kill_children()
        self._stream.close()
        self._process.kill(signal.SIGKILL)

    def child(self, armed: str = "", *options: str) -> Forked:
        """One more process, to be started; `armed` is what PALAVER_FAILPOINTS would say, and `options` are those of its
        role."""
        self._named += 1
        name = f"forked-{self._line}-{self._named}"
        child = Forked(self, name, options, log_path=self._logs / f"{name}.log", ready=self._ready, armed=armed)
        self._children.append(child)
        return child

    def _ready(self, child: ChildCommand) -> bool:
        return accepts(int(self.environment["PALAVER_API_PORT"])) if self._line == "api" else " ready." in child.output

    def kill_children(self) -> None:
        """All that were started."""
        for child in self._children:
            child.kill(signal.SIGKILL)
        self._children.clear()

    def fork(self, log: Path, armed: str, options: Sequence[str]) -> int:
        """Its process id."""
        return int(self.ask(role=self._line, options=options, log=str(log), armed=armed, ledger=str(self.ledger)))

    def ask(self, **request: Any) -> Any:
        """What the warm parent answers."""
        self._stream.write(json.dumps(request) + "\n")
        self._stream.flush()
        return self._read()

    def _read(self) -> Any:
        answer = self._stream.readline()
        assert answer, "the zygote has ended"
        return json.loads(answer)


def start_all(victims: Iterable[Forked]) -> None:
    """Start again what has died."""
    for victim in victims:
        if not victim.running:
            victim.start()


@contextmanager
def zygotes_of(cluster: Cluster) -> Iterator[Mapping[str, Zygote]]:
    """Warm parents of its workers, and of an API at a port of its own. Leases are short, so that what a dead worker
    held goes on soon; and a step may lose its worker so often that its run never fails for it."""
    short = {"PALAVER_LEASE_SECONDS": "1", "PALAVER_MAX_LOSSES": "100"}
    with ExitStack() as stack:
        warm = {line: stack.enter_context(Zygote(cluster, line, **short)) for line in ("worker", "tools")}
        warm["api"] = stack.enter_context(Zygote(cluster, "api", PALAVER_API_PORT=str(free_port())))
        yield warm


class Forked(ChildCommand):
    """A process that a zygote forks. `armed` may be changed for its next start."""

    def __init__(
        self,
        zygote: Zygote,
        name: str,
        options: Sequence[str],
        *,
        log_path: Path,
        ready: Callable[[ChildCommand], bool],
        armed: str,
    ) -> None:
        super().__init__(name, (), environment=zygote.environment, log_path=log_path, ready=ready)
        self.armed = armed
        self._options = options
        self._zygote = zygote

    @property
    def ready(self) -> bool:
        """Whether it runs, and does its work."""
        return self.running and self._ready(self)

    def _spawn(self, log: IO[bytes]) -> Spawned:
        return _Fork(self._zygote, self._zygote.fork(self.log_path, self.armed, self._options))


class _Fork:
    """As `subprocess.Popen`, for a child of the zygote: only its parent may wait for it."""

    def __init__(self, zygote: Zygote, pid: int) -> None:
        self.pid = pid
        self._zygote = zygote
        self._code: int | None = None

    def poll(self) -> int | None:
        if self._code is None:
            self._code = self._zygote.ask(poll=self.pid)
        return self._code

    def wait(self, timeout: float | None = None) -> int:
        deadline = time.monotonic() + (30.0 if timeout is None else timeout)
        while (code := self.poll()) is None:
            if time.monotonic() > deadline:
                raise subprocess.TimeoutExpired("a fork", timeout or 30.0)
            time.sleep(0.002)
        return code


# The warm parent.


def main(program: str, address: str) -> None:
    """Import, then fork for each request that comes in, until nobody can send one."""
    with socket.socket(socket.AF_UNIX) as connection:
        connection.connect(address)
        with connection.makefile("rw") as stream:
            _answer_all(program, connection, stream)


def _answer_all(program: str, connection: socket.socket, stream: TextIO) -> None:
    def answer(value: Any) -> None:
        stream.write(json.dumps(value) + "\n")
        stream.flush()

    sends = program == "workers" and "OTEL_EXPORTER_OTLP_ENDPOINT" in os.environ
    for name in (*_PRELOADED[program].split(), *([_SENDER] if sends else ()), *settings().tools):
        importlib.import_module(name)
    once.know_the_version_of_redis()
    once.assemble_scripts(settings())
    gc.collect()
    gc.freeze()
    assert threading.active_count() == 1, "a fork would lose threads, and what they hold"
    answer("ready")
    while line := stream.readline():
        request = json.loads(line)
        if "poll" in request:
            ended, status = os.waitpid(request["poll"], os.WNOHANG)
            answer(os.waitstatus_to_exitcode(status) if ended else None)
        elif (pid := fork_session()) == 0:
            os.close(connection.detach())
            _become(**request)
        else:
            answer(pid)


def _become(role: str, options: Sequence[str], log: str, armed: str, ledger: str) -> NoReturn:
    """Be the process of the role, as if it had been started."""
    write_to(log)
    failpoint.arm(armed, ledger)
    sys.argv = command(role, options)[2:]
    module = importlib.import_module("api.serving" if sys.argv[0] == "api" else f"{sys.argv[0]}.__main__")
    sys.exit(module.main())


if __name__ == "__main__":
    main(*sys.argv[1:])
