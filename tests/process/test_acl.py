"""Every process logged in as the user of its role: all that it needs, and nothing else.

PALAVER_TEST_ACL=1 runs the whole process suite like this.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import httpx
import pytest
import redis
from celery import Celery
from celery.worker.control import Panel
from redis.exceptions import AuthenticationError, NoPermissionError

from deploy.check import logins
from deploy.check.kit import ROOT
from features.schedules.schedules import Schedules
from features.stack.ports import free_port
from palaver.delivery.deliveries import QUEUE_NAMES, transport_options
from palaver.schemas.models import Run, Submission
from palaver.store import Store
from palaver.store.redis import fleet_keys
from palaver.store.redis.reach import Reach, within
from palaver.vocabulary.ids import tenant_of, uuid_of
from palaver.vocabulary.lifecycle import RunStatus
from tests.process.checks import check
from tests.process.cluster import Cluster, stream
from tests.process.one_more import one_more
from tests.process.typed import palaver
from tests.waiting import PATIENCE, eventually
from workers.broker.remote import COMMANDS

pytestmark = pytest.mark.process


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """A Palaver whose processes log in, Flower included; nobody has the key of the provider `away`."""
    # Deliveries are among what its users may or may not do: whatever other tests have, these have Redis as the broker.
    cluster = Cluster(tmp_path_factory.mktemp("guarded"), users=True, rabbitmq=False, processes={"flower": 1})
    with cluster.providers_path.open("a") as table:
        table.write(f'[providers.away]\nbase_url = "{cluster.stack.model_url}/v1"\napi_key_env = "NOBODY_HAS_IT"\n')
    with cluster:
        with cluster.redis() as server:
            # As if a worker that has its key had been there just now: else the API takes no run of it.
            server.zadd(fleet_keys.WORKER_PROVIDERS, {"away": time.time()})
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
    # The provider's failure is reported to all workers.
    failing = guarded.submit("tool-1+503-1", tools=["calculator"])
    narrow = [guarded.submit("narrow/say-10+rate-40") for _ in range(4)]
    stopped = guarded.submit("say-400+rate-20")
    guarded.saw(stopped, "message.delta")
    assert guarded.cancel(stopped) in (200, 202)
    conversation = guarded.run(stopped).conversation_id
    behind = guarded.submit("echo", conversation_id=conversation)
    guarded.kill("worker")
    guarded.start("worker")
    for run_id in (streamed, asked, *limited, failing, *narrow, behind):
        assert guarded.ended(run_id).status == "completed"
    watching.join(10)
    assert seen == list(range(1, guarded.run(streamed).last_event_id + 1))
    guarded.goes_on(streamed)
    check(guarded)

    for path in ("/readyz", "/v1/queues", "/v1/runs", f"/v1/conversations/{conversation}/messages"):
        assert guarded.http.get(path).status_code == 200
    assert guarded.http.delete(f"/v1/runs/{limited[0]}").status_code == 204
    assert guarded.http.delete(f"/v1/conversations/{guarded.run(asked).conversation_id}").status_code == 204
    eventually(
        lambda: "model." in httpx.get(f"{guarded.stack.flower_url}/workers", timeout=PATIENCE).text,
        why="Flower sees no worker",
    )
    with guarded.redis() as server:
        server.script_flush()
    run_id = guarded.submit("tool-2", tools=["calculator"])
    assert guarded.ended(run_id).status == "completed"
    assert guarded.denied() == []


def test_agents_are_kept_under_the_shipped_users(guarded: Cluster) -> None:
    spec = {"model": "fake/tool-1", "tools": ["calculator"]}
    assert guarded.http.put("/v1/agents/support", json=spec).status_code == 201
    assert guarded.http.put("/v1/agents/support", json={**spec, "max_steps": 9}).json()["version"] == 2
    run = guarded.ended(guarded.post({"agent": "support@1", "input": "hello"}))
    assert (run.status, run.agent.name, run.agent.version) == ("completed", "support", 1)
    assert [agent["name"] for agent in guarded.http.get("/v1/agents").json()["data"]] == ["support"]
    assert guarded.http.delete("/v1/agents/support").status_code == 204
    assert guarded.denied() == []


def test_workers_carry_out_what_is_planned_under_the_shipped_users(guarded: Cluster) -> None:
    """In the name of a key of the store, and with an agent on the server: they read both, and change neither."""
    spec = {"model": "fake/tool-1", "tools": ["calculator"]}
    assert guarded.http.put("/v1/agents/planned", json=spec).status_code in (200, 201)
    made = guarded.http.post("/v1/keys", json={"name": "nightly", "scopes": ["runs:submit", "runs:read"]})
    assert made.status_code == 201, made.text
    bearer = {"Authorization": f"Bearer {made.json()['key']}"}
    order = {"agents": ["planned"], "items": [{"input": "one"}, {"input": "two"}]}
    batch = guarded.http.post("/v1/batches", json=order, headers=bearer)
    assert batch.status_code == 201, batch.text
    path = f"/v1/batches/{batch.json()['id']}"
    eventually(lambda: guarded.http.get(path, headers=bearer).json()["state"] == "done")
    assert guarded.http.get(path, headers=bearer).json()["totals"][0]["ended"] == {"completed": 2}
    timing = {"every": 10, "run": {"agent": "planned", "input": "hello"}}
    assert guarded.http.put("/v1/schedules/often", json=timing, headers=bearer).status_code == 201
    _, kept = guarded.ask(lambda store: store.part(Schedules).get("", "often"))
    assert (kept.bearer.name, kept.bearer.kind) == ("nightly", "stored")
    (tick, *_) = eventually(lambda: guarded.http.get("/v1/schedules/often", headers=bearer).json()["ticks"])
    assert tick["outcome"] == "started"
    assert guarded.http.delete("/v1/schedules/often", headers=bearer).status_code == 204
    assert guarded.ended(tick["run_id"]).status == "completed"
    assert guarded.denied() == []


def test_what_no_worker_has_and_every_list_is_read_by_the_api(guarded: Cluster) -> None:
    lacking = guarded.submit("away/echo")
    guarded.saw(lacking, "run.waiting", reason="no_worker", code="key:NOBODY_HAS_IT")

    def named() -> bool:
        answers = [guarded.http.get(path) for path in ("/v1/queues", "/readyz")]
        assert [answer.status_code for answer in answers] == [200, 200]
        return all(lacking in answer.text for answer in answers)

    eventually(named)
    for query in (
        *(f"status={each}" for each in RunStatus),
        "status=failed,queued&provider=away",
        "retried=true",
    ):
        answer = guarded.http.get(f"/v1/runs?{query}")
        assert answer.status_code == 200, query
    assert guarded.http.post("/v1/runs/actions", json={"action": "cancel", "filter": {"provider": "away"}}).is_success
    assert guarded.ended(lacking).status == "cancelled"
    assert guarded.denied() == []


def test_a_fork_is_made_with_the_rights_of_the_api(guarded: Cluster) -> None:
    """Of a conversation with its log, in each way that there is: both go on."""
    run = guarded.ended(guarded.submit("tool-2", tools=["calculator"]))
    number = uuid_of(run.conversation_id)
    made = guarded.http.post(f"/v1/conversations/{run.conversation_id}/fork", json={})
    assert made.status_code == 201, made.text
    from_a_step = guarded.http.post(f"/v1/runs/{run.id}/retry", json={"from_step": 1, "input": "again"})
    assert from_a_step.status_code == 202, from_a_step.text
    through_openhands = guarded.http.post(f"/openhands/api/conversations/{number}/fork", json={})
    assert through_openhands.status_code == 201, through_openhands.text
    forks = (made.json()["id"], guarded.ended(from_a_step.json()["id"]).conversation_id)
    for conversation in (*forks, run.conversation_id):
        again = guarded.ended(guarded.submit("echo", "and then?", conversation_id=conversation))
        assert again.output == "echo: and then?"
        assert guarded.http.delete(f"/v1/conversations/{conversation}").status_code == 204
    assert guarded.http.delete(f"/openhands/api/conversations/{through_openhands.json()['id']}").is_success
    assert guarded.denied() == []


def tenants_command(guarded: Cluster, *words: str, typed: str = "") -> subprocess.CompletedProcess[str]:
    """`palaver tenants …`, as the user of the API."""
    environment = {**os.environ, "PALAVER_REDIS_URL": logins.url_of("palaver-api", guarded.stack.ports.redis)}
    if not typed:
        return palaver("tenants", *words, environment=environment)
    command = [sys.executable, "-m", "palaver.cli", "tenants", *words]
    return subprocess.run(
        command, env=environment, input=typed, capture_output=True, text=True, timeout=PATIENCE, check=False
    )


def test_tenants_are_made_with_the_rights_of_the_api(guarded: Cluster) -> None:
    tenants = partial(tenants_command, guarded)
    made = tenants("create", "acme", "--json")
    assert (made.returncode, made.stderr) == (0, "")
    tenant = json.loads(made.stdout)
    assert tenant["name"] == "acme"
    assert re.fullmatch(r"\w{6}", tenant["tag"])
    assert tenants("list").stdout.splitlines() == ["default  -", f"acme  {tenant['tag']}"]
    capped = tenants("set", "acme", "--weight", "3", "--usd-per-day", "2.5", "--max-queued", "1000")
    assert capped.stdout == f"acme  {tenant['tag']}  weight 3, max_queued 1,000, usd_per_day 2.5\n"
    assert tenants("set", "acme", "--max-queued", "none", "--weight", "none").returncode == 0
    shown = json.loads(tenants("show", "acme", "--json").stdout)
    caps = {name: value for name, value in shown.items() if value is not None}
    assert caps == {**tenant, "weight": 1, "usd_per_day": 2.5}
    assert tenants("set", "default", "--max-in-flight", "10").stdout == "default  -  weight 1, max_in_flight 10\n"
    assert tenants("set", "default", "--max-in-flight", "none").stdout == tenants("show", "default").stdout
    unknown = tenants("set", "nobody", "--weight", "1")
    assert (unknown.returncode, "there is no tenant nobody" in unknown.stderr) == (2, True)
    again, wrong = tenants("create", "acme"), tenants("create", "A b")
    assert (again.returncode, wrong.returncode) == (2, 2)
    assert "there is a tenant acme already" in again.stderr
    assert "a tenant's name is 1 to 63 of a-z, 0-9 and -" in wrong.stderr
    assert guarded.denied() == []


def test_a_tenant_leaves_with_the_rights_of_the_api(guarded: Cluster, tmp_path: Path) -> None:
    """While a worker has a step of it, which it lets go of."""
    tenants = partial(tenants_command, guarded)
    tag = json.loads(tenants("create", "leaving", "--json").stdout)["tag"]
    submission = Submission.model_validate(guarded.body("say-400+rate-20"))

    async def submit(store: Store) -> str:
        with within(Reach(tag)):
            return (await store.runs.submit(submission)).run_id

    run_id = guarded.ask(submit)
    eventually(lambda: guarded.ask(lambda store: store.runs.get(run_id)).status == RunStatus.RUNNING)
    file = tmp_path / "leaving.jsonl"
    assert tenants("export", "leaving", "-o", str(file)).returncode == 0
    kinds = [json.loads(line)["kind"] for line in file.read_text().splitlines()]
    assert (kinds[0], kinds[-2:]) == ("conversation", ["run", "end"])
    assert tenants("export", "leaving", "--output", str(file)).returncode == 2, "the file is there already"
    kept = tenants("erase", "leaving", typed="laeving\n")
    assert (kept.returncode, kept.stdout) == (1, "")
    assert "nothing was erased" in kept.stderr
    erased = tenants("erase", "leaving", "--json", typed="leaving\n")
    assert erased.returncode == 0, erased.stderr
    receipt = json.loads(erased.stdout)
    assert (receipt["done"], receipt["tag"]) == (True, tag)
    assert (receipt["erased"]["runs"], receipt["erased"]["conversations"]) == (1, 1)
    assert f"erased leaving ({tag})" in tenants("erase", "leaving", "--yes").stdout, "the same receipt"
    assert tenants("erase", "nobody", "--yes").returncode == tenants("export", "nobody").returncode == 2
    assert guarded.denied() == []


def test_workers_do_the_runs_of_every_tenant(guarded: Cluster) -> None:
    """With the rights of their role; and the API, where nobody has a tenant's key, shows none of them."""
    tag = "k7m2qx"
    submission = Submission.model_validate(guarded.body("tool-2", tools=["calculator"]))

    async def submit(store: Store) -> str:
        with within(Reach(tag)):
            return (await store.runs.submit(submission)).run_id

    # Nobody publishes its first delivery: the sweeper of a worker does.
    run_id = guarded.ask(submit)
    assert tenant_of(run_id) == tag

    def ended() -> Run | None:
        run = guarded.ask(lambda store: store.runs.get(run_id))
        return run if run.status.terminal else None

    run = eventually(ended)
    assert run is not None
    assert (run.status, tenant_of(run.conversation_id)) == (RunStatus.COMPLETED, tag)
    for path in (f"/v1/runs/{run_id}", f"/v1/conversations/{run.conversation_id}"):
        assert guarded.http.get(path).status_code == 404
    listed = guarded.http.get("/v1/runs?limit=200").json()["data"]
    assert run_id not in {each["id"] for each in listed}
    assert guarded.denied() == []


