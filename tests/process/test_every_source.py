"""The contract of a source of tools: the same cases for each, on one stack. A count on the other side says what was
done (deeds.py); what a case is not for stands in ``NOT``, with the reason."""

from __future__ import annotations

import base64
import json
import resource
import signal
import sys
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Final, get_args

import pytest

from palaver.config.settings import Settings
from palaver.feature import features
from palaver.tools import ToolContext
from tests.process.checks import check
from tests.process.deeds import LARGE, MANY, PNG, ROOM
from tests.process.every_source import SOURCES, TOKEN, Deed, EverySource, every_source, secrets_of
from tests.process.many_deeds import file_of_many, module_of_many
from tests.process.one_more import another, one_more
from tests.waiting import eventually
from workers import sources
from workers.sources import guests, open_toolbox
from workers.sources.functions import functions, inline_functions

pytestmark = pytest.mark.process

LINES: Final = ("tools", "loop", "worker")
IN_DOUBT: Final = "may or may not have taken effect"
CASES: Final = (
    *("declare", "call", "error", "timeout", "cancel", "killed before", "killed while", "killed after"),
    *("poison", "out of memory", "progress", "image", "a MiB", "256 tools", "secret"),
)
ELSEWHERE: Final = ("celery", "http", "mcp-http", "mcp-stdio", "agent")
_FRAMEWORK = "its framework hands no context of the call on"
_AGENT = "its answer is that of a run: "
NOT: Final[Mapping[tuple[str, str], str]] = {
    ("declare", "agent"): "the API looks agents up when a run is submitted, and no worker declares them",
    ("timeout", "agent"): "a run has a deadline, which goes down to its children (tests/contract/test_agent_calls.py)",
    **dict.fromkeys((("poison", "http"), ("poison", "mcp-http")), "whoever serves it is no process of a worker"),
    **{("out of memory", source): "its memory is not that of a worker" for source in ELSEWHERE},
    ("progress", "agent"): "the child is a run with events of its own",
    ("progress", "foreign"): _FRAMEWORK,
    ("progress", "http"): "an answer comes in one piece",
    ("image", "agent"): _AGENT + "a model answers in words",
    ("image", "celery"): "the result of a task is JSON",
    ("a MiB", "agent"): _AGENT + "what a model may answer has a limit of its own",
    ("256 tools", "agent"): "agents of a run are bounded by `subagents`",
    ("256 tools", "loop"): "it declares tools as `python` does",
    ("secret", "foreign"): _FRAMEWORK,
    ("secret", "agent"): "secrets of a conversation are not handed down (ADR 0097)",
}
"""The pairs of a case and a source that do not apply, and why."""


def of(case: str) -> list[str]:
    """The sources that a case is for."""
    assert case in CASES
    return [source for source in SOURCES if (case, source) not in NOT]


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EverySource]:
    """All sources."""
    with every_source(tmp_path_factory.mktemp("every")) as every:
        yield every


@pytest.fixture
def every(stack: EverySource) -> Iterator[EverySource]:
    """They, with all that must be true after each test."""
    stack.cluster.mark()
    yield stack
    stack.heal()
    stack.add_children()
    check(stack.cluster)


def test_the_table_is_complete() -> None:
    """Whoever adds a source, a framework or a pool adds a row here."""
    assert (*sources.SOURCES, *sources.INLINE_SOURCES) == (functions, inline_functions)
    assert set(guests.kinds_of_sources()) == {"celery", "http", "mcp"}
    # Tried with their packages in tests/frameworks; what is made of one is a declared tool.
    packages = {package for each in features().values() for package, _ in each.tool_classes}
    assert packages == {"langchain_core", "pydantic_ai", "agents"}
    assert get_args(Settings.model_fields["tool_pool"].annotation) == ("processes", "loop")
    assert all(case in CASES and source in SOURCES and why for (case, source), why in NOT.items())


def test_each_is_declared(every: EverySource) -> None:
    listed = {each["name"]: each for each in every.cluster.http.get("/v1/tools").json()["data"]}
    for source in of("declare"):
        plain, brief, again = (listed[SOURCES[source] + kind] for kind in ("", "_brief", "_again"))
        assert plain["workers"], source
        # To ask again what became of a task is as good as once (ADR 0105).
        declared = plain["idempotent"], again["idempotent"], brief["timeout"]
        assert declared == (source == "celery", True, 1), source
        assert plain["parameters"]["type"] == "object"


