"""Everything that a stack writes, shows or sends, as text to search."""

from __future__ import annotations

import base64
import os
import re
import socket
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from urllib.parse import urlsplit

import httpx
import redis

from tests.process.cluster import Cluster
from tests.process.typed import palaver
from tests.waiting import PATIENCE

Sinks = dict[str, bytes]
_OF_THE_STORE = b"{p"
_BROKER = (b'"LPUSH"', b'"RPUSH"', b'"PUBLISH"', b'"HSET"', b'"ZADD"')
_BODY = re.compile(rb'\\"body\\": ?\\"([A-Za-z0-9+/=]+)\\"')


@contextmanager
def monitored(cluster: Cluster) -> Iterator[bytearray]:
    """What Redis is sent meanwhile, a line a command."""
    seen = bytearray()
    with socket.create_connection(("127.0.0.1", cluster.stack.ports.redis)) as connection:
        login = urlsplit(cluster.stack.redis_url)
        auth = f"AUTH {login.username} {login.password}\r\n" if login.username else ""
        connection.sendall(f"{auth}MONITOR\r\n".encode())

        def listen() -> None:
            # Redis may reset what is closed while more of it is on its way.
            with suppress(ConnectionResetError):
                while data := connection.recv(1 << 20):
                    seen.extend(data)

        listening = threading.Thread(target=listen)
        listening.start()
        try:
            yield seen
        finally:
            connection.shutdown(socket.SHUT_RDWR)
            listening.join()


def of_redis(server: redis.Redis) -> Sinks:
    """Every key with its value: those of the store, and all others; and what Redis tells of itself."""
    store, others = bytearray(), bytearray()
    for name in server.scan_iter(count=1000):
        where = store if name.startswith(_OF_THE_STORE) else others
        where += name + b" " + _value(server, name) + b"\n"
    told = (server.slowlog_get(10_000), server.client_list(), server.acl_log(), server.info(), server.config_get())
    return {"keys of the store": bytes(store), "other keys": bytes(others), "Redis": repr(told).encode()}


def _value(server: redis.Redis, name: bytes) -> bytes:
    read: dict[bytes, Callable[[], object]] = {
        b"string": lambda: server.get(name),
        b"hash": lambda: server.hgetall(name),
        b"list": lambda: server.lrange(name, 0, -1),
        b"set": lambda: server.smembers(name),
        b"zset": lambda: server.zrange(name, 0, -1, withscores=True),
        b"stream": lambda: server.xrange(name),
    }
    kind = server.type(name)
    return repr(read[kind]()).encode() if kind in read else b""


def of_messages(seen: bytes) -> Sinks:
    """What went through the broker: the commands that Celery sends, and of those of scripts the deliveries."""
    lines = [line for line in seen.splitlines() if b" lua] " not in line or b'"LPUSH"' in line]
    sent = b"\n".join(line for line in lines if any(each in line for each in _BROKER))
    sent += b"\n".join(base64.b64decode(body) for body in _BODY.findall(sent))
    return {"commands to Redis": seen, "messages of Celery": sent}


def of_processes(cluster: Cluster) -> Sinks:
    """Logs, command lines, and every file but those that hold configuration or Redis's data."""
    found: Sinks = {}
    for path in cluster.folder.rglob("*"):
        if path.is_file() and path.suffix not in (".toml", ".acl", ".conf") and "redis" not in path.parts:
            found[f"file {path.relative_to(cluster.folder)}"] = path.read_bytes()
    lines = [Path(f"/proc/{pid}/cmdline") for pid in os.listdir("/proc") if pid.isdigit()]
    found["command lines"] = b"\n".join(_read(path) for path in lines)
    return found


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError:
        return b""


def of_flower(cluster: Cluster, auth: tuple[str, str]) -> Sinks:
    """Its pages and its API."""
    found: Sinks = {}
    with httpx.Client(base_url=cluster.stack.flower_url, auth=auth, timeout=20, trust_env=False) as http:
        tasks = http.get("/api/tasks").json()
        assert tasks
        pages = ("/workers", "/tasks", "/broker", "/api/tasks", "/api/workers?refresh=1", "/api/task/types", "/metrics")
        for page in (*pages, "/api/queues/length", *(f"/task/{task}" for task in list(tasks)[:50])):
            found[f"Flower {page}"] = http.get(page).content
    return found


def of_the_api(cluster: Cluster, run_ids: Mapping[str, str]) -> Sinks:
    """What its clients are told of the runs, in every form."""
    found: Sinks = {"runs": cluster.http.get("/v1/runs?limit=200").content}
    for name, run_id in run_ids.items():
        conversation = cluster.run(run_id).conversation_id
        for path in (
            *(f"/v1/runs/{run_id}", f"/v1/runs/{run_id}/events", f"/v1/conversations/{conversation}"),
            f"/v1/conversations/{conversation}/messages",
        ):
            found[f"{name} {path}"] = cluster.http.get(path).content
        told = cluster.http.get(f"/v1/runs/{run_id}/events", headers={"Accept": "text/event-stream"})
        found[f"{name} as a stream"] = told.content
    return found


def of_metrics(cluster: Cluster) -> Sinks:
    """What the API counts."""
    told = cluster.http.get("/metrics")
    assert told.status_code == 200
    return {"metrics": told.content}


def of_problems(cluster: Cluster, secret: str, content: str) -> Sinks:
    """What those are told who ask wrongly."""
    wrong = {
        "a wrong key": httpx.get(
            f"{cluster.stack.url}/v1/runs", headers={"Authorization": f"Bearer {secret}x"}, timeout=PATIENCE
        ),
        "a wrong run": cluster.http.get("/v1/runs/run_there_is_not"),
        "a wrong body": cluster.http.post("/v1/runs", json={"agent": {"model": "fake/echo"}, "input": [content]}),
        "a wrong model": cluster.http.post("/v1/runs", json={"agent": {"model": 7}, "input": content}),
        "no JSON": cluster.http.post("/v1/runs", content=content, headers={"Content-Type": "application/json"}),
    }
    assert all(answer.status_code >= 400 for answer in wrong.values())
    return {f"problem: {name}": answer.content for name, answer in wrong.items()}


def of_the_export(cluster: Cluster, key: str) -> Sinks:
    """`palaver export --all`, and what it says beside."""
    environment = {**os.environ, "PALAVER_URL": cluster.stack.url, "PALAVER_API_KEY": key}
    done = palaver("export", "--all", environment=environment)
    assert done.returncode == 0
    assert done.stdout
    return {"the export": (done.stdout + done.stderr).encode()}