def acl_commands(text: str, number: int) -> list[list[str]]:
    """What the page on upgrades makes of a file of users, with the first or the second command that it shows."""
    page = (ROOT / "docs" / "how-to" / "upgrade.md").read_text()
    script = re.findall(r"^ *sed '(.*?)' deploy/users.acl \| redis-cli", page, re.MULTILINE)[number]
    made = subprocess.run(["sed", script], input=text, check=True, capture_output=True, text=True, timeout=PATIENCE)
    return [line.split() for line in made.stdout.splitlines()]


def test_users_go_from_version_to_version_and_back(guarded: Cluster) -> None:
    """As the page on upgrades says: rights of both while both run. The other version took deliveries by BRPOP."""
    shipped = logins.shipped_file().read_text()
    other = shipped.replace(" +blmpop", " +brpop").replace(" +rename", "")
    take = {
        "mine": ("palaver-worker", "BLMPOP", "1", "1", "model", "RIGHT"),
        "the other's": ("palaver-worker", "BRPOP", "model", "1"),
    }
    server: Any
    with guarded.redis() as server:

        def load(text: str, number: int) -> set[str]:
            for command in acl_commands(text, number):
                assert server.execute_command(*command) == b"OK", command
            return {whose for whose, each in take.items() if server.execute_command("ACL", "DRYRUN", *each) == b"OK"}

        try:
            assert load(other, 1) == {"the other's"}
            run_id = guarded.submit("echo")
            eventually(lambda: any("blmpop" in each for each in guarded.denied()), why="no worker was refused")
            # Forwards, under a run that stands still: what it needs, and then what nobody needs any more.
            assert load(shipped, 0) == {"mine", "the other's"}
            assert guarded.ended(run_id).status == "completed"
            assert load(shipped, 1) == {"mine"}
            # And back.
            assert load(other, 0) == {"mine", "the other's"}
        finally:
            load(shipped, 1)
            server.acl_log_reset()
    assert guarded.ended(guarded.submit("echo")).status == "completed"
    assert guarded.denied() == []


