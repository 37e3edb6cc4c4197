"""The two that are compared, each with all of its processes: Palaver, and OpenHands' agent-server.

Both listen on the loopback address alone, are asked without a key, seal the keys of models, log no more than errors
or warnings, and end with the rig.
"""

from __future__ import annotations

import asyncio
import base64
import os
import secrets
import time
from collections.abc import Callable, Mapping
from signal import SIGKILL
from typing import Final, Protocol

from bench.asked import BenchError
from bench.openhands.install import ENVIRONMENT, VERSION
from bench.rig import Rig
from features.stack.child import ChildCommand
from features.stack.ports import HOST, free_port
from features.stack.readiness import answers_ok

WORKERS: Final = 2
"""Model workers of Palaver: one for each CPU of the machine that this was measured on."""
_SLOTS: Final = 500
_MANY: Final = 1000
"""Runs that the reference is allowed to have at once, beyond its own limit of 10."""
_START_WITHIN: Final = 120.0


class Side(Protocol):
    """One of the two."""

    name: str
    url: str
    """What a client takes for its host."""

    @property
    def pids(self) -> list[int]:
        """All that it needs; what is below them belongs to it."""

    async def start(self) -> None:
        """Start it and wait until it answers."""

    async def crash(self) -> None:
        """Kill all of its processes but the database at once, start them again and wait until they answer."""


class Palaver:
    """An API, two model workers, and Redis with its append-only file, which are what a stack needs for these tools."""

    def __init__(self, rig: Rig) -> None:
        self.name = "Palaver"
        self._rig = rig
        self._port = free_port()
        self._children: list[ChildCommand] = []
        self.url = f"http://{HOST}:{self._port}/openhands"
        self._environment = {
            "PALAVER_INLINE_PROVIDER_HOSTS": rig.model_url.split("/")[2],
            "PALAVER_SECRET_KEY": base64.b64encode(secrets.token_bytes(32)).decode(),
        }

    @property
    def pids(self) -> list[int]:
        return [*(child.pid for child in self._children), self._rig.redis.pid]

    async def start(self) -> None:
        self._start()
        await self._rig.until(lambda: answers_ok(f"{self.url}/ready"), "Palaver's API answers")
        await self._rig.workers_ready(*self._children[1:])

    async def crash(self) -> None:
        for child in self._children:
            child.kill(SIGKILL)
        self._start()
        await self._rig.until(lambda: answers_ok(f"{self.url}/ready"), "Palaver's API answers again")

    def _start(self) -> None:
        listening = ("--host", HOST, "--port", str(self._port), "--log-level", "warning")
        self._children = [
            self._rig.start("api", *listening, environment=self._environment),
            *(self._rig.start_worker(_SLOTS, self._environment) for _ in range(WORKERS)),
        ]


class AgentServer:
    """OpenHands' agent-server, which is one process; ``limited`` leaves it its own limit of runs."""

    def __init__(self, rig: Rig, *, limited: bool = False) -> None:
        if ENVIRONMENT.python is None:
            raise BenchError("OpenHands' agent-server is not installed: python -m bench.openhands.install")
        self.name = f"agent-server {VERSION}"
        self._rig = rig
        self._port = free_port()
        self._child: ChildCommand | None = None
        self._folder = rig.folder / f"agent-server-{self._port}"
        self._folder.mkdir()
        self.url = f"http://{HOST}:{self._port}"
        arguments = ("-m", "openhands.agent_server", "--host", HOST, "--port", str(self._port))
        self._command = (str(ENVIRONMENT.python), *arguments)
        self._environment = {
            **surroundings(self._folder),
            "OH_SECRET_KEY": secrets.token_hex(32),
            "OH_CONVERSATIONS_PATH": str(self._folder / "conversations"),
            "OH_WORKSPACE_PATH": str(self._folder / "project"),
            "OH_BASH_EVENTS_DIR": str(self._folder / "bash_events"),
            "OH_ENABLE_VSCODE": "false",
            "OH_PRELOAD_TOOLS": "false",
            **({} if limited else {"OH_MAX_CONCURRENT_RUNS": str(_MANY)}),
        }

    @property
    def pids(self) -> list[int]:
        return [self._child.pid] if self._child else []

    async def start(self) -> None:
        self._child = self._rig.start_foreign("agent-server", self._command, self._environment)
        await _until(self._child, lambda: answers_ok(f"{self.url}/ready"))

    async def crash(self) -> None:
        self.end()
        await self.start()

    def end(self) -> None:
        """End it, its process group and all."""
        if self._child:
            self._child.kill(SIGKILL)


def surroundings(home: os.PathLike[str]) -> Mapping[str, str]:
    """What programs of OpenHands are given of an environment: nothing that is the user's."""
    return {
        "PATH": os.environ["PATH"],
        "HOME": str(home),
        "NO_PROXY": "*",
        "LITELLM_LOCAL_MODEL_COST_MAP": "True",
        "OPENHANDS_SUPPRESS_BANNER": "1",
        "LOG_LEVEL": "ERROR",
        "LOG_JSON": "true",
    }


async def _until(child: ChildCommand, condition: Callable[[], bool]) -> None:
    give_up_at = time.monotonic() + _START_WITHIN
    while not await asyncio.to_thread(condition):
        if not child.running or time.monotonic() > give_up_at:
            raise BenchError(f"{child.name} does not answer")
        await asyncio.sleep(0.05)
