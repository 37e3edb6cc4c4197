"""Whoever may write to the broker sends what he likes: workers drop it, say so without a word of it, and go on."""

from __future__ import annotations

import base64
import bz2
import json
import os
import pickle
import uuid
import zlib
from collections.abc import Callable, Mapping
from functools import cache
from typing import Any

import pytest
from celery import Celery
from celery.worker.control import Panel

from palaver.delivery.deliveries import QUEUE_NAMES
from palaver.steps.leases import Delivery
from palaver.steps.wire import body_of, headers_of
from tests.process.broker import ON_RABBITMQ
from tests.process.cluster import Cluster
from tests.waiting import eventually
from workers.broker import remote

pytestmark = [pytest.mark.process, pytest.mark.skipif(ON_RABBITMQ, reason="writes what only a list in Redis can hold")]

RUN, CONVERSATION = "run_00" + "1" * 26, "conv_00" + "2" * 26
DROPPED = "dropped messages that are none of Palaver's"
FLOOD = 25
"""Of each kind on each queue: more than three times that are a thousand and more on a worker."""
SPARE = 48 << 20
"""Bytes that a worker may have more of afterwards, by fragments: less than any one of the bombs unfolds to."""


def envelope(queue: str, body: Any = None, **more: Any) -> dict[str, Any]:
    """A message as kombu puts it into Redis, a good one unless something else is said."""
    delivery = a_delivery(queue)
    text = body_of(delivery) if body is None else body
    raw = text if isinstance(text, bytes) else text.encode() if isinstance(text, str) else json.dumps(text).encode()
    told = {
        "body_encoding": "base64",
        "correlation_id": delivery.task_id,
        "delivery_info": {"exchange": "", "routing_key": queue},
        "delivery_mode": 2,
        "delivery_tag": str(uuid.uuid4()),
        "priority": 0,
    }
    return {
        "body": base64.b64encode(raw).decode(),
        "content-encoding": "utf-8",
        "content-type": "application/json",
        "headers": headers_of(delivery, "somebody"),
        "properties": told,
    } | more


def a_delivery(queue: str) -> Delivery:
    return Delivery(queue, RUN, CONVERSATION, "1/call_1" if queue.startswith("tools") else "1", 1)


def arguments(queue: str) -> list[Any]:
    return list(json.loads(body_of(a_delivery(queue)))[0])


def args(queue: str, *given: Any) -> dict[str, Any]:
    return envelope(queue, [list(given), {}, {}])


def headers(queue: str, **more: Any) -> dict[str, Any]:
    return envelope(queue, headers=headers_of(a_delivery(queue)) | more)


def properties(queue: str, **more: Any) -> dict[str, Any]:
    good = envelope(queue)
    return good | {"properties": good["properties"] | more}


def embed(queue: str, **more: Any) -> dict[str, Any]:
    return envelope(queue, [arguments(queue), {}, more])


def without(message: dict[str, Any], name: str) -> dict[str, Any]:
    return {key: value for key, value in message.items() if key != name}


@cache
def zeros(method: str) -> bytes:
    """96 MB, compressed: when a test sends them, and not when tests are collected."""
    nothing = bytes(96 << 20)
    return zlib.compress(nothing) if method == "gzip" else bz2.compress(nothing, 1)


def bomb(queue: str, method: str) -> dict[str, Any]:
    return headers(queue, compression=method) | {"body": base64.b64encode(zeros(method)).decode()}


LINK = {"task": "palaver.model_step", "args": [RUN, CONVERSATION, "1", 1], "kwargs": {}, "options": {}}
FAR = "2099-01-01T00:00:00+00:00"


class Trap:
    """Unpickled, it leaves a file."""

    def __reduce__(self) -> tuple[Callable[[str], object], tuple[str]]:
        return os.mkdir, ("/tmp/palaver-was-here",)


