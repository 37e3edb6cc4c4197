"""Workers that run calls on one loop, for tools alone (PALAVER_TOOL_POOL=loop) or beside models (`palaver worker
--tools`): what children promise they promise, too."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from features.stack.plan import COMMANDS
from tests.process.checks import check
from tests.process.cluster import Cluster
from tests.process.one_more import one_more
from tests.process.test_tools import answers, told
from tests.process.warm import cold_starts
from tests.waiting import eventually

pytestmark = [pytest.mark.process, pytest.mark.long]


class Looped(Cluster):
    """A Palaver with such a worker, and no other for tools."""

    line = "tools"
    """The processes that are such workers."""


@pytest.fixture(scope="module", params=["tools", "worker"])
def stack(tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest) -> Iterator[Looped]:
    """One of them."""
    line = str(request.param)
    environment = {"PALAVER_TOOLS": "tests.process.tools,tests.process.loop_tools", "PALAVER_SECRET_KEY": SECRET_KEY}
    if line == "tools":
        processes, commands = {"flower": 0}, COMMANDS
        environment["PALAVER_TOOL_POOL"] = "loop"
    else:
        processes, commands = {"flower": 0, "tools": 0}, {**COMMANDS, line: (*COMMANDS[line], "--tools")}
    folder = tmp_path_factory.mktemp("looped")
    # What /proc shows of its environment is looked at.
    with (
        cold_starts(line),
        Looped(folder, environment=environment, processes=processes, commands=commands) as cluster,
    ):
        cluster.line = line
        cluster.kinds = tuple(kind for kind in cluster.kinds if processes.get(kind, 1))
        yield cluster


@pytest.fixture
def looped(stack: Looped) -> Iterator[Looped]:
    """It, with all that must be true after each test."""
    stack.mark()
    yield stack
    check(stack)
    stack.heal()


SECRET_KEY = "Qk1vY2tLZXlPZkNvdXJzZU5vdEFSZWFsT25lITEyMzQ="


def begun(looped: Looped, run_id: str, calls: int = 1) -> list[int]:
    """The processes of the run's calls, once there are so many."""
    starts = eventually(lambda: len(found := looped.tool_starts(run_id)) >= calls and found)
    assert isinstance(starts, list)
    return [each["pid"] for each in starts]


def test_calls_are_steps_of_their_own_side_by_side_in_one_process(looped: Looped) -> None:
    (worker,) = looped.stack.pids(looped.line)
    gate = looped.gate()
    run_id = looped.submit("parallel-8", gate.text, tools=["record_async"])
    begun(looped, run_id, 8)
    gate.open()
    assert looped.ended(run_id).status == "completed"
    assert told(looped, run_id) == [""] * 8
    assert begun(looped, run_id, 8) == [worker] * 8
    assert looped.children_of(looped.line) == []
    events = [event.data for event in looped.events(run_id) if event.type == "step.started"]
    assert len([each for each in events if "/" in each["step"]]) == 8
    begins_and_ends = [line["event"] for line in looped.tool_ledger() if line["call"].startswith(run_id)]
    assert begins_and_ends == ["begin"] * 8 + ["end"] * 8, "they did not overlap"


def test_a_call_that_its_worker_dies_in_is_never_made_again(looped: Looped) -> None:
    run_id = looped.submit("tool-1", '[[args {"seconds": 30}]]', tools=["record_async"])
    begun(looped, run_id)
    looped.kill(looped.line)
    looped.start(looped.line)
    assert looped.ended(run_id).status == "completed"
    assert told(looped, run_id) == ["tool_interrupted"]
    assert len(looped.tool_starts(run_id)) == 1


def test_a_cancel_ends_the_call_and_nothing_else(looped: Looped) -> None:
    (worker,) = looped.stack.pids(looped.line)
    beside = looped.submit("tool-1", '[[args {"seconds": 1}]]', tools=["record_async"])
    run_id = looped.submit("tool-1", '[[args {"seconds": 30}]]', tools=["record_async"])
    begun(looped, beside)
    begun(looped, run_id)
    looped.cancel(run_id)
    assert looped.ended(run_id).status == "cancelled"
    assert told(looped, run_id) == ["cancelled"] or told(looped, run_id) == ["tool_interrupted"]
    assert looped.ended(beside).status == "completed"
    assert looped.stack.pids(looped.line) == [worker]


