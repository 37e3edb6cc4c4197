"""The server that the other tests stand on keeps what it acknowledged and never outlives its starter."""

from __future__ import annotations

import os
import random
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import redis

from features.stack.ports import HOST, free_port, port_is_free
from features.stack.redis_server import VARIABLE, RedisServer, RedisServerError, find_server
from tests.processes import gone
from tests.waiting import eventually

pytestmark = pytest.mark.process


@pytest.fixture
def server() -> Iterator[RedisServer]:
    with RedisServer() as running:
        yield running


@pytest.fixture
def client(server: RedisServer) -> Iterator[redis.Redis]:
    with redis.Redis.from_url(server.url, socket_timeout=5) as connected:
        yield connected


def test_it_is_durable_and_never_evicts(client: redis.Redis) -> None:
    assert client.config_get("*append*")["appendonly"] == "yes"
    assert client.config_get("appendfsync") == {"appendfsync": "everysec"}
    assert client.config_get("maxmemory-policy") == {"maxmemory-policy": "noeviction"}
    assert client.config_get("save") == {"save": ""}


def test_a_kill_loses_no_acknowledged_write(server: RedisServer, client: redis.Redis) -> None:
    client.config_set("appendfsync", "no")
    for number in range(200):
        client.set(f"key:{number}", number)
    port, killed = server.port, server.pid

    server.kill()
    assert gone(killed)
    server.start()

    assert (server.port, client.dbsize()) == (port, 200)


def test_a_restart_keeps_the_data_and_the_port(server: RedisServer, client: redis.Redis) -> None:
    client.set("kept", "yes")
    before = server.url, server.pid
    server.restart()
    assert server.url == before[0]
    assert server.pid != before[1]
    assert client.get("kept") == b"yes"


def test_a_paused_server_holds_its_connections_and_answers_after_resume(
    server: RedisServer, client: redis.Redis
) -> None:
    client.ping()
    with redis.Redis.from_url(server.url, socket_timeout=0.2, retry=None) as impatient:
        server.pause()
        with pytest.raises(redis.TimeoutError):
            impatient.ping()
        server.resume()
    assert client.ping() is True


def test_a_paused_server_can_be_stopped(server: RedisServer) -> None:
    server.pause()
    pid = server.pid
    server.stop()
    assert gone(pid)
    assert not server.running


def test_starting_twice_is_starting_once(server: RedisServer) -> None:
    pid = server.pid
    server.start()
    assert server.pid == pid


def test_what_needs_a_running_server_says_so() -> None:
    server = RedisServer()
    for action in (server.kill, server.pause, server.resume):
        with pytest.raises(RedisServerError, match="not running"):
            action()
    with pytest.raises(RedisServerError, match="never started"):
        _ = server.url
    server.stop()


def test_a_taken_port_is_refused_and_its_owner_left_alone(server: RedisServer, client: redis.Redis) -> None:
    with (
        pytest.raises(RedisServerError, match=f"port {server.port} .* in use"),
        RedisServer(port=server.port),
    ):
        pass
    assert client.ping() is True


def test_a_server_that_cannot_load_its_data_shows_its_log(tmp_path: Path) -> None:
    with RedisServer(data_dir=tmp_path) as server, redis.Redis.from_url(server.url) as client:
        client.set("key", "value")
    for file in tmp_path.rglob("appendonly*.*"):
        file.write_text("not what the server wrote")
    with pytest.raises(RedisServerError, match=r"(?s)exited with 1:\n.*[Aa]ppend"):
        RedisServer(data_dir=tmp_path).start()


def test_a_given_directory_stays_and_a_temporary_one_goes(tmp_path: Path) -> None:
    with RedisServer(data_dir=tmp_path) as given, RedisServer() as temporary:
        assert given.log_path.exists()
        place = temporary.data_dir
    assert given.log_path.exists()
    assert not place.exists()


def test_a_directory_may_be_named_from_where_one_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with RedisServer(data_dir=Path("here")) as server:
        assert server.log_path == tmp_path / "here" / "redis.log"


def test_without_any_server_program_the_error_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(VARIABLE, raising=False)
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    monkeypatch.setenv("PATH", os.devnull)
    with pytest.raises(RedisServerError, match=r"pip install 'palaver\[server\]'.*PALAVER_REDIS_URL"):
        find_server()


