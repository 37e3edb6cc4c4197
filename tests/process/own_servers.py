"""A stack for conversations that name MCP servers themselves."""

from __future__ import annotations

import json
from typing import Any

from tests.process.cluster import Cluster
from tests.process.test_mcp_tools import Web
from tests.process.test_tools import answers
from tests.waiting import eventually


class Own:
    """A stack without any tools of servers, and two servers that its operator allows; nobody answers at a third."""

    def __init__(self, cluster: Cluster, one: Web, two: Web, nobody: int) -> None:
        self.cluster = cluster
        self.one = one
        self.two = two
        self.nobody = nobody

    def calls(self, server: Web, tool: str) -> int:
        """The calls of a tool that a server has had."""
        return server.journal.read_text().splitlines().count(tool)

    def agent(self, port: int, label: str = "web", **more: Any) -> dict[str, Any]:
        """The part of an agent about a server of its own; nobody is asked before its calls."""
        server = {"url": f"http://127.0.0.1:{port}/mcp", **more}
        return {"mcp_servers": {label: server}, "approvals": {"require": "never"}}

    def submit(self, tool: str, *, port: int = 0, agent: dict[str, Any] | None = None, **more: Any) -> str:
        """A run whose model calls a tool of the first server once."""
        text = f"[[args {json.dumps(more.pop('arguments', {}))}]]"
        agent = agent or self.agent(port or self.one.port)
        return self.cluster.submit(f"tool-1+use-web__{tool}", text, agent=agent, **more)

    def in_flight(self) -> str:
        """A run whose call has come to the first server, and does not end."""
        before = self.calls(self.one, "wait")
        run_id = self.submit("wait")
        eventually(lambda: self.calls(self.one, "wait") == before + 1)
        return run_id

    def said(self, run_id: str) -> str:
        """The answer to the call of a run."""
        (finished,) = answers(self.cluster, run_id)
        return str(finished.data["message"]["content"])
