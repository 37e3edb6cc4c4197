"""Keys of the API with the shipped users of Redis: made beside the store, and revoked at every process within a
second."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest
import redis
from redis.exceptions import NoPermissionError

from deploy.check import logins
from features.stack.child import ChildCommand
from features.stack.ports import HOST, free_port
from features.stack.readiness import answers_ok
from features.stack.redis_server import RedisServer
from palaver import Palaver
from palaver.client import Unauthorized
from palaver.config.settings import Settings
from palaver.store.redis import access_keys
from tests.process.typed import palaver
from tests.waiting import PATIENCE, eventually
from workers.commands import keys as command

pytestmark = pytest.mark.process

SOON = 1.0
"""Seconds within which a revocation is seen everywhere."""
CLEAN = {name: value for name, value in os.environ.items() if not name.startswith("PALAVER_")}


@dataclass(frozen=True)
class Apis:
    """Two processes of the API on one Redis, which want keys."""

    urls: tuple[str, str]
    server: RedisServer

    def command(
        self, *arguments: str, user: str = "palaver-api", program: str = "keys", **more: str
    ) -> subprocess.CompletedProcess[str]:
        """``palaver keys``, or another program, as it is typed where the API runs."""
        url = logins.url_of(user, self.server.port)
        environment = {**CLEAN, "PALAVER_REDIS_URL": url, "PALAVER_REQUIRE_KEYS": "true", **more}
        return palaver(program, *arguments, environment=environment)

    def json(self, *arguments: str) -> Any:
        """Its answer as JSON."""
        done = self.command(*arguments, "--json")
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)

    def status(self, key: str, path: str = "/v1/runs") -> list[int]:
        """What each process answers to a key."""
        headers = {"Authorization": f"Bearer {key}"}
        return [
            httpx.get(url + path, headers=headers, trust_env=False, timeout=PATIENCE).status_code for url in self.urls
        ]

    def denied(self) -> list[str]:
        """What users were refused."""
        with redis.Redis.from_url(logins.url_of("palaver-admin", self.server.port)) as server:
            refused = logins.denied(server)
            server.acl_log_reset()
        return refused


@pytest.fixture(scope="module")
def apis(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Apis]:
    folder = tmp_path_factory.mktemp("keys")
    options = {"aclfile": str(logins.write_users(folder / "users.acl"))}
    with ExitStack() as stack:
        server = stack.enter_context(RedisServer(options=options, login=logins.admin()))
        environment = {**CLEAN, **logins.environments(server.port)["api"], "PALAVER_REQUIRE_KEYS": "true"}
        ports = free_port(), free_port()
        for port in ports:
            child = _api(port, environment, folder)
            child.start()
            stack.callback(child.reap, time.monotonic() + 60)
            stack.callback(child.terminate)
            child.wait_until_ready(time.monotonic() + 30)
        yield Apis((f"http://{HOST}:{ports[0]}", f"http://{HOST}:{ports[1]}"), server)


def _api(port: int, environment: dict[str, str], folder: Path) -> ChildCommand:
    return ChildCommand(
        f"api-{port}",
        (sys.executable, "-m", "api", "--port", str(port)),
        environment=environment,
        log_path=folder / f"api-{port}.log",
        ready=lambda _: answers_ok(f"http://{HOST}:{port}/readyz"),
    )


def test_the_life_of_a_key_under_the_shipped_users(apis: Apis) -> None:
    apis.denied()
    root = apis.command("create", "root", "--operator")
    assert root.returncode == 0, root.stderr
    assert re.fullmatch(r"plv_\w{12}_\w{52}_\w{7}\n", root.stdout)
    assert "shown this once" in root.stderr
    assert apis.status(root.stdout.strip()) == [200, 200]

    made = apis.json("create", "shop", "--scope", "runs:read", "--scope", "runs:act", "--expires", "30d")
    assert (made["name"], made["scopes"], made["operator"]) == ("shop", ["runs:read", "runs:act"], False)
    assert apis.status(made["key"]) == [200, 200]
    assert apis.status(made["key"], "/v1/keys") == [403, 403]

    new = apis.json("rotate", made["id"], "--overlap", "1h")
    assert apis.status(made["key"]) == apis.status(new["key"]) == [200, 200]
    listed = {key["id"]: key for key in apis.json("list")["data"]}
    assert {made["id"], new["id"], root.stdout.split("_")[1]} <= listed.keys()
    assert listed[made["id"]]["expires_at"] < made["expires_at"]
    shown = apis.command("list").stdout
    assert all(key["id"] in shown and key["key"].split("_")[2] not in shown for key in (made, new))

    with Palaver(apis.urls[0], root.stdout.strip()) as operator, Palaver(apis.urls[1], new["key"]) as shop:
        assert [*shop.list()] == []
        operator.revoke_key(new["id"])
        eventually(lambda: apis.status(new["key"]) == [401, 401])
        with pytest.raises(Unauthorized, match="revoked"):
            next(shop.list())
    assert apis.json("revoke", made["id"]) == {"revoked": made["id"]}
    _check_acts(apis, made["id"], new["id"])
    assert apis.command("revoke", made["id"]).returncode == 1
    assert apis.denied() == []


def _check_acts(apis: Apis, old: str, new: str) -> None:
    """What was done with two keys is kept, and shown."""
    acts = [json.loads(line) for line in apis.command("--json", program="audit").stdout.splitlines()]
    about = [act for act in acts if {old, new} & {act["facts"].get("api_key"), act["facts"].get("created")}]
    assert [(act["operation"], act["key"]) for act in about] == [
        ("create_key", None), ("rotate_key", None), ("revoke_key", "root"), ("revoke_key", None),
    ]  # fmt: skip
    assert {act["operation"] for act in acts if act["operator"]} == {"list_runs", "revoke_key"}
    shown = apis.command("--since", "1h", program="audit").stdout
    assert f"root (operator) revoke_key api_key={new} 204 from {HOST}" in shown
    assert apis.command("--tenant", "nobody", program="audit").returncode == 1


def test_a_revocation_is_seen_by_every_process_within_a_second(apis: Apis) -> None:
    with Palaver(apis.urls[0], apis.json("create", "boss", "--scope", "admin", "--scope", "runs:read")["key"]) as boss:
        took = sorted(_seconds_until_refused(apis, boss) for _ in range(5))
    # The others tell how busy this machine is.
    assert took[0] <= SOON, took


def _seconds_until_refused(apis: Apis, boss: Palaver) -> float:
    """How long both processes go on with a key that one of them has revoked."""
    made = boss.create_key("brief", ["runs:read"])
    headers, refused_at = {"Authorization": f"Bearer {made.key}"}, dict[str, float]()
    assert apis.status(made.key) == [200, 200]

    def ask(url: str) -> None:
        with httpx.Client(base_url=url, headers=headers, trust_env=False, timeout=PATIENCE) as http:
            while http.get("/v1/runs").status_code == 200:
                pass
        refused_at[url] = time.monotonic()

    asking = [threading.Thread(target=ask, args=(url,)) for url in apis.urls]
    for thread in asking:
        thread.start()
    boss.revoke_key(made.id)
    revoked = time.monotonic()
    for thread in asking:
        thread.join()
    assert refused_at.keys() == set(apis.urls)
    return max(refused_at.values()) - revoked


def test_a_worker_makes_no_keys_and_signs_no_tokens(apis: Apis) -> None:
    """Tools run with what a worker has. It reads what a key may do, for schedules and batches: digests, and no key."""
    apis.denied()
    done = apis.command("create", "mine", "--operator", user="palaver-worker")
    assert done.returncode != 0
    assert "plv_" not in done.stdout
    with redis.Redis.from_url(logins.url_of("palaver-worker", apis.server.port)) as worker:
        for asked in (
            ("GET", access_keys.API_KEYS_VERSION),
            ("SET", access_keys.api_key("0" * 12), "{}"),
            ("ZREM", access_keys.api_keys(""), "0"),
            ("HGETALL", access_keys.SIGNING_KEYS),
        ):
            with pytest.raises(NoPermissionError):
                worker.execute_command(*asked)
    assert apis.denied()


@pytest.fixture
def settings(apis: Apis, monkeypatch: pytest.MonkeyPatch) -> Settings:
    """The settings of the command in this process, which takes a second less to begin."""
    made = Settings(redis_url=logins.url_of("palaver-api", apis.server.port))
    monkeypatch.setattr(command, "settings", lambda: made)
    return made


@pytest.mark.parametrize(
    ("arguments", "code", "says"),
    [
        ("create x", 2, "Give --scope"),
        ("create two/words --scope runs:read", 2, "name"),
        ("create x --scope runs:everything", 2, "invalid choice"),
        ("create x --scope runs:read --expires soon", 2, "is not a time such as"),
        ("create x --scope runs:read --conversation none", 2, "--conversation"),
        ("create x --operator --tenant acme", 2, "no tenant"),
        ("create x --scope runs:read --tenant nobody", 1, "there is no tenant 'nobody'"),
        ("rotate 000000000000", 1, "key_not_found"),
        ("revoke 000000000000", 1, "key_not_found"),
    ],
)
def test_what_the_command_refuses(
    settings: Settings, capfd: pytest.CaptureFixture[str], arguments: str, code: int, says: str
) -> None:
    with pytest.raises(SystemExit) as ended:
        command.main(arguments.split())
    assert ended.value.code == code
    out, error = capfd.readouterr()
    assert (out, says in error) == ("", True), error


def test_it_says_that_an_open_api_wants_no_key(settings: Settings, capfd: pytest.CaptureFixture[str]) -> None:
    assert command.main(["create", "x", "--scope", "runs:read"]) == 0
    assert "set PALAVER_REQUIRE_KEYS=true" in capfd.readouterr().err


def test_it_says_that_the_store_is_away(apis: Apis) -> None:
    done = apis.command("list", PALAVER_REDIS_URL=f"redis://{HOST}:{free_port()}/0")
    assert done.returncode == 69
    assert "the store does not answer" in done.stderr
    assert "Traceback" not in done.stderr
