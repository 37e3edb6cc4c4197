"""Copies of stores on real servers: each kind of value, each difference, and a sentence for each reason not to copy."""

from __future__ import annotations

import asyncio
import json
import random
import threading
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from features.stack.redis_server import RedisServer
from features.store_copy.parts import StorePart, part_of
from features.store_copy.places import NAME, RIGHTS
from features.store_copy.program import main
from palaver.config.settings import Settings
from palaver.store import Store
from palaver.store.fleet.fleet import WorkerReport
from palaver.store.redis import fleet_keys, keys
from palaver.vocabulary.ids import MAX_SHARDS, all_shards, new_run_id
from tests.contract.belongings import kinds
from tests.redis_cluster import RedisCluster
from tests.store_copies import connected, everything, fill
from tests.waiting import eventually

pytestmark = pytest.mark.process
LARGE = 700
"""Members, or entries, of a value that comes in several slices."""


@pytest.fixture
def source() -> Iterator[RedisServer]:
    with RedisServer() as server, closing(connected(server.url)) as client:
        client.set(keys.generation(), "this one")
        yield server


@pytest.fixture
def target() -> Iterator[RedisServer]:
    with RedisServer() as server:
        yield server


@pytest.fixture(scope="module")
def cluster() -> Iterator[RedisCluster]:
    with RedisCluster() as cluster:
        yield cluster


def copied(capfd: pytest.CaptureFixture[str], source: str, target: str, *more: str) -> dict[str, Any]:
    """The receipt of a copy that is whole."""
    assert main(["copy", "--json", "--from", source, "--to", target, *more]) == 0
    receipt: dict[str, Any] = json.loads(capfd.readouterr().out)
    return receipt


def refused(capfd: pytest.CaptureFixture[str], *arguments: str, status: int = 2) -> str:
    """The sentence of a copy that is refused."""
    with pytest.raises(SystemExit) as ended:
        main(["copy", *arguments])
    said = capfd.readouterr().err
    assert ended.value.code == status, said
    return said


def refused_copy(capfd: pytest.CaptureFixture[str], source: str, target: str, status: int = 2) -> str:
    return refused(capfd, "--from", source, "--to", target, status=status)


@pytest.mark.parametrize("seed", range(2))
def test_whatever_differs_is_made_alike(
    seed: int, source: RedisServer, cluster: RedisCluster, capfd: pytest.CaptureFixture[str]
) -> None:
    chance = random.Random(seed)
    with closing(connected(cluster.url)) as there:
        there.flushall()
    with closing(connected(source.url)) as here, closing(connected(cluster.url)) as there:
        copied(capfd, source.url, cluster.url)
        for _ in range(6):
            for _ in range(40):
                _change(here, chance)
            if chance.random() < 0.5:
                # As if somebody had spoilt it.
                for _ in range(10):
                    _change(there, chance)
            copied(capfd, source.url, cluster.url)
            copies, originals = everything(cluster.url), everything(source.url)
            assert _lasting(copies) == _lasting(originals)


def _lasting(found: dict[bytes, Any]) -> dict[bytes, Any]:
    """Leave out what may have expired in one of them, or did before it was copied."""
    soon = (time.time() + 1) * 1000
    return {name: value for name, value in found.items() if not 0 <= value[1] < soon}


def _change(client: Any, chance: random.Random) -> None:
    """Write something into one of a few keys."""
    number, large = chance.randrange(4), chance.random() < 0.1
    many = LARGE if large else chance.randrange(1, 5)
    tag, word = f"{{p0{number}}}", bytes(chance.randrange(256) for _ in range(chance.randrange(6)))
    names = [b"%d" % chance.randrange(LARGE) for _ in range(many)]
    run, runs, log = f"{tag}:run:run_{number}", f"{tag}:runs", f"{tag}:log:conv_{number}"
    match chance.randrange(12):
        case 0 | 1:
            client.hset(run, mapping=dict.fromkeys(names, word))
        case 2 | 3:
            scores = (chance.choice([chance.random(), chance.randrange(10), float("inf"), 1e17]) for _ in names)
            client.zadd(runs, dict(zip(names, scores, strict=True)))
        case 4 | 5 | 6:
            for _ in range(many):
                client.xadd(log, {b"f": word, b"": b"x"})
        case 7:
            client.set(f"{tag}:sends", word) if large else client.set(f"{tag}:some", word, ex=chance.choice([1000, 9]))
        case 8:
            client.hdel(run, *names)
            client.zrem(runs, *names)
        case 9:
            for entry, _ in client.xrange(log, count=many):
                client.xdel(log, entry)
        case 10:
            name = chance.choice([run, runs, log])
            client.persist(name) if large else client.expire(name, chance.randrange(100, 1000))
        case 11:
            client.xtrim(log, maxlen=chance.randrange(3), approximate=False)
            client.delete(chance.choice([run, runs, log, f"{tag}:some"]))


