"""A workflow of the Microsoft Agent Framework that refunds an order, or resumes that from its newest checkpoint.

    python -m bench.peers.apps.agent_framework_app FOLDER ORDER [KEY]

Its model is one of its own, which says at once what it wants.
"""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Mapping, Sequence
from typing import Any

from agent_framework import (
    Agent,
    BaseChatClient,
    ChatResponse,
    Content,
    FileCheckpointStorage,
    FunctionInvocationLayer,
    Message,
    WorkflowBuilder,
    tool,
)

from bench.bank import pay

NAME = "refunds"


class Client(FunctionInvocationLayer[Any], BaseChatClient[Any]):
    """A model that calls each tool that it has once, and then is done."""

    def _inner_get_response(
        self, *, messages: Sequence[Message], stream: bool, options: Mapping[str, Any], **_: Any
    ) -> Any:
        return self._answer(messages, options)

    async def _answer(self, messages: Sequence[Message], options: Mapping[str, Any]) -> ChatResponse:
        done = any(content.type == "function_result" for message in messages for content in message.contents)
        if done or not options.get("tools"):
            return ChatResponse(messages=[Message("assistant", ["done"])])
        arguments = json.dumps({"order": sys.argv[2]})
        call = Content.from_function_call(call_id="call-1", name="refund", arguments=arguments)
        return ChatResponse(messages=[Message("assistant", [call])])


@tool(approval_mode="never_require")
def refund(order: str) -> str:
    """Pay an order back."""
    return pay(order, *sys.argv[3:])


async def main() -> None:
    """Run it to its end."""
    storage = FileCheckpointStorage(sys.argv[1])
    decides = Agent(Client(), "Decide.", name="decides")
    acts = Agent(Client(), "Refund.", name="acts", tools=[refund])
    built = WorkflowBuilder(name=NAME, start_executor=decides, checkpoint_storage=storage)
    workflow = built.add_edge(decides, acts).build()
    newest = await storage.get_latest(workflow_name=NAME)
    if newest is None:
        await workflow.run(f"Refund {sys.argv[2]}.")
    else:
        await workflow.run(checkpoint_id=newest.checkpoint_id)


if __name__ == "__main__":
    asyncio.run(main())
