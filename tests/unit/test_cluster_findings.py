"""A role asks each master of its cluster, and the cluster whether all of its slots have one."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import closing
from typing import Any

import pytest

from deploy.check import logins
from features.stack.ports import HOST, free_port
from features.stack.redis_server import RedisServer
from palaver.config.server_lists import HostPort
from palaver.config.settings import Settings
from palaver.errors import ConfigurationError
from palaver.store.server.cluster_findings import merged
from palaver.store.server.findings import Finding
from palaver.store.server.needs import Role
from palaver.store.server.preflight import Preflight
from tests.redis_cluster import RedisCluster
from tests.waiting import eventually

BROKER = "amqp://127.0.0.1:1"
"""No Redis, so nobody asks it."""
FULL = "cluster-require-full-coverage"


@pytest.fixture(scope="module")
def cluster() -> Iterator[RedisCluster]:
    with RedisCluster(replicas=1, options={"min-replicas-to-write": "1"}) as cluster:
        yield cluster


def _preflight(url: str, role: Role = "worker", **more: Any) -> Preflight:
    return Preflight(Settings.model_validate({"redis_url": url, "broker_url": BROKER, **more}), role)


def _wrong(url: str, role: Role = "worker", **more: Any) -> dict[str, Finding]:
    return {each.check: each for each in _preflight(url, role, **more).look() if each.level != "ok"}


def _set(cluster: RedisCluster, name: str, value: str, *, first: bool = False) -> None:
    for server in cluster.masters()[: 1 if first else None]:
        with closing(cluster.client(server)) as client:
            client.config_set(name, value)


@pytest.mark.process
def test_a_cluster_of_masters_with_replicas_is_well(cluster: RedisCluster) -> None:
    looked = _preflight(cluster.url, durability="replicas=1").look()
    assert [each for each in looked if each.level != "ok"] == []
    found = {each.check: each.found for each in looked}
    assert found["coverage"] == f"16384 of 16384 slots, {FULL} no"
    assert found["masters"] == "3 masters, each with a replica"
    assert (found["mode"], found["persistence"]) == ("cluster", "append-only file")
    assert found["split"] == "min-replicas-to-write is set, 1 are good"
    _preflight(cluster.url, redis_check="fatal").require()


@pytest.mark.process
def test_one_that_stops_as_a_whole_is_told_to_go_on(cluster: RedisCluster) -> None:
    _set(cluster, FULL, "yes", first=True)
    try:
        wrong = _wrong(cluster.url)
    finally:
        _set(cluster, FULL, "no")
    assert {check: each.level for check, each in wrong.items()} == {"coverage": "warning"}
    assert "stops as a whole while one of its masters is away" in wrong["coverage"].sentence
    assert f"set `{FULL} no` on all of its servers" in wrong["coverage"].advice


@pytest.mark.process
def test_what_one_master_is_lacking_is_said_with_its_address(cluster: RedisCluster) -> None:
    _set(cluster, "maxmemory-policy", "allkeys-lru", first=True)
    try:
        wrong = _wrong(cluster.url)
    finally:
        _set(cluster, "maxmemory-policy", "noeviction")
    assert wrong.keys() == {"eviction"}
    said = wrong["eviction"].said
    assert any(said.endswith(f"conversations are then lost (at {HOST}:{each.port})") for each in cluster.masters())


@pytest.mark.process
def test_promises_want_replicas_of_each_master(cluster: RedisCluster) -> None:
    wrong = _wrong(cluster.url, durability="replicas=2")
    assert wrong["replication"].level == "error"
    assert "has 1 replicas, and promises wait for 2, so they are refused: connect" in wrong["replication"].sentence


@pytest.mark.process
def test_one_server_of_it_is_told_how_a_cluster_is_named(cluster: RedisCluster) -> None:
    url = f"redis://{HOST}:{cluster.masters()[0].port}/0"
    mode = _wrong(url)["mode"]
    assert mode.never
    assert "name it as a cluster, as redis+cluster://HOST:6379" in mode.sentence
    assert "PALAVER_BROKER_URL" in mode.advice
    broker = [each for each in _preflight(cluster.url, broker_url=url).look() if each.place == "broker"]
    (refused,) = [each for each in broker if each.check == "mode"]
    assert refused.never
    assert "queues over several slots fail: use one server with `cluster-enabled no`, Sentinels" in refused.sentence


@pytest.mark.process
def test_one_server_that_is_named_as_a_cluster_is_told_how_it_is_named() -> None:
    with RedisServer() as alone:
        url = f"redis+cluster://{HOST}:{alone.port}/0"
        (mode,) = _wrong(url).values()
        with pytest.raises(ConfigurationError, match="has cluster support disabled: name it as one server, as redis:"):
            _preflight(url).require()
    assert (mode.check, mode.never) == ("mode", True)


@pytest.mark.process
def test_a_cluster_that_is_away_refuses_nothing() -> None:
    preflight = _preflight(f"redis+cluster://:s3cret@{HOST}:{free_port()}/0", redis_check="fatal")
    preflight.require()
    (found,) = preflight.look()
    assert (found.check, found.level) == ("answer", "error")
    assert "no server of the cluster: " in found.found
    assert "s3cret" not in found.sentence


@pytest.mark.process
def test_a_master_that_is_away_is_named_and_the_others_are_asked(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "palaver.preflight")
    with RedisCluster() as cluster:
        assert _wrong(cluster.url)["masters"].level == "warning"
        away, other, _ = cluster.servers
        preflight = _preflight(cluster.url)
        away.kill()
        wrong = {each.check: each for each in preflight.look() if each.level != "ok"}
        assert {check: each.level for check, each in wrong.items()} == {"away": "error", "masters": "warning"}
        assert f"what is on them waits: {HOST}:{away.port} (ConnectionError): start them" in wrong["away"].sentence
        assert "?address_remap=KNOWN:PORT=REACHED:PORT" in wrong["away"].advice
        preflight.tell(preflight.look())
        assert "has masters that do not answer" in caplog.text
        _preflight(cluster.url).require()
        with closing(cluster.client(other)) as client:
            client.execute_command("CLUSTER", "DELSLOTSRANGE", 6000, 6010)
        coverage = _wrong(cluster.url)["coverage"]
    assert coverage.level == "error"
    assert "has no master for 11 of its 16384 slots, so what is there is away: bring back" in coverage.sentence


@pytest.mark.process
def test_a_master_at_which_no_script_runs_is_said() -> None:
    """One that takes the cluster for down: the others do not know it, say, or slots of theirs have no master."""
    with RedisCluster(options={FULL: "yes"}) as cluster:
        gone, *others = cluster.servers
        gone.kill()

        def scripts() -> Finding | None:
            return _wrong(cluster.url).get("scripts")

        eventually(lambda: scripts() is not None and len(others) == 2)
        said = scripts()
    assert said is not None
    assert "does not run a script (" in said.said
    assert "CLUSTERDOWN" in said.said or "cluster is down" in said.said


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RedisCluster]:
    users = logins.write_users(tmp_path_factory.mktemp("users") / "users.acl")
    # Each has a file of its own, as on machines of their own.
    with RedisCluster(options={"aclfile": str(users)}, login=logins.admin()) as cluster:
        yield cluster


def _url_of(cluster: RedisCluster, role: Role, password: str = logins.PASSWORD) -> str:
    return cluster.url_of((f"palaver-{role}", password))


@pytest.mark.process
@pytest.mark.parametrize("role", ["api", "worker", "flower"])
def test_the_shipped_users_may_do_all_that_is_asked(guarded: RedisCluster, role: Role) -> None:
    looked = _preflight(_url_of(guarded, role), role).look()
    # Those of the test have no replicas.
    assert {each.check for each in looked if each.level != "ok"} == ({"masters"} if role != "flower" else set())
    assert [each.found for each in looked if each.check == "coverage"] == (
        [f"16384 of 16384 slots, {FULL} is not told: it should be no"] if role != "flower" else []
    )
    for server in guarded.servers:
        with closing(guarded.client(server)) as client:
            assert logins.denied(client) == []


@pytest.mark.process
def test_rights_that_one_master_refuses_are_named(guarded: RedisCluster) -> None:
    """Users are those of each server: a file that one of them has not loaded is what goes wrong."""
    old = guarded.servers[1]
    preflight = _preflight(_url_of(guarded, "worker"))
    with closing(guarded.client(old)) as client:
        client.execute_command("ACL", "SETUSER", "palaver-worker", "-spublish", "-evalsha")
        try:
            rights = {each.check: each for each in preflight.look()}["rights"]
        finally:
            client.execute_command("ACL", "SETUSER", "palaver-worker", "+spublish", "+evalsha")
    assert rights.said == f"does not let palaver-worker use evalsha, spublish (at {HOST}:{old.port})"
    assert preflight.refused == ("evalsha", "spublish"), "a worker does no steps"


@pytest.mark.process
def test_a_login_that_is_refused_is_said(guarded: RedisCluster) -> None:
    (login,) = _wrong(_url_of(guarded, "worker", "an-old-one")).values()
    assert (login.check, login.names) == ("login", ("login",))
    assert "refuses the login of palaver-worker" in login.sentence
    assert "an-old-one" not in login.sentence


@pytest.mark.process
def test_who_may_not_ask_for_the_slots_is_told(guarded: RedisCluster) -> None:
    for server in guarded.servers:
        with closing(guarded.client(server)) as client:
            client.execute_command("ACL", "SETUSER", "palaver-api", "-cluster|slots")
    try:
        (rights,) = _wrong(_url_of(guarded, "api"), "api").values()
    finally:
        for server in guarded.servers:
            with closing(guarded.client(server)) as client:
                client.execute_command("ACL", "SETUSER", "palaver-api", "+cluster|slots")
    assert rights.names == ("cluster|slots",)
    assert "does not let palaver-api use cluster|slots: load the deploy/users.acl" in rights.sentence


@pytest.mark.process
def test_a_server_without_sharded_channels_is_said(tmp_path: Any) -> None:
    (tmp_path / "more.conf").write_text("rename-command SPUBLISH hidden\nrename-command SSUBSCRIBE hidden2\n")
    with RedisCluster(options={"include": str(tmp_path / "more.conf")}) as cluster:
        commands = _wrong(cluster.url)["commands"]
    assert commands.never
    assert "does not have spublish, ssubscribe: use Redis 7.0 or later" in commands.sentence


def _finding(found: str, said: str = "", check: str = "eviction", level: Any = "ok", *names: str) -> Finding:
    return Finding("store", check, level, found, said, names=names)


def test_findings_of_masters_are_one_for_each_check() -> None:
    a, b, c, d, e = (HostPort("10.0.0.1", port) for port in range(1, 6))
    good = _finding("noeviction")
    evicts = _finding("allkeys-lru", "evicts", "eviction", "warning")
    assert list(merged({a: [good], b: [good]})) == [good]
    assert [each.said for each in merged({a: [evicts], b: [evicts]})] == ["evicts"]
    assert [each.said for each in merged({a: [evicts], b: [good]})] == ["evicts (at 10.0.0.1:1)"]
    four = {address: [evicts] for address in (a, b, c, d)}
    assert [each.said for each in merged({**four, e: [good]})] == [
        "evicts (at 10.0.0.1:1, 10.0.0.1:2, 10.0.0.1:3 and 1 more)"
    ]
    lacks = _finding("may not x", "does not let u use x", "rights", "error", "x")
    other = _finding("may not y", "does not let u use y", "rights", "error", "y")
    (both,) = merged({a: [lacks], b: [other], c: [_finding("all", check="rights")]})
    assert both.said == "does not let u use x (at 10.0.0.1:1), and it does not let u use y (at 10.0.0.1:2)"
    assert both.names == ("x", "y")
    assert both.found == "may not x; may not y"
