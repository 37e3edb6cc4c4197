"""Databricks' LongRunningAgentServer, which speaks OpenAI's Responses in the background, on PostgreSQL."""

from __future__ import annotations

import asyncio

from bench.asked import BenchError
from bench.peers.install import DATABRICKS as INSTALLED
from bench.peers.peer import Peer, Work
from bench.peers.postgres import Postgres
from bench.rig import Rig


class LongRunning(Peer):
    """One process with its API and its agent in it, and PostgreSQL."""

    name = "databricks-ai-bridge"
    completed = "completed"

    def __init__(self, rig: Rig) -> None:
        super().__init__(rig)
        self._python = INSTALLED.program()
        self._database = Postgres(INSTALLED.packages, self.surroundings())

    @property
    def about(self) -> str:
        return (
            f"databricks-ai-bridge {INSTALLED.version('databricks-ai-bridge')}, `LongRunningAgentServer` as it is set "
            f"without options, on PostgreSQL {self._database.version} in the place of Lakebase: only its login is "
            "replaced. Its handler is the same agent as elsewhere in this bench, without a session of its own."
        )

    async def begin(self) -> None:
        try:
            await asyncio.to_thread(self._database.make)
        except BenchError as error:
            raise BenchError(f"{self.name}: {error}") from None
        self.run_program("postgres", self._database.command, self.surroundings())
        await self._rig.until(self._database.is_up, "PostgreSQL answers")
        url = f"postgresql+psycopg://{self._database.address}"
        app = (self._python, "-m", "bench.peers.apps.databricks_app")
        self.run_program("app", app, self.surroundings(BENCH_DATABASE_URL=url))

    async def close(self) -> None:
        await super().close()
        self._database.remove()

    async def submit(self, work: Work) -> str:
        return str((await self.ask("POST", "/responses", {**_body(work), "background": True}))["id"])

    async def hold(self, work: Work) -> None:
        await self.ask("POST", "/responses", _body(work))

    async def status(self, run: str) -> str:
        return str((await self.ask("GET", f"/responses/{run}"))["status"])

    async def cancel(self, run: str) -> None:
        await self.ask("POST", f"/responses/{run}/cancel")


def _body(work: Work) -> dict[str, object]:
    said = [{"type": "message", "role": "user", "content": work.input}]
    return {"input": said, "custom_inputs": {"model": work.model, "tool": work.tool}}
