"""Redis with the files that we ship, restarted under runs: none is lost, on any server that there is here.

The servers are the one that tests bring, an installed Redis, and those that PALAVER_TEST_REDIS_SERVERS names.
"""

from __future__ import annotations

import random
import shutil
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
import redis

from deploy.check import logins
from deploy.check.kit import Kit
from deploy.check.restarts import OTHERS, programs, restarts
from deploy.users import DEFAULT
from features.stack.redis_server import VARIABLE, RedisServer
from tests.chaos.load import Load
from tests.chaos.power import Power
from tests.chaos.report import record, server_name
from tests.chaos.seeds import scaled, seeded
from tests.process import checks
from tests.process.cluster import Cluster
from tests.waiting import eventually

pytestmark = pytest.mark.process

ROUND = 20
"""Restarts between two looks at everything."""


@pytest.fixture(scope="module", params=programs(), ids=server_name)
def shipped(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """A Palaver on a server with deploy/redis.conf and the file of users for it."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(VARIABLE, str(request.param))
        # The file's `everysec` may lose what was answered during a sync: tests/chaos/test_redis_faults.py.
        options = {"include": str(Kit().redis_conf), "appendfsync": "no"}
        with Cluster(tmp_path_factory.mktemp("shipped"), users=True, redis_options=options) as cluster:
            yield cluster


def test_restarts_lose_nothing(shipped: Cluster) -> None:
    restart(shipped, restarts=3)


@pytest.mark.chaos
def test_many_restarts_lose_nothing(shipped: Cluster) -> None:
    restart(shipped, restarts=scaled(70))


def restart(cluster: Cluster, restarts: int) -> None:
    """End Redis under 50 runs, by SIGTERM, SIGKILL and a power cut in turn: each run that was taken on completes.

    Before a power cut every write is on the disk: without that a server promises nothing of its last second.
    """
    seed, chance = seeded()
    for done in range(0, restarts, ROUND):
        load, now = Load(cluster, chance, under_way=50), min(ROUND, restarts - done)
        for number in range(now):
            load.go_on(chance.uniform(0.3, 1.2))
            end(cluster, chance, ("term", "kill", "power")[number % 3], load)
        for run_id in load.acknowledged:
            assert cluster.ended(run_id).status == "completed"
        checks.check(cluster)
        record("redis restarted", seed=seed, counts={"restarts": now, "runs": len(load.acknowledged)})
        cluster.submitted.clear()
    assert cluster.denied() == []


def end(cluster: Cluster, chance: random.Random, way: str, load: Load) -> None:
    """End the server in that way while clients go on, and start it again."""
    if way == "power":
        with Power(cluster, chance, "always").on() as power:
            load.go_on(0.5)
            power.cut()
        return
    if way == "term":
        cluster.stack.kill("redis", 0, signal.SIGTERM)
        eventually(lambda: not cluster.stack.pids("redis"), why="Redis does not end")
    else:
        cluster.kill("redis")
    load.go_on(chance.uniform(0.0, 0.3))
    cluster.start("redis")


def test_a_server_that_forgets_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The deploy kit's check refuses a default user without rights, and a file that lags behind the other."""
    deploy = tmp_path / "deploy"
    deploy.mkdir()
    for name in ("users.acl", "users-7.0.acl"):
        (deploy / name).write_text((Kit().root / "deploy" / name).read_text())
    monkeypatch.delenv(OTHERS, raising=False)
    older = deploy / "users-7.0.acl"
    older.write_text(older.read_text().replace(" +zlexcount", ""))
    assert restarts(Kit(tmp_path)) == ["users-7.0.acl: is not users.acl without what servers before 7.2 do not know"]
    users = deploy / "users.acl"
    users.write_text(users.read_text().replace(DEFAULT, "user default off"))
    (fault,) = restarts(Kit(tmp_path))
    assert fault.startswith("users.acl: the first line is not 'user default off ~* &* +@all'")


@pytest.mark.parametrize("program", programs(), ids=server_name)
def test_what_an_old_file_lost_is_there_again(program: Path, tmp_path: Path) -> None:
    """The cure of docs/how-to/redis.md: before a restart, and after one that dropped what scripts wrote."""
    users = logins.write_users(tmp_path / "users.acl", program=program)
    users.write_text(users.read_text().replace(DEFAULT, "user default off"))
    options = {"include": str(Kit().redis_conf), "aclfile": str(users)}
    with RedisServer(data_dir=tmp_path / "redis", options=options, login=logins.admin(), program=program) as server:

        def left() -> int:
            with redis.Redis.from_url(server.url) as admin:
                return int(admin.exists("a", "b"))

        with redis.Redis.from_url(server.url) as admin:
            admin.eval("redis.call('SET', 'a', 1) redis.call('SET', 'b', 1)", 0)
        server.restart()
        with redis.Redis.from_url(server.url) as admin:
            lost = 2 - left()
            admin.execute_command("CONFIG", "SET", "auto-aof-rewrite-percentage", "0")
            admin.execute_command("ACL", "SETUSER", "default", "~*", "&*", "+@all")
            admin.execute_command("ACL", "SAVE")
        for end in (server.stop, server.kill):
            end()
            server.start()
            assert left() == 2, f"{lost} of 2 were lost before"
        assert DEFAULT.split()[:3] == users.read_text().split()[:3]


def test_a_store_that_came_back_emptier_is_told(shipped: Cluster) -> None:
    """Its file is gone when it starts again: the API and the worker say what is lost, in their logs and in /readyz."""
    shipped.mark_logs()
    for run_id in [shipped.submit("echo") for _ in range(5)]:
        assert shipped.ended(run_id).status == "completed"
    with shipped.redis() as server:
        # Both have looked since.
        looks = server.info("commandstats")["cmdstat_hmget"]["calls"]
        eventually(lambda: server.info("commandstats")["cmdstat_hmget"]["calls"] > looks + 4)
    shipped.kill("redis")
    shutil.rmtree(shipped.stack.data_dir / "redis" / "appendonlydir")
    shipped.start("redis")
    lost = eventually(lambda: shipped.http.get("/readyz").json().get("store_rewound"))
    assert lost["replaced"]
    assert lost["runs"] >= 5
    for role in ("api", "worker"):
        eventually(lambda role=role: "the store lost data" in shipped.new_log(role))  # type: ignore[misc]
    shipped.submitted.clear()
    assert shipped.ended(shipped.submit("echo")).status == "completed"