def test_a_call_that_overruns_is_told_so_even_if_it_does_not_stop(looped: Looped) -> None:
    runs = {name: looped.submit("tool-1", tools=[name]) for name in ("overrun_async", "deaf_async")}
    for name, run_id in runs.items():
        assert looped.ended(run_id).status == "completed"
        assert told(looped, run_id) == ["tool_timeout"], name
        assert "took longer than 0.3 s" in answers(looped, run_id)[0].data["message"]["content"]


def test_a_cancel_does_not_wait_for_a_tool_that_does_not_stop(looped: Looped) -> None:
    run_id = looped.submit("tool-1", tools=["deaf_for_long_async"])
    begun(looped, run_id)
    looped.cancel(run_id)
    assert looped.ended(run_id).status == "cancelled"


def test_a_worker_that_is_told_to_stop_lets_calls_finish_and_hands_the_others_back(looped: Looped) -> None:
    short = looped.submit("tool-1", '[[args {"seconds": 0.5}]]', tools=["record_async"])
    long = looped.submit("tool-1", '[[args {"seconds": 30}]]', tools=["record_async"])
    begun(looped, short)
    begun(looped, long)
    worker = looped.terminate(looped.line)
    eventually(lambda: not worker.running)
    looped.start(looped.line)
    assert looped.ended(short).status == looped.ended(long).status == "completed"
    assert told(looped, short) == [""]
    assert told(looped, long) == ["tool_interrupted"]
    assert len(looped.tool_starts(long)) == 1


def test_tools_see_no_variables_of_palavers_and_no_block_of_them(looped: Looped) -> None:
    run_id = looped.submit("tool-1", tools=["look_around_async"])
    assert looped.ended(run_id).status == "completed"
    assert answers(looped, run_id)[0].data["message"]["content"] == "[]"


def test_each_call_keeps_the_secrets_of_its_own_conversation(looped: Looped) -> None:
    """They are told, reported, printed and logged, side by side; and of what is printed, no more than may be."""
    secrets = [f"canary-{number}-of-a-conversation" for number in range(4)]
    runs = [looped.submit("tool-1", tools=["tell_secret_async"], secrets={"TOKEN": each}) for each in secrets]
    for run_id in runs:
        assert looped.ended(run_id).status == "completed"
        (answer,) = answers(looped, run_id)
        assert answer.data["message"]["content"] == "the token is [redacted]"
    logs = looped.new_log(looped.line)
    assert logs.count("printed: [redacted]") == logs.count("logged: [redacted]") == 4
    assert logs.count("bytes more left out") == 4
    everything = logs + str([looped.events(run_id) for run_id in runs])
    assert not [each for each in secrets if each in everything]


def test_a_tool_that_may_block_goes_to_a_worker_with_children(looped: Looped) -> None:
    here = looped.stack.pids(looped.line)
    assert "left to workers with children (palaver tools): " in looped.children(looped.line)[0].output
    with one_more(looped, "tools", PALAVER_TOOL_POOL="processes"):
        runs = [looped.submit("tool-1", tools=["record"]) for _ in range(8)]
        for run_id in runs:
            assert looped.ended(run_id).status == "completed"
            assert told(looped, run_id) == [""]
            assert not set(begun(looped, run_id)) & set(here)


@pytest.mark.chaos
def test_a_worker_whose_loop_is_held_up_ends_and_what_it_did_is_never_done_again(looped: Looped) -> None:
    """For ten seconds, by a tool that keeps Python's lock. Its supervisor starts it again."""
    (worker,) = looped.children(looped.line)
    beside = looped.submit("tool-1", '[[args {"seconds": 60}]]', tools=["record_async"])
    begun(looped, beside)
    run_id = looped.submit("tool-1", tools=["freeze_async"])
    begun(looped, run_id)
    eventually(lambda: not worker.running)
    looped.expect_traceback("Timeout")
    looped.start(looped.line)
    for each in (beside, run_id):
        assert looped.ended(each).status == "completed"
        assert told(looped, each) == ["tool_interrupted"]
        assert len(looped.tool_starts(each)) == 1
