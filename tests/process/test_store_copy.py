"""A store moves from one server to a cluster and back while it has runs, as docs/how-to/cluster.md says: every key is
the same, every run ends, and no tool is called twice."""

from __future__ import annotations

import asyncio
import random
import signal
import subprocess
import time
from collections import Counter
from collections.abc import Sequence
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from features.stack.redis_server import RedisServer
from features.store_copy.parts import StorePart, part_of
from palaver.config.settings import Settings
from tests.pages import ROOT
from tests.process.cluster import Cluster
from tests.redis_cluster import RedisCluster
from tests.store_copies import Copied, command, connected, copy, everything, fill
from tests.waiting import eventually

pytestmark = [pytest.mark.process, pytest.mark.long]
ROLES = ("worker", "tools", "api")
SHARDS = 16
CALLS = 3
"""Calls of a tool in each run."""


@pytest.mark.parametrize(
    ("conversations", "runs", "seconds", "killed"),
    [
        pytest.param(50, 6, 4, False, id="small"),
        pytest.param(10_000, 200, 40, False, id="drained", marks=pytest.mark.chaos),
        pytest.param(10_000, 200, 40, True, id="killed", marks=pytest.mark.chaos),
    ],
)
def test_a_store_moves_to_a_cluster_and_back(
    conversations: int, runs: int, seconds: int, killed: bool, tmp_path: Path
) -> None:
    with RedisServer() as old, RedisCluster() as masters:
        here = Settings(redis_url=old.url, shards=SHARDS)
        asyncio.run(fill(here, conversations))
        with fleet(tmp_path / "old", old.url, old.url, SHARDS) as before:
            over = [before.submit("echo", f"number {number}") for number in range(5)]
            for run_id in over:
                before.ended(run_id)
            # Most of it, so that the copy while they run is over before they are.
            bulk = copy(old.url, masters.url, "--ahead")
            assert bulk.status == 0, bulk.said
            begun = [before.submit(f"tool-{CALLS}+ttft-{seconds}000", tools=["record"]) for _ in range(runs)]
            eventually(partial(has_begun, before, runs))
            ahead = copy(old.url, masters.url, "--ahead")
            assert ahead.status == 0, ahead.said
            assert 0 < ahead.receipt["written"] < bulk.receipt["keys"], ahead.receipt
            eventually(before.tool_ledger)
            refused = copy(old.url, masters.url)
            assert refused.status == 2, refused
            assert "the source is in use by workers" in refused.said
            stop(before, killed=killed)
            under_way = unfinished(old.url)
            assert under_way > 0, (refused, ahead)
            # Of what was killed, a report may still be there.
            final = eventually(partial(whole, old.url, masters.url))
            calls = started(before)
        assert final.receipt["left"].keys() >= {"_kombu"}
        compared = everything(masters.url)
        assert compared == everything(old.url)
        assert final.receipt["keys"] == len(compared)
        assert final.receipt["conversations"] >= conversations + runs
        print(f"{under_way} runs under way; bulk {bulk.receipt}; ahead {ahead.receipt}; final {final.receipt}")

        with RedisServer() as broker:
            with fleet(tmp_path / "new", masters.url, broker.url, 128) as after:
                for run_id in begun:
                    run = after.ended(run_id, within=600)
                    assert run.status == "completed", run
                assert after.goes_on(over[0])
                stop(after, killed=False)
                calls += started(after)
            assert len(calls) <= len(begun) * CALLS
            assert max(calls.values()) == 1, "a tool was called twice"
            if not killed:
                assert len(calls) == len(begun) * CALLS
            back = eventually(partial(whole, masters.url, old.url))
            assert everything(masters.url) == everything(old.url)
            print(f"back {back.receipt}")

            with fleet(tmp_path / "again", old.url, broker.url, 128) as again:
                assert again.goes_on(over[1])
                assert again.goes_on(begun[0])
                assert again.run(begun[-1]).status == "completed"
                stop(again, killed=False)
            eventually(lambda: "the target is ahead of the source" in copy(masters.url, old.url).said)


