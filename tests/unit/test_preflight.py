"""A role asks its Redis whether it keeps what it is given, and whether the role may do there what it has to."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import redis

from deploy.check import logins
from features.stack.ports import free_port
from features.stack.redis_server import RedisServer
from palaver.config.settings import Settings
from palaver.errors import ConfigurationError
from palaver.store.server.findings import Finding, judge
from palaver.store.server.needs import Role
from palaver.store.server.preflight import Preflight
from palaver.store.server.server_state import ServerState
from tests.sentinels import PASSWORD, SentinelGroup

GOOD: Mapping[str, Any] = {
    "redis_version": "7.2.4",
    "redis_mode": "standalone",
    "cluster_enabled": 0,
    "role": "master",
    "maxmemory_policy": "noeviction",
    "evicted_keys": 0,
    "aof_enabled": 1,
    "aof_last_write_status": "ok",
    "aof_last_bgrewrite_status": "ok",
    "rdb_last_bgsave_status": "ok",
    "rdb_changes_since_last_save": 7,
    "connected_slaves": 0,
    "master_repl_offset": 1000,
}
REPLICA = {"ip": "10.0.0.2", "port": 6379, "state": "online", "offset": 900, "lag": 1}


def _wrong(changed: Mapping[str, Any], durable_replicas: int = 0) -> list[tuple[str, str, bool]]:
    found = judge("store", ServerState.of({**GOOD, **changed}), durable_replicas)
    return [(each.check, each.level, each.never) for each in found if each.level != "ok"]


@pytest.mark.parametrize(
    ("changed", "wrong"),
    [
        ({}, []),
        ({"redis_version": "7.2.4", "valkey_version": "9.1.2", "server_name": "valkey"}, []),
        ({"maxmemory_policy": "volatile-ttl"}, [("eviction", "warning", False)]),
        ({"aof_enabled": 0}, [("persistence", "warning", False)]),
        ({"aof_last_write_status": "err"}, [("disk", "error", False)]),
        ({"rdb_last_bgsave_status": "err"}, [("disk", "error", False)]),
        ({"role": "slave"}, [("role", "error", False)]),
        ({"cluster_enabled": 1, "redis_mode": "cluster"}, [("mode", "error", True)]),
        ({"redis_mode": "sentinel"}, [("mode", "error", True)]),
        ({"server_mode": "sentinel", "redis_mode": ""}, [("mode", "error", True)]),
        ({"redis_version": "6.2.14"}, [("server", "error", True)]),
        # A managed server may keep some of it to itself: nothing is made of that.
        (dict.fromkeys(("maxmemory_policy", "aof_enabled", "aof_last_write_status"), ""), []),
        ({"slave0": REPLICA}, []),
    ],
)
def test_what_info_says_is_judged(changed: Mapping[str, Any], wrong: list[tuple[str, str, bool]]) -> None:
    told = {name: value for name, value in changed.items() if value != ""}
    absent = changed.keys() - told.keys()
    found = judge("store", ServerState.of({k: v for k, v in {**GOOD, **told}.items() if k not in absent}))
    assert [(each.check, each.level, each.never) for each in found if each.level != "ok"] == wrong


def test_promises_that_wait_for_replicas_want_them() -> None:
    assert _wrong({"slave0": REPLICA}, 1) == []
    assert _wrong({"slave0": {**REPLICA, "state": "wait_bgsave"}}, 1) == [("replication", "error", False)]
    assert _wrong({"slave0": REPLICA}, 2) == [("replication", "error", False)]
    assert ServerState.of({**GOOD, "slave0": REPLICA, "slave1": {**REPLICA, "offset": 990}}).lag == 100


def test_a_broker_may_forget() -> None:
    state = ServerState.of({**GOOD, "aof_enabled": 0})
    assert all(each.level == "ok" for each in judge("broker", state))


@pytest.fixture
def evicting() -> Iterator[RedisServer]:
    with RedisServer(options={"maxmemory-policy": "allkeys-lru", "appendonly": "no"}) as server:
        yield server


def _preflight(url: str, role: Role = "worker", **more: Any) -> Preflight:
    return Preflight(Settings(redis_url=url, **more), role)


@pytest.mark.process
def test_each_is_said_once_and_again_when_it_changes(evicting: RedisServer, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "palaver.preflight")
    preflight = _preflight(evicting.url)
    for _ in range(3):
        preflight.tell(preflight.look())
    assert [(each.levelname, each.getMessage()) for each in caplog.records] == [
        (
            "WARNING",
            "the Redis of the store removes keys when its memory is full (maxmemory-policy allkeys-lru), and runs and "
            "conversations are then lost: set `maxmemory-policy noeviction` there",
        ),
        (
            "WARNING",
            "the Redis of the store has no append-only file, so what came after its last snapshot is lost when it "
            "stops: set `appendonly yes` there, as deploy/redis.conf does",
        ),
    ]
    caplog.clear()
    with redis.Redis.from_url(evicting.url) as client:
        client.config_set("maxmemory-policy", "noeviction")
    preflight.tell(preflight.look())
    evicting.stop()
    preflight.tell(preflight.look())
    assert [each.getMessage() for each in caplog.records] == ["the Redis of the store is well again: eviction"]


@pytest.mark.process
def test_what_loses_data_refuses_the_start_only_when_that_is_fatal(evicting: RedisServer) -> None:
    _preflight(evicting.url).require()
    with pytest.raises(ConfigurationError, match=r"allkeys-lru.*; and the Redis of the store has no append-only file"):
        _preflight(evicting.url, redis_check="fatal").require()


@pytest.mark.process
def test_a_server_that_is_away_refuses_nothing() -> None:
    preflight = _preflight(f"redis://127.0.0.1:{free_port()}/0", redis_check="fatal")
    preflight.require()
    assert [(each.check, each.level) for each in preflight.look()] == [("answer", "error")]


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RedisServer]:
    users = logins.write_users(tmp_path_factory.mktemp("users") / "users.acl")
    with RedisServer(options={"aclfile": str(users)}, login=logins.admin()) as server:
        yield server


def _user(role: str) -> str:
    return f"palaver-{role}"


def _found(server: RedisServer, role: Role, **more: Any) -> list[Finding]:
    url = logins.url_of(_user(role), server.port)
    return [each for each in _preflight(url, role, **more).look() if each.level != "ok"]


@pytest.mark.process
@pytest.mark.parametrize("role", ["api", "worker", "flower"])
def test_the_shipped_users_may_do_all_that_is_asked(guarded: RedisServer, role: Role) -> None:
    assert _found(guarded, role) == []
    apart = logins.url_of(_user(role), guarded.port).removesuffix("0") + "1"
    with redis.Redis.from_url(guarded.url) as client:
        client.acl_setuser(_user(role), enabled=True, reset_channels=False, channels=["/1.celeryev/*"])
    assert _found(guarded, role, broker_url=apart) == []


@pytest.mark.process
def test_a_missing_right_is_named_and_nothing_is_run(guarded: RedisServer) -> None:
    with redis.Redis.from_url(guarded.url) as client:
        client.execute_command("ACL", "SETUSER", "palaver-worker", "-blmpop", "-llen", "+brpop")
        client.lpush("model", "a delivery")
        before = {name: client.dump(name) for name in client.keys("*")}
        try:
            (found,) = _found(guarded, "worker")
            after = {name: client.dump(name) for name in client.keys("*")}
        finally:
            client.execute_command("ACL", "SETUSER", "palaver-worker", "+blmpop", "+llen", "-brpop")
            client.delete("model")
    assert (found.check, found.level, found.never) == ("rights", "error", False)
    assert found.sentence.startswith(
        "the Redis of the store does not let palaver-worker use blmpop, llen: load the deploy/users.acl of this "
    )
    assert after == before


@pytest.mark.process
def test_a_worker_knows_what_of_a_step_it_is_refused(guarded: RedisServer) -> None:
    preflight = _preflight(logins.url_of("palaver-worker", guarded.port))
    with redis.Redis.from_url(guarded.url) as client:
        client.execute_command("ACL", "SETUSER", "palaver-worker", "-blmpop", "-client|list")
        try:
            preflight.look()
            # Without the list of clients it does all steps.
            assert preflight.refused == ("blmpop",)
        finally:
            client.execute_command("ACL", "SETUSER", "palaver-worker", "+blmpop", "+client|list")
    preflight.look()
    assert not preflight.refused
    wrong = _preflight(logins.url_of("palaver-worker", guarded.port).replace("not-a-secret", "an-old-one"))
    wrong.look()
    assert wrong.refused == ("login",)


@pytest.mark.process
@pytest.mark.parametrize(("less", "checks"), [("-multi", ["rights"]), ("-info", ["server"])])
def test_what_asks_may_be_refused_too(guarded: RedisServer, less: str, checks: list[str]) -> None:
    with redis.Redis.from_url(guarded.url) as client:
        client.execute_command("ACL", "SETUSER", "palaver-api", less)
        try:
            assert [each.check for each in _found(guarded, "api")] == checks
            assert client.dbsize() == 0
        finally:
            client.execute_command("ACL", "SETUSER", "palaver-api", less.replace("-", "+"))


@pytest.mark.process
def test_a_wrong_password_is_said(guarded: RedisServer) -> None:
    url = logins.url_of("palaver-worker", guarded.port).replace("not-a-secret", "an-old-one")
    (found,) = _preflight(url).look()
    assert (found.check, found.level) == ("login", "error")
    assert "refuses the login of palaver-worker" in found.sentence
    assert "an-old-one" not in found.sentence


@pytest.mark.process
def test_a_server_without_a_command(tmp_path: Path) -> None:
    (tmp_path / "more.conf").write_text("rename-command ZPOPMIN hidden\n")
    with RedisServer(options={"include": str(tmp_path / "more.conf")}) as server:
        (found,) = [each for each in _preflight(server.url).look() if each.level != "ok"]
    assert (found.check, found.never) == ("commands", True)
    assert "does not have zpopmin" in found.sentence


@pytest.fixture(scope="module")
def group() -> Iterator[SentinelGroup]:
    with SentinelGroup(replicas=1, options={"min-replicas-to-write": "1"}, guarded=True).open() as group:
        yield group


def _of_sentinels(url: str, **more: Any) -> list[Finding]:
    return [each for each in _preflight(url, **more).look() if each.level != "ok"]


@pytest.mark.process
def test_sentinels_are_asked_whether_they_could_replace_the_primary(group: SentinelGroup) -> None:
    looked = _preflight(group.url).look()
    assert not [each for each in looked if each.level != "ok"]
    found = {each.check: each.found for each in looked}
    primary = f"127.0.0.1:{group.primary.port}"
    assert found["sentinels"] == f"3 of 3 answer; primary {primary}, 1 replicas, quorum 2 of 3"
    assert found["split"] == "min-replicas-to-write is set, 1 are good"
    away, *_ = group.sentinels
    away.kill()
    try:
        (known,) = _of_sentinels(group.url)
    finally:
        away.start()
    assert (known.check, known.level) == ("sentinels", "warning")
    assert f"127.0.0.1:{away.port} does not answer (ConnectionError)" in known.said
    group.settle()


@pytest.mark.process
def test_what_is_wrong_with_an_address_of_sentinels_is_said_in_a_sentence(group: SentinelGroup) -> None:
    (unknown,) = _of_sentinels(group.url.replace("/orders/", "/order/"))
    assert (unknown.check, unknown.never) == ("sentinels", True)
    assert "the Sentinels know no service order: let them watch it (`sentinel monitor`)" in unknown.sentence
    with pytest.raises(ConfigurationError, match="know no service order"):
        _preflight(group.url.replace("/orders/", "/order/")).require()
    for url in (group.url.partition("?")[0], group.url.replace("PASSWORD-2", "an-old-one")):
        refused = _preflight(url)
        (login,) = [each for each in refused.look() if each.level != "ok"]
        assert (login.check, refused.refused) == ("login", ("login",))
        assert "the Sentinels refuse the login (3 of 3): correct sentinel_username" in login.sentence
        assert "an-old-one" not in login.sentence
    (stranger,) = _of_sentinels(group.url.replace(PASSWORD, "an-old-one"))
    assert (stranger.check, "refuses the login of the default user" in stranger.said) == ("login", True)
    (nobody,) = _of_sentinels(f"redis+sentinel://127.0.0.1:{free_port()}/orders/0", redis_check="fatal")
    assert (nobody.check, nobody.level) == ("answer", "error")
    _preflight(f"redis+sentinel://127.0.0.1:{free_port()}/orders/0", redis_check="fatal").require()


@pytest.mark.process
def test_a_sentinel_that_is_named_as_a_server_is_told_how_to_be_named(group: SentinelGroup) -> None:
    (mode,) = [
        each
        for each in _of_sentinels(f"redis://peers:PASSWORD-3@127.0.0.1:{group.sentinels[0].port}/0")
        if each.check == "mode"
    ]
    assert mode.never
    assert "is a Sentinel, which keeps no data: name it as one, with the service that it watches" in mode.sentence
    assert "redis+sentinel://HOST:26379" in mode.advice


@pytest.mark.process
def test_a_primary_that_may_be_cut_off_is_said() -> None:
    with SentinelGroup(replicas=0, sentinels=1).open() as alone:
        sentinels, split = _of_sentinels(alone.url)
    assert "there is no replica; 1 Sentinels watch it, and 3 are needed to lose one" in sentinels.said
    assert (split.check, split.level) == ("split", "warning")