REFUSED: dict[str, tuple[str, Callable[[redis.Redis], object]]] = {
    "the API takes no work": ("palaver-api", lambda server: server.rpop("model")),
    "the API lists no keys": ("palaver-api", lambda server: server.keys("*")),
    "the API does not change what providers allow": (
        "palaver-api",
        lambda server: server.delete("{palaver:provider:fake}:gate"),
    ),
    "a worker changes no agents": ("palaver-worker", lambda server: server.delete("{palaver:agents}:names")),
    "a worker forgets nothing": ("palaver-worker", lambda server: server.flushall()),
    "a worker does not configure": ("palaver-worker", lambda server: server.config_get("*")),
    "a worker changes no users": ("palaver-worker", lambda server: server.acl_list()),
    "Flower reads no run": ("palaver-flower", lambda server: server.eval(READ, 1, "{p00}:run:x")),
    "Flower runs no script, which could take for ever": ("palaver-flower", lambda server: server.eval("return 1", 0)),
    "Flower sends no work": ("palaver-flower", lambda server: server.lpush("model", "{}")),
    "Flower sends no work to be done first": ("palaver-flower", lambda server: server.lpush("tools.recovered", "{}")),
    "Flower tells the store's processes nothing": (
        "palaver-flower",
        lambda server: server.publish("{p00}:feed:x", "y"),
    ),
    "a worker leaves no code that the API runs": ("palaver-worker", lambda server: server.function_load(LIBRARY)),
    "the API leaves no code that workers run": ("palaver-api", lambda server: server.function_load(LIBRARY)),
    "nobody moves the replica": ("palaver-worker", lambda server: server.replicaof("NO", "ONE")),
}
READ = "return redis.call('EXISTS', KEYS[1])"
LIBRARY = "#!lua name=planted\nredis.register_function('planted', function() return 1 end)"


