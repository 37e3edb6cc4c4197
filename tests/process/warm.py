"""Processes of the stack that start in a fifth of the time: a warm parent has imported their programs, and forks.

What runs is the program of the role, in a session of its own, with the environment, the log and the process id that the
caller sees. Half of what the suite computes would be imports otherwise. Started as users start them are all that is
started with variables that Python or a library reads before its first line, and whatever tests of the command line, the
wheel and the deploy kit start. What /proc shows of a process, its memory or the environment that it was started with,
is the warm parent's: tests that look there have ``cold_starts``. As a program, ``python -m tests.process.warm``, this
is that parent.
"""

from __future__ import annotations

import gc
import importlib
import json
import logging
import os
import runpy
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import IO, Any, Final, NoReturn

import pytest

from features.stack.child import ChildCommand, Spawned, dying_with_parent
from palaver.config.settings import Settings, settings
from palaver.feature import features
from tests import once
from tests.pages import ROOT
from tests.processes import fork_session, write_to

_ROLES: Final = frozenset({"api", "worker", "tools"})
_MODEL_SERVER: Final = "tests.model_server"
_ZYGOTE: Final = "tests.chaos.zygote"
_POOL: Final = ("celery", "-A", "tests.process.pool_app")
_READ_BEFORE: Final = ("LD_", "MALLOC_", "OTEL_PROPAGATORS", "OTEL_PYTHON_", "PALAVER_FEATURES", "PYTHON")
"""Beginnings of variables that are read before a program's first line, or by what is imported already."""
_PATH: Final = "PYTHONPATH"
"""Read before the first line as well, but a fork can still go by it."""
_PRELOADED: Final = """
    palaver.cli palaver.config.roles palaver.config.settings palaver.config.exits palaver.store.server.preflight
    tests.model_server.server
    workers.broker.consumer workers.broker.consumer_watchdog workers.broker.event_batcher workers.broker.logs
    workers.broker.pool workers.broker.remote workers.broker.taking workers.broker.transport
    workers.children.checking workers.children.child workers.children.descriptors workers.children.environment
    workers.children.output_capture workers.children.prefork workers.children.request
    workers.loops.keeper workers.loops.metrics_server workers.loops.progress workers.loops.stops
    workers.connections.guarded_resolver workers.models.model workers.steps.step workers.steps.step_functions
    billiard.popen_fork billiard.sharedctypes httpx aiohttp palaver.processes.garbage
    celery.bin.worker celery.loaders.app celery.apps.worker celery.app.log celery.app.amqp celery.app.control
    celery.app.events celery.backends.base celery.events.dispatcher celery.events.receiver celery.fixups.django
    celery.worker.autoscale celery.worker.consumer celery.worker.consumer.delayed_delivery celery.worker.strategy
    kombu.mixins kombu.pidbox
    api.app api.edge.connections api.edge.descriptors api.http.logs features.mcp_server
    features.ag_ui features.ai_sdk features.openai features.openhands
    uvicorn.lifespan.on uvicorn.loops.asyncio uvicorn.loops.auto uvicorn.protocols.http.httptools_impl
    encodings.idna importlib.readers stringprep
    tests.process.tools
"""
"""What the programs import until they work, but for what reads the environment: workers.app, for one."""
_SPAWN: Final = ChildCommand._spawn


@contextmanager
def starts() -> Iterator[None]:
    """Within the block, the children of stacks are forked where that comes to the same."""
    with pytest.MonkeyPatch.context() as patch:
        warm = Warm()
        patch.setattr(ChildCommand, "_spawn", lambda child, log: warm.spawn(child, log))
        yield
        warm.close()


@contextmanager
def cold_starts(*roles: str) -> Iterator[None]:
    """Within the block, children of these roles, or all, are started as users start them, for tests that look at the
    process itself."""
    usual = ChildCommand._spawn

    def spawn(child: ChildCommand, log: IO[bytes]) -> Spawned:
        cold = not roles or child.name.rpartition("-")[0] in roles
        return (_SPAWN if cold else usual)(child, log)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ChildCommand, "_spawn", spawn)
        yield


