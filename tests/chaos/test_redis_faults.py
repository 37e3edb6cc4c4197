"""Redis as the enemy: killed, stopped, cut off from power, forgetful, full. Runs end once, and clients hear the truth.

The short forms run with every test run, the long ones with `-m chaos`.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import httpx
import pytest

from features.stack.redis_server import RedisServer
from palaver.client import NotFound, Palaver
from palaver.events import Event, MessageDelta, StreamRewound, read_event
from tests.chaos.load import TOOLS, Load
from tests.chaos.power import Power
from tests.chaos.report import record
from tests.chaos.seeds import scaled, seeded
from tests.checkers import violations
from tests.checkers.told import digests
from tests.process import checks
from tests.process.cluster import Cluster
from tests.process.test_outages import refusal
from tests.waiting import eventually

pytestmark = pytest.mark.process

ANSWER = 3.0
"""Seconds within which the API answers whatever Redis does."""
LOST_WITH_THE_SECOND = frozenset(
    {
        "no_tool_twice",  # its beginning was lost
        "starts_have_calls",
        "text_adds_up",  # some deltas of a call that went on were lost
        "newest_try_commits",  # the try was lost, or is from before the restart
        "overlaps_follow_losses",
        "calls_within_tries",
        "calls_within_need",
        "nothing_after_the_end",  # the end was lost
    }
)
"""Checkers that a power cut with `everysec` may make fail, of runs that were under way: what happened in the lost
second may happen again."""
BACK = 5.0
"""Seconds after an outage until everything is as fast as before."""


# Killed.

ROUND = 100
"""Kills between two looks at everything."""


def test_redis_killed_again_and_again(cluster: Cluster) -> None:
    kill_redis(cluster, kills=2)


@pytest.mark.chaos
def test_redis_killed_many_times(cluster: Cluster) -> None:
    kill_redis(cluster, kills=scaled(100))


def kill_redis(cluster: Cluster, kills: int) -> None:
    """Kill it under load; a kill loses nothing, so every run that was taken on completes, and is asked for once."""
    seed, chance = seeded()
    for done in range(0, kills, ROUND):
        load, now = Load(cluster, chance, under_way=30), min(ROUND, kills - done)
        for _ in range(now):
            load.go_on(chance.uniform(0.1, 1.2))
            cluster.kill("redis")
            load.go_on(chance.uniform(0.0, 0.3))
            cluster.start("redis")
        for run_id in load.acknowledged:
            assert cluster.ended(run_id, within=60).status == "completed"
        checks.check(cluster)
        counts = {"kills of Redis": now, "runs": len(load.acknowledged), "refused": load.refused}
        record("redis killed", seed=seed, counts=counts)
        cluster.submitted.clear()


# Stopped.


@pytest.mark.chaos
def test_the_api_answers_while_redis_is_stopped(cluster: Cluster) -> None:
    stop_redis(cluster, seconds=3.0)


@pytest.mark.chaos
@pytest.mark.parametrize("crash", [False, True], ids=["stopped", "killed"])
def test_redis_gone_for_half_a_minute(cluster: Cluster, crash: bool) -> None:
    stop_redis(cluster, seconds=30.0, crash=crash)


def stop_redis(cluster: Cluster, seconds: float, *, crash: bool = False) -> None:
    """The API says 503 in time; model calls in flight are not made again; full speed soon after."""
    streaming = [cluster.submit(f"say-{int(20 * (seconds + 3))}+rate-20") for _ in range(5)]
    for run_id in streaming:
        cluster.saw(run_id, "message.delta")
    gone = cluster.stack.kill("redis", 0, signal.SIGKILL if crash else signal.SIGSTOP)
    begun = time.monotonic()
    answers: list[float] = []
    while time.monotonic() - begun < seconds:
        asks: tuple[Callable[[], httpx.Response], ...] = (
            lambda: cluster.http.post("/v1/runs", json=cluster.body("echo")),
            lambda: cluster.http.get(f"/v1/runs/{streaming[0]}"),
            lambda: cluster.http.post(f"/v1/runs/{streaming[0]}/cancel"),
            lambda: cluster.http.get("/readyz"),
        )
        for ask in asks:
            asked = time.monotonic()
            answer = ask()
            answers.append(time.monotonic() - asked)
            assert answer.status_code == 503, answer.text
            assert int(answer.headers["retry-after"]) >= 1
        assert cluster.http.get("/healthz").status_code == 200
    assert max(answers) < ANSWER, answers
    if crash:
        cluster.start("redis")
    else:
        os.kill(gone, signal.SIGCONT)
    back = time.monotonic()
    # A submit whose answer was lost may have been stored all the same; so may a cancel.
    for run_id in [cluster.submit("tool-2", tools=["calculator", "record"]) for _ in range(10)]:
        assert cluster.ended(run_id, within=60).status == "completed"
    recovered = time.monotonic() - back
    for run_id in streaming:
        assert cluster.ended(run_id, within=60).status in ("completed", "cancelled")
        assert len(cluster.model_calls(run_id)) == 1
    record("redis gone", seed=0, counts={"outages": 1, "answers": len(answers)}, seconds=[recovered])
    print(f"slowest answer {max(answers):.2f} s; ten runs done {recovered:.2f} s after the outage")
    assert recovered < BACK


# Cut off from power.


def test_a_power_cut(cluster: Cluster) -> None:
    cut_power(cluster, "everysec", cuts=1)


@pytest.mark.chaos
@pytest.mark.parametrize("policy", ["everysec", "always"])
def test_many_power_cuts(cluster: Cluster, policy: str) -> None:
    cut_power(cluster, policy, cuts=scaled(20))


class Watcher:
    """Follows a run's events through the SDK, and forgets what it is told to forget."""

    def __init__(self, cluster: Cluster, run_id: str) -> None:
        self.run_id = run_id
        self.events: list[Event] = []
        self.rewound = 0
        self.unknown = False
        self.ended = 0.0
        self._url = cluster.stack.url
        self._thread = threading.Thread(target=self._follow, daemon=True)
        self._thread.start()

    def _follow(self) -> None:
        with Palaver(self._url) as client:
            try:
                for event in client.events(self.run_id):
                    if isinstance(event, StreamRewound):
                        self.rewound += 1
                        self.events = [each for each in self.events if each.seq < event.first]
                    else:
                        self.events.append(event)
            except NotFound:
                self.unknown = True
        self.ended = time.monotonic()

    def done(self) -> Watcher:
        """Itself, once the stream has ended."""
        self._thread.join(60)
        assert not self._thread.is_alive(), f"{self.run_id} is watched for ever"
        return self


