"""Processes that share a run of the suite: forks of one that has collected all tests, of which each takes whole files.

To collect the tests takes seven seconds of processor time, and would for each process that began by itself.
"""

from __future__ import annotations

import os
import sys
import threading
import warnings
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from multiprocessing.connection import Connection, Pipe, wait
from typing import Any, Final, NoReturn

import pytest

from tests.feature_cases import CARRIED_OUT
from tests.processes import die_with

_TOGETHER: Final = (
    ("tests/openhands/",),
    ("tests/process/test_console",),
    (
        "tests/unit/test_chat_requests.py",
        "tests/unit/test_messages_requests.py",
        "tests/unit/test_model_server_messages.py",
        "tests/unit/test_model_server_responses.py",
        "features/openai/tests/unit/test_openai_c",
        "features/openai/tests/unit/test_openai_responses.py",
        "features/openai/tests/unit/test_openai_servers.py",
        "tests/unit/test_responses_requests.py",
    ),
)
"""Beginnings of files that one process takes: they share what takes longest to start or to import: OpenHands' clients,
a browser, or SDKs of providers."""
_STARTS_PROCESSES: Final = "tests/process/"
_UNITS: Final = "tests/unit/"
_COMPUTES: Final = ("tests/contract/", "tests/cost/", _UNITS)
"""Folders of tests, those of features among them: `features/NAME/tests/unit/`."""
_GIVES_WAY: Final = 10
"""How nice a process of a run is that takes what computes, while others wait for the processes they started: it has a
tenth of a core where they want all of it, and all that they leave."""
_LONG: Final = (
    "tests/chaos/test_aimed_kills.py",
    "tests/contract/test_random_walk.py",
    "tests/process/test_fault_table.py",
    "tests/process/test_followed_pages.py",
    "tests/process/test_leaks.py",
    "tests/process/test_poison.py",
    "tests/process/test_provider_outages.py",
    "tests/process/test_rabbitmq.py",
    "tests/process/test_store_copy.py",
    "tests/process/test_wheel.py",
    "tests/unit/test_deploy_kit.py",
)
"""Files that take longest: they begin first, so that no process of a run has one left when the others are done."""


def run(session: pytest.Session, forks: int) -> None:
    """Run all that was collected, in so many processes."""
    assert threading.active_count() == 1, "a fork would lose threads, and what they hold"
    terminal = session.config.pluginmanager.get_plugin("terminalreporter")
    if terminal is not None:
        # Of several files at once.
        terminal.showfspath = False
    shared = _Run(session, forks)
    try:
        shared.to_its_end()
    finally:
        shared.close()


@dataclass
class _Fork:
    """A process of the run, as its parent knows it."""

    number: int
    pid: int
    alive: int
    """A descriptor that is read once the process has ended: its pipe may live on in what a test has forked."""
    pipe: Connection
    tests: deque[int] = field(default_factory=deque)
    """Those that it has taken and not yet run, by their numbers in the session."""
    latest: int = -1
    """The last one that it has run."""
    ended: bool = False
    """It has run all that it took, and found nothing left."""