def test_a_worker_that_is_refused_is_no_worker_and_comes_back(guarded: Cluster) -> None:
    """As one of a version that needs a command which the file that is loaded does not have."""
    guarded.kill("worker")
    guarded.mark_logs()
    with guarded.redis() as server:
        server.execute_command("ACL", "SETUSER", "palaver-worker", "-blmpop")
        began = time.monotonic()
        try:
            guarded.start("worker")
            run_id = guarded.submit("echo")
            (refused,) = eventually(lambda: _standing(guarded, "refused", but="workers"))
            assert refused["refused"] == ["blmpop"]
            assert refused in guarded.http.get("/readyz").json()["refused_workers"]
            eventually(lambda: len(_said(guarded, "the broker refuses BLMPOP")) > 2)
            said, lasted = len(_said(guarded, "the broker refuses BLMPOP")), time.monotonic() - began
        finally:
            server.execute_command("ACL", "SETUSER", "palaver-worker", "+blmpop")
        assert guarded.ended(run_id).status == RunStatus.COMPLETED
        (well,) = eventually(lambda: _standing(guarded, "workers", but="refused"))
        assert well["id"] == refused["id"]
        server.acl_log_reset()
    assert said <= lasted + 1
    assert len(_said(guarded, "does not let palaver-worker use blmpop")) == 1
    assert not _said(guarded, "Connection to broker lost")


