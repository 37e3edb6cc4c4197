"""What is asked of every peer, and how it is started, killed and counted."""

from __future__ import annotations

import asyncio
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from signal import SIGKILL
from types import MappingProxyType
from typing import Any, ClassVar, Final, NamedTuple

import aiohttp

from bench.asked import BenchError
from bench.conversation import INPUT
from bench.rig import Rig
from features.stack.child import ChildCommand
from features.stack.ports import HOST, free_port

_START_WITHIN: Final = 90.0
_PATIENCE: Final = 150.0
_LOOK: Final = 0.05


class Work(NamedTuple):
    """A run: what its agent calls, and its one tool, or none."""

    model: str
    tool: str = ""
    input: str = INPUT

    def job(self) -> dict[str, str]:
        """As the peers' own agents take it; they fill in the run."""
        return {"run": "", "model": self.model, "input": self.input, "tool": self.tool}


class Peer(ABC):
    """One of those that are compared, with all its processes.

    What these answer over HTTP is the peer's own where it has an API. Use it as a context.
    """

    name: ClassVar[str]
    completed: ClassVar[str]
    """Its word for a run that came to its end."""
    ours: ClassVar[bool] = False
    killed: ClassVar[Mapping[str, Sequence[str]]] = MappingProxyType({"model": ("app",), "tool": ("app",)})
    """The processes that a crash kills, by what they are killed in."""

    def __init__(self, rig: Rig) -> None:
        self._rig = rig
        self._port = free_port()
        self._children: dict[str, ChildCommand] = {}
        self.effects = rig.folder / f"effects-{self._port}"
        """The file to which its tool writes."""

    @cached_property
    def _http(self) -> aiohttp.ClientSession:
        patience, connections = aiohttp.ClientTimeout(total=_PATIENCE), aiohttp.TCPConnector(limit=0)
        return aiohttp.ClientSession(timeout=patience, connector=connections)

    @property
    @abstractmethod
    def about(self) -> str:
        """Versions, and how it is set up."""

    @abstractmethod
    async def begin(self) -> None:
        """Start its processes; does not wait for them."""

    @abstractmethod
    async def submit(self, work: Work) -> str:
        """Begin a run; its id."""

    @abstractmethod
    async def hold(self, work: Work) -> None:
        """Begin a run and wait for its end, in one request."""

    @abstractmethod
    async def status(self, run: str) -> str:
        """Where a run is, in the peer's words."""

    @abstractmethod
    async def cancel(self, run: str) -> None:
        """Stop a run."""

    @property
    def pids(self) -> Mapping[str, int]:
        """Its processes, by what they do; what is below them belongs to them."""
        return {name: child.pid for name, child in self._children.items()}

    @property
    def url(self) -> str:
        """Where it is asked."""
        return f"http://{HOST}:{self._port}"

    async def start(self) -> None:
        """Start it and wait until it has held a conversation.

        Raises:
            BenchError: it has not within 90 s.
        """
        await self.begin()
        await self.attempt(lambda: self.hold(Work("echo", input="Are you there?")), "it does not answer")

    async def close(self) -> None:
        """Kill its processes."""
        await self._http.close()
        for child in self._children.values():
            child.kill(SIGKILL)

    async def crash(self, where: str) -> float:
        """Kill what does this kind of work, and start it again at once; when it was killed, UTC epoch seconds."""
        at = time.time()
        struck = [self._children[name] for name in self.killed[where]]
        for child in struck:
            child.kill(SIGKILL)
        for child in struck:
            child.start()
        return at

    async def ended(self, runs: Sequence[str], within: float) -> int:
        """Wait for so many seconds until all of the runs are completed; how many are."""
        give_up_at = time.monotonic() + within
        open_runs = set(runs)
        while open_runs and time.monotonic() < give_up_at:
            for run in list(open_runs):
                if await self._status(run) == self.completed:
                    open_runs.discard(run)
            await asyncio.sleep(_LOOK)
        return len(runs) - len(open_runs)

    async def _status(self, run: str) -> str:
        try:
            return await self.status(run)
        except (BenchError, aiohttp.ClientError):
            # Who was killed does not answer at once.
            return ""

    async def attempt(self, what: Callable[[], Any], complaint: str) -> Any:
        """Do something that can only be done once processes are up."""
        give_up_at = time.monotonic() + _START_WITHIN
        while True:
            try:
                return await asyncio.wait_for(what(), max(1.0, give_up_at - time.monotonic()))
            except (BenchError, TimeoutError) as error:
                ended = [child.name for child in self._children.values() if not child.running]
                if ended or time.monotonic() > give_up_at:
                    gone = f"; ended: {', '.join(ended)}" if ended else ""
                    raise BenchError(f"{self.name}: {complaint}: {error}{gone}") from None
            await asyncio.sleep(_LOOK)

    def run_program(self, role: str, command: Sequence[str], environment: Mapping[str, str]) -> ChildCommand:
        """Start a process of it."""
        child = self._rig.start_foreign(f"{self.name}: {role}", command, environment)
        self._children[role] = child
        return child

    def surroundings(self, **more: str) -> dict[str, str]:
        """The environment of a program of others: nothing that is the user's, and nobody to tell anything."""
        home = self._rig.folder / f"home-{self._port}"
        home.mkdir(exist_ok=True)
        return {
            "PATH": "/usr/local/bin:/usr/bin:/bin",
            "HOME": str(home),
            "NO_PROXY": "*",
            "DO_NOT_TRACK": "1",
            "PYTHONPATH": str(Path(__file__).resolve().parent.parent.parent),
            "BENCH_MODEL_URL": self._rig.model_url,
            "BENCH_TOOL_EFFECTS": str(self.effects),
            "BENCH_PORT": str(self._port),
            **more,
        }

    async def ask(
        self, method: str, path: str, body: Any = None, *, url: str = "", headers: Mapping[str, str] | None = None
    ) -> Any:
        """What it answers.

        Raises:
            BenchError: it refuses, or nobody answers.
        """
        try:
            address = f"{url or self.url}{path}"
            async with self._http.request(method, address, json=body, headers=headers) as response:
                if response.status >= 400:
                    raise BenchError(f"{self.name}: {method} {path}: {response.status} {(await response.text())[:300]}")
                return await response.json(content_type=None) if response.status != 204 else None
        except (aiohttp.ClientError, TimeoutError) as error:
            raise BenchError(f"{self.name}: {method} {path}: {type(error).__name__} {error}") from None


class WithRuns(Peer):
    """One that has no API of its own, but the small one of its app here."""

    async def submit(self, work: Work) -> str:
        return str((await self.ask("POST", "/runs", work.job()))["id"])

    async def hold(self, work: Work) -> None:
        await self.ask("POST", "/runs/wait", work.job())

    async def status(self, run: str) -> str:
        return str((await self.ask("GET", f"/runs/{run}"))["status"])

    async def cancel(self, run: str) -> None:
        await self.ask("POST", f"/runs/{run}/cancel")