class _Run:
    def __init__(self, session: pytest.Session, forks: int) -> None:
        self._session = session
        self._number_of_forks = forks
        self._files = _by_file(session.items)
        self._forks: dict[Connection, _Fork] = {}
        # Made before the processes need it, and once: each has a folder in it.
        session.config._tmp_path_factory.getbasetemp()  # type: ignore[attr-defined]
        self._computing = {file for file, tests in self._files.items() if self._only_computes(file, tests)}
        starts_processes = any(file.startswith(_STARTS_PROCESSES) for file in self._files)
        computing = forks // 3 if forks > 3 and starts_processes else 0
        self._compute = {*range(forks - computing, forks)}
        """Those that take what computes, as long as there is some: the last one of four or five, two of six, beside
        files that start processes."""

    def to_its_end(self) -> None:
        """Answer the processes, and hand on what they report. Raises as pytest does where a run is to stop."""
        for number in range(self._number_of_forks):
            self._fork(number, self._next_file(number))
        while self._forks:
            by_end = {fork.alive: fork for fork in self._forks.values()}
            for heard in wait([*self._forks, *by_end]):
                fork = by_end[heard] if isinstance(heard, int) else self._forks.get(heard)  # type: ignore[call-overload]
                if fork is None or fork.pipe not in self._forks:
                    continue
                try:
                    message = fork.pipe.recv() if fork.pipe.poll() else None
                except (EOFError, ConnectionError):
                    self._end(fork)
                else:
                    if message is not None:
                        self._hear(fork, *message)
                    elif heard == fork.alive:
                        self._end(fork)
                if self._session.shouldfail:
                    raise self._session.Failed(self._session.shouldfail)
                if self._session.shouldstop:
                    raise self._session.Interrupted(self._session.shouldstop)

    def close(self) -> None:
        """Let those that still run end with the test they are at."""
        for pipe in self._forks:
            pipe.close()
        for fork in self._forks.values():
            os.waitpid(fork.pid, 0)

    def _fork(self, number: int, tests: Iterable[int]) -> None:
        if not (mine := deque(tests)):
            return
        here, there = Pipe()
        # Else a fork would print again what is still to be printed here.
        sys.stdout.flush()
        sys.stderr.flush()
        parent = os.getpid()
        if (pid := os.fork()) == 0:
            for pipe in (here, *self._forks):
                pipe.close()
            die_with(parent)
            _become(self._session, number, self._number_of_forks, there, mine, nice=number in self._compute)
        there.close()
        self._forks[here] = _Fork(number, pid, os.pidfd_open(pid), here, mine)

    def _next_file(self, number: int) -> Sequence[int]:
        """Another file for a process: its tests, and none if there is no file left for it."""
        takes_all = number not in self._compute
        file = next((file for file in self._files if takes_all or file in self._computing), None)
        return () if file is None else self._files.pop(file)

    def _only_computes(self, file: str, tests: Iterable[int]) -> bool:
        """Whether a process that gives way can have it. A unit that waits for a process of its own cannot: that gives
        way as well."""
        items = [self._session.items[each] for each in tests]
        alone = _UNITS not in file or not any(item.get_closest_marker("process") for item in items)
        return any(folder in file for folder in _COMPUTES) and alone

    def _hear(self, fork: _Fork, what: str, said: Any) -> None:
        hook = self._session.config.hook
        match what:
            case "wants":
                tests = self._next_file(fork.number)
                fork.tests += tests
                with suppress(ConnectionError):
                    fork.pipe.send(tests)
            case "ran":
                fork.latest = fork.tests.popleft()
                item = self._session.items[fork.latest]
                hook.pytest_runtest_logstart(nodeid=item.nodeid, location=item.location)
                for report in said:
                    report = hook.pytest_report_from_serializable(config=self._session.config, data=report)
                    hook.pytest_runtest_logreport(report=report)
                hook.pytest_runtest_logfinish(nodeid=item.nodeid, location=item.location)
            case "warned":
                hook.pytest_warning_recorded.call_historic(kwargs=said)
            case "ended":
                fork.ended = True
                if said or fork.tests:
                    at = fork.tests[0] if fork.tests else fork.latest
                    self._blame(at, f"process {fork.number} has ended badly: {said or 'with tests left'}")

    def _end(self, fork: _Fork) -> None:
        """One that ends before its time has failed the test that it was at; another one goes on behind that."""
        del self._forks[fork.pipe]
        fork.pipe.close()
        os.close(fork.alive)
        _, status = os.waitpid(fork.pid, 0)
        if fork.ended and fork.number in self._compute:
            # Nothing is left to compute. What helps the others is as urgent as they are.
            self._compute.remove(fork.number)
            self._fork(fork.number, self._next_file(fork.number))
        elif not fork.ended:
            code = os.waitstatus_to_exitcode(status)
            at = fork.tests.popleft() if fork.tests else fork.latest
            self._blame(at, f"process {fork.number} has ended with {code}")
            self._fork(fork.number, fork.tests or self._next_file(fork.number))

    def _blame(self, test: int, why: str) -> None:
        item = self._session.items[test]
        report = pytest.TestReport(item.nodeid, item.location, {}, "failed", why, "call")
        self._session.config.hook.pytest_runtest_logreport(report=report)


