"""What an operator meets at night, made to happen on a real stack: one function for each symptom that
docs/how-to/find-the-cause.md has."""

from __future__ import annotations

import resource
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, suppress
from datetime import UTC, datetime
from typing import Final

import httpx
import pytest
import redis

from features.stack.ports import free_port
from palaver.store.redis import keys
from tests.process.descriptors import starved
from tests.process.one_more import one_more
from tests.process.reading import Reader
from tests.waiting import PATIENCE, eventually

KEYED: Final = """
[providers.keyed]
base_url = "{url}/v1"
api_key_env = "KEYED_KEY"
"""
"""A provider whose key no worker has."""
RUN: Final = "run_00…"
"""What the page writes for the run that somebody asks about."""

Symptom = Callable[[Reader], AbstractContextManager[None]]


def _asked(reader: Reader, model: str, text: str = "hello", **more: object) -> str:
    """A run, which is the one that the page speaks of."""
    run_id = reader.cluster.submit(model, text, **more)  # type: ignore[arg-type]
    reader.memory.meant[RUN] = run_id
    return run_id


@contextmanager
def no_worker_runs(reader: Reader) -> Iterator[None]:
    """The model workers are stopped."""
    worker = reader.cluster.terminate("worker")
    eventually(lambda: not worker.running)
    _asked(reader, "echo")
    yield
    reader.cluster.start("worker")


@contextmanager
def workers_are_full(reader: Reader) -> Iterator[None]:
    """Four tools take all that the tools worker has, and a fifth one comes."""
    _asked(reader, "parallel-5", '[[args {"seconds": 60}]]', tools=["linger"])
    yield


@contextmanager
def a_worker_lacks_something(reader: Reader) -> Iterator[None]:
    """The one that had the key is dead, and the others lack it."""
    cluster = reader.cluster
    cluster.kill("worker")
    with one_more(cluster, "worker", KEYED_KEY="secret"):
        # The API reads every two seconds what workers can call.
        run_id = eventually(lambda: _asked(reader, "keyed/hang"))
        cluster.saw(run_id, "step.started")
    cluster.start("worker")
    yield


@contextmanager
def a_provider_cools_down(reader: Reader) -> Iterator[None]:
    """It asks for a pause."""
    _asked(reader, "limited/429-1-120+echo")
    yield


@contextmanager
def a_provider_is_out(reader: Reader) -> Iterator[None]:
    """Nobody listens where it should be."""
    for _ in range(4):
        reader.cluster.submit("busy/echo")
    _asked(reader, "busy/echo")
    yield


@contextmanager
def one_user_fills_a_provider(reader: Reader) -> Iterator[None]:
    """All that a provider may be asked at a time is taken by runs with one tag."""
    for _ in range(3):
        reader.cluster.submit("narrow/hang", tags=["nightly"])
    _asked(reader, "narrow/echo")
    yield


@contextmanager
def a_model_hangs(reader: Reader) -> Iterator[None]:
    """It takes the request and never answers."""
    _asked(reader, "hang")
    yield


@contextmanager
def a_tool_hangs(reader: Reader) -> Iterator[None]:
    """It takes a minute."""
    _asked(reader, "tool-1", '[[args {"seconds": 60}]]', tools=["linger"])
    yield


@contextmanager
def somebody_has_to_decide(reader: Reader) -> Iterator[None]:
    """A risky tool is asked for."""
    _asked(reader, "tool-1", tools=["send"])
    yield


@contextmanager
def a_run_is_ahead(reader: Reader) -> Iterator[None]:
    """Another one of the conversation hangs."""
    first = reader.cluster.submit("hang")
    _asked(reader, "echo", conversation_id=reader.cluster.run(first).conversation_id)
    yield


@contextmanager
def a_key_is_wrong(reader: Reader) -> Iterator[None]:
    """The provider refuses it."""
    reader.cluster.ended(_asked(reader, "401"))
    yield


