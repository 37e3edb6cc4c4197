"""A backup that was taken while runs were under way, restored as docs/how-to/backup.md says."""

from __future__ import annotations

import shutil
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import redis

from features.stack.redis_server import RedisServer
from tests.process.cluster import Cluster
from tests.process.inputs import soon
from tests.waiting import PATIENCE, eventually

pytestmark = [pytest.mark.process, pytest.mark.long]

ROLES = ("api", "worker", "tools")
SLOW = "tokens-80+rate-20"
"""Long enough to be under way when the backup is taken."""


def by_redis_cli(server: RedisServer, file: Path) -> None:
    """The page's first command."""
    program = shutil.which("redis-cli")
    if program is None:
        pytest.skip("NOT TRIED: there is no redis-cli")
    subprocess.run([program, "-u", server.url, "--rdb", str(file)], check=True, capture_output=True, timeout=PATIENCE)


def by_bgsave(server: RedisServer, file: Path) -> None:
    """The page's other way."""
    with redis.Redis.from_url(server.url) as client:
        client.bgsave()
        eventually(lambda: client.info("persistence")["rdb_bgsave_in_progress"] == 0)
    shutil.copy(server.data_dir / "dump.rdb", file)


def everything_of(cluster: Cluster, run_id: str) -> dict[str, Any]:
    """What the API tells of a run that has ended."""
    run = cluster.http.get(f"/v1/runs/{run_id}").json()
    messages = cluster.http.get(f"/v1/conversations/{run['conversation_id']}/messages").json()
    return {"run": run, "messages": messages, "events": cluster.events(run_id)}


def restore(file: Path, server: RedisServer, directory: Path) -> RedisServer:
    """A server at the same address with what is in the snapshot, its append-only file written anew."""
    directory.mkdir()
    shutil.copy(file, directory / "dump.rdb")
    loading = RedisServer(port=server.port, data_dir=directory, options={"appendonly": "no"})
    loading.start()
    with redis.Redis.from_url(loading.url) as client:
        client.config_set("appendonly", "yes")
        eventually(lambda: client.info("persistence")["aof_rewrite_in_progress"] == 0)
    loading.stop()
    return RedisServer(port=server.port, data_dir=directory)


@pytest.mark.parametrize("back_up", [by_redis_cli, by_bgsave])
def test_a_restored_backup_is_whole_and_goes_on(back_up: Callable[[RedisServer, Path], None], tmp_path: Path) -> None:
    file = tmp_path / "palaver.rdb"
    with RedisServer() as lost, Cluster(tmp_path, redis_url=lost.url, rabbitmq=False) as cluster:
        ended = [cluster.submit("echo", f"number {number}") for number in range(5)]
        ended.append(cluster.submit("tool-1", tools=["record"]))
        for run_id in ended:
            assert cluster.ended(run_id).status == "completed"
        told = {run_id: everything_of(cluster, run_id) for run_id in ended}
        asking = cluster.submit("tool-1", tools=["record"], agent={"approvals": {"require": ["record"]}})
        cluster.reached(asking, "requires_action")
        later = cluster.submit("echo", start_after=soon(300))
        slow = cluster.submit(SLOW)
        conversation = cluster.run(slow).conversation_id
        behind = cluster.submit("echo", "behind it", conversation_id=conversation)
        cluster.saw(slow, "step.started")
        back_up(lost, file)
        forgotten = cluster.submit("echo", "after the backup", key="order-4712")
        cluster.ended(forgotten)

        for role in ROLES:
            for child in cluster.children(role):
                child.kill(signal.SIGKILL)
        lost.kill()
        with restore(file, lost, tmp_path / "restored"):
            for role in ROLES:
                cluster.start(role)
            assert {run_id: everything_of(cluster, run_id) for run_id in ended} == told
            assert cluster.http.get(f"/v1/runs/{forgotten}").status_code == 404
            assert cluster.ended(slow).status == "completed"
            run = cluster.ended(behind)
            assert (run.status, run.output) == ("completed", "echo: behind it")
            cluster.approve(asking)
            assert cluster.ended(asking).status == "completed"
            again = cluster.submit("echo", "after the backup", key="order-4712")
            assert again != forgotten
            assert cluster.ended(again).status == "completed"
            waiting = cluster.run(later).waiting
            assert waiting is not None
            assert waiting.reason == "scheduled"
            assert cluster.cancel(later) == 200
            assert cluster.goes_on(slow)
