"""Every source of tools on one stack, each with the same deed (deeds.py), and how each says what became of it."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Final
from uuid import uuid4

import pytest

from features.stack.plan import COMMANDS
from features.stack.ports import free_port
from features.stack.redis_server import RedisServer
from palaver.store.reading.events import StoredEvent
from tests.pages import ROOT
from tests.process import deed_stdio, deeds
from tests.process.cluster import Cluster
from tests.process.shop_workers import Shop
from tests.waiting import eventually

TOKEN: Final = "canary-of-a-conversation-0123456789"
"""A secret of each conversation."""
_SECRETS: Final = {"WEB_TOKEN": "canary-of-the-web-0123456789", "PROC_TOKEN": "canary-of-the-process-0123456789"}
_SECRET_KEY: Final = "Qk1vY2tLZXlPZkNvdXJzZU5vdEFSZWFsT25lITEyMzQ="
_BROKEN_MODEL: Final = "fake/401-9"
_AT_ONCE: Final = 20
"""Calls in children at once: every case may have all sources under way."""

SOURCES: Final[Mapping[str, str]] = {
    "python": "python_deed",
    "loop": "loop_deed",
    "declared": "declared_deed",
    "foreign": "foreign_deed",
    "celery": "celery_deed",
    "http": "http_deed",
    "mcp-http": "web__deed",
    "mcp-stdio": "proc__deed",
    "agent": "agent_doer",
}
"""The tool of each; ``…_brief`` of it has a second, and ``…_again`` is idempotent."""

_TASKS: Final = """
[celery.deeds]
broker_env = "SHOP_BROKER"
timeout = {longest}
{more}

[celery.deeds.tasks.celery_deed]
task = "deed"
terminate = true
parameters = {schema}

[celery.deeds.tasks.celery_deed_brief]
task = "deed"
terminate = true
timeout = 1
parameters = {schema}

[celery.deeds.tasks.celery_deed_again]
task = "deed"
idempotent = true
parameters = {schema}
"""
_FILE: Final = """
[http.deeds]
base_url = "http://127.0.0.1:{port}"
timeout = {longest}
headers.Authorization = {{ secret = "TOKEN" }}

[http.deeds.tools.http_deed]
method = "POST"
path = "/deeds"
parameters = {schema}

[http.deeds.tools.http_deed_brief]
method = "POST"
path = "/deeds"
timeout = 1
parameters = {schema}

[http.deeds.tools.http_deed_again]
method = "POST"
path = "/deeds"
idempotent = true
parameters = {schema}

[mcp.web]
url = "http://127.0.0.1:{port}/mcp"
timeout = {longest}
headers.Authorization = {{ env = "WEB_TOKEN" }}
risky = false
tools.deed_brief.timeout = 1
tools.deed_again.idempotent = true

[mcp.proc]
command = {command}
timeout = {longest}
env = ["PROC_TOKEN", "DEEDS"]
risky = false
tools.deed_brief.timeout = 1
tools.deed_again.idempotent = true
"""
_SCHEMA: Final = (
    '{ type = "object", required = ["do", "key"], '
    'properties = { do = { type = "string" }, key = { type = "string" } } }'
)


def file_of_tasks(more: str = "") -> str:
    """What PALAVER_TOOL_SOURCES says of the Celery application, and one line more."""
    return _TASKS.format(schema=_SCHEMA, longest=deeds.LONGEST, more=more)


def _file_of_sources(port: int) -> str:
    """What it says of all; the service listens at this port."""
    command = json.dumps([sys.executable, "-S", deed_stdio.__file__])
    return file_of_tasks() + _FILE.format(schema=_SCHEMA, longest=deeds.LONGEST, port=port, command=command)


@dataclass
class Deed:
    """A deed that a run's model asks for."""

    source: str
    key: str
    run_id: str
    again: bool = False
    """It may be done twice."""