def test_each_kind_of_key_has_its_part() -> None:
    parts = {kind: part_of(kind.replace("<owner>", "@:").replace("<feature>", "batches").encode()) for kind in kinds()}
    assert {kind for kind, part in parts.items() if part is None} == {
        *("{p00}:sender", "{p00}:promised", "palaver:workers", "palaver:worker:<id>"),
        *("{palaver:workers}:sweepers", "{palaver:workers}:busy", "{palaver:workers}:planning"),
        "{palaver:workers}:features",
        # Channels.
        *("palaver:cancel:<worker>", "palaver:providers"),
    }
    moving = {kind for kind, part in parts.items() if part is StorePart.MOVING}
    assert {"{p00}:due", "{p00}:ready:<queue>", "{p00}:<owner>backlog:<queue>", "{palaver:schedules}:due"} <= moving
    assert {"{palaver:<feature>}:events", "{palaver:<feature>}:events:<tag>"} <= moving
    records = {kind for kind, part in parts.items() if part is StorePart.RECORDS}
    assert {"{p00}:run:<id>", "{p00}:steps:<id>", "{p00}:log:<id>", "{p00}:conv:<id>", "{p00}:idem:<hash>"} <= records
    assert parts["{p00}:<owner>runs"] is StorePart.LISTS
    assert part_of(b"_kombu.binding.tools") is part_of(b"tools") is part_of(b"palaver:task:7:sent") is None


def test_each_shard_is_copied(source: RedisServer, target: RedisServer, capfd: pytest.CaptureFixture[str]) -> None:
    parts = {part_of(keys.run(new_run_id(shard)).encode()) for shard in all_shards(MAX_SHARDS)}
    assert parts == {StorePart.RECORDS}
    asyncio.run(fill(Settings(redis_url=source.url, shards=MAX_SHARDS), 20, 20))
    with closing(connected(source.url)) as client:
        client.set(f"{{p{all_shards(MAX_SHARDS)[-1]}}}:promised", "1")
        client.hset(fleet_keys.SWEEPERS, "model.1@here", 1)
        client.hset(fleet_keys.BUSY, "00", 1)
        client.zadd(keys.due(all_shards(MAX_SHARDS)[900]), {"run_x 1": 1})
    receipt = copied(capfd, source.url, target.url)
    assert everything(target.url) == everything(source.url)
    assert receipt["conversations"] == 40
    assert receipt["left"] == {"promised": 1, "palaver:worker": 2}
    assert receipt["shards"] > 900


def test_a_copy_ahead_leaves_out_what_moves_and_may_read_of_a_fleet(
    source: RedisServer, target: RedisServer, capfd: pytest.CaptureFixture[str]
) -> None:
    asyncio.run(fill(Settings(redis_url=source.url), 3, 2))
    with closing(connected(source.url)) as client:
        client.rpush("tools", "a message")
        client.set("_kombu.binding.tools", "x")
        client.set("{p00}:promised", "1")
    asyncio.run(_reported(source.url))

    receipt = copied(capfd, source.url, target.url, "--ahead")

    moving = {name for name in everything(source.url) if part_of(name) is StorePart.MOVING}
    assert b"{p00}:due" in moving
    assert moving & {*everything(target.url)} == {keys.generation().encode()}
    assert receipt["kinds"]["run"] == 5
    assert receipt["conversations"] == 5
    assert receipt["left"] == {"palaver:worker": 2, "promised": 1, "tools": 1, "_kombu": 1}
    said = refused_copy(capfd, source.url, target.url)
    assert "the source is in use by workers model.1@here: stop them, and begin again" in said
    assert "or copy --ahead while they run" in said