def cut_power(cluster: Cluster, policy: str, cuts: int) -> None:
    """Every run that the store knows ends whole, with watchers told what is true; only the lost second may be unknown.

    What the lost second held may be done twice: model calls, and tools, as the store has lost their beginning. So the
    checks that follow every test are made with `always`, and with `everysec` for the runs that were not under way in
    such a second; for the others those that must hold all the same.
    """
    seed, chance = seeded()
    load = Load(cluster, chance, under_way=20)
    watchers: list[Watcher] = []
    with Power(cluster, chance, policy).on() as power:
        for i in range(cuts):
            load.go_on(chance.uniform(0.5, 1.5))
            streaming = [cluster.submit("say-150+rate-50") for _ in range(3)]
            load.acknowledged |= dict.fromkeys(streaming, time.monotonic())
            watchers += [Watcher(cluster, run_id) for run_id in streaming]
            load.go_on(chance.uniform(1.2, 2.0))
            power.cut(whole_second=i == 0)
            restarted = time.time()
        load.go_on(1.0)
        unknown = forgotten(cluster, load, power)
        for run_id in set(load.acknowledged) - unknown:
            run = cluster.ended(run_id, within=60)
            assert run.status == "completed" or (run.error and run.error["class"] == "worker_lost"), run
        assert not checks.what_is_left(cluster)
        for watcher in [each.done() for each in watchers]:
            assert power.may_be_lost(watcher.ended) or watcher.unknown == (watcher.run_id in unknown)
            # Whose stream had ended before the cut cannot be told.
            if not watcher.unknown and not power.may_be_lost(watcher.ended):
                told = [read_event(each.to_json()) for each in cluster.events(watcher.run_id)]
                assert with_whole_text(watcher.events) == with_whole_text(told)
    counts = {
        "power cuts": cuts,
        "bytes lost": power.lost_bytes,
        "runs": len(load.acknowledged),
        "runs forgotten": len(unknown),
        "streams rewound": sum(watcher.rewound for watcher in watchers),
    }
    if policy == "everysec":
        known = cluster.submitted.copy()
        cluster.submitted[:] = [run_id for run_id in known if power.spared(cluster.run(run_id))]
        counts["runs spared"] = len(cluster.submitted)
        check_whole(cluster, sorted({*known} - {*cluster.submitted}), restarted)
    else:
        assert not unknown
        assert not counts["streams rewound"]
    print(policy, counts)
    record(f"power cut, {policy}", seed=seed, counts=counts)


def with_whole_text(events: Iterable[Event]) -> list[Event]:
    """Deltas that follow on each other as one: a watcher that is slower than the stream gets fewer of them."""
    found: list[Event] = []
    for event in events:
        before = found[-1] if found else None
        if isinstance(event, MessageDelta) and isinstance(before, MessageDelta):
            found.pop()
            event = event.model_copy(update={"text": before.text + event.text})
        found.append(event)
    return found