HOSTILE: Mapping[str, Callable[[str], Any]] = {
    "not json": lambda q: b"not json",
    "nothing": lambda q: b"",
    "no utf-8": lambda q: b"\xff\xfe\x00{",
    "half a message": lambda q: json.dumps(envelope(q)).encode()[:100],
    "null": lambda q: b"null",
    "a number": lambda q: b"7",
    "a list": lambda q: b"[1, 2]",
    "an empty object": lambda q: b"{}",
    "nested 100,000 deep": lambda q: b"[" * 100_000,
    "nested 500 deep in its arguments": lambda q: envelope(q, b"[" * 500 + b"]" * 500),
    "10 MB": lambda q: b'"' + b"x" * (10 << 20) + b'"',
    "10 MB of arguments": lambda q: args(q, "x" * (10 << 20)),
    "no body": lambda q: without(envelope(q), "body"),
    "no headers": lambda q: without(envelope(q), "headers"),
    "no properties": lambda q: without(envelope(q), "properties"),
    "headers that are a list": lambda q: envelope(q, headers=[1]),
    "headers that are pairs": lambda q: envelope(q, headers=[*headers_of(a_delivery(q)).items()]),
    "no tag": lambda q: envelope(q, properties={"body_encoding": "base64"}),
    "no base64": lambda q: envelope(q, body="%%%") | {"body": "%%%"},
    "another body encoding": lambda q: properties(q, body_encoding="rot13"),
    "no task": lambda q: envelope(q, headers=without(headers_of(a_delivery(q)), "task")),
    "an unknown task": lambda q: headers(q, task="os.system"),
    "a task of Celery's": lambda q: headers(q, task="celery.backend_cleanup"),
    "the task of the other queue": lambda q: headers(
        q, task="palaver.model_step" if q.startswith("tools") else "palaver.tool_step"
    ),
    "a task that is a list": lambda q: headers(q, task=["palaver.model_step"]),
    "protocol 1": lambda q: envelope(
        q, {"task": "palaver.model_step", "id": "x", "args": arguments(q), "kwargs": {}}, headers={}
    ),
    "application/data": lambda q: envelope(q, **{"content-type": "application/data", "content-encoding": "binary"}),
    "a pickle": lambda q: envelope(
        q, pickle.dumps(Trap()), **{"content-type": "application/x-python-serialize", "content-encoding": "binary"}
    ),
    "yaml": lambda q: envelope(q, "!!python/object/apply:os.abort []", **{"content-type": "application/x-yaml"}),
    "a zlib bomb": lambda q: bomb(q, "gzip"),
    "a bzip2 bomb": lambda q: bomb(q, "bzip2"),
    "a compression that is a list": lambda q: headers(q, compression=[1], task=None),
    "no arguments": args,
    "three arguments": lambda q: args(q, *arguments(q)[:3]),
    "five arguments": lambda q: args(q, *arguments(q), 1),
    "arguments of other types": lambda q: args(q, 1, None, {}, "x"),
    "ids of another form": lambda q: args(q, "../../etc", CONVERSATION, "1", 1),
    "a step of another form": lambda q: args(q, RUN, CONVERSATION, "-1/../x", 1),
    "a number that is none": lambda q: args(q, *arguments(q)[:3], True),
    "keyword arguments": lambda q: envelope(q, [arguments(q), {"self": 1}, {}]),
    "an ETA of 2099": lambda q: headers(q, eta=FAR),
    "an ETA that is no time": lambda q: headers(q, eta="soon"),
    "an expiry of 2099": lambda q: headers(q, expires=FAR),
    "an expiry that is no time": lambda q: headers(q, expires={"a": 1}),
    "time limits": lambda q: headers(q, timelimit=[0.001, 0.001]),
    "a group": lambda q: headers(q, group="g"),
    "tries": lambda q: headers(q, retries=-1),
    "a callback": lambda q: embed(q, callbacks=[LINK]),
    "an errback": lambda q: embed(q, errbacks=[LINK]),
    "a chain": lambda q: embed(q, chain=[LINK]),
    "a chord": lambda q: embed(q, chord=LINK),
}
"""Kinds of messages that must be dropped, made for a queue."""

HARMLESS: Mapping[str, Callable[[str], Any]] = {
    "an unknown run": envelope,
    "a negative priority": lambda q: properties(q, priority=-9),
    "one tag for all": lambda q: properties(q, delivery_tag="same"),
    "a tag that is a list": lambda q: properties(q, delivery_tag=[1]),
    "a consumer that is a list": lambda q: properties(
        q, delivery_info={"exchange": "", "routing_key": q, "consumer_tag": [1]}
    ),
    "another route": lambda q: properties(q, delivery_info={"exchange": "x", "routing_key": "{p00}:run:x"}),
    "an answer wanted elsewhere": lambda q: properties(q, reply_to="{p00}:run:x"),
    "stamps": lambda q: headers(q, stamped_headers=["x"], stamps={"x": 1}, meth="x", shadow="palaver"),
    "an id of another form": lambda q: headers(q, id=["x"], root_id={"a": 1}, argsrepr=7, origin=[]),
}
"""Kinds that are deliveries of a run that is not there, whatever else they say."""