async def _reported(url: str) -> None:
    async with Store.connect(Settings(redis_url=url)) as store:
        await store.fleet.report(WorkerReport("model.1@here", ("model",), 0, 1, draining=False))


def test_the_addresses_are_looked_at_first(capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    assert "--to is missing: give it, or set PALAVER_COPY_TO or PALAVER_COPY_TO_FILE" in refused(
        capfd, "--from", "redis://localhost"
    )
    said = refused(capfd, "--from", "amqp://u:hidden@localhost", "--to", "redis://localhost", status=78)
    assert "--from: must begin with redis://" in said
    assert "hidden" not in said
    said = refused(capfd, "--from", "redis://localhost", "--to", "rediss://:hidden@localhost/0?ssl=maybe")
    assert "the target has an option in its address that is none: see what stands behind ?" in said
    assert "hidden" not in said
    monkeypatch.setenv("PALAVER_COPY_TO", "redis://localhost")
    monkeypatch.setenv("PALAVER_COPY_TO_FILE", "/to")
    assert "PALAVER_COPY_TO and PALAVER_COPY_TO_FILE are both set" in refused(
        capfd, "--from", "redis://localhost", status=78
    )


def test_an_address_may_stand_in_a_file(
    source: RedisServer,
    target: RedisServer,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    (tmp_path / "to").write_text(f"{target.url}\n")
    monkeypatch.setenv("PALAVER_COPY_FROM", source.url)
    monkeypatch.setenv("PALAVER_COPY_TO_FILE", str(tmp_path / "to"))
    assert main(["copy"]) == 0
    said = capfd.readouterr().out
    assert "copied and compared: 1 keys, 0 conversations" in said
    assert "shards: set PALAVER_SHARDS to 1 or more where the target is used" in said
    assert everything(target.url) == everything(source.url)


def test_the_wrong_way_round_is_refused(
    source: RedisServer, target: RedisServer, cluster: RedisCluster, capfd: pytest.CaptureFixture[str]
) -> None:
    assert "the source and the target are the same" in refused_copy(capfd, source.url, source.url)
    assert "there is no store at the source" in refused_copy(capfd, target.url, source.url)
    with closing(connected(source.url)) as here, closing(connected(target.url)) as there:
        there.set(keys.generation(), "another one")
        assert "the target has another store: empty it if its content" in refused_copy(capfd, source.url, target.url)
        there.delete(keys.generation())
        there.hset("{p00}:run:run_x", "a", 1)
        assert "the target has keys of Palaver, and nothing says of which store" in refused_copy(
            capfd, source.url, target.url
        )
        there.flushall()
        here.hset(keys.counts("0a"), "runs", 3)
        copied(capfd, source.url, target.url)
        there.hincrby(keys.counts("0a"), "runs", 1)
        assert "the target is ahead of the source: it was used since it was copied" in refused_copy(
            capfd, source.url, target.url
        )
        assert copied(capfd, target.url, source.url)["shards"] == 11
    one = f"redis://127.0.0.1:{cluster.servers[0].port}/0"
    assert "is one server of a cluster: write redis+cluster://" in refused_copy(capfd, source.url, one)
    masters = f"redis+cluster://127.0.0.1:{target.port}/0"
    assert "the target is no cluster: write redis://HOST:PORT/0" in refused_copy(capfd, source.url, masters)


def test_whoever_is_connected_is_named(
    source: RedisServer, target: RedisServer, capfd: pytest.CaptureFixture[str]
) -> None:
    asyncio.run(_while_connected(source.url, target.url, capfd))
    with closing(connected(target.url)) as client:
        client.client_setname(f"{NAME}-1")
        assert "the target is in use by another copy from 127.0.0.1:" in refused_copy(capfd, source.url, target.url)


async def _while_connected(source: str, target: str, capfd: pytest.CaptureFixture[str]) -> None:
    async with Store.connect(Settings(redis_url=source)) as store:
        # Redis 7.0 tells no library of a connection, only its last command.
        await store.runs.counts()
        said = await asyncio.to_thread(refused_copy, capfd, source, target)
    assert "the source is in use by connections of workers, APIs or commands from 127.0.0.1:" in said


def test_whoever_uses_the_source_meanwhile_makes_the_copy_none(
    source: RedisServer, target: RedisServer, capfd: pytest.CaptureFixture[str]
) -> None:
    ended = threading.Event()

    def use() -> None:
        with closing(connected(source.url)) as client:
            script = client.script_load("return redis.call('hincrby', KEYS[1], 'n', 1)")
            while not ended.is_set():
                with client.pipeline() as transaction:
                    transaction.evalsha(script, 1, "{p00}:run:run_x")
                    transaction.execute()

    user = threading.Thread(target=use)
    user.start()
    try:
        assert main(["copy", "--from", source.url, "--to", target.url]) == 1
    finally:
        ended.set()
        user.join()
    told = capfd.readouterr()
    assert "NOT WHOLE" in told.out
    assert "another process used the source meanwhile: stop all, and begin again" in told.err
    copied(capfd, source.url, target.url)


def test_a_login_has_the_rights_that_the_sentence_names_or_is_told(
    source: RedisServer, target: RedisServer, capfd: pytest.CaptureFixture[str]
) -> None:
    asyncio.run(fill(Settings(redis_url=source.url), 2, 2))
    for server in (source, target):
        with closing(connected(server.url)) as client:
            client.execute_command("ACL", "SETUSER", "mover", "on", ">hidden", *RIGHTS.split())
            client.execute_command("ACL", "SETUSER", "reader", "on", ">hidden", "~*", "+get", "+hello", "+info")
    here, there = (f"redis://mover:hidden@127.0.0.1:{server.port}/0" for server in (source, target))
    receipt = copied(capfd, here, there)
    assert receipt["notes"] == []
    assert everything(target.url) == everything(source.url)
    said = refused_copy(capfd, here.replace("mover", "reader"), there)
    assert "the source does not let reader do that" in said
    assert f"log in as one who has {RIGHTS}" in said
    said = refused_copy(capfd, here, there.replace("hidden", "wrong"))
    assert "the target does not take the login of mover" in said
    assert "wrong" not in said


def test_a_target_that_takes_nothing_is_told(
    source: RedisServer, target: RedisServer, capfd: pytest.CaptureFixture[str]
) -> None:
    asyncio.run(fill(Settings(redis_url=source.url), 2, 2))
    with closing(connected(target.url)) as there, closing(connected(source.url)) as here:
        there.config_set("maxmemory", "1")
        assert "the target has no memory left: raise its maxmemory" in refused_copy(capfd, source.url, target.url)
        there.config_set("maxmemory", "0")
        with RedisServer() as primary:
            there.replicaof("127.0.0.1", primary.port)
            assert "the target is a replica, and takes nothing: name its primary" in refused_copy(
                capfd, source.url, target.url
            )
            assert "the source is a replica, and may be behind" in refused_copy(capfd, target.url, source.url)
            eventually(lambda: there.info("replication")["master_link_status"] == "up")
            there.replicaof("no", "one")
        copied(capfd, source.url, target.url)
        here.rpush("{p00}:run:run_1", "x")
        assert "a key of the source, {p00}:run:run_1, is a list, and none is" in refused_copy(
            capfd, source.url, target.url
        )
    target.kill()
    assert "the target does not answer" in refused_copy(capfd, source.url, target.url, status=69)


def test_another_program_at_the_target_is_left_alone(
    source: RedisServer, target: RedisServer, capfd: pytest.CaptureFixture[str]
) -> None:
    with closing(connected(target.url)) as there:
        there.set("_kombu.binding.tools", "x")
        there.set("cache:1", "x")
        copied(capfd, source.url, target.url)
        assert {*there.keys()} == {b"_kombu.binding.tools", b"cache:1", b"{p00}:generation"}
