"""Palaver with the commands of its Procfile: an API, one model worker, a tools worker where it needs one, Redis."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import ClassVar, Final

from bench.asked import BenchError
from bench.conversation import INSTRUCTIONS
from bench.peers.peer import Peer, Work
from bench.rig import Rig
from features.stack.plan import COMMANDS
from features.stack.ports import HOST, free_port

_WAIT: Final = 60


class Palaver(Peer):
    """With tools that run inside the model step."""

    name = "Palaver, inline tools"
    completed = "completed"
    ours = True
    killed = MappingProxyType({"model": ("worker",), "tool": ("worker",)})
    how: ClassVar[str] = "inline"
    roles: ClassVar[Sequence[str]] = ("api", "worker")

    def __init__(self, rig: Rig) -> None:
        super().__init__(rig)
        self._redis = rig.start_redis(f"redis-{self._port}")

    @property
    def about(self) -> str:
        return (
            "`palaver api`, one `palaver worker`, and Redis with its append-only file (`appendfsync everysec`), with "
            "events for Flower and a log line for each step. Its tools run inside the model step. It always streams."
        )

    @property
    def pids(self) -> Mapping[str, int]:
        return {"redis": self._redis.pid, **super().pids}

    @property
    def environment(self) -> Mapping[str, str]:
        """Of each of its processes."""
        return {
            **self._rig.environment,
            "PALAVER_REDIS_URL": self._redis.url,
            "PALAVER_BROKER_URL": "",
            "PALAVER_LEASE_SECONDS": "15",
            "PALAVER_HOST": HOST,
            "PALAVER_API_PORT": str(self._port),
            "PALAVER_FLOWER_PORT": str(free_port()),
            "PALAVER_FLOWER_OPEN": "true",
            "PALAVER_TOOLS": "bench.peers.palaver_tools",
            "PALAVER_INLINE_TOOLS": "bench.peers.palaver_tools" if self.how == "inline" else "",
            "BENCH_TOOLS": self.how,
            "BENCH_TOOL_EFFECTS": str(self.effects),
        }

    async def begin(self) -> None:
        for role in self.roles:
            self.run_program(role, COMMANDS[role], self.environment)

    async def submit(self, work: Work) -> str:
        return str((await self.ask("POST", "/v1/runs", _body(work)))["id"])

    async def hold(self, work: Work) -> None:
        run = await self.ask("POST", "/v1/runs", _body(work), headers={"Prefer": f"wait={_WAIT}"})
        if run["status"] != self.completed:
            raise BenchError(f"{self.name}: a run is {run['status']} after {_WAIT} s")

    async def status(self, run: str) -> str:
        return str((await self.ask("GET", f"/v1/runs/{run}"))["status"])

    async def cancel(self, run: str) -> None:
        await self.ask("POST", f"/v1/runs/{run}/cancel")


class ToolSteps(Palaver):
    """With tools that are steps of their own, each in a child that can be killed."""

    name = "Palaver, tool steps"
    how = "steps"
    roles = ("api", "worker", "tools")
    killed = MappingProxyType({"model": ("worker",), "tool": ("tools",)})

    @property
    def about(self) -> str:
        return "The same with `palaver tools`: each tool call is a step of its own in a process that can be killed."


class AsyncSteps(ToolSteps):
    """With tools that are coroutines, and steps of their own."""

    name = "Palaver, async steps"
    how = "async"

    @property
    def about(self) -> str:
        return (
            "The same with tools that are `async` functions, and `PALAVER_TOOL_POOL=loop palaver tools`: each tool "
            "call is a step of its own, on one event loop."
        )

    @property
    def environment(self) -> Mapping[str, str]:
        return {**super().environment, "PALAVER_TOOL_POOL": "loop"}


def _body(work: Work) -> dict[str, object]:
    agent = {"model": f"fake/{work.model}", "instructions": INSTRUCTIONS, "tools": [work.tool] if work.tool else []}
    return {"agent": agent, "input": work.input}
