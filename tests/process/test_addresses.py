"""Where Redis may be: behind a socket, and behind a name and a password with characters that a URL has to escape."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote

import pytest
import redis

from features.stack.redis_server import RedisServer
from tests.process.cluster import Cluster

pytestmark = pytest.mark.process

NAME, PASSWORD = "a:p@i", "50% of/it, +#?;&é"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RedisServer]:
    """A server that lets nobody in without a password, on a port and on a socket."""
    folder = tmp_path_factory.mktemp("redis")
    with RedisServer(data_dir=folder, options={"unixsocket": str(folder / "redis.sock")}) as server:
        with redis.Redis.from_url(server.url) as admin:
            every = {"keys": ["*"], "channels": ["*"], "categories": ["+@all"]}
            admin.acl_setuser(NAME, enabled=True, passwords=[f"+{PASSWORD}"], **every)
            admin.acl_setuser("default", enabled=False)
        yield server


@pytest.fixture(params=["port", "socket"])
def url(server: RedisServer, request: pytest.FixtureRequest) -> str:
    who = f"{quote(NAME, safe='')}:{quote(PASSWORD, safe='')}"
    if request.param == "port":
        return f"redis://{who}@127.0.0.1:{server.port}/1"
    return f"unix://{who}@{server.data_dir}/redis.sock?db=2"


def test_a_run_with_a_tool(url: str, tmp_path: Path) -> None:
    with Cluster(tmp_path, redis_url=url, rabbitmq=False) as cluster:
        run = cluster.ended(cluster.submit("tool-2", tools=["record"]))
        assert (run.status, run.usage.tool_calls) == ("completed", 2)
        told = cluster.new_logs()
        for words in ("left to the sweeper", "Traceback", PASSWORD, quote(PASSWORD, safe="")):
            assert not [name for name, text in told.items() if words in text], told