@contextmanager
def a_step_kills_its_worker(reader: Reader) -> Iterator[None]:
    """A tool ends its process each time."""
    reader.cluster.expect_traceback("WorkerLostError")
    reader.cluster.ended(_asked(reader, "tool-1", tools=["crash_idempotent"]))
    yield


@contextmanager
def a_tool_raises(reader: Reader) -> Iterator[None]:
    """What nobody foresaw."""
    reader.cluster.expect_traceback("no such city")
    reader.cluster.ended(_asked(reader, "tool-1", tools=["fail"]))
    yield


@contextmanager
def redis_is_away(reader: Reader) -> Iterator[None]:
    """Its process is dead."""
    reader.cluster.kill("redis")
    yield
    reader.cluster.start("redis")
    eventually(lambda: reader.cluster.http.get("/readyz").status_code == 200)


@contextmanager
def the_store_is_another(reader: Reader) -> Iterator[None]:
    """Somebody has put an older copy in its place: its name is another one."""
    with reader.cluster.redis() as server:
        server.set(keys.generation(), "of-yesterday")
        eventually(lambda: server.exists(keys.rewound()))
        yield
        server.delete(keys.rewound())


@contextmanager
def redis_is_full(reader: Reader) -> Iterator[None]:
    """Its limit is below what it uses."""
    with reader.cluster.redis() as server:
        server.config_set("maxmemory", "1mb")
        yield
        server.config_set("maxmemory", "0")


@contextmanager
def the_disk_is_full(reader: Reader) -> Iterator[None]:
    """Redis cannot make its file any longer."""
    if reader.cluster.masters:
        pytest.skip("about the file of one server")
    (pid,) = reader.cluster.stack.pids("redis")
    before = resource.prlimit(pid, resource.RLIMIT_FSIZE, (1, resource.RLIM_INFINITY))
    try:
        yield
    finally:
        resource.prlimit(pid, resource.RLIMIT_FSIZE, before)
    eventually(lambda: _takes_writes(reader))


def _takes_writes(reader: Reader) -> bool:
    with reader.cluster.redis() as server, suppress(redis.ResponseError):
        return bool(server.set("written", 1, px=1))
    return False


@contextmanager
def no_descriptors_are_left(reader: Reader) -> Iterator[None]:
    """A worker that has just come may open nothing more."""
    cluster = reader.cluster
    cluster.expect_traceback("Too many open files")
    cluster.kill("worker")
    cluster.start("worker")
    (pid,) = cluster.stack.pids("worker")
    with starved(pid):
        _asked(reader, "echo", agent={"retry": {"rules": {"connection": {"attempts": 100}}}})
        yield


@contextmanager
def the_broker_is_away(reader: Reader) -> Iterator[None]:
    """An API whose broker is not there."""
    nowhere = f"redis://127.0.0.1:{free_port()}/0"
    with _api(reader, PALAVER_BROKER_URL=nowhere):
        yield


@contextmanager
def an_older_worker_is_left(reader: Reader) -> Iterator[None]:
    """A worker of a newer version had the run, and was rolled back."""
    cluster = reader.cluster
    cluster.kill("worker")
    with one_more(cluster, "worker", app="tests.process.newer_app", name="newer"):
        cluster.saw(_asked(reader, "say-40+rate-20"), "message.delta")
    cluster.start("worker")
    yield
    with one_more(cluster, "worker", app="tests.process.newer_app", name="newest"):
        cluster.ended(reader.memory.meant[RUN])


@contextmanager
def a_worker_does_not_start(reader: Reader) -> Iterator[None]:
    """Its tools cannot be imported."""
    worker = reader.cluster.children("worker")[0].environment
    reader.environment = {name: text for name, text in worker.items() if name.startswith("PALAVER_")}
    yield