def _by_file(items: Iterable[pytest.Item]) -> dict[str, list[int]]:
    """The tests of each file, in order, and long files first; files that share something are one."""
    files: dict[str, list[int]] = {}
    for number, item in enumerate(items):
        file = item.nodeid.partition("::")[0]
        together = next((each[0] for each in _TOGETHER if file.startswith(each)), file)
        files.setdefault(together, []).append(number)
    first = {*(each[0] for each in _TOGETHER), *_LONG}
    return {file: files[file] for file in sorted(files, key=lambda file: file not in first)}


# In a process of the run.


def _become(session: pytest.Session, number: int, of: int, pipe: Connection, tests: deque[int], nice: bool) -> NoReturn:
    """Run tests until there are none left, and end."""
    config = session.config
    ended = ""
    try:
        os.nice(_GIVES_WAY if nice else 0)
        if "stack" not in CARRIED_OUT:
            from features.stack import ports

            ports.FREE_PORTS = ports.FREE_PORTS[number::of]
        folders = config._tmp_path_factory  # type: ignore[attr-defined]
        folders._basetemp = folders.getbasetemp() / f"process-{number}"
        folders._basetemp.mkdir(mode=0o700, exist_ok=True)
        _leave_the_terminal(config)
        reporter = _Reporter(config, pipe.send)
        reporter.listen()
        for item, following in _in_order(session, pipe, tests):
            config.hook.pytest_runtest_protocol(item=item, nextitem=following)
            reporter.send_reports()
            if session.shouldfail or session.shouldstop:
                break
        session._setupstate.teardown_exact(None)
        config._ensure_unconfigure()
    except (KeyboardInterrupt, EOFError, ConnectionError):
        # The parent goes, too; fixtures still end what they have started.
        session._setupstate.teardown_exact(None)
    except BaseException as error:
        ended = repr(error)
    with suppress(ConnectionError):
        pipe.send(("ended", ended))
    os._exit(0)


def _in_order(
    session: pytest.Session, pipe: Connection, tests: deque[int]
) -> Iterator[tuple[pytest.Item, pytest.Item | None]]:
    """Each test, and the one behind it: fixtures end where that one does not need them."""
    while tests:
        number = tests.popleft()
        if not tests:
            pipe.send(("wants", None))
            tests += pipe.recv()
        yield session.items[number], session.items[tests[0]] if tests else None


def _leave_the_terminal(config: pytest.Config) -> None:
    """What is printed is caught in files of this process, and only the parent says how it goes."""
    plugins = config.pluginmanager
    capture = plugins.get_plugin("capturemanager")
    assert capture is not None
    capture.stop_global_capturing()
    capture.start_global_capturing()
    capture.suspend_global_capture()
    terminal = plugins.unregister(name="terminalreporter")
    assert terminal is not None
    plugins.register(_Silent(terminal._tw), "terminalreporter")
    if plugins.has_plugin("terminalprogress"):
        plugins.unregister(name="terminalprogress")


@dataclass
class _Silent:
    """In the place of what prints reports: pytest asks it for the colours of a difference."""

    _tw: Any


class _Reporter:
    """What becomes of the tests of this process, for the parent to hear: all of one test at once."""

    def __init__(self, config: pytest.Config, send: Callable[[tuple[str, Any]], None]) -> None:
        self._config = config
        self._send = send
        self._reports: list[Any] = []
        self._listens = False

    def listen(self) -> None:
        """From here on; pytest tells a new plugin of all warnings that there were, of which the parent knows."""
        self._config.pluginmanager.register(self)
        self._listens = True

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self._reports.append(self._config.hook.pytest_report_to_serializable(config=self._config, report=report))

    def pytest_warning_recorded(
        self, warning_message: warnings.WarningMessage, when: str, nodeid: str, location: Any
    ) -> None:
        if not self._listens:
            return
        # A class of warnings may be one that the parent cannot make again.
        text, kind = str(warning_message.message), warning_message.category.__name__
        plain = warnings.WarningMessage(
            UserWarning(f"{kind}: {text}"), UserWarning, warning_message.filename, warning_message.lineno
        )
        self._send(("warned", {"warning_message": plain, "when": when, "nodeid": nodeid, "location": location}))

    def send_reports(self) -> None:
        """Send what the last test came to."""
        self._send(("ran", self._reports))
        self._reports = []
