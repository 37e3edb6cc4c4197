"""Tools that go too far: the model is told the truth, others go on, the next call works, and nothing is left behind."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from palaver.schemas.models import Run
from tests.process.checks import check_conversations
from tests.process.cluster import Cluster
from tests.process.hostile_tools import CANARY, GARBAGE, KEY_OF_THE_API, LEFT_BEHIND
from tests.process.neighbour import neighbour_of, spread
from tests.process.one_more import one_more
from tests.process.test_tools import answers, told
from tests.process.warm import cold_starts
from tests.waiting import eventually

pytestmark = pytest.mark.process

LEASE = 12.0
"""Seconds: a call that is told to have overrun was not answered because its lease did."""
ENVIRONMENT = {
    "PALAVER_TOOLS": "tests.process.tools,tests.process.hostile_tools",
    "PALAVER_TOOL_MEMORY": "500",
    "PALAVER_TOOL_KEPT_MEMORY": "250",
    "PALAVER_TOOL_CPU_SECONDS": "2",
    "CANARY_KEY": CANARY,
    "NEEDED_BY_TOOLS": "yes",
}

INTERRUPTED = "tool_interrupted", "may or may not have taken effect"
LATE = "tool_timeout", "took longer than 0.5 s"

ENDS = {
    "exits": INTERRUPTED,
    "segfaults": INTERRUPTED,
    "aborts": INTERRUPTED,
    "kills_its_group": INTERRUPTED,
    "closes_everything": INTERRUPTED,
    "dies_above_a_process": INTERRUPTED,
}
OVERRUNS = {
    "holds_the_interpreter": LATE,
    "stops_itself": LATE,
    "is_deaf": LATE,
    "catches_everything": LATE,
    "waits_for_itself": LATE,
    "blocks_the_loop": LATE,
    "swallows_cancels": LATE,
    "waits_for_a_process": LATE,
    "eats_memory": ("tool_error", "eats_memory used more than 500 MiB of memory and was ended"),
    "feeds_a_process": ("tool_error", "used more than 500 MiB of memory"),
    "burns_the_processor": ("tool_error", "used more than 2 s of CPU time"),
}
LEAVES = {
    "leaves_a_daemon": ("", "left"),
    "forks_and_goes_on": ("", "forked"),
    "starts_many_processes": ("", "started"),
    "starts_many_threads": ("", "started"),
    "floods": ("", "printed"),
    "floods_with_lines": ("", "printed"),
}
ANSWERS = {
    "answers_much": ("", "of 314,572,800 characters are left out here"),
    "answers_for_ever": ("", "together there are more than 262,144 characters"),
    "answers_a_generator": ("tool_error", "a generator: return a list"),
    "answers_in_parts": ("tool_error", "an asynchronous generator"),
    "answers_a_circle": ("tool_error", "or in itself"),
    "answers_a_long_number": ("tool_error", "cannot be written as JSON: ValueError"),
    "answers_bytes": ("", "bytes"),
    "answers_no_number": ("", r"\[NaN, Infinity\]"),
    "answers_with_a_trap": ("tool_error", "cannot be written as JSON: SystemExit"),
    "raises_much": ("tool_error", "raises_much failed: ValueError"),
    "raises_a_trap": ("tool_error", "cannot say what happened"),
    "recurses": ("tool_error", "RecursionError"),
}
ORDERS = ("StaleLease", "GeneratorExit", "Interrupted", "KeyboardInterrupt", "SystemExit", "BaseException")


@pytest.fixture(scope="module")
def hostile(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """A Palaver whose tools are not to be trusted."""
    cluster = Cluster(tmp_path_factory.mktemp("hostile"), lease=LEASE, environment=ENVIRONMENT)
    tables = '\n[providers.guarded]\nbase_url = "http://127.0.0.1:9/v1"\napi_key_env = "CANARY_KEY"\n'
    with cluster.providers_path.open("a") as providers:
        providers.write(tables)
    # What /proc tells of their worker is theirs to read.
    with cold_starts("tools"), cluster:
        cluster.all_children()
        yield cluster


def submit(hostile: Cluster, name: str, text: str = "hello") -> str:
    return hostile.submit("tool-1", text, tools=[name])


def ended(hostile: Cluster, run_id: str) -> Run:
    """The run, which has ended well, whatever its tool did."""
    run = hostile.ended(run_id)
    assert (run.status, run.error) == ("completed", None), run.error
    return run


def works(hostile: Cluster) -> None:
    """Somebody else's calls, as many as there are children."""
    for run in [hostile.submit("parallel-4", tools=["record"], text=f"run {number}") for number in range(2)]:
        assert told(hostile, ended(hostile, run).id) == [""] * 4