def test_without_a_packaged_server_the_one_on_path_is_used(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    program = tmp_path / "valkey-server"
    program.touch(mode=0o755)
    monkeypatch.delenv(VARIABLE, raising=False)
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert find_server() == program


def test_a_variable_names_the_server(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    program = tmp_path / "my-server"
    program.touch(mode=0o755)
    monkeypatch.setenv(VARIABLE, str(program))
    assert find_server() == program
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv(VARIABLE, "my-server")
    assert find_server() == program
    monkeypatch.setenv(VARIABLE, "other-server")
    with pytest.raises(
        RedisServerError, match="PALAVER_TEST_REDIS_SERVER must name a server program, and 'other-server'"
    ):
        find_server()


def test_a_server_of_a_cluster_has_two_ports(monkeypatch: pytest.MonkeyPatch) -> None:
    bus = free_port()
    another = free_port(but=bus)
    monkeypatch.setattr(random, "sample", lambda *_: [bus, another])
    with RedisServer(options={"cluster-enabled": "yes", "cluster-port": str(bus)}) as server:
        assert server.port == another


def test_a_free_port_is_outside_the_range_of_outgoing_connections() -> None:
    port = free_port()
    assert port < 32768
    with socket.create_server((HOST, port)):
        assert not port_is_free(port)
    assert port_is_free(port)


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells a process of its parent's end")
def test_the_server_dies_with_a_starter_that_is_killed(tmp_path: Path) -> None:
    program = (
        "import pathlib, signal, sys\n"
        "from features.stack.redis_server import RedisServer\n"
        "server = RedisServer(data_dir=pathlib.Path(sys.argv[1]))\n"
        "server.start()\n"
        "print(server.pid, flush=True)\n"
        "signal.pause()\n"
    )
    with subprocess.Popen([sys.executable, "-c", program, tmp_path], stdout=subprocess.PIPE) as starter:
        assert starter.stdout is not None
        pid = int(starter.stdout.readline())
        assert not gone(pid)
        starter.kill()
    eventually(lambda: gone(pid), why="the server is gone")


@pytest.mark.parametrize("ending", [signal.SIGINT, signal.SIGTERM])
def test_the_command_runs_until_it_is_told_to_stop(tmp_path: Path, ending: signal.Signals) -> None:
    command = [
        sys.executable,
        "-m",
        "features.stack.redis_server",
        "--port",
        str(free_port()),
        "--dir",
        str(tmp_path),
    ]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        url = process.stdout.readline().decode().strip()
        with redis.Redis.from_url(url) as client:
            pid = client.info("server")["process_id"]
        process.send_signal(ending)
        assert process.wait(10) == 0
    assert gone(pid)


def test_what_a_server_keeps_is_for_its_owner_only(tmp_path: Path) -> None:
    with RedisServer(data_dir=tmp_path / "kept") as kept:
        assert kept.data_dir.stat().st_mode & 0o777 == 0o700
        assert not [path for path in kept.data_dir.rglob("*") if path != kept.log_path and path.stat().st_mode & 0o077]


def test_options_override_what_a_file_says(tmp_path: Path) -> None:
    config = tmp_path / "redis.conf"
    config.write_text("appendfsync always\nmaxclients 77\n")
    options = {"appendfsync": "no", "include": str(config)}
    with RedisServer(options=options) as server, redis.Redis.from_url(server.url) as client:
        assert client.config_get("appendfsync") == {"appendfsync": "no"}
        assert client.config_get("maxclients") == {"maxclients": "77"}


def test_a_server_whose_default_user_is_off_wants_a_login(tmp_path: Path) -> None:
    users = tmp_path / "users.acl"
    users.write_text("user default off ~* &* +@all\nuser ann on >secret ~* &* +@all\n")
    with RedisServer(options={"aclfile": str(users)}, login=("ann", "secret")) as server:
        assert server.url.startswith("redis://ann:secret@")
        with redis.Redis.from_url(server.url) as client:
            client.set("a", 1)
        server.kill()
        server.start()
        with redis.Redis.from_url(server.url) as client:
            assert client.get("a") == b"1"
        with redis.Redis(port=server.port) as stranger, pytest.raises(redis.AuthenticationError):
            stranger.ping()
