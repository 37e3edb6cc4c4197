"""Databricks' LongRunningAgentServer, which speaks OpenAI's Responses in the background, on PostgreSQL."""

from __future__ import annotations

from bench.peers.install import DATABRICKS
from bench.peers.on_postgres import OnPostgres
from bench.peers.peer import Work


class LongRunning(OnPostgres):
    """One process with its API and its agent in it, and PostgreSQL."""

    name = "databricks-ai-bridge"
    completed = "completed"
    installed = DATABRICKS
    program = "bench.peers.apps.databricks_app"
    scheme = "postgresql+psycopg"

    @property
    def about(self) -> str:
        return (
            f"databricks-ai-bridge {self.installed.version('databricks-ai-bridge')}, `LongRunningAgentServer` as it is "
            f"set without options, on PostgreSQL {self._database.version} in the place of Lakebase: only its login is "
            "replaced. Its handler is the same agent as elsewhere in this bench, without a session of its own."
        )

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