def test_a_call_is_answered_and_done_once(every: EverySource) -> None:
    found = [every.ask(source, "answer") for source in of("call")]
    for each in found:
        assert f"did {each.key}" in every.told(each), each
        assert every.begun(each) == 1, each
        (finished,) = (event for event in every.cluster.events(each.run_id) if event.type == "run.finished")
        assert finished


def test_an_error_is_told_to_the_model_and_nothing_is_tried_again(every: EverySource) -> None:
    for each in [every.ask(source, "fail") for source in of("error")]:
        finished = every.finished(each)
        assert finished.data["message"]["is_error"], each
        if each.source == "agent":
            assert "did not complete" in every.told(each)
            continue
        # What a service says by a status has the class of that.
        assert every.error(each) == ("invalid_request" if each.source == "http" else "tool_error"), each
        assert "no such city" in every.told(each), each
        assert every.begun(each) == 1, each


def test_a_call_that_takes_too_long_is_ended_there_as_well(every: EverySource) -> None:
    for each in [every.ask(source, "wait", "_brief") for source in of("timeout")]:
        assert every.error(each) == "tool_timeout", (each, every.told(each))
        assert "took longer than 1 s" in every.told(each), each
        eventually(lambda each=each: every.lines()[f"left {each.key}"], why=f"{each} goes on")  # type: ignore[misc]
        assert every.begun(each) == 1, each


def test_a_cancel_ends_the_call_there_as_well_and_progress_was_shown(every: EverySource) -> None:
    found = every.under_way(of("cancel"))
    for each in found:
        if each.source in of("progress"):
            every.cluster.saw(each.run_id, "tool.progress")
        assert every.cluster.cancel(each.run_id) in (200, 202)
    for each in found:
        assert every.cluster.ended(each.run_id).status == "cancelled"
        eventually(lambda each=each: every.lines()[f"left {each.key}"], why=f"{each} goes on")  # type: ignore[misc]
        assert every.begun(each) == 1, each


def test_a_worker_that_is_killed_while_it_calls_makes_no_call_again(every: EverySource) -> None:
    """Model workers and both tools workers."""
    every.cluster.expect_traceback("WorkerLostError")
    found = [*every.under_way(of("killed while")), *every.under_way(["python", "http", "mcp-http"], "_again")]
    for line in LINES:
        every.cluster.kill(line)
    every.release(*found)
    for line in LINES:
        every.cluster.start(line)
    _judge(every, found)


@pytest.mark.parametrize(
    ("case", "point", "begun"),
    [
        pytest.param("killed before", "tool.starting", 0, marks=pytest.mark.chaos),
        ("killed after", "tool.done", 1),
    ],
)
def test_a_worker_that_is_killed_beside_the_call_makes_no_call_again(
    case: str, point: str, begun: int, every: EverySource
) -> None:
    """Each child dies there at its first call, and the worker on a loop. A task is asked for again, by several."""
    every.cluster.expect_traceback("WorkerLostError")
    for line in ("tools", "loop"):
        every.cluster.kill(line)
    with ExitStack() as doomed:
        for line in ("tools", "loop"):
            doomed.enter_context(one_more(every.cluster, line, PALAVER_FAILPOINTS=f"{point}=kill"))
        found = [every.ask(source, "answer") for source in of(case)]
        for each in found:
            eventually(lambda each=each: every.lost(each), every=0.2, why=f"{each} lives")  # type: ignore[misc]
    for line in ("tools", "loop"):
        every.cluster.start(line)
    _judge(every, found)
    for each in found:
        answered = f"did {each.key}" in every.told(each)
        assert every.begun(each) == max(begun, answered), each


def _judge(every: EverySource, found: list[Deed]) -> None:
    """Each call was answered, or is said to be in doubt, and none was made twice that must not be."""
    for each in found:
        told = every.told(each)
        assert f"did {each.key}" in told or IN_DOUBT in told, f"{each}: {told}"
        assert f"did {each.key}" in told or not each.again, f"{each}: {told}"
        assert every.begun(each) <= 1 or each.again, f"{each} was done twice"


