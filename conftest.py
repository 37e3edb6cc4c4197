"""Fixtures of the tests that need a whole Palaver, and the rule that chaos is asked for by name."""

from __future__ import annotations

import gc
import signal
from collections.abc import Callable, Generator, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import settings

from palaver.config.settings import Settings
from tests import api_schemas, certificates, once
from tests.feature_cases import CARRIED_OUT
from tests.forks import run as run_in_forks
from tests.imports import STANDS_ON, features_of
from tests.tiers import mark_long

if TYPE_CHECKING:
    from tests.chaos.zygote import Zygote
    from tests.process.cluster import Cluster

_LOG_LINES, _LOG_LINE = 20, 200
"""Lines of each log that a failed test shows, and characters of each."""
_STORY = 6000
"""Characters of what it says of itself, behind the logs: who sees only the end of its output finds it there."""
_LONGEST = 1800
"""Seconds that a test may take, wherever it waits, unless it is chaos: one that hangs would take all others with it.
Several times what a wait takes that comes to nothing, which says more (`tests.waiting.PATIENCE`)."""

_SHARED = "_cluster"
_SHARING = pytest.StashKey[frozenset[Path]]()
"""Files with a test that needs the stack which all tests of a process share."""
_END_SHARED = pytest.StashKey[Callable[[], None]]()
"""Ends that stack, and whatever needs it; does nothing where it has ended."""

_YOUNG = 10_000
"""Objects after which the collector looks at new ones. By itself it would do so after 700, for each of 7,000 tests."""

# The same examples each time: a change is judged by what it changed. The long tier has more of them, and `make chaos`
# looks for new ones. No deadlines: how long an example takes says how busy the machine is.
settings.register_profile("long", derandomize=True, deadline=None)
settings.register_profile("test", settings.get_profile("long"), max_examples=30)
settings.register_profile("quick", settings.get_profile("long"), max_examples=20)
settings.load_profile("test")
certificates.read_once()
api_schemas.describe_once()
once.know_the_version_of_redis()


# What the tests stand on may be carried out: what needs it is imported where it is asked for.
@pytest.fixture(scope="session", autouse=True)
def _warm() -> Iterator[None]:
    if "stack" in CARRIED_OUT:
        yield
        return
    from tests import store_server
    from tests.process import warm
    from tests.process.typed import warm_commands

    with warm.starts(), warm_commands(), store_server.ended():
        yield


@pytest.fixture(scope="session")
def _cluster(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    from tests.process.cluster import Cluster

    fixture = request._fixturedef  # type: ignore[attr-defined]
    request.config.stash[_END_SHARED] = lambda: fixture.finish(request)
    with Cluster(tmp_path_factory.mktemp("cluster")) as cluster:
        yield cluster


@pytest.fixture
def cluster(_cluster: Cluster) -> Iterator[Cluster]:
    """A running Palaver; afterwards everything that was submitted must have ended well (tests/process/checks.py)."""
    from tests.process.checks import check

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
    from tests.chaos.zygote import zygotes_of

    with zygotes_of(_cluster) as zygotes:
        yield zygotes


class TookTooLong(BaseException):
    """A test is at it for too long. Hypothesis would take a failure for one of the example, and try that again."""


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, None, None]:
    def too_long(*_: object) -> None:
        raise TookTooLong(f"{item.nodeid} took longer than {_LONGEST} s")

    before = signal.signal(signal.SIGALRM, too_long)
    signal.alarm(0 if item.get_closest_marker("chaos") else _LONGEST)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown(item: pytest.Item, nextitem: pytest.Item | None) -> Generator[None, None, None]:
    """The stack that tests share ends where the next file has no use for it: idle, it takes a thirtieth of a processor.

    Who needs it again has another one.
    """
    yield
    if nextitem is not None and nextitem.path != item.path and nextitem.path not in item.config.stash[_SHARING]:
        item.config.stash.get(_END_SHARED, lambda: None)()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    running = getattr(item, "funcargs", {}).get("cluster")
    if report.failed and hasattr(running, "new_logs"):
        logs = running.new_logs().items()
        report.sections += [(f"log of {name}", _end_of(text)) for name, text in logs if text]
        story = getattr(getattr(report.longrepr, "reprcrash", None), "message", None) or report.longreprtext
        report.sections.append(("what failed", story[:_STORY]))
    return report


def _end_of(log: str) -> str:
    return "\n".join(line[:_LOG_LINE] for line in log.splitlines()[-_LOG_LINES:])


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--forks", type=int, default=1, help="run the tests in so many processes (tests/forks.py)")


def pytest_ignore_collect(collection_path: Path) -> bool | None:
    """Leave out what stands on a feature of `STANDS_ON` that was carried out."""
    gone = STANDS_ON & {*CARRIED_OUT}
    return bool(gone and collection_path.suffix == ".py" and gone & features_of([collection_path]).keys()) or None


def pytest_configure() -> None:
    """A shell that starts the suite in the background has it ignore SIGINT, and so would all that is started here."""
    signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Chaos takes minutes: it runs under `make chaos`, which selects it by its mark.

    Files that start processes come first: they take longest, and none of the processes that share a run is to have one
    left when the others are done. Of these, those that share a stack come before those that have their own.
    """
    if "chaos" not in config.option.markexpr:
        for item in items:
            if item.get_closest_marker("chaos"):
                item.add_marker(pytest.mark.skip(reason="chaos: run it with -m chaos"))
    mark_long(items)
    sharing = frozenset(item.path for item in items if _shares(item) and not item.get_closest_marker("skip"))
    config.stash[_SHARING] = sharing
    items.sort(key=lambda item: (not _starts_processes(item), item.path not in sharing))


@pytest.hookimpl(tryfirst=True)
def pytest_runtestloop(session: pytest.Session) -> bool | None:
    forks: int = session.config.option.forks
    if forks < 2 or session.config.option.collectonly or session.testsfailed:
        return None
    # What most stores of the tests have: each process would make them again.
    once.assemble_scripts(Settings(redis_url="redis://127.0.0.1:1/0"))
    run_in_forks(session, forks)
    return True


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


def _shares(item: pytest.Item) -> bool:
    """Whether a test needs the stack of the session; a file may have one of its own by this name."""
    found = getattr(item, "_fixtureinfo", None)
    return found is not None and [each.scope for each in found.name2fixturedefs.get(_SHARED, ())[-1:]] == ["session"]