def _standing(cluster: Cluster, these: str, *, but: str) -> Any:
    """One of the lists of model workers, once the other one is empty."""
    (queue,) = cluster.http.get("/v1/queues?queue=model").json()["data"]
    return None if queue[but] else queue[these]


def _said(cluster: Cluster, words: str) -> list[str]:
    return [line for line in cluster.new_log("worker").splitlines() if words in line]


@pytest.mark.parametrize("what", REFUSED)
def test_what_a_role_does_not_need_is_refused(guarded: Cluster, what: str) -> None:
    user, act = REFUSED[what]
    with redis.Redis.from_url(logins.url_of(user, guarded.stack.ports.redis)) as server:
        server.ping()
        with pytest.raises(NoPermissionError):
            act(server)


@pytest.mark.parametrize("line", logins.shipped_users(), ids=lambda line: line.split()[1])
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


WRITES: dict[str, tuple[str, ...]] = {
    "LPUSH": ("{}",),
    "RPOP": (),
    "DEL": (),
    "EXPIRE": ("1",),
    "SADD": ("x",),
    "ZADD": ("1", "x"),
    "SET": ("x",),
}
"""Commands that change a key or take from it, with what stands behind its name."""
SENDERS = {"palaver-api", "palaver-worker", "palaver-admin"}
"""Who may send a delivery; the last of them is for people."""


@pytest.mark.parametrize("queue", QUEUE_NAMES)
def test_deliveries_are_sent_by_the_api_and_by_workers_only(guarded: Cluster, queue: str) -> None:
    with guarded.redis() as server:
        shipped = [line.split()[1] for line in logins.shipped_users()]
        for user in shipped:
            for command, rest in WRITES.items():
                may = server.execute_command("ACL", "DRYRUN", user, command, queue, *rest) == b"OK"
                assert not may or user in SENDERS, f"{user} {command} {queue}"
            assert server.execute_command("ACL", "DRYRUN", user, "LLEN", queue) == b"OK"
        take = ("BLMPOP", "1", "1", queue, "RIGHT")
        takers = {user for user in shipped if server.execute_command("ACL", "DRYRUN", user, *take) == b"OK"}
        assert takers == {"palaver-worker", "palaver-admin"}
        sent = server.execute_command("ACL", "DRYRUN", "palaver-api", "LPUSH", queue, "{}")
        assert sent == b"OK"


@pytest.mark.parametrize("key", ["model.x", "tools.x", "x", "x.celery.pidbox", "_kombu.binding.model", "{p00}:run:x"])
def test_flower_writes_what_is_its_own_only(guarded: Cluster, key: str) -> None:
    with guarded.redis() as server:
        for command, rest in WRITES.items():
            assert server.execute_command("ACL", "DRYRUN", "palaver-flower", command, key, *rest) != b"OK", command


def test_the_api_and_workers_write_to_their_own_queues_only(guarded: Cluster) -> None:
    with guarded.redis() as server:
        for user, key in (
            ("palaver-api", "x"),
            ("palaver-api", "model.x"),
            ("palaver-api", "_kombu.binding.celeryev"),
            ("palaver-api", "x.celery.pidbox"),
            ("palaver-worker", "x"),
            ("palaver-worker", "model.x"),
            ("palaver-worker", "celery"),
        ):
            assert server.execute_command("ACL", "DRYRUN", user, "LPUSH", key, "{}") != b"OK", (user, key)
        told = server.execute_command("ACL", "DRYRUN", "palaver-api", "PUBLISH", "/0.celery.pidbox", "{}")
        assert told != b"OK", "the API commands no worker"


