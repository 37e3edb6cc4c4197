"""No secret of a process comes out of it, whoever repeats it; and content stays in the store and the API."""

from __future__ import annotations

import base64
from collections.abc import Iterator
from contextlib import ExitStack

import orjson
import pytest

from deploy.check import logins
from features.stack.plan import COMMANDS
from tests.process import telling_tools
from tests.process.checks import check_conversations
from tests.process.cluster import Cluster
from tests.process.hostile.answers import Play, call, calling, calls, document, event, head
from tests.process.hostile.echoes import ECHOES
from tests.process.hostile.server import HostileServer
from tests.process.sinks import (
    Sinks,
    monitored,
    of_flower,
    of_messages,
    of_metrics,
    of_problems,
    of_processes,
    of_redis,
    of_the_api,
    of_the_export,
)
from tests.process.telling_tools import SECRETS
from tests.process.warm import cold_starts

pytestmark = pytest.mark.process

INPUT = "canary-j1-of-an-input"
SAID = "canary-k2-of-a-model"
BODY = "canary-l3 of a body"
TITLE = "canary-l4 of a title"
EVENT = "canary-l5 of an error event"
CONTENT = (BODY, TITLE, EVENT, INPUT, SAID, telling_tools.RESULT, telling_tools.RAISED, telling_tools.ARGUMENT)
PAGE = "canary-l6 of a page"
"""What a proxy says in place of an answer: nobody is told."""
FLOWER = ("ann", SECRETS["password of Flower"])
TOOLS = ("answers", "answers_inline", "raises", "raises_inline", "prints", "crashes")
INVARIANTS = ("I1", "I2", "I4", "I5", "I6", "I7", "I9", "I12")

PLAYS: dict[str, Play] = {
    **{each.name: each.play for each in ECHOES},
    "says": document({"choices": [{"message": {"content": f"{SAID} {telling_tools.TOLD}"}, "finish_reason": "stop"}]}),
    "asks": calling(calls(call(0, "raises", orjson.dumps({"text": telling_tools.ARGUMENT}).decode()))),
    "refuses": document({"error": {"message": BODY, "code": "a_code", "param": "messages"}}, 400),
    "breaks": lambda asked: (head(500, "text/html"), f"<title>{TITLE}</title><p>{PAGE}".encode()),
    "breaks-off": lambda asked: (head(), event({"content": "so"}), event({}, error={"message": EVENT})),
}


@pytest.fixture(scope="module", params=["text", pytest.param("json", marks=pytest.mark.chaos)])
def sinks(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sinks]:
    folder = tmp_path_factory.mktemp("secrets")
    talkative = {"worker": ("-l", "DEBUG"), "tools": ("-l", "DEBUG"), "api": ("--log-level", "trace"), "flower": ()}
    with ExitStack() as stack:
        # A command line in /proc is one of the places.
        stack.enter_context(cold_starts())
        patch = stack.enter_context(pytest.MonkeyPatch.context())
        patch.setattr(logins, "PASSWORD", SECRETS["password of Redis"])
        server = stack.enter_context(HostileServer(PLAYS).running())
        cluster = Cluster(
            folder,
            users=True,
            # What it is told is looked into as well, messages of Celery among it.
            rabbitmq=False,
            processes={"flower": 1},
            environment={
                "PALAVER_API_KEYS": f"ann={SECRETS['key of the API']}",
                "PALAVER_TOOLS": "tests.process.telling_tools",
                "PALAVER_LOG_FORMAT": request.param,
                "KEY_1": SECRETS["key of a provider"],
                "KEY_2": SECRETS["key of another provider"],
                "FLOWER_BASIC_AUTH": ":".join(FLOWER),
            },
            commands={role: [*COMMANDS[role], *more] for role, more in talkative.items()},
        )
        cluster.http.headers["Authorization"] = f"Bearer {SECRETS['key of the API']}"
        with cluster.providers_path.open("a") as file:
            file.writelines(
                f"\n[providers.hostile-{number}]\nbase_url = 'http://127.0.0.1:{server.port}/v1'\n"
                f"api_key_env = 'KEY_{number}'\n"
                for number in (1, 2)
            )
        stack.enter_context(cluster)
        with cluster.redis() as redis_:
            redis_.config_set("slowlog-log-slower-than", 0)
            redis_.config_set("slowlog-max-len", 100_000)
        with monitored(cluster) as seen:
            runs = make_runs(cluster)
        with cluster.redis() as redis_:
            found = of_redis(redis_)
        found |= of_messages(bytes(seen))
        found |= of_the_api(cluster, runs)
        found |= of_the_export(cluster, SECRETS["key of the API"])
        found |= of_metrics(cluster)
        found |= of_problems(cluster, SECRETS["key of the API"], INPUT)
        found |= of_flower(cluster, FLOWER)
        found |= of_processes(cluster)
        check_conversations(cluster, list(runs.values()), INVARIANTS)
        yield found


