"""Fixtures of the tests that need a whole Palaver, and the rule that chaos is asked for by name."""

from __future__ import annotations

import gc
import os
import signal
from collections.abc import Generator, Iterable, Iterator, Mapping
from typing import Any

import pytest
from hypothesis import settings

from palaver.stack import ports
from tests import certificates, fake_scripts
from tests.chaos.zygote import Zygote, zygotes_of
from tests.process import warm
from tests.process.checks import check
from tests.process.cluster import Cluster
from tests.process.typed import warm_commands

_LOG_LINES, _LOG_LINE = 20, 200
"""Lines of each log that a failed test shows, and characters of each."""
_STORY = 6000
"""Characters of what it says of itself, behind the logs: who sees only the end of its output finds it there."""
_LONGEST = 300
"""Seconds that a test may take, wherever it waits, unless it is chaos: one that hangs would take all others with it."""

_SHARES_CLIENTS = "tests/openhands/"

_STARTS_PROCESSES = "tests/process/"
_COMPUTES = ("tests/contract/", "tests/cost/", "tests/unit/")
_GIVES_WAY = 5
"""How nice the process of a run is that takes only what computes, while others wait for the processes they started."""

_YOUNG = 10_000
"""Objects after which the collector looks at new ones. By itself it would do so after 700, for each of 7,000 tests."""

# The same examples each time: a change is judged by what it changed. `make chaos` looks for new ones. No
# deadlines: how long an example takes says how busy the machine is.
settings.register_profile("repeatable", derandomize=True, deadline=None)
settings.register_profile("quick", settings.get_profile("repeatable"), max_examples=20)
settings.load_profile("repeatable")
fake_scripts.teach()
certificates.read_once()


@pytest.fixture(scope="session", autouse=True)
def _warm() -> Iterator[None]:
    with warm.starts(), warm_commands():
        yield


@pytest.fixture(scope="session")
def _cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with Cluster(tmp_path_factory.mktemp("cluster")) as cluster:
        yield cluster


@pytest.fixture
def cluster(_cluster: Cluster) -> Iterator[Cluster]:
    """A running Palaver; afterwards everything that was submitted must have ended well (tests/process/checks.py)."""
    _cluster.heal()
    _cluster.forget_cool_downs()
    _cluster.mark()
    yield _cluster
    try:
        _cluster.heal()
        check(_cluster)
        assert _cluster.denied() == []
    except BaseException:
        # What is wrong here must not be found again by the tests after it.
        _cluster.reset()
        raise


@pytest.fixture(scope="session")
def zygotes(_cluster: Cluster) -> Iterator[Mapping[str, Zygote]]:
    with zygotes_of(_cluster) as zygotes:
        yield zygotes


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, None, None]:
    def too_long(*_: object) -> None:
        pytest.fail(f"{item.nodeid} took longer than {_LONGEST} s")

    before = signal.signal(signal.SIGALRM, too_long)
    signal.alarm(0 if item.get_closest_marker("chaos") else _LONGEST)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    running = getattr(item, "funcargs", {}).get("cluster")
    if report.failed and isinstance(running, Cluster):
        logs = running.new_logs().items()
        report.sections += [(f"log of {name}", _end_of(text)) for name, text in logs if text]
        story = getattr(getattr(report.longrepr, "reprcrash", None), "message", None) or report.longreprtext
        report.sections.append(("what failed", story[:_STORY]))
    return report


def _end_of(log: str) -> str:
    return "\n".join(line[:_LOG_LINE] for line in log.splitlines()[-_LOG_LINES:])


def pytest_configure(config: pytest.Config) -> None:
    """A shell that starts the suite in the background has it ignore SIGINT, and so would all that is started here.

    Of several processes that share a run, each has ports of its own.
    """
    signal.signal(signal.SIGINT, signal.default_int_handler)
    worker: dict[str, Any] | None = getattr(config, "workerinput", None)
    if worker is not None:
        ports.FREE_PORTS = ports.FREE_PORTS[int(worker["workerid"].removeprefix("gw")) :: worker["workercount"]]


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Chaos takes minutes: it runs under `make chaos`, which selects it by its mark.

    Files that start processes come first: they take longest, and none of the processes that share a run is to have one
    left when the others are done.
    """
    items.sort(key=lambda item: not _starts_processes(item))
    worker = getattr(config, "workerinput", None)
    if worker and _computes(worker["workerid"], worker["workercount"], (item.nodeid for item in items)):
        os.nice(_GIVES_WAY)
    if "chaos" in config.option.markexpr:
        return
    for item in items:
        if item.get_closest_marker("chaos"):
            item.add_marker(pytest.mark.skip(reason="chaos: run it with -m chaos"))


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """One process of a run takes all tests of OpenHands' clients, whose start costs more than most of what they do.

    Another one takes only what computes, and fills the time in which files that start processes wait.
    """
    from xdist.scheduler import LoadFileScheduling  # type: ignore[import-untyped]

    class Scheduling(LoadFileScheduling):  # type: ignore[misc]
        def _split_scope(self, nodeid: str) -> str:
            file: str = super()._split_scope(nodeid)
            return file if not file.startswith(_SHARES_CLIENTS) else _SHARES_CLIENTS

        def _assign_work_unit(self, node: Any) -> None:
            if _computes(node.gateway.id, self.numnodes, self.collection):
                file = next((file for file in self.workqueue if file.startswith(_COMPUTES)), None)
                if file is None:
                    node.shutdown()
                    return
                self.workqueue.move_to_end(file, last=False)
            super()._assign_work_unit(node)

    return Scheduling(config, log) if config.getvalue("dist") == "loadfile" else None


def _computes(worker: str, workers: int, collected: Iterable[str]) -> bool:
    """Tell whether a process takes only what computes: the last of four or more, beside files that start processes."""
    last = workers > 3 and worker == f"gw{workers - 1}"
    return last and any(test.startswith(_STARTS_PROCESSES) for test in collected)


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """What is collected stays until the end: to go through it again and again would take a sixth of the CPU time."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.collect()
        gc.freeze()
        gc.set_threshold(_YOUNG)
        gc.enable()


def _starts_processes(item: pytest.Item) -> bool:
    file = item.getparent(pytest.Module)
    return file is not None and file.get_closest_marker("process") is not None
