"""Restate: its server, and a service that it calls."""

from __future__ import annotations

from typing import Final

from bench.peers.install import RESTATE, restate_server, server_version
from bench.peers.peer import Peer, Work
from bench.rig import Rig
from features.stack.ports import HOST, free_port

_NOT_READY: Final = 470
"""What its ingress answers for the output of a run that goes on."""


class Restate(Peer):
    """The server, and the app in a process of its own."""

    name = "Restate"
    completed = "completed"

    def __init__(self, rig: Rig) -> None:
        super().__init__(rig)
        self._hypercorn = RESTATE.program("hypercorn")
        self._server = restate_server()
        self._admin, self._service, self._node = free_port(), free_port(), free_port()

    @property
    def about(self) -> str:
        return (
            f"restate-server {server_version()}, one node without an fsync for each write, as Palaver's Redis does "
            f"none; restate-sdk {RESTATE.version('restate-sdk')} for Python on hypercorn, with uvloop and over HTTP/2. "
            "A run is a call of a handler, each model call and each tool call a `ctx.run` of its journal."
        )

    async def begin(self) -> None:
        ports = {"INGRESS__BIND": self._port, "ADMIN__BIND": self._admin, "BIND": self._node}
        environment = self.surroundings(
            RESTATE_BASE_DIR=str(self._rig.folder / f"restate-{self._port}"),
            RESTATE_NODE_NAME="bench",
            RESTATE_LISTEN_MODE="tcp",
            RESTATE_DISABLE_TELEMETRY="true",
            RESTATE_LOG_FILTER="error",
            RESTATE_LOG_SERVER__ROCKSDB_DISABLE_WAL_FSYNC="true",
            RESTATE_BIFROST__LOCAL__ROCKSDB_DISABLE_WAL_FSYNC="true",
            **{f"RESTATE_{name}_IP": HOST for name in ports},
            **{f"RESTATE_{name}_PORT": str(port) for name, port in ports.items()},
        )
        self.run_program("server", (self._server, "--no-logo"), environment)
        bound = ("--bind", f"{HOST}:{self._service}", "-k", "uvloop", "--log-level", "ERROR")
        self.run_program("app", (self._hypercorn, *bound, "bench.peers.apps.restate_app:app"), self.surroundings())
        deployment = {"uri": f"http://{HOST}:{self._service}"}
        admin = f"http://{HOST}:{self._admin}"
        await self.attempt(lambda: self.ask("POST", "/deployments", deployment, url=admin), "no service is registered")

    async def submit(self, work: Work) -> str:
        return str((await self.ask("POST", "/agent/hold/send", work.job()))["invocationId"])

    async def hold(self, work: Work) -> None:
        await self.ask("POST", "/agent/hold", work.job())

    async def status(self, run: str) -> str:
        path = f"/restate/invocation/{run}/output"
        async with self._http.get(f"{self.url}{path}") as response:
            await response.read()
            return "running" if response.status == _NOT_READY else "completed" if response.status == 200 else "failed"

    async def cancel(self, run: str) -> None:
        await self.ask("PATCH", f"/invocations/{run}/cancel", url=f"http://{HOST}:{self._admin}")
