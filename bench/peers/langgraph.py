"""LangGraph's API server, as `langgraph dev` starts it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Final
from uuid import uuid4

from bench.peers.install import LANGGRAPH
from bench.peers.peer import Peer, Work
from bench.rig import Rig
from features.stack.ports import HOST

_GRAPH: Final = Path(__file__).resolve().parent / "apps" / "langgraph_app.py"
_JOBS: Final = 200
_STEPS: Final = 250


class LangGraph(Peer):
    """One process that keeps everything in memory."""

    name = "LangGraph"
    completed = "success"

    def __init__(self, rig: Rig) -> None:
        super().__init__(rig)
        self._program = LANGGRAPH.program("langgraph")

    @property
    def about(self) -> str:
        versions = ", ".join(f"{name} {LANGGRAPH.version(name)}" for name in ("langgraph", "langgraph-api"))
        return (
            f"{versions}, as `langgraph dev --no-reload --n-jobs-per-worker {_JOBS}` runs it: a graph with a node for "
            "the model and one for tools over plain messages, a thread for each run, and the checkpointer of `dev`, "
            "which is memory. Its server on PostgreSQL and Redis wants a licence."
        )

    async def begin(self) -> None:
        folder = self._rig.folder / f"langgraph-{self._port}"
        folder.mkdir()
        config = folder / "langgraph.json"
        config.write_text(json.dumps({"dependencies": ["."], "graphs": {"agent": f"{_GRAPH}:graph"}}))
        listening = ("--host", HOST, "--port", str(self._port), "--no-browser", "--no-reload")
        command = (self._program, "dev", "--config", str(config), *listening, "--n-jobs-per-worker", str(_JOBS))
        environment = self.surroundings(
            LANGGRAPH_CLI_NO_ANALYTICS="1",
            LANGGRAPH_NO_VERSION_CHECK="true",
            LANGSMITH_TRACING="false",
            LOG_LEVEL="ERROR",
        )
        # It keeps its files where it is started.
        quiet = ("--server-log-level", "ERROR")
        self.run_program("app", ("env", "-C", str(folder), *command, *quiet), environment)

    async def submit(self, work: Work) -> str:
        thread = uuid4()
        run = await self.ask("POST", f"/threads/{thread}/runs", _body(work))
        return f"{thread}/runs/{run['run_id']}"

    async def hold(self, work: Work) -> None:
        await self.ask("POST", f"/threads/{uuid4()}/runs/wait", _body(work))

    async def status(self, run: str) -> str:
        return str((await self.ask("GET", f"/threads/{run}"))["status"])

    async def cancel(self, run: str) -> None:
        await self.ask("POST", f"/threads/{run}/cancel")


def _body(work: Work) -> dict[str, object]:
    return {
        "assistant_id": "agent",
        "input": {"job": work.job(), "messages": []},
        "config": {"recursion_limit": _STEPS},
        "if_not_exists": "create",
    }
