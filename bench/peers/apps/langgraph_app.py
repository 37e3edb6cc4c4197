"""LangGraph: a graph with a model node and a tool node over plain messages; the server brings its checkpointer."""

from __future__ import annotations

import asyncio
import operator
from typing import Annotated, Any, TypedDict

from langchain_core.runnables import RunnableConfig
from langgraph.graph import END, START, StateGraph

from bench.peers.apps import agent

_client: Any = None


class State(TypedDict):
    """What is checkpointed after each node."""

    job: agent.Job
    messages: Annotated[list[agent.Message], operator.add]


async def model(state: State, config: RunnableConfig) -> dict[str, Any]:
    """Ask the model."""
    global _client
    if _client is None:
        _client = agent.client()
    job = state["job"]
    job["run"] = str(config["configurable"]["run_id"])
    begun = state["messages"] or agent.beginning(job)
    said = await agent.ask(_client, job, begun)
    return {"messages": [said] if state["messages"] else [*begun, said]}


async def tools(state: State) -> dict[str, Any]:
    """Run the tools that the model asked for; what blocks runs in a thread."""
    calls = state["messages"][-1]["tool_calls"]
    if state["job"]["tool"] == "slow":
        return {"messages": [await asyncio.to_thread(agent.use, call) for call in calls]}
    return {"messages": [agent.use(call) for call in calls]}


def _next(state: State) -> str:
    return "tools" if state["messages"][-1].get("tool_calls") else END


_builder = StateGraph(State)
_builder.add_node("model", model)
_builder.add_node("tools", tools)
_builder.add_edge(START, "model")
_builder.add_conditional_edges("model", _next, ["tools", END])
_builder.add_edge("tools", "model")
graph = _builder.compile()