def left_behind() -> list[str]:
    """Processes that a tool has started, and that still run."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            if LEFT_BEHIND.encode() in (process / "cmdline").read_bytes():
                found.append(process.name)
        except OSError:
            continue
    return found


def batches(names: Sequence[str]) -> list[tuple[str, ...]]:
    """Three at a time: a child is left for others."""
    return [tuple(names[at : at + 3]) for at in range(0, len(names), 3)]


@pytest.mark.parametrize(
    "names",
    [each for cases in (ENDS, OVERRUNS, LEAVES, ANSWERS) for each in batches(tuple(cases))],
    ids=lambda names: "+".join(names),
)
def test_the_truth_is_told_and_nothing_else_happens(hostile: Cluster, names: Sequence[str]) -> None:
    runs = {name: submit(hostile, name) for name in names}
    beside = hostile.submit("tool-3", tools=["record"])
    assert told(hostile, ended(hostile, beside).id) == [""] * 3, "others did not go on"
    for name, run_id in runs.items():
        error, said = {**ENDS, **OVERRUNS, **LEAVES, **ANSWERS}[name]
        ended(hostile, run_id)
        content = answers(hostile, run_id)[0].data["message"]["content"]
        assert told(hostile, run_id) == [error], f"{name}: {content[:300]}"
        assert re.search(said, content), f"{name}: {content[:300]}"
        assert len(content) < 300_000
    works(hostile)
    eventually(lambda: not left_behind(), why=f"left behind: {left_behind()}")
    eventually(lambda: len(hostile.children_of("tools")) == 4, why="the pool is not whole")
    check_conversations(hostile, [beside, *runs.values()])


def test_a_process_that_is_told_to_end_by_its_tool_is_lost_each_time(hostile: Cluster) -> None:
    """The first signal raises SystemExit in the tool, a second one ends the process at once."""
    for _ in range(6):
        run_id = submit(hostile, "kills_its_group")
        ended(hostile, run_id)
        assert told(hostile, run_id) == ["tool_interrupted"], answers(hostile, run_id)[0].data
    works(hostile)


def test_what_means_something_to_the_engine_is_an_error_of_the_tool(hostile: Cluster) -> None:
    runs = [submit(hostile, "raises", f'[[args {{"name": "{each}"}}]]') for each in ORDERS]
    for each, run_id in zip(ORDERS, runs, strict=True):
        ended(hostile, run_id)
        assert told(hostile, run_id) == ["tool_error"], each
        assert each in answers(hostile, run_id)[0].data["message"]["content"]
    works(hostile)


def test_the_next_call_finds_its_process_as_it_was(hostile: Cluster) -> None:
    before = submit(hostile, "looks_around")
    ended(hostile, before)
    usual = json.loads(answers(hostile, before)[0].data["message"]["content"])
    changed = submit(hostile, "changes_its_surroundings")
    ended(hostile, changed)
    pid = int(answers(hostile, changed)[0].data["message"]["content"])

    def look() -> dict[str, object] | None:
        run = ended(hostile, hostile.submit("parallel-4", tools=["looks_around"]))
        found = [json.loads(answer.data["message"]["content"]) for answer in answers(hostile, run.id)]
        return next((each for each in found if each["pid"] == pid), None)

    found = eventually(look, why="no call came to that process")
    assert found == usual | {"pid": pid}
    assert usual.items() >= {"directory": str(Path.cwd()), "left": False, "path": True, "handler": True}.items()


def test_a_process_that_has_eaten_much_is_replaced_after_its_call(hostile: Cluster) -> None:
    run_id = submit(hostile, "has_eaten")
    ended(hostile, run_id)
    (pid, _) = answers(hostile, run_id)[0].data["message"]["content"].split()
    eventually(lambda: int(pid) not in hostile.children_of("tools"), why="it lives on")
    works(hostile)


def test_a_process_that_is_taken_by_what_a_tool_left_is_replaced(hostile: Cluster) -> None:
    run_id = submit(hostile, "leaves_a_thread_that_takes_all")
    ended(hostile, run_id)
    pid = int(answers(hostile, run_id)[0].data["message"]["content"])
    eventually(lambda: pid not in hostile.children_of("tools"), why="it lives on")
    works(hostile)


def test_what_a_call_prints_is_logged_up_to_a_limit_with_its_step(hostile: Cluster) -> None:
    hostile.mark_logs()
    runs = [submit(hostile, name) for name in ("floods", "floods_with_lines", "looks_around")]
    for run_id in runs:
        ended(hostile, run_id)
    log = eventually(lambda: text if (text := hostile.new_log("tools")).count("more left out") == 2 else "")
    assert len(log) < 400_000
    assert re.search(rf"{runs[0]}/1/\S+: .\[2Jfirst line.\n", log), "escapes of a terminal reach the log"
    assert re.search(rf"{runs[0]}/1/\S+: … 39,\d\d\d,\d\d\d bytes more left out", log)
    assert re.search(rf"{runs[2]}/1/\S+: a line of its own", log)


@pytest.mark.parametrize("what", GARBAGE)
def test_a_tool_that_writes_to_every_file_of_its_process_stops_nobody(hostile: Cluster, what: str) -> None:
    """Not its worker either, whose connections a child once had."""
    (worker,) = hostile.stack.pids("tools")
    run_id = submit(hostile, "writes_everywhere", f'[[args {{"what": "{what}"}}]]')
    # Its own question to Redis may have met what it wrote.
    assert hostile.ended(run_id).status in ("completed", "failed")
    for _ in range(5):
        run = hostile.submit("parallel-4", tools=["record"])
        assert told(hostile, ended(hostile, run).id) == [""] * 4
    eventually(lambda: len(hostile.children_of("tools")) == 4, why="the pool is not whole")
    assert hostile.stack.pids("tools") == [worker], "the worker was started again"


def test_a_tool_has_no_connection_of_its_worker(hostile: Cluster) -> None:
    """What is open in a child is its own, and two of it are connections: its questions, and what it hears."""
    run_id = submit(hostile, "lists_files")
    ended(hostile, run_id)
    files = json.loads(answers(hostile, run_id)[0].data["message"]["content"])
    (worker,) = hostile.stack.pids("tools")
    held = {os.readlink(each) for each in Path(f"/proc/{worker}/fd").iterdir()}
    assert not [each for each in files if each.startswith("socket:") and each in held]
    assert len([each for each in files if "eventpoll" in each]) == 1


def test_the_last_words_of_a_process_are_logged(hostile: Cluster) -> None:
    hostile.mark_logs()
    ended(hostile, submit(hostile, "aborts"))
    eventually(lambda: ": the heap is broken\n" in hostile.new_log("tools"))


def test_a_tool_sees_no_keys(hostile: Cluster) -> None:
    """Though its worker was started with them. Neither does it see where Redis is."""
    hostile.kill("tools")
    with one_more(hostile, "tools", PALAVER_API_KEYS=KEY_OF_THE_API):
        run_id = submit(hostile, "looks_for_keys")
        ended(hostile, run_id)
    assert json.loads(answers(hostile, run_id)[0].data["message"]["content"]) == {
        "os.environ": False,
        "a process": False,
        "its own": False,
        "its worker's": False,
        "what it needs": True,
    }


def test_an_address_space_has_its_end(hostile: Cluster) -> None:
    """Without a look from outside."""
    with one_more(hostile, "tools", name="narrow", PALAVER_TOOL_ADDRESS_SPACE="600", PALAVER_TOOL_MEMORY="0"):
        run_id = submit(hostile, "eats_memory")
        ended(hostile, run_id)
        works(hostile)
    hostile.heal()
    assert told(hostile, run_id) == ["tool_error"]
    assert "MemoryError" in answers(hostile, run_id)[0].data["message"]["content"]


@pytest.mark.chaos
def test_a_result_of_a_gigabyte_costs_no_lease(tmp_path: Path) -> None:
    """It is cut where it is made; what it costs is what the tool itself has taken."""
    with Cluster(tmp_path, environment=ENVIRONMENT | {"PALAVER_TOOL_MEMORY": "1500"}) as cluster:
        run = cluster.ended(submit(cluster, "answers_a_gigabyte"))
        assert run.status == "completed"
        assert (
            "all between is left out: together there are more than"
            in answers(cluster, run.id)[0].data["message"]["content"]
        )
        assert len(cluster.events(run.id)) < 20


@pytest.mark.chaos
def test_the_neighbours_runs_take_as_long_as_without_hostile_tools_about(hostile: Cluster) -> None:
    with neighbour_of(hostile) as alone:
        eventually(lambda: len(alone) >= 400)
    with neighbour_of(hostile) as beside:
        for name in (*ENDS, *OVERRUNS, *LEAVES, *ANSWERS):
            ended(hostile, submit(hostile, name))
    print(f"alone: {spread(alone)}; beside hostile tools, one after the other: {spread(beside)}")
    assert len(beside) >= 100