class EverySource:
    """The stack, and what stands on the other side."""

    def __init__(self, cluster: Cluster, shop: Shop, port: int) -> None:
        self.cluster = cluster
        self.shop = shop
        self.port = port
        """Of the service."""
        self._web: subprocess.Popen[bytes] | None = None
        self._finished: dict[str, StoredEvent] = {}

    def serve(self) -> None:
        """Start the service; it serves when this returns."""
        command = [sys.executable, "-m", "tests.process.deed_web", str(self.port)]
        self._web = subprocess.Popen(command, cwd=ROOT)
        eventually(self._serves)

    def _serves(self) -> bool:
        with socket.create_connection(("127.0.0.1", self.port), timeout=1):
            return True

    def end(self) -> None:
        """End the service."""
        if self._web is not None:
            self._web.kill()
            self._web.wait()

    def keep_agents(self) -> None:
        """One that does the deed with a tool of its own, and one that fails."""
        doer = {"model": "fake/tool-1+use-python_deed", "tools": ["python_deed"], "description": "Does it."}
        for name, agent in (("doer", doer), ("broken", {"model": _BROKEN_MODEL})):
            assert self.cluster.http.put(f"/v1/agents/{name}", json=agent).status_code in (200, 201)

    def heal(self) -> None:
        """Back to one process of each kind."""
        self.cluster.heal()
        if not any(child.running for child in self.cluster.children("loop")):
            self.cluster.start("loop")

    def add_children(self) -> None:
        """The runs that calls of agents began are runs of this test, too."""
        for run_id in list(self.cluster.submitted):
            self.cluster.submitted += [child.run_id for child in self.cluster.run(run_id).children]

    def ask(self, source: str, do: str, kind: str = "") -> Deed:
        """A run whose model asks for the deed of a source, of a kind such as ``_brief``."""
        key = f"{source}-{do}-{uuid4().hex[:8]}"
        tool = SOURCES[source] + kind
        text = f"[[args {json.dumps({'do': do, 'key': key})}]]"
        if source == "agent":
            tool = "agent_broken" if do == "fail" else tool
            text = f"[[args {json.dumps({'message': text})}]]"
        named = tool.replace("agent_", "agent:")
        secrets = {"TOKEN": TOKEN} if do == "tell" or source == "http" else {}
        run_id = self.cluster.submit(f"tool-1+use-{tool}", text, tools=[named], secrets=secrets)
        return Deed(source, key, run_id, again=kind == "_again")

    def under_way(self, sources: Sequence[str], kind: str = "") -> list[Deed]:
        """Deeds that wait, one of each source, once all have begun."""
        found = [self.ask(source, "wait", kind) for source in sources]
        for each in found:
            eventually(lambda each=each: self.lines()[f"begin {each.key}"], why=each.key)  # type: ignore[misc]
        return found

    def lines(self) -> Counter[str]:
        """What the other side has written, and how often each."""
        return Counter(deeds.ledger().read_text().splitlines() if deeds.ledger().exists() else [])

    def begun(self, deed: Deed) -> int:
        """How often the other side began it."""
        return self.lines()[f"begin {deed.key}"]

    def release(self, *found: Deed) -> None:
        """Let these go on that wait."""
        for each in found:
            deeds.gate(each.key).touch()

    def lost(self, deed: Deed) -> bool:
        """Whether a worker died in its hands, or in those of the run that does it for this one."""
        runs = [deed.run_id, *(child.run_id for child in self.cluster.run(deed.run_id).children)]
        return any(event.type == "step.lost" for run_id in runs for event in self.cluster.events(run_id))

    def finished(self, deed: Deed) -> StoredEvent:
        """How the call ended, of a run that is completed."""
        if deed.key in self._finished:
            return self._finished[deed.key]
        run = self.cluster.ended(deed.run_id)
        assert run.status == "completed", f"{deed}: {run!r}\n{self.cluster.timeline(deed.run_id)}"
        (finished,) = (event for event in self.cluster.events(deed.run_id) if event.type == "tool.finished")
        self._finished[deed.key] = finished
        return finished

    def told(self, deed: Deed) -> str:
        """What the model was told of it."""
        return str(self.finished(deed).data["message"]["content"])

    def error(self, deed: Deed) -> str:
        """The class of its error; empty for none."""
        return str((self.finished(deed).data.get("error") or {}).get("class", ""))


@contextmanager
def every_source(folder: Path, environment: Mapping[str, str] = MappingProxyType({})) -> Iterator[EverySource]:
    """Such a stack. Its worker on a loop is called `loop`, and takes from a queue of that name."""
    port, redis = free_port(), RedisServer(data_dir=folder / "shop-redis")
    shop = Shop(folder, redis, {}, "tests.process.deed_app")
    with pytest.MonkeyPatch.context() as patch, ExitStack() as opened:
        # All that is started inherits it.
        patch.setenv("DEEDS", str(folder / "deeds"))
        opened.enter_context(redis)
        opened.callback(shop.close)
        shop.start("celery", "-c", str(len(SOURCES)))
        sources = folder / "tools.toml"
        sources.write_text(_file_of_sources(port))
        cluster = Cluster(
            folder,
            processes={"flower": 0},
            commands={
                **COMMANDS,
                "tools": [*COMMANDS["tools"], "-c", str(_AT_ONCE)],
                "loop": [*COMMANDS["tools"], "-Q", "loop", "-n", "loop@%h"],
            },
            environments={"loop": {"PALAVER_TOOL_POOL": "loop", "PALAVER_TOOL_SOURCES": ""}},
            environment={
                "PALAVER_TOOLS": "tests.process.deed_tools",
                "PALAVER_TOOL_SOURCES": str(sources),
                "PALAVER_TOOL_LISTS": str(folder / "lists"),
                "PALAVER_SECRET_KEY": _SECRET_KEY,
                # A worker that is armed ends what may be tried again more often than poison may.
                "PALAVER_MAX_LOSSES": "100",
                "PALAVER_TOOL_ADDRESS_SPACE": str(deeds.ROOM >> 20),
                **_SECRETS,
                **shop.environment,
                **environment,
            },
        )
        every = EverySource(cluster, shop, port)
        opened.callback(every.end)
        every.serve()
        opened.enter_context(cluster)
        every.keep_agents()
        yield every


def secrets_of(every: EverySource) -> Mapping[str, str]:
    """The secret of each source that has one."""
    of_broker = every.shop.environment["SHOP_BROKER"]
    web, proc = _SECRETS["WEB_TOKEN"], _SECRETS["PROC_TOKEN"]
    return {
        **dict.fromkeys(("python", "loop", "declared", "http"), TOKEN),
        "celery": of_broker,
        "mcp-http": web,
        "mcp-stdio": proc,
    }
