"""Servers of managed services, each as a user of a server here who may not use what the service forbids: what
`palaver check` and a role's look at its start say there, and that runs go on without it."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

import pytest
import redis

from features.stack.redis_server import RedisServer
from palaver.config.settings import Settings
from palaver.errors import ConfigurationError
from palaver.store.server.needs import Role
from palaver.store.server.preflight import Preflight
from tests.process.cluster import Cluster
from tests.process.test_check_command import run as check

pytestmark = [pytest.mark.process, pytest.mark.long]

_ADMINISTRATION: Final = "-bgrewriteaof -bgsave -config -debug -migrate -module -psync -replicaof -save -shutdown -sync"
_CONNECTIONS: Final = "-client|id -client|list -pubsub|numsub"
SERVICES: Final[Mapping[str, tuple[str, Mapping[str, str]]]] = {
    "memorydb": (f"-acl {_ADMINISTRATION} -slaveof -cluster", {}),
    "oci, one shard": (f"-acl {_ADMINISTRATION} -cluster", {}),
    "no list of connections": (f"{_ADMINISTRATION} {_CONNECTIONS}", {"deaths": "warning"}),
    "no INFO": (f"{_ADMINISTRATION} -info", {"server": "warning"}),
    "no transactions to ask in": ("-multi", {"rights": "error"}),
    "no scripts": ("-@scripting", {"rights": "error"}),
}
"""What each takes away, and what is said of it to a worker: by check, its level."""
STRICTEST: Final = f"-acl {_ADMINISTRATION} -cluster -slowlog -monitor -info {_CONNECTIONS} -wait -waitaof"
"""All of it that a step can do without."""


@pytest.fixture(scope="module")
def server() -> Iterator[RedisServer]:
    with RedisServer() as server:
        yield server


def _url(server: RedisServer, rules: str) -> str:
    """The URL of a user who may do all but that."""
    with redis.Redis.from_url(server.url) as admin:
        admin.execute_command("ACL", "SETUSER", "tenant", "reset", "on", ">secret", "~*", "&*", "+@all", *rules.split())
    return server.url.replace("redis://", "redis://tenant:secret@")


def _wrong(url: str, role: Role = "worker", **more: str) -> dict[str, str]:
    found = Preflight(Settings.model_validate({"redis_url": url, **more}), role).look()
    return {each.check: each.level for each in found if each.level != "ok"}


@pytest.mark.parametrize("service", SERVICES)
def test_what_a_service_forbids_is_said_if_anything_follows_from_it(server: RedisServer, service: str) -> None:
    rules, said = SERVICES[service]
    assert _wrong(_url(server, rules)) == said


def test_promises_want_what_they_wait_with(server: RedisServer) -> None:
    url = _url(server, "-wait -waitaof")
    assert _wrong(url) == {}
    assert _wrong(url, durability="fsync") == {"durability": "error"}
    assert _wrong(url, role="api", durability="replicas=1")["durability"] == "error"


def test_commands_that_a_server_does_not_have(tmp_path: Path) -> None:
    hidden = "".join(f"rename-command {name} ''\n" for name in ("ACL", "CLIENT", "DEBUG", "PUBSUB"))
    (tmp_path / "more.conf").write_text(hidden)
    with RedisServer(options={"include": str(tmp_path / "more.conf")}) as server:
        preflight = Preflight(Settings(redis_url=server.url), "worker")
        preflight.require()
        (found,) = [each for each in preflight.look() if each.level != "ok"]
    assert found.sentence.startswith(
        "the Redis of the store does not let the default user use client|id, client|list, pubsub|numsub, so steps of a "
        "worker that dies wait for their leases: "
    )
    assert not preflight.refused, "steps are done without them"


def test_a_server_without_scripts_is_refused_at_the_start(tmp_path: Path) -> None:
    (tmp_path / "more.conf").write_text("".join(f"rename-command {name} ''\n" for name in ("EVAL", "EVALSHA")))
    with (
        RedisServer(options={"include": str(tmp_path / "more.conf")}) as server,
        pytest.raises(ConfigurationError, match="does not have eval, evalsha"),
    ):
        Preflight(Settings(redis_url=server.url), "api").require()


def test_a_stack_on_the_strictest_of_them(server: RedisServer, tmp_path: Path) -> None:
    url = _url(server, STRICTEST)
    told = check("--json", PALAVER_REDIS_URL=url)
    found = {each["check"]: each for each in json.loads(told.stdout)["data"]}
    assert told.returncode == 1
    assert {name: each["level"] for name, each in found.items()} == {
        "server": "warning",
        "deaths": "warning",
        "rights": "ok",
    }
    assert "INFO" in found["server"]["said"]
    assert "docs/how-to/managed-redis.md" in found["server"]["advice"]
    with Cluster(tmp_path, redis_url=url, rabbitmq=False) as cluster:
        ended = cluster.ended(cluster.submit("tool-2", tools=["record"]))
        assert (ended.status, ended.usage.tool_calls) == ("completed", 2)
        slow = cluster.submit("tokens-600+rate-15")
        cluster.reached(slow, "running")
        cluster.cancel(slow)
        assert cluster.ended(slow).status == "cancelled"
        assert "Traceback" not in "".join(cluster.new_logs().values())
