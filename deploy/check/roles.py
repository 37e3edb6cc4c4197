"""The four roles, started as the chart starts them and replaced in the middle of runs: an upgrade loses nothing.

Each logs in to Redis as its own user of deploy/users.acl, and is refused nothing there.
"""

from __future__ import annotations

import os
import secrets
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

import httpx
import redis

from features.stack.child import ChildCommand
from features.stack.errors import StackError
from features.stack.ports import HOST, free_port
from features.stack.readiness import accepts
from features.stack.redis_server import RedisServer
from palaver import Palaver, Run
from palaver.config.roles import ROLES
from palaver.store.redis import fleet_keys
from tests.waiting import eventually

from . import logins
from .confinement import Confinement
from .containers import containers_of
from .kit import Kit, Manifest
from .pods import Pod

_VALUES: Final = Path(__file__).with_name("live-values.yaml")
_LONG: Final = ("fake/say-120+rate-20", "w120")
"""A model that takes twice as long as the grace, and what its answer ends with."""
_SHORT: Final = ("fake/say-20+rate-20", "w20")
_AWAY: Final = "away/echo"
"""A model of a provider whose key no worker has."""
_EACH: Final = 4
"""Runs of each kind."""


def roles(kit: Kit) -> list[str]:
    """Start them, probe them, let them do runs, replace each in the middle, and look at what has become of the runs."""
    with tempfile.TemporaryDirectory(prefix="palaver-check-") as folder, ExitStack() as stack:
        world = stack.enter_context(_world(kit, Path(folder)))
        try:
            faults = list(world.faults())
        except (AssertionError, StackError, httpx.HTTPError) as error:
            faults = str(error).splitlines()
        return [*faults, *world.denied()]


class _World:
    """A cluster's place for the chart: a store, a model, secrets, and the pods."""

    def __init__(
        self, kit: Kit, folder: Path, manifests: list[Manifest], values: dict[str, str], server: RedisServer
    ) -> None:
        self._kit, self._folder, self._manifests, self._secrets = kit, folder, manifests, values
        self._server = server
        containers = [each for manifest in manifests for each in containers_of(manifest)]
        self._containers = {each.role: each for each in containers}
        self._pods: list[Pod] = []
        self._confinement = Confinement(folder)

    def faults(self) -> Iterator[str]:
        """All of the check, in the order of a pod's life."""
        if missing := [role for role in ROLES if role not in self._containers]:
            yield from (f"no container runs palaver {role}" for role in missing)
            return
        first = self._start("1")
        if dead := [f"{pod.name}: {probe} fails" for pod in first.values() for probe in pod.dead_probes()]:
            # In a cluster they would not live long enough for the rest.
            yield from dead
            return
        for pod in first.values():
            if pod.container.role in ("worker", "tools") and not pod.notices():
                yield f"{pod.name}: its livenessProbe does not tell a worker that stands still"
        if unsaid := [*self._lacking(first["api"])]:
            # What cannot be read does not get better by an upgrade.
            yield from unsaid
            return
        yield from self._flower(first["flower"])
        runs = self._submit(first["api"])
        yield from self._scaling(first["api"])
        second = self._start("2")
        with ThreadPoolExecutor() as pool:
            yield from filter(None, pool.map(_ended, first.values()))
        yield from self._lost(second["api"], runs)
        for pod in second.values():
            if fault := _ended(pod):
                yield fault

    def denied(self) -> list[str]:
        """What the roles' users were refused in Redis."""
        with redis.Redis.from_url(self._server.url) as server:
            return logins.denied(server)

    def close(self) -> None:
        """End what still runs."""
        for pod in self._pods:
            pod.child.kill(signal.SIGKILL)

    def _start(self, number: str) -> dict[str, Pod]:
        pods = {
            role: Pod(self._kit, container, self._folder, self._secrets, f"{role}-{number}", self._confinement)
            for role, container in self._containers.items()
        }
        self._pods += pods.values()
        for pod in pods.values():
            pod.start()
        for pod in pods.values():
            pod.wait_until_ready()
        return pods

    def _client(self, api: Pod) -> Palaver:
        return Palaver(api.url, self._secrets["api-keys"].partition("=")[2])

    def _lacking(self, api: Pod) -> Iterator[str]:
        """What no worker has is on the page of queues, for as long as a step waits for it."""
        bearer = {"Authorization": f"Bearer {self._secrets['scaler-key']}"}
        with self._client(api) as client:
            run = client.submit("hello", model=_AWAY)
            eventually(lambda: client.get(run.id).waiting, within=60, why=f"a run of {_AWAY} does not wait")

            def told() -> httpx.Response | None:
                """What it answers may be a moment old."""
                answer = httpx.get(f"{api.url}/v1/queues", headers=bearer, timeout=10, trust_env=False)
                return None if answer.is_success and run.id not in answer.text else answer

            answer = eventually(told, within=30, why="/v1/queues does not name what no worker has")
            if answer is not None and not answer.is_success:
                yield f"api-1: /v1/queues answers {answer.status_code}, and does not name what no worker has"
            client.cancel(run.id)

    def _submit(self, api: Pod) -> dict[str, str]:
        """Runs of which each has begun, with what each answer has to end with."""
        runs: dict[str, str] = {}
        with self._client(api) as client:
            for model, end in [_LONG, _SHORT] * _EACH:
                runs[client.submit("hello", model=model).id] = end
            for _ in range(_EACH):
                runs[client.submit('[[args {"seconds": 1}]]', model="fake/tool-1", tools=["dawdle"]).id] = "done"
            eventually(lambda: all(client.get(each).status != "queued" for each in runs), within=60)
        eventually(lambda: self._calls(), within=60, why="no tool was called")
        return runs

    def _calls(self) -> Counter[str]:
        ledger = Path(self._secrets["tool-ledger"].partition("=")[2])
        return Counter(ledger.read_text().split())

    def _lost(self, api: Pod, runs: dict[str, str]) -> Iterator[str]:
        """What did not end as it would have without the upgrade."""
        with self._client(api) as client:
            ended: list[Run] = [client.wait(each, timeout=120) for each in runs]
        for run in ended:
            if run.status != "completed" or runs[run.id] not in (run.output or ""):
                yield f"a run was lost in the upgrade: {run.id} is {run.status}: {run.error or run.output}"
        calls = self._calls()
        if len(calls) != _EACH or set(calls.values()) != {1}:
            yield f"{_EACH} calls of a tool are to start it once each: {sorted(calls.values())}"

    def _scaling(self, api: Pod) -> Iterator[str]:
        """What KEDA asks for each ScaledObject, asked as KEDA does."""
        services = {each["metadata"]["name"]: each for each in self._manifests if each["kind"] == "Service"}
        auths = {each["metadata"]["name"]: each for each in self._manifests if each["kind"] == "TriggerAuthentication"}
        for manifest in self._manifests:
            if manifest["kind"] != "ScaledObject":
                continue
            (trigger,) = manifest["spec"]["triggers"]
            where, url = f"ScaledObject/{manifest['metadata']['name']}", urlsplit(trigger["metadata"]["url"])
            service: Any = services.get((url.hostname or "").partition(".")[0], {"spec": {"ports": []}})
            if url.port not in [port["port"] for port in service["spec"]["ports"]]:
                yield f"{where}: no Service is at {url.netloc}"
            (secret,) = auths[trigger["authenticationRef"]["name"]]["spec"]["secretTargetRef"]
            bearer = {"Authorization": f"Bearer {self._secrets[secret['key']]}"}
            answer = httpx.get(f"{api.url}{url.path}?{url.query}", headers=bearer, timeout=10, trust_env=False)
            value: Any = answer.json() if answer.is_success else {}
            for part in trigger["metadata"]["valueLocation"].split("."):
                value = value.get(part) if isinstance(value, dict) else None
            if not isinstance(value, int | float):
                yield f"{where}: {url.path}?{url.query} answers {answer.status_code} with no number for KEDA"

    def _flower(self, flower: Pod) -> Iterator[str]:
        login = httpx.BasicAuth(*self._secrets["flower-login"].split(":"))
        for auth, status in ((None, 401), (login, 200)):
            answer = httpx.get(f"{flower.url}/workers", auth=auth, timeout=30, trust_env=False, follow_redirects=True)
            if answer.status_code != status:
                yield f"flower-1: {answer.status_code} {'with' if auth else 'without'} its login, not {status}"