def forgotten(cluster: Cluster, load: Load, power: Power) -> set[str]:
    """The runs that the store does not know: each was taken on in a second that was lost."""
    unknown = set()
    for run_id, at in load.acknowledged.items():
        if cluster.http.get(f"/v1/runs/{run_id}").status_code == 404:
            unknown.add(run_id)
            cluster.submitted.remove(run_id)
            assert power.may_be_lost(at), f"{run_id} was on the disk"
    return unknown


def check_whole(cluster: Cluster, known: Sequence[str], restarted: float) -> None:
    """All invariants hold but those that what was lost may break. Before the last restart a model may have been asked
    with what is lost now; afterwards only with what the log says."""
    evidence, calls = checks.gather(cluster, known), {}
    for history in evidence.histories:
        for run in history.runs.values():
            asked, _ = digests(run, history.entries)
            made = evidence.calls.get(run.id, ())
            calls[run.id] = [call for call in made if call.at > restarted or call.digest in asked]
    found = [each for each in violations(replace(evidence, calls=calls)) if each.checker not in LOST_WITH_THE_SECOND]
    assert not found, "\n".join(map(str, found))


# Forgetful and full.


def test_scripts_forgotten_under_load(cluster: Cluster) -> None:
    """Whoever finds its script gone sends it again; a pipeline of several too. kombu, whose own script keeps the queue
    for remote control, logs it and tries again later."""
    cluster.expect_traceback("NoScriptError")
    runs = [cluster.submit("tool-5+use-each+rate-400", tools=TOOLS) for _ in range(20)]
    flushed = 0
    with cluster.redis() as server:
        while not all(cluster.run(run_id).status.terminal for run_id in runs):
            for _ in range(20):
                server.script_flush()
                flushed += 1
    for run_id in runs:
        assert cluster.ended(run_id).status == "completed"
        assert len(cluster.model_calls(run_id)) == 6
    record("scripts flushed", seed=0, counts={"flushes": flushed, "runs": len(runs)})


def test_no_connection_is_left(cluster: Cluster) -> None:
    """Redis has none for anybody: the API says so, nobody ends, and everything goes on when there are some again."""
    runs = [cluster.submit("tool-3+use-each+rate-20", tools=TOOLS) for _ in range(8)]
    workers = cluster.stack.pids("worker") + cluster.stack.pids("tools")
    cluster.saw(runs[-1], "step.started")
    with cluster.redis() as server:
        before = str(server.config_get("maxclients")["maxclients"])
        # This connection is the one; whoever is connected stays so until it is cut, and cannot come back.
        server.config_set("maxclients", 1)
        try:
            server.client_kill_filter(_type="normal", skipme=True)
            server.client_kill_filter(_type="pubsub", skipme=True)
            eventually(lambda: cluster.http.get("/readyz").status_code == 503, why="the API finds a connection")
            asked = time.monotonic()
            assert cluster.http.get(f"/v1/runs/{runs[0]}").status_code == 503
            assert time.monotonic() - asked < ANSWER
        finally:
            server.config_set("maxclients", before)
    for run_id in runs:
        assert cluster.ended(run_id, within=60).status == "completed"
    assert cluster.stack.pids("worker") + cluster.stack.pids("tools") == workers


@contextmanager
def small_disk(folder: Path) -> Iterator[Path]:
    """A disk of two megabytes; skips the test where none can be mounted."""
    folder.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=2m", "none", str(folder)], capture_output=True)
    if mounted.returncode:
        pytest.skip("A FULL DISK IS NOT TESTED: this user may not mount one")
    try:
        yield folder
    finally:
        subprocess.run(["umount", str(folder)], check=True)


@pytest.mark.chaos
def test_a_full_disk(tmp_path: Path) -> None:
    """What Redis cannot write down it refuses: nothing is acknowledged meanwhile, and nothing that was is lost."""
    with (
        small_disk(tmp_path / "disk") as disk,
        RedisServer(data_dir=disk) as server,
        Cluster(tmp_path, redis_url=server.url) as cluster,
    ):
        runs = [cluster.submit("say-400+rate-20") for _ in range(3)]
        for run_id in runs:
            cluster.saw(run_id, "message.delta")
        filling = disk / "filling"
        filling.write_bytes(bytes(shutil.disk_usage(disk).free))
        assert eventually(lambda: refusal(cluster), within=20) == "unavailable"
        filling.unlink()
        eventually(lambda: cluster.http.post("/v1/runs", json=cluster.body("echo")).status_code == 202, within=20)
        for run_id in runs:
            assert cluster.ended(run_id, within=60).status == "completed"
        before = {run_id: cluster.run(run_id) for run_id in cluster.submitted}
        server.kill()
        server.start()
        assert {run_id: cluster.run(run_id) for run_id in cluster.submitted} == before
        checks.check_logs(cluster)
