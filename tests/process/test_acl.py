"""Every process logged in as the user of its role: all that it needs, and nothing else.

PALAVER_TEST_ACL=1 runs the whole process suite like this.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import Any

import httpx
import pytest
import redis
from redis.exceptions import AuthenticationError, NoPermissionError

from palaver.testing import eventually
from tests.process import roles
from tests.process.checks import check
from tests.process.cluster import Cluster, stream

pytestmark = pytest.mark.process


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """A Palaver whose processes log in, Flower included."""
    with Cluster(tmp_path_factory.mktemp("guarded"), users=True, processes={"flower": 1}) as cluster:
        yield cluster


def test_everything_works_under_the_shipped_users(guarded: Cluster) -> None:
    guarded.mark_logs()
    streamed = guarded.submit("tool-3+rate-40", tools=["record", "calculator"])
    seen: list[int] = []

    def watch() -> None:
        seen.extend(event["id"] for _, event in stream(guarded.http, f"/v1/runs/{streamed}/events"))

    watching = threading.Thread(target=watch)
    watching.start()
    asked = guarded.submit("tool-1", tools=["record"], agent={"approvals": {"require": ["record"]}})
    guarded.pending(asked)
    guarded.approve(asked)
    limited = [guarded.submit("limited/tool-2", tools=["calculator"]) for _ in range(2)]
    narrow = [guarded.submit("narrow/say-10+rate-40") for _ in range(4)]
    stopped = guarded.submit("say-400+rate-20")
    guarded.saw(stopped, "message.delta")
    assert guarded.cancel(stopped) == 202
    conversation = guarded.run(stopped).conversation_id
    behind = guarded.submit("echo", conversation_id=conversation)
    guarded.kill("worker")
    guarded.start("worker")
    for run_id in (streamed, asked, *limited, *narrow, behind):
        assert guarded.ended(run_id).status == "completed"
    watching.join(10)
    assert seen == list(range(1, guarded.run(streamed).last_event_id + 1))
    guarded.goes_on(streamed)
    check(guarded)

    for path in ("/readyz", "/v1/queues", "/v1/runs", f"/v1/conversations/{conversation}/messages"):
        assert guarded.http.get(path).status_code == 200
    assert guarded.http.delete(f"/v1/runs/{limited[0]}").status_code == 204
    assert guarded.http.delete(f"/v1/conversations/{guarded.run(asked).conversation_id}").status_code == 204
    eventually(lambda: "model." in httpx.get(f"{guarded.stack.flower_url}/workers").text, why="Flower sees no worker")
    with guarded.redis() as server:
        server.script_flush()
    run_id = guarded.submit("tool-2", tools=["calculator"])
    assert guarded.ended(run_id).status == "completed"
    assert guarded.denied() == []


REFUSED: dict[str, tuple[str, Callable[[redis.Redis], object]]] = {
    "the API takes no work": ("palaver-api", lambda server: server.brpop(["model"], 1)),
    "the API lists no keys": ("palaver-api", lambda server: server.keys("*")),
    "the API does not change what providers allow": (
        "palaver-api",
        lambda server: server.delete("{palaver:provider:fake}:gate"),
    ),
    "a worker forgets nothing": ("palaver-worker", lambda server: server.flushall()),
    "a worker does not configure": ("palaver-worker", lambda server: server.config_get("*")),
    "a worker changes no users": ("palaver-worker", lambda server: server.acl_list()),
    "Flower reads no run": ("palaver-flower", lambda server: server.eval(READ, 1, "{p00}:run:x")),
    "Flower sends no work": ("palaver-flower", lambda server: server.lpush("model", "{}")),
    "Flower hears no answer": ("palaver-flower", lambda server: server.publish("{p00}:feed:x", "y")),
    "nobody moves the replica": ("palaver-worker", lambda server: server.replicaof("NO", "ONE")),
}
READ = "return redis.call('EXISTS', KEYS[1])"


@pytest.mark.parametrize("what", REFUSED)
def test_what_a_role_does_not_need_is_refused(guarded: Cluster, what: str) -> None:
    user, act = REFUSED[what]
    with redis.Redis.from_url(roles.url_of(user, guarded.stack.ports.redis)) as server:
        server.ping()
        with pytest.raises(NoPermissionError):
            act(server)


@pytest.mark.parametrize("line", roles.shipped_users(), ids=lambda line: line.split()[1])
def test_nobody_logs_in_as_long_as_there_is_no_password(guarded: Cluster, line: str) -> None:
    _, user, *rules = line.split()
    server: Any
    with guarded.redis() as server:
        server.execute_command("ACL", "SETUSER", f"bare-{user}", *rules)
        for password in ("", "password"):
            with pytest.raises(AuthenticationError):
                server.execute_command("AUTH", f"bare-{user}", password)
        server.execute_command("ACL", "DELUSER", f"bare-{user}")
        server.acl_log_reset()