def make_runs(cluster: Cluster) -> dict[str, str]:
    """Runs of every kind, ended: answers and errors that tell secrets, tools that do, a kill, a crash, a cancel."""
    once = {"retry": {"rules": {each: {"attempts": 1} for each in ("provider_error", "connection", "authentication")}}}
    runs = {"echo": cluster.submit("echo", INPUT, metadata={"who": INPUT})}
    for number in (1, 2):
        for name in PLAYS:
            runs[f"{name}-{number}"] = cluster.submit(f"hostile-{number}/{name}", INPUT, tools=["raises"], agent=once)
    for name in TOOLS:
        runs[name] = cluster.submit(f"tool-1+use-{name}", INPUT, tools=[name])
    long = cluster.submit("say-60+rate-20", INPUT)
    stopped = cluster.submit("say-400+rate-20", INPUT)
    cluster.saw(long, "message.delta")
    cluster.saw(stopped, "message.delta")
    assert cluster.cancel(stopped, reason="enough") in (200, 202)
    cluster.kill("worker")
    cluster.start("worker")
    runs |= {"killed": long, "cancelled": stopped}
    for run_id in runs.values():
        cluster.ended(run_id)
    return runs


def forms(secret: str) -> Iterator[bytes]:
    """What would tell it."""
    yield secret.encode()
    yield secret[:16].encode()
    yield secret.encode().hex().encode()
    yield base64.b64encode(secret.encode())[:-4]
    yield base64.b64encode(f"me:{secret}".encode())[4:-4]


@pytest.mark.parametrize("name", SECRETS)
def test_a_secret_is_nowhere(name: str, sinks: Sinks) -> None:
    shown = {
        sink: text[max(at - 200, 0) : at + 100]
        for sink, text in sinks.items()
        for form in forms(SECRETS[name])
        if (at := text.lower().find(form.lower())) >= 0
    }
    assert not shown


_CONTENT_MAY_BE_IN = ("keys of the store", "commands to Redis", "Redis", "runs", "the export")


@pytest.mark.parametrize("canary", CONTENT)
def test_content_is_in_the_store_and_the_api_and_nowhere_else(canary: str, sinks: Sinks) -> None:
    there = {name for name, text in sinks.items() if canary.encode() in text}
    assert {"keys of the store", "the export"} <= there
    elsewhere = {
        name: sinks[name][max(sinks[name].find(canary.encode()) - 300, 0) :][:400]
        for name in there
        if name not in _CONTENT_MAY_BE_IN and "/v1/" not in name and not name.endswith("as a stream")
    }
    assert not {name: text for name, text in elsewhere.items() if "ledger" not in name}


def test_a_page_of_a_provider_is_nowhere(sinks: Sinks) -> None:
    assert not [name for name, text in sinks.items() if PAGE.encode() in text]


def test_no_part_of_a_key_that_a_provider_quotes_is_anywhere(sinks: Sinks) -> None:
    key = SECRETS["key of a provider"]
    assert not [
        name for name, text in sinks.items() for part in (key[:10], key[-10:], key[8:20]) if part.encode() in text
    ]


def test_what_a_tool_prints_is_in_the_log_without_the_secrets_in_it(sinks: Sinks) -> None:
    (log,) = [
        text for name, text in sinks.items() if telling_tools.PRINTED.encode() in text and name.startswith("file")
    ]
    assert f"{telling_tools.PRINTED}: [redacted]".encode() in log


def test_every_sink_was_looked_into(sinks: Sinks) -> None:
    logs = [name for name in sinks if name.endswith(".log")]
    assert {name.partition("-")[0].rpartition("/")[2] for name in logs} >= {"api", "worker", "tools", "flower"}
    assert all(sinks[name] for name in logs if "fake_provider" not in name)
    assert b"palaver.model_step" in sinks["messages of Celery"]
    assert b"task-" in sinks["messages of Celery"]
    assert any(name.startswith("Flower /task/") for name in sinks)
    assert b"provider_error" in sinks["metrics"]
    assert sum(map(len, sinks.values())) > 1 << 20