@contextmanager
def a_client_has_no_key(reader: Reader) -> Iterator[None]:
    """The API wants one."""
    with _api(reader, PALAVER_API_KEYS="ann=0123456789abcdef"):
        yield


@contextmanager
def too_many_watch(reader: Reader) -> Iterator[None]:
    """All places for watchers are taken."""
    path = f"/v1/runs/{_asked(reader, 'hang')}/events"
    with (
        _api(reader, PALAVER_MAX_WATCHERS="1"),
        httpx.stream(
            "GET", reader.url + path, headers={"Accept": "text/event-stream"}, trust_env=False, timeout=PATIENCE
        ) as watching,
    ):
        assert watching.status_code == 200
        yield


@contextmanager
def flower_is_empty(reader: Reader) -> Iterator[None]:
    """It listens at another broker than the one that the workers use."""
    elsewhere = reader.cluster.stack.redis_url.removesuffix("/0") + "/1"
    with one_more(reader.cluster, "flower", PALAVER_BROKER_URL=elsewhere):
        yield


@contextmanager
def too_many_runs(reader: Reader) -> Iterator[None]:
    """More are unfinished than there may be."""
    if reader.cluster.masters:
        pytest.skip("about a limit of one run: many shards count to hundreds of them and more")
    reader.cluster.submit("hang")
    with _api(reader, PALAVER_MAX_RUNS="1"):
        yield


@contextmanager
def the_clock_of_redis_is_wrong(reader: Reader) -> Iterator[None]:
    """It is an hour ahead."""
    if reader.cluster.masters:
        pytest.skip("about the clock of one server")
    if reader.clocks is None:
        pytest.skip("NOT CHECKED: wrong clocks need a C compiler, `cc`")
    (pid,) = reader.cluster.stack.pids("redis")
    reader.clocks.move(pid, 3600)
    created = reader.cluster.run(_asked(reader, "echo")).times.created_at
    assert (created - datetime.now(UTC)).total_seconds() > 3000
    yield
    reader.clocks.move(pid, 0)
    # What was told to happen in an hour would not happen before.
    reader.cluster.submitted.clear()
    reader.cluster.reset()


@contextmanager
def _api(reader: Reader, **environment: str) -> Iterator[None]:
    """The page's API is one with these settings."""
    port = free_port()
    with one_more(reader.cluster, "api", name=f"at-{port}", PALAVER_API_PORT=str(port), **environment):
        reader.url = f"http://127.0.0.1:{port}"
        yield


SYMPTOMS: Final[Mapping[str, Symptom]] = {
    "Runs stay queued, and no worker is there": no_worker_runs,
    "Workers are there, and the queue grows": workers_are_full,
    "No worker has what a step needs": a_worker_lacks_something,
    "A provider cools down": a_provider_cools_down,
    "A provider is out": a_provider_is_out,
    "One user's runs hold up everybody": one_user_fills_a_provider,
    "A model hangs": a_model_hangs,
    "A tool hangs": a_tool_hangs,
    "Runs stay in requires_action": somebody_has_to_decide,
    "A run waits behind another one": a_run_is_ahead,
    "The provider does not accept the key": a_key_is_wrong,
    "A step ends its worker again and again": a_step_kills_its_worker,
    "A tool fails each time": a_tool_raises,
    "Redis is away": redis_is_away,
    "The store has lost something": the_store_is_another,
    "Redis is full": redis_is_full,
    "The disk of Redis is full": the_disk_is_full,
    "The broker is away": the_broker_is_away,
    "File descriptors run out": no_descriptors_are_left,
    "A worker starts again and again": a_worker_does_not_start,
    "An older version is left after a deployment": an_older_worker_is_left,
    "The API refuses everybody": a_client_has_no_key,
    "New runs are refused": too_many_runs,
    "Streams end early, or do not begin": too_many_watch,
    "Flower is empty": flower_is_empty,
    "Times are wrong": the_clock_of_redis_is_wrong,
}
"""By the heading under which the page has it."""