def _ended(pod: Pod) -> str | None:
    took = pod.end()
    if took is None:
        return f"{pod.name}: does not end within its {pod.container.grace} s; the end of its log:\n{_tail(pod)}"
    # uvicorn and Flower end, at the end of all their work, by the signal that asked them to.
    clean = (0,) if pod.container.role in ("worker", "tools") else (0, -signal.SIGTERM)
    if pod.child.exit_code not in clean:
        return f"{pod.name}: ends with {pod.child.exit_code} when told to; the end of its log:\n{_tail(pod)}"
    return None


def _tail(pod: Pod) -> str:
    return "\n".join(pod.child.output.splitlines()[-20:])


@contextmanager
def _world(kit: Kit, folder: Path) -> Iterator[_World]:
    ledger = folder / "ledger"
    ledger.touch()
    ledger.chmod(0o666)
    port = free_port()
    key, scaler = secrets.token_hex(16), secrets.token_hex(16)
    command = [sys.executable, "-m", "features.fake_provider", "--host", HOST, "--port", str(port)]
    model = ChildCommand("model", [*command, "--api-key", key], environment=os.environ, log_path=folder / "model.log",
                  ready=lambda _: accepts(port))  # fmt: skip
    with ExitStack() as stack:
        users = logins.write_users(folder / "users.acl", kit.root)
        server = stack.enter_context(
            RedisServer(data_dir=folder / "redis", options={"aclfile": str(users)}, login=logins.admin())
        )
        with redis.Redis.from_url(server.url) as connection:
            # As if a worker that has its key had been there just now: else the API takes no run of it.
            connection.zadd(fleet_keys.WORKER_PROVIDERS, {_AWAY.partition("/")[0]: time.time()})
        stack.callback(model.kill, signal.SIGKILL)
        model.start()
        manifests = kit.render(_VALUES)
        (table,) = [each["data"]["providers.toml"] for each in manifests if each["kind"] == "ConfigMap"]
        (folder / "providers.toml").write_text(table.replace("MODEL_URL", f"http://{HOST}:{port}/v1"))
        world = _World(kit, folder, manifests, {
            **{logins.secret_of(user): logins.url_of(user, server.port) for user in logins.USERS.values()},
            "api-keys": f"people={secrets.token_hex(16)}",
            "scaler-key": scaler,
            "flower-login": f"ann:{secrets.token_hex(16)}",
            "fake-api-key": key,
            "tool-ledger": f"TOOL_LEDGER={ledger}",
        }, server)  # fmt: skip
        stack.callback(world.close)
        yield world