class Warm:
    """The warm parent; it is started with the first child, and ends with this process."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[str] | None = None
        self._alone = threading.Lock()

    def spawn(self, child: ChildCommand, log: IO[bytes]) -> Spawned:
        """Start it, as `ChildCommand` would."""
        command, environment = child._command, child.environment
        if not _forks(command, environment):
            return _SPAWN(child, log)
        request = {"argv": [*command[2:]], "environment": {**environment}, "log": str(child.log_path)}
        return _Fork(self, int(self.ask(**request)))

    def ask(self, **request: Any) -> Any:
        """What the warm parent answers."""
        with self._alone:
            if self._process is None:
                self._process = self._start()
            assert self._process.stdin is not None
            self._process.stdin.write(json.dumps(request) + "\n")
            self._process.stdin.flush()
            return _answer(self._process)

    def close(self) -> None:
        """Its children end with it."""
        if self._process is not None:
            self._process.kill()
            self._process.communicate()

    def _start(self) -> subprocess.Popen[str]:
        process = subprocess.Popen(
            dying_with_parent([sys.executable, "-m", "tests.process.warm"]),
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        assert _answer(process) == "ready"
        return process


def _forks(command: Sequence[str], environment: Mapping[str, str]) -> bool:
    if tuple(command[:2]) != (sys.executable, "-m"):
        return False
    role = command[2] == "palaver.cli" and command[3] in _ROLES
    # With an application of a test's own.
    worker = command[2] == "workers" and "worker" in command
    if not (role or worker or command[2] in (_MODEL_SERVER, _ZYGOTE) or tuple(command[2:5]) == _POOL):
        return False
    return _read_before(environment) == _read_before(os.environ)


def _read_before(environment: Mapping[str, str]) -> Mapping[str, str]:
    found = {name: value for name, value in environment.items() if name.startswith(_READ_BEFORE) and name != _PATH}
    return {**found, "PYTHONUNBUFFERED": "1"}


def _answer(process: subprocess.Popen[str]) -> Any:
    assert process.stdout is not None
    answer = process.stdout.readline()
    assert answer, "the warm parent has ended"
    return json.loads(answer)


class _Fork:
    """As `subprocess.Popen`, for a child of the warm parent: only its parent may wait for it."""

    def __init__(self, warm: Warm, pid: int) -> None:
        self.pid = pid
        self._warm = warm
        self._code: int | None = None

    def poll(self) -> int | None:
        if self._code is None:
            self._code = self._warm.ask(poll=self.pid)
        return self._code

    def wait(self, timeout: float | None = None) -> int:
        give_up_at = time.monotonic() + (30.0 if timeout is None else timeout)
        while (code := self.poll()) is None:
            if time.monotonic() > give_up_at:
                raise subprocess.TimeoutExpired("a fork", timeout or 30.0)
            time.sleep(0.005)
        return code


# The warm parent.


class _Exec(BaseException):
    """The program becomes another one, of Python as well."""

    def __init__(self, argv: Sequence[str]) -> None:
        super().__init__()
        self.argv = argv


def main() -> None:
    """Import, then fork for each request that comes in, until nobody can send one."""
    for name in _PRELOADED.split():
        importlib.import_module(name)
    once.know_the_version_of_redis()
    gc.collect()
    gc.freeze()
    assert threading.active_count() == 1, "a fork would lose threads, and what they hold"
    print('"ready"', flush=True)
    for line in sys.stdin:
        request = json.loads(line)
        if "poll" in request:
            ended, status = os.waitpid(request["poll"], os.WNOHANG)
            print(os.waitstatus_to_exitcode(status) if ended else "null", flush=True)
            continue
        _prepare(request["environment"])
        if (pid := fork_session()) == 0:
            _become(**request)
        print(pid, flush=True)


def _prepare(environment: Mapping[str, str]) -> None:
    """Have the scripts of a process with this environment; one whose settings do not fit says so itself, and one that
    switches features on makes its own."""
    if _switched_on(environment):
        return
    own = dict(os.environ)
    os.environ.clear()
    os.environ.update(environment)
    try:
        with suppress(Exception):
            once.assemble_scripts(Settings())
    finally:
        os.environ.clear()
        os.environ.update(own)


def _switched_on(environment: Mapping[str, str]) -> bool:
    switches = [each.switch for each in features().values() if each.switch]
    return any(environment.get(switch + suffix) for switch in switches for suffix in ("", "_FILE"))


def _become(argv: list[str], environment: dict[str, str], log: str) -> NoReturn:
    """Be the process, as if it had been started."""
    from palaver.processes.failpoints import failpoint

    os.umask(0o077)
    write_to(log)
    sys.stdout.reconfigure(write_through=True)  # type: ignore[union-attr]
    os.environ.clear()
    os.environ.update(environment)
    if _switched_on(environment):
        once.forget_switches()
    time.tzset()
    if _PATH in environment:
        # Behind the folder that the program is started in.
        sys.path[1:1] = environment[_PATH].split(os.pathsep)
    failpoint.arm(environment.get("PALAVER_FAILPOINTS", ""), environment.get("PALAVER_FAILPOINTS_LEDGER"))
    os.execv = _execv  # type: ignore[assignment]
    while True:
        sys.argv = argv
        try:
            runpy.run_module(argv[0], run_name="__main__", alter_sys=True)
        except _Exec as other:
            argv = _as_exec_leaves_it(other.argv)
        else:
            sys.exit()


def _execv(path: str, argv: Sequence[str]) -> NoReturn:
    assert [path, "-m"] == [argv[0], argv[1]], argv
    raise _Exec(argv[2:])


def _as_exec_leaves_it(argv: Sequence[str]) -> list[str]:
    settings.cache_clear()
    logging.getLogger().handlers.clear()
    for number in signal.valid_signals():
        if callable(signal.getsignal(number)):
            signal.signal(number, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    return [*argv]


if __name__ == "__main__":
    main()
