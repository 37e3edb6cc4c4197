"""Runs that wait for answers of every kind: requests about them have all fields."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from palaver.schemas.actions import ServerQuestion
from palaver.steps.leases import Lease
from palaver.steps.verdicts import AskPerson
from tests.unit.api_world import AGENT, World, call
from tests.unit.mcp_host import publish
from tests.unit.test_api_actions_below import call_agent

GIF: Final = "data:image/gif;base64,R0lGODlhAQABAAAAACw="
FUNCTION: Final = {"name": "weather", "description": "d", "parameters": {"type": "object"}}


class Waiting:
    """Runs that wait for answers of every kind, and a run below one."""

    def __init__(self, run: Mapping[str, Any], above: Mapping[str, Any]) -> None:
        self.run, self.conversation = run["id"], run["conversation_id"]
        self.actions = {action["type"]: action["id"] for action in run["pending_actions"]}
        self.above, self.below = above["id"], above["pending_below"][0]["id"]


async def waiting_in(api: World) -> Waiting:
    """Let them wait."""
    await publish(api, "support", client_tools=[{"name": "pick"}], approvals={"timeout": 3600})
    await publish(api, "researcher", approvals={"timeout": 3600})
    await publish(api, "lead", **{**AGENT, "tools": ["calculator", "agent:researcher"]})
    run = await api.submit(agent="support")
    await api.ask(run, call("c1", "approval"), call("c2", "client_tool", "pick"), call("c3"))
    lease = await api.store.steps.claim(
        run["id"], run["conversation_id"], "1/c3", queues=("tools",), worker="w-1", nonce="n", known=0
    )
    assert isinstance(lease, Lease), lease
    form = {"type": "object", "properties": {"a": {"type": "string"}}}
    asked = AskPerson(ServerQuestion(asker="crm", message="Which?", form=form), 3600.0, "{}")
    await api.store.steps.settle(lease, asked)
    above = await api.submit(agent="lead")
    (child,) = await call_agent(api, above, "c1")
    await api.ask(child, call("a1", "approval"))
    return Waiting(await api.read(run), await api.read(above))