def raw(message: Any) -> bytes:
    return message if isinstance(message, bytes) else json.dumps(message).encode()


def workers(cluster: Cluster) -> list[int]:
    return [*cluster.stack.pids("worker"), *cluster.stack.pids("tools")]


def resident(pid: int) -> int:
    """Bytes of RAM of a process."""
    with open(f"/proc/{pid}/statm") as pages:
        return int(pages.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def still_works(cluster: Cluster) -> None:
    """A run with a model step and a tool step ends well: both workers take what comes next."""
    assert cluster.ended(cluster.submit("tool-1", tools=["record"])).status == "completed"


@pytest.mark.parametrize("queue", QUEUE_NAMES)
def test_no_message_ends_a_worker_or_stays_in_it(cluster: Cluster, queue: str) -> None:
    still_works(cluster)
    before = {pid: resident(pid) for pid in workers(cluster)}
    with cluster.deliveries() as server:
        for what, make in {**HOSTILE, **HARMLESS}.items():
            bytes_of_it = raw(make(queue))
            times = FLOOD if len(bytes_of_it) < 1 << 20 else 2
            server.lpush(queue, *[bytes_of_it] * times)
            eventually(lambda: not server.llen(queue), why=f"{what} is taken")
            assert workers(cluster) == list(before), what
        still_works(cluster)
        assert not server.llen(queue), "what is dropped does not come again"
    assert not os.path.exists("/tmp/palaver-was-here")
    for pid, bytes_before in before.items():
        assert resident(pid) - bytes_before < SPARE
    said_little(cluster, _line_of(queue))


def said_little(cluster: Cluster, line: str) -> None:
    """A worker has told of what it dropped, in few lines, and without a word of it."""
    text = "".join(path.read_text() for path in (cluster.stack.data_dir / "logs").glob(f"{line}-*.log"))
    told = [each for each in text.splitlines() if DROPPED in each]
    assert 1 <= len(told) < FLOOD
    assert not any(word in each for each in told for word in ("somebody", "/etc", "bomb", "2099"))


def _line_of(queue: str) -> str:
    return "tools" if queue.startswith("tools") else "worker"


CHANNEL = "/0.celery.pidbox"


def command(method: Any, told: Any = None, **more: Any) -> dict[str, Any]:
    """A message of Celery's remote control, as kombu publishes it."""
    asked = {"method": method, "arguments": {}, "destination": None, "pattern": None, "matcher": None} | (told or {})
    message = {"body": base64.b64encode(json.dumps(asked).encode()).decode(), "headers": {"clock": 1, "expires": 0}}
    route = {"exchange": "celery.pidbox", "routing_key": ""}
    properties = {"body_encoding": "base64", "delivery_info": route, "delivery_tag": "x", "priority": 0}
    return envelope("model") | message | {"properties": properties} | more


REPLIES = {"exchange": "reply.celery.pidbox", "routing_key": str(uuid.uuid4())}
COMMANDS: Mapping[str, Any] = {
    **{f"command {name}": command(name) for name in sorted(set(Panel.data) - set(remote.COMMANDS))},
    "shutdown by its whole form": command("shutdown", {"arguments": {"msg": "bye"}, "reply_to": REPLIES}),
    "rate_limit": command("rate_limit", {"arguments": {"task_name": "palaver.model_step", "rate_limit": "1/h"}}),
    "time_limit": command("time_limit", {"arguments": {"task_name": "palaver.tool_step", "hard": 0.01, "soft": 0.01}}),
    "cancel_consumer": command("cancel_consumer", {"arguments": {"queue": "model"}}),
    "cancel_consumer of tools": command("cancel_consumer", {"arguments": {"queue": "tools"}}),
    "add_consumer": command("add_consumer", {"arguments": {"queue": "{p00}:x"}}),
    "pool_shrink": command("pool_shrink", {"arguments": {"n": 4}}),
    "revoke of all": command("revoke", {"arguments": {"task_id": [RUN], "terminate": True, "signal": "KILL"}}),
    "no method": command(None),
    "a method that is a list": command(["ping"]),
    "arguments that are a list": command("ping", {"arguments": [1]}),
    "arguments of others": command("enable_events", {"arguments": {"self": 1}}),
    "attributes of tasks": command("registered", {"arguments": {"taskinfoitems": ["__globals__"]}}),
    "a destination that is a number": command("ping", {"destination": 7}),
    "a pattern that takes for ever": command("ping", {"pattern": "(.|.|.)+" * 9 + "#", "matcher": "pcre"}),
    "an answer to a queue": command("ping", {"reply_to": {"exchange": "", "routing_key": "model"}}),
    "an answer to the store": command("ping", {"reply_to": {"exchange": "", "routing_key": "{p00}:junk"}}),
    "an answer to nobody": command("ping", {"reply_to": {"exchange": "reply.celery.pidbox"}}),
    "a ticket that is a list": command("ping", {"ticket": [1], "reply_to": REPLIES}),
    "a clock that is text": command("ping", headers={"clock": "soon"}),
    "headers with a number for a name": command("ping", headers=[[1, 2]]),
    "a clock beyond all": command("ping", headers={"clock": 2**63}),
    "no object": envelope("model", [1, 2]),
    "a date": command("ping", {"arguments": {"__type__": "datetime", "__value__": 7}}),
    "not json": b"not json",
    "no utf-8": b"\xff\xfe",
    "nested 100,000 deep": b"[" * 100_000,
    "a number": b"7",
    "10 MB": b'"' + b"x" * (10 << 20) + b'"',
}
"""What the remote control of workers must not hear; and a bomb."""


def commands() -> Mapping[str, Any]:
    """All of it."""
    packed = base64.b64encode(zeros("gzip")).decode()
    return {**COMMANDS, "a bomb": command("ping", body=packed, headers={"compression": "gzip"})}


def test_remote_control_hears_what_flower_asks_and_nothing_else(cluster: Cluster) -> None:
    still_works(cluster)
    known = workers(cluster)
    before = {pid: resident(pid) for pid in known}
    with cluster.deliveries() as server:
        # Where answers go is written in Redis: somebody may have written another place, or something else.
        routes = ("reply.celery.pidbox", "celery.pidbox")
        poison = [f"{REPLIES['routing_key']}\x06\x16\x06\x16{where}" for where in ("{p00}:junk", "model")]
        for exchange in routes:
            server.sadd(f"_kombu.binding.{exchange}", "junk", *poison)
        for what, made in commands().items():
            for _ in range(FLOOD if len(raw(made)) < 1 << 20 else 2):
                assert server.publish(CHANNEL, raw(made)) >= len(known), what
        server.publish(CHANNEL, raw(command("ping", {"reply_to": REPLIES})))
        still_works(cluster)
        assert workers(cluster) == known
        assert not server.exists("{p00}:junk")
        for exchange in routes:
            server.srem(f"_kombu.binding.{exchange}", "junk", *poison)
    for pid, bytes_before in before.items():
        assert resident(pid) - bytes_before < SPARE
    with Celery("asking", broker=cluster.broker.url, set_as_current=False) as asking:
        inspect = asking.control.inspect(timeout=5, limit=len(known))
        for name in sorted(set(remote.COMMANDS) - {"enable_events", "heartbeat"}):
            answers = getattr(inspect, name)(**({"safe": True} if name == "active" else {}))
            assert len(answers or {}) == len(known), name
            assert not any("error" in answer for answer in answers.values() if isinstance(answer, dict)), name
        queues = {each["name"] for answer in inspect.active_queues().values() for each in answer}
        assert queues == set(QUEUE_NAMES)
        assert all(not answer for answer in inspect.scheduled().values())
    for line in ("worker", "tools"):
        said_little(cluster, line)


def test_garbage_among_celerys_events_ends_no_worker(cluster: Cluster) -> None:
    known = workers(cluster)
    with cluster.deliveries() as server:
        for name in ("/0.celeryev/worker.heartbeat", "/0.celeryev/task.multi", "/0.reply.celery.pidbox"):
            for garbage in (b"not json", b"[[[", raw(envelope("model", [1]))):
                server.publish(name, garbage)
    still_works(cluster)
    assert workers(cluster) == known
