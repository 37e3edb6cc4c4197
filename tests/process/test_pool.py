"""The asyncio pool and the Redis transport under a real `celery worker` and a real server."""

from __future__ import annotations

import re
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from features.stack.child import ChildCommand
from features.stack.redis_server import RedisServer
from tests.process.pool_bench import Bench, exit_code
from tests.waiting import eventually

pytestmark = [pytest.mark.process, pytest.mark.long]

COLD = [(signal.SIGQUIT,), (signal.SIGTERM, signal.SIGQUIT), (signal.SIGINT, signal.SIGINT)]


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    with RedisServer() as server:
        bench = Bench(server, tmp_path)
        try:
            yield bench
        finally:
            bench.close()


def in_flight(lines: list[str]) -> int:
    """The most tasks that ran at once."""
    now = most = 0
    for line in lines:
        now += line.startswith("begin ") - line.startswith("end ")
        most = max(most, now)
    return most


def status(worker: ChildCommand, field: str) -> int:
    found = re.search(rf"^{field}:\s+(\d+)", Path(f"/proc/{worker.pid}/status").read_text(), re.MULTILINE)
    assert found
    return int(found[1])


def test_what_a_coroutine_raises_decides_the_event(bench: Bench) -> None:
    with bench.listening(), bench.worker("-c", "4") as worker:
        outcomes = {
            bench.send("echo", "hello"): "task-succeeded",
            bench.send("echo", "again"): "task-succeeded",
            bench.send("fail"): "task-failed",
            bench.send("leave"): "task-failed",
            bench.send("retry"): "task-retried",
            bench.send("reject"): "task-failed",
            bench.send("plain", "hello"): "task-succeeded",
        }
        for task_id, kind in outcomes.items():
            assert bench.event("task-started", task_id)
            assert bench.event(kind, task_id)
            assert bench.kinds(task_id)[:3] == ["task-received", "task-started", kind]
        (echo, again, fail, leave, retry, *_) = outcomes
        assert bench.event("task-succeeded", echo)["result"] == "'hello'"
        assert "ValueError('as told')" in bench.event("task-failed", fail)["exception"]
        assert "SystemExit" in bench.event("task-failed", leave)["exception"]
        assert "refused" in bench.event("task-retried", retry)["exception"]
        assert {f"echo hello {echo}", f"echo again {again}"} <= set(bench.lines()), "each has its own request"
        assert any(line.startswith("plain hello") and "MainThread" not in line for line in bench.lines())
        assert bench.redis.llen("model") == 0, "a raised Retry publishes nothing"
        worker.terminate()
        assert exit_code(worker) == 0


def test_an_ignored_task_frees_its_place(bench: Bench) -> None:
    with bench.worker("-c", "1") as worker:
        bench.send("ignore")
        last = bench.send("echo", "after")
        bench.saw(f"echo after {last}")
        worker.terminate()
        assert exit_code(worker) == 0


@pytest.mark.parametrize(("limit", "tasks", "seconds", "at_most"), [(4, 40, 0.2, 7.0), (1, 10, 0.02, 5.0)])
def test_never_more_than_the_limit_and_a_free_place_is_taken_at_once(
    bench: Bench, limit: int, tasks: int, seconds: float, at_most: float
) -> None:
    with bench.worker("-c", str(limit)):
        begun_at = time.monotonic()
        for number in range(tasks):
            bench.send("nap", seconds, str(number))
        bench.saw(*(f"end {number}" for number in range(tasks)))
        took = time.monotonic() - begun_at
    assert in_flight(bench.lines()) == limit
    # At best 2.0 and 0.2 s; a free place that waits for the hub's next poll costs up to a second each time, ten times.
    assert took < at_most


def test_two_hundred_tasks_in_two_threads(bench: Bench) -> None:
    with bench.worker("-c", "200") as worker:
        for number in range(200):
            bench.send("hold", str(number))
        bench.saw(*(f"begin {number}" for number in range(200)))
        assert status(worker, "Threads") == 2
        bench.open()
        bench.saw(*(f"end {number}" for number in range(200)))


