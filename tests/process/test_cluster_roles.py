"""`palaver check` and the roles on a cluster, as the users of deploy/users.acl: they wait for it, begin, do their work
and are refused nothing."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterator, Mapping
from contextlib import closing
from pathlib import Path

import pytest

from deploy.check import logins
from features.stack.ports import HOST, free_port
from features.stack.redis_server import RedisServer
from tests.process.cluster import Cluster
from tests.process.test_check_command import run as check
from tests.process.test_role_commands import begun, refused
from tests.redis_cluster import RedisCluster
from tests.waiting import eventually

pytestmark = [pytest.mark.process, pytest.mark.long]


@pytest.fixture(scope="module")
def users(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return logins.write_users(tmp_path_factory.mktemp("users") / "users.acl")


@pytest.fixture(scope="module")
def masters(users: Path) -> Iterator[RedisCluster]:
    with RedisCluster(options={"aclfile": str(users)}, login=logins.admin()) as masters:
        yield masters


@pytest.fixture(scope="module")
def broker(users: Path) -> Iterator[RedisServer]:
    with RedisServer(options={"aclfile": str(users)}, login=logins.admin()) as server:
        yield server


def _places(masters: RedisCluster, broker: RedisServer, user: str) -> Mapping[str, str]:
    return {
        "PALAVER_REDIS_URL": masters.url_of((user, logins.PASSWORD)),
        "PALAVER_BROKER_URL": logins.url_of(user, broker.port),
    }


def test_each_role_does_its_work_as_its_user(masters: RedisCluster, broker: RedisServer, tmp_path: Path) -> None:
    environments = {role: _places(masters, broker, user) for role, user in logins.USERS.items()}
    own = environments["api"]
    with Cluster(
        tmp_path, redis_url=broker.url, environment=own, environments=environments, processes={"flower": 1}
    ) as cluster:
        runs = [cluster.submit("tool-2", tools=["record"]) for _ in range(12)]
        assert {cluster.ended(run_id).status for run_id in runs} == {"completed"}
        waiting = cluster.submit("say-1000+rate-50")
        assert cluster.cancel(waiting) in (200, 202)
        assert cluster.ended(waiting).status == "cancelled"
        assert _refused(masters, broker) == []
        shown = check("--json", **environments["worker"])
        assert _refused(masters, broker) == [], "to ask is refused nothing, either"
    found = {(each["place"], each["check"]): each for each in json.loads(shown.stdout)["data"]}
    assert {check for check, each in found.items() if each["level"] != "ok"} == {("store", "masters")}
    assert found["store", "coverage"]["found"].startswith("16384 of 16384 slots")
    assert found["broker", "mode"]["found"] == "standalone"
    assert logins.PASSWORD not in shown.stdout


def _refused(masters: RedisCluster, broker: RedisServer) -> list[str]:
    said: list[str] = []
    for server in masters.servers:
        with closing(masters.client(server)) as client:
            said += logins.denied(client)
    return said


def test_the_table_of_a_cluster(masters: RedisCluster, broker: RedisServer) -> None:
    shown = check(**_places(masters, broker, "palaver-worker"))
    assert (shown.returncode, shown.stderr) == (1, "")
    assert re.search(r"^store +coverage +ok +16384 of 16384 slots, ", shown.stdout, re.MULTILINE)
    assert re.search(r"^store +masters +WARNING +3 masters, 3 without a replica$", shown.stdout, re.M)
    assert "What to do: give each of them a replica on another machine" in shown.stdout


@pytest.mark.parametrize("role", ["worker", "flower"])
def test_a_role_waits_for_a_server_of_the_cluster(
    role: str, masters: RedisCluster, broker: RedisServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One that answers is enough, so the others are named where none does."""
    away, port = free_port(), free_port()
    places = _places(masters, broker, f"palaver-{role}")
    monkeypatch.setenv("PALAVER_BROKER_URL", places["PALAVER_BROKER_URL"])
    login = f"palaver-{role}:{logins.PASSWORD}"
    with begun(role, f"redis+cluster://{login}@{HOST}:{away},{HOST}:{port}/0", tmp_path) as child:
        said = f"waiting for Redis at {HOST}:{away} (Connection refused), {HOST}:{port} (Connection refused): start it"
        eventually(lambda: said in child.output)
        assert logins.PASSWORD not in child.output
    with begun(role, places["PALAVER_REDIS_URL"].replace("@", f"@{HOST}:{away},"), tmp_path) as child:
        child.wait_until_ready(time.monotonic() + 60)
        assert "waiting for Redis" not in child.output


@pytest.mark.parametrize("role", ["api", "worker", "tools", "flower"])
def test_without_a_broker_beside_it_no_role_begins(role: str, masters: RedisCluster) -> None:
    status, said = refused(role, PALAVER_REDIS_URL=masters.url)
    assert status == 78
    assert "PALAVER_BROKER_URL: Value error, is not set, and kombu has no transport for the cluster" in said
    assert said.count("\n") == 1
    assert logins.PASSWORD not in said


def test_a_cluster_is_no_broker(masters: RedisCluster) -> None:
    status, said = refused("worker", PALAVER_REDIS_URL=masters.url, PALAVER_BROKER_URL=masters.url)
    assert status == 78
    assert "PALAVER_BROKER_URL: Value error, kombu has no transport for a Redis in cluster mode: name one" in said
    assert logins.PASSWORD not in said


def test_one_server_of_a_cluster_is_no_store_and_no_broker(
    masters: RedisCluster, broker: RedisServer, tmp_path: Path
) -> None:
    table = tmp_path / "providers.toml"
    table.write_text('[providers.open]\nbase_url = "http://127.0.0.1:1/v1"\n')
    of_it = logins.url_of("palaver-worker", masters.servers[0].port)
    good = _places(masters, broker, "palaver-worker")
    for wrong, told in (
        ("PALAVER_BROKER_URL", "queues over several slots fail: use one server with"),
        ("PALAVER_REDIS_URL", "name it as a cluster, as redis+cluster://HOST:6379"),
    ):
        environment = {**good, wrong: of_it, "PALAVER_PROVIDERS": str(table)}
        status, said = refused("worker", interpreter=(), **environment)
        assert status == 78
        assert told in said
        assert logins.PASSWORD not in said