@pytest.mark.chaos
def test_what_ends_each_worker_ends_its_run_and_neighbours_live(every: EverySource) -> None:
    """What may be tried again ends its run after three deaths, and all else is in doubt after the first one."""
    every.cluster.expect_traceback("WorkerLostError")
    for line in LINES:
        every.cluster.kill(line)
    workers = [another(every.cluster, line, "strict", PALAVER_MAX_LOSSES="3") for line in LINES]
    with ExitStack() as strict:
        for worker in workers:
            strict.callback(worker.kill, signal.SIGKILL)
            worker.start()
        neighbours = every.under_way(["python", "celery", "http", "mcp-http", "mcp-stdio"])
        in_workers = [source for source in of("poison") if source not in ELSEWHERE]
        poison = [every.ask(source, "die", "_again") for source in in_workers]
        for each in poison:
            strict.callback(every.cluster.cancel, each.run_id)
        once = [every.ask(source, "die") for source in of("poison") if source != "loop"]

        def all_ended() -> bool:
            for worker in workers:
                if not worker.running:
                    worker.start()
            return all(every.cluster.run(each.run_id).status.terminal for each in poison)

        eventually(all_ended, every=0.2)
        for each in poison:
            run = every.cluster.ended(each.run_id)
            assert run.error is not None, each
            assert (run.status, run.error["class"]) == ("failed", "worker_lost"), each
            assert every.begun(each) == 3, each
        for each in once:
            assert IN_DOUBT in every.told(each), each
            assert every.begun(each) == 1, each
        every.release(*neighbours)
        for each in neighbours:
            assert f"did {each.key}" in every.told(each), each
            assert every.begun(each) == 1, each


def test_a_call_without_memory_fails_and_neighbours_live(every: EverySource) -> None:
    """A child has so much address space by its settings, and the worker on a loop by what started it."""
    (loop,) = every.cluster.stack.pids("loop")
    resource.prlimit(loop, resource.RLIMIT_AS, (ROOM, ROOM))
    neighbours = every.under_way(["python", "loop"])
    for each in [every.ask(source, "eat") for source in of("out of memory")]:
        assert every.error(each) == "tool_error", each
        assert "MemoryError" in every.told(each), each
        assert every.begun(each) == 1, each
    every.release(*neighbours)
    for each in neighbours:
        assert f"did {each.key}" in every.told(each), each
    assert every.cluster.stack.pids("loop") == [loop]


def test_an_image_is_one_to_the_model(every: EverySource) -> None:
    data = base64.b64encode(PNG).decode()
    for each in [every.ask(source, "image") for source in of("image")]:
        (part,) = every.finished(each).data["message"]["content"]
        assert part["type"] == "image", each
        assert data in str(part), each


def test_a_result_of_a_mebibyte_is_cut_and_said_to_be(every: EverySource) -> None:
    for each in [every.ask(source, "large") for source in of("a MiB")]:
        told = every.told(each)
        assert told.lstrip('"').startswith("xxxx"), each
        assert "[cut: " in told, each
        assert len(told) < LARGE / 2, each


async def test_256_tools_are_declared_and_the_last_one_is_called(
    every: EverySource, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """More than one agent may have, and less than a worker may have; as a worker opens them."""
    monkeypatch.setenv("SHOP_BROKER", every.shop.environment["SHOP_BROKER"])
    for source in of("256 tools"):
        module, file = module_of_many(source), tmp_path / f"{source}.toml"
        if module is not None:
            monkeypatch.setitem(sys.modules, module.__name__, module)
        file.write_text(file_of_many(source, every.port))
        modules = () if module is None else (module.__name__,)
        here = Settings(tools=modules, tool_sources=file, tool_lists=tmp_path / source)
        async with open_toolbox(here, sources.sources_of(here)) as tools:
            names = [each.name for each in tools.declarations if "deed_" in each.name]
            assert len(names) == MANY, source
            _, arguments = tools.check(names[-1], json.dumps({"do": "answer", "key": source}))
            context = ToolContext(idempotency_key=f"{source}:many", secrets={"TOKEN": TOKEN})
            assert await tools.call(names[-1], arguments, context) == f"did {source}"


def test_a_secret_is_nowhere(every: EverySource) -> None:
    secrets = secrets_of(every)
    assert secrets.keys() == set(of("secret"))
    found = [every.ask(source, "tell") for source in of("secret")]
    for each in found:
        assert every.told(each) == "the token is [redacted]", each
    shown = str([every.cluster.events(each.run_id) for each in found]) + str(every.cluster.new_logs())
    assert not [secret for secret in {*secrets.values(), TOKEN} if secret in shown]