def test_recovered_steps_pass_the_backlog(bench: Bench) -> None:
    with bench.worker("-c", "1"):
        bench.send("hold", "first")
        bench.saw("begin first")
        for number in range(50):
            bench.send("nap", 0, str(number))
        for name in ("lost", "found"):
            bench.send("nap", 0, name, queue="model.recovered")
        bench.open()
        bench.saw("end 49")
    begun = [line.removeprefix("begin ") for line in bench.lines() if line.startswith("begin")]
    assert begun == ["first", "lost", "found", *map(str, range(50))]


def test_revoke_terminate_cancels_the_coroutine(bench: Bench) -> None:
    with bench.listening(), bench.worker("-c", "4") as worker:
        held, swallowing = bench.send("hold", "one"), bench.send("swallow")
        bench.saw("begin one", "begin swallow")
        bench.celery.control.revoke([held, swallowing], terminate=True)
        bench.saw("handed back one", "swallowed")
        for task_id in (held, swallowing):
            assert bench.event("task-revoked", task_id)["terminated"]
        # The last outcome has been delivered when a task that came later has ended.
        bench.event("task-succeeded", bench.send("echo", "after"))
        assert bench.kinds(swallowing) == ["task-received", "task-started", "task-revoked"]
        worker.terminate()
        assert exit_code(worker) == 0


def test_sigterm_lets_a_step_end_within_the_grace(bench: Bench) -> None:
    with bench.listening(), bench.worker("-c", "4") as worker:
        task_id = bench.send("hold", "short")
        bench.saw("begin short")
        worker.terminate()
        bench.saw("draining")
        late = bench.send("echo", "late")
        # A BRPOP was still pending: what it pops goes back at once, not after the drain.
        eventually(lambda: bench.redis.llen("model") == 1)
        worker.terminate()
        bench.open()
        assert exit_code(worker) == 0
        assert bench.event("task-succeeded", task_id)
        assert not bench.kinds(late)
    assert [line for line in bench.lines() if line != "draining"] == [
        "lifespan entered steps",
        "begin short",
        "end short",
        "lifespan exited",
    ]
    assert bench.redis.llen("model") == 1
    assert "pending" not in bench.tail()


def test_sigterm_cancels_what_overruns_the_grace(bench: Bench) -> None:
    with bench.listening(), bench.worker("-c", "4", grace="0.3") as worker:
        task_id = bench.send("hold", "long")
        bench.saw("begin long")
        worker.terminate()
        assert exit_code(worker) == 0
        assert bench.event("task-retried", task_id)
    assert bench.lines()[-2:] == ["handed back long", "lifespan exited"]
    assert "pending" not in bench.tail()


@pytest.mark.parametrize("signals", COLD)
def test_a_cold_shutdown_cancels_at_once(bench: Bench, signals: tuple[signal.Signals, ...]) -> None:
    with bench.worker("-c", "4") as worker:
        bench.send("hold", "one")
        bench.saw("begin one")
        for number, sent in enumerate(signals):
            worker.kill(sent)
            if number < len(signals) - 1:
                bench.saw("draining")
        exit_code(worker)
    assert {"handed back one", "lifespan exited"} <= set(bench.lines())
    assert "Traceback" not in bench.tail()
    assert "pending" not in bench.tail()


def test_a_second_signal_does_not_interrupt_handing_back(bench: Bench) -> None:
    with bench.worker("-c", "4", grace="0.1") as worker:
        bench.send("slow_to_leave", "one")
        bench.saw("begin one")
        worker.terminate()
        bench.saw("cancelled one")
        worker.kill(signal.SIGQUIT)
        eventually(lambda: "Hitting Ctrl+C again" in bench.tail())
        bench.open("left")
        exit_code(worker)
    assert bench.lines()[-2:] == ["handed back one", "lifespan exited"]