def test_flower_commands_no_worker(guarded: Cluster) -> None:
    """Every command of Celery's, sent by Flower's user: what changes a worker is not there."""
    known = guarded.stack.pids("worker") + guarded.stack.pids("tools")
    url = logins.url_of("palaver-flower", guarded.stack.ports.redis)
    flower = Celery("flower", broker=url, set_as_current=False)
    # As in `-A workers.broker.celery_app`, which Flower is started with.
    flower.conf.update(
        broker_transport="workers.broker.reading:ConsumerTransport", broker_transport_options=transport_options(url)
    )
    with flower, flower.connection_for_write() as asking:
        for name in sorted(set(Panel.data) - set(COMMANDS)):
            told = {"task_name": "palaver.model_step", "queue": "model", "n": 1, "task_id": "x", "rate_limit": "1/h"}
            flower.control.broadcast(name, arguments=told, connection=asking)
        # Commands are heard in turn.
        assert len(flower.control.ping(timeout=5, limit=len(known), connection=asking)) == len(known)
    assert guarded.stack.pids("worker") + guarded.stack.pids("tools") == known
    assert guarded.ended(guarded.submit("tool-1", tools=["record"])).status == "completed"
    assert guarded.denied() == []


def test_flowers_pages(guarded: Cluster) -> None:
    """All of them work under its user, and none has a button that changes something."""
    with httpx.Client(base_url=guarded.stack.flower_url, timeout=PATIENCE) as flower:
        nodes = [node for line in ("worker", "tools") for node in _nodes(guarded, line)]
        for node in nodes:
            page = eventually(lambda node=node: _page(flower, f"/worker/{node}"), why=node)  # type: ignore[misc]
            assert "palaver.model_step" in page
            assert "Shut Down" not in page
        broker = _page(flower, "/broker")
        assert broker
        assert all(queue in broker for queue in QUEUE_NAMES)
        for path in ("/", "/workers", "/tasks", "/metrics", "/healthcheck"):
            assert _page(flower, path), path
    assert guarded.denied() == []


def test_flowers_list_of_tasks_says_what_how_and_of_which_run(guarded: Cluster) -> None:
    failed, completed = guarded.submit("401"), guarded.submit("echo")
    for run_id in (failed, completed):
        guarded.ended(run_id)
    with httpx.Client(base_url=guarded.stack.flower_url, timeout=PATIENCE) as flower:
        columns = re.findall(r'<th data-column="(\w+)">', _page(flower, "/tasks"))
        newest = {"order[0][column]": 0, "columns[0][data]": "received", "order[0][dir]": "desc"}
        about = {"draw": 1, "start": 0, "length": 50, **newest}

        def row(run_id: str) -> dict[str, Any]:
            listed = flower.post("/tasks/datatable", data=about).json()["data"]
            return next((each for each in listed if each["uuid"] == f"{run_id}:1:1" and each["result"]), {})

        shown = [eventually(partial(row, run_id)) for run_id in (failed, completed)]
    assert columns[:5] == ["name", "args", "state", "uuid", "exception"]
    assert shown[0]["result"].startswith("authentication: The provider does not accept the key.")
    assert shown[1]["result"] == "run is completed"
    assert {each["name"] for each in shown} == {"palaver.model_step"}


def _page(http: httpx.Client, path: str) -> str:
    answer = http.get(path)
    return answer.text if answer.status_code == 200 else ""


def _nodes(cluster: Cluster, line: str) -> set[str]:
    """The names of the line's running workers, as their logs have them."""
    text = "".join(child.output for child in cluster.children(line) if child.running)
    return set(re.findall(r"celery@?.*?((?:model|tools)\.\d+@\S+) ready", text) or re.findall(r"(\S+@\S+) ready", text))


def test_flower_asks_for_a_password_when_it_has_one(guarded: Cluster) -> None:
    port = str(free_port())
    url = f"http://127.0.0.1:{port}"
    with one_more(guarded, "flower", FLOWER_BASIC_AUTH="ann:secret", PALAVER_FLOWER_PORT=port):
        for path in ("/", "/workers", "/tasks", "/broker", "/api/workers", "/api/tasks"):
            assert httpx.get(url + path, timeout=PATIENCE).status_code == 401, path
            assert httpx.get(url + path, auth=("ann", "wrong"), timeout=PATIENCE).status_code == 401, path
            assert httpx.get(url + path, auth=("ann", "secret"), timeout=PATIENCE).status_code == 200, path