def fleet(folder: Path, store: str, broker: str, shards: int) -> Cluster:
    folder.mkdir()
    places = {"PALAVER_REDIS_URL": store, "PALAVER_BROKER_URL": broker, "PALAVER_SHARDS": str(shards)}
    return Cluster(folder, redis_url=broker, rabbitmq=False, environment=places)


def has_begun(cluster: Cluster, runs: int) -> bool:
    return len({entry.run for entry in cluster.model_calls()} & {*cluster.submitted}) >= runs


def stop(cluster: Cluster, *, killed: bool) -> None:
    """End all processes that use the store, as a deployment does, or at once."""
    children = [child for role in ROLES for child in cluster.children(role)]
    for child in children:
        child.kill(signal.SIGKILL if killed else signal.SIGTERM)
    for child in children:
        child.reap(time.monotonic() + 60)


def whole(source: str, target: str) -> Copied:
    done = copy(source, target)
    assert done.status == 0, done
    return done


def started(cluster: Cluster) -> Counter[str]:
    """How often each call of a tool began."""
    return Counter(line["call"] for line in cluster.tool_ledger() if line["event"] == "begin")


def unfinished(url: str) -> int:
    """The number of runs that have begun and not ended."""
    with closing(connected(url)) as client:
        return sum(client.zcard(f"{{p{shard:02x}}}:runs:running") for shard in range(SHARDS))


def test_a_copy_that_is_killed_anywhere_is_begun_again() -> None:
    chance = random.Random(7)
    with RedisServer() as source, RedisCluster() as target:
        asyncio.run(fill(Settings(redis_url=source.url, shards=SHARDS), 150, 100))
        there = everything(source.url)
        cut = listed = 0
        for number in range(6):
            words, environment = command(source.url, target.url)
            with subprocess.Popen(words, env=environment, cwd=ROOT, stdout=subprocess.PIPE, text=True) as copying:
                # Every other time as late as that: lists come behind records. Not the first time, which leaves all
                # records there.
                many = len(there) if number % 2 else chance.randrange(len(there))
                with closing(connected(target.url)) as client:
                    eventually(partial(is_at, client, many, copying), every=0.003)
                copying.kill()
                said, _ = copying.communicate()
            cut += not said
            listed += members_that_are_there(target.url)
            with closing(connected(target.url)) as client:
                # As if the next one began earlier, or somebody had spoilt it.
                for name in chance.sample(sorted(there), len(there) // 4):
                    if part_of(name) is not StorePart.RECORDS and not name.endswith(b":generation"):
                        client.delete(name)
        assert cut > 0, "no copy was killed before its end"
        assert listed > 0
        done = copy(source.url, target.url)
        assert done.status == 0, done
        assert everything(target.url) == everything(source.url) == there


def is_at(client: Any, many: int, copying: subprocess.Popen[str]) -> bool:
    """Tell whether the target has so many keys, or the copy is over."""
    sizes: Sequence[int] = [client.get_redis_connection(node).dbsize() for node in client.get_primaries()]
    return sum(sizes) >= many or copying.poll() is not None


def members_that_are_there(url: str) -> int:
    """The number of members of lists, each of which has to lead to a run or a conversation."""
    number = 0
    with closing(connected(url)) as client:
        # To read what is behind all of them takes a second of a processor.
        found = {*client.scan_iter(count=1000)}
        for shard in range(SHARDS):
            tag = f"{{p{shard:02x}}}"
            for name, kind in (("runs", "run"), ("runs:queued", "run"), ("convs", "conv")):
                for member in client.zrange(f"{tag}:{name}", 0, -1):
                    assert f"{tag}:{kind}:{member.decode()}".encode() in found, (name, member)
                    number += 1
    return number