def test_a_soft_shutdown_lets_a_step_end_first(bench: Bench) -> None:
    with bench.worker("-c", "4", soft_shutdown="1") as worker:
        bench.send("hold", "short")
        bench.send("hold", "long", "never")
        bench.saw("begin short", "begin long")
        worker.kill(signal.SIGQUIT)
        eventually(lambda: "Initiating Soft Shutdown" in bench.tail())
        bench.open()
        bench.saw("end short")
        exit_code(worker)
    assert {"handed back long", "lifespan exited"} <= set(bench.lines())
    assert "Traceback" not in bench.tail()


@pytest.mark.slow
@pytest.mark.parametrize("task", ["stubborn", "stuck"])
def test_a_task_that_will_not_end_does_not_hold_up_the_exit(bench: Bench, task: str) -> None:
    with bench.worker("-c", "4") as worker:
        bench.send(task)
        bench.saw(f"begin {task}")
        worker.kill(signal.SIGQUIT)
        exit_code(worker)
    assert "lifespan exited" in bench.lines()
    assert "destroyed" not in bench.tail()


def kill_connections(bench: Bench) -> None:
    for kind in ("normal", "pubsub"):
        bench.redis.client_kill_filter(_type=kind, skipme=True)


def restart_server(bench: Bench) -> None:
    assert isinstance(bench.server, RedisServer)
    bench.server.restart()


@pytest.mark.parametrize("cut", [kill_connections, restart_server])
def test_a_lost_connection_resumes_and_doubles_nothing(bench: Bench, cut: Callable[[Bench], None]) -> None:
    with bench.worker("-c", "2") as worker:
        bench.send("hold", "one")
        bench.send("hold", "two")
        bench.saw("begin one", "begin two")
        cut(bench)
        third = eventually(lambda: bench.send("hold", "three"))
        assert third
        # Celery's counter of prefetched messages starts anew with the connection: the pool keeps the limit.
        eventually(lambda: bench.redis.llen("model") == 0, why=bench.tail())
        assert "begin three" not in bench.lines()
        bench.open()
        bench.saw("end one", "end two", "end three")
        worker.terminate()
        assert exit_code(worker) == 0
    assert sorted(line for line in bench.lines() if line.startswith("begin")) == [
        "begin one",
        "begin three",
        "begin two",
    ]
    assert "EMERGENCY" not in bench.tail()


def test_what_waits_for_a_place_goes_back_when_the_worker_stops(bench: Bench) -> None:
    with bench.worker("-c", "1", grace="0.1") as worker:
        bench.send("hold", "one")
        bench.saw("begin one")
        kill_connections(bench)
        eventually(lambda: bench.send("hold", "two"))
        eventually(lambda: bench.redis.llen("model") == 0, why=bench.tail())
        worker.terminate()
        assert exit_code(worker) == 0
    assert "begin two" not in bench.lines()
    assert bench.redis.llen("model") == 1


def test_a_lifespan_that_fails_to_start_ends_the_worker(bench: Bench) -> None:
    with bench.worker("-c", "1", ready=False, lifespan="fails") as worker:
        assert exit_code(worker) == 1
    assert "the lifespan of the worker did not start: ConnectionError: no store" in bench.tail()


def test_a_worker_can_be_stopped_while_its_lifespan_starts(bench: Bench) -> None:
    with bench.worker("-c", "1", ready=False, lifespan="hangs") as worker:
        bench.saw("lifespan hangs")
        worker.terminate()
        assert exit_code(worker) == 0


def test_a_lifespan_that_breaks_down_ends_the_worker(bench: Bench) -> None:
    with bench.worker("-c", "1", lifespan="breaks") as worker:
        bench.send("hold", "one")
        bench.saw("begin one")
        bench.open("break")
        assert exit_code(worker) == 1
    assert "handed back one" in bench.lines()
    assert "lost the store" in bench.tail()
