"""The tools: four about runs, and one for each agent on the server."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from functools import cache
from typing import Any, Final

from api.kit.openapi import inlined
from palaver import operations
from palaver.errors import Refused
from palaver.late import dataclass
from palaver.operations import Backend, Caller
from palaver.vocabulary.scopes import Scope

from .arguments import AgentArguments, AnswerArguments, Arguments, CancelArguments, GetArguments, StartArguments
from .states import SCHEMA
from .tables import INVALID_PARAMS
from .wire import RpcFault

_PAGE: Final = 50
_OF_AGENT: Final = "agent_"
_LONGEST: Final = 48
"""Letters of a name. Hosts put their name for the server before it, and providers take 64."""
_DIGEST: Final = 8
_DIGESTED: Final = re.compile(r"_[0-9a-f]{8}$")
INSTRUCTIONS: Final = (
    "Palaver runs agents that go on by themselves, for minutes or days, whatever happens to this connection.\n"
    "Start one with run_start, or with the tool of an agent; pass wait_s=25 to get short answers at once.\n"
    "While status is working, call run_get with the run_id and wait_s=25; do not start the run again.\n"
    "While it is input_required, ask your user about each of the actions, and pass the answers to run_answer.\n"
    "It is over with completed, failed or cancelled; pass its conversation to go on from there; run_cancel stops it."
)


@dataclass(frozen=True, slots=True)
class McpTool:
    """One of the tools about runs."""

    title: str
    description: str
    arguments: type[Arguments]
    scopes: tuple[Scope, ...]
    """A key needs one of them."""
    annotations: Mapping[str, bool]

    def declaration(self, name: str) -> dict[str, Any]:
        """Return the tool as a list has it."""
        return {
            "name": name,
            "title": self.title,
            "description": self.description,
            "inputSchema": _schema(self.arguments),
            "outputSchema": SCHEMA,
            "annotations": self.annotations,
        }


def _hints(
    *, reads: bool = False, destroys: bool = False, repeats: bool = False, world: bool = False
) -> dict[str, bool]:
    return {"readOnlyHint": reads, "destructiveHint": destroys, "idempotentHint": repeats, "openWorldHint": world}


_STARTS: Final = _hints(destroys=True, world=True)
TOOLS: Final[Mapping[str, McpTool]] = {
    "run_start": McpTool(
        "Start a run",
        "Give an agent on the server something to do. Answers at once, or after wait_s, with the state of the run.",
        StartArguments,
        ("runs:submit",),
        _STARTS,
    ),
    "run_get": McpTool(
        "Look at a run",
        "The state of a run: whether it is working, what it waits for, its result or error. Wait with wait_s.",
        GetArguments,
        ("runs:read",),
        _hints(reads=True, repeats=True),
    ),
    "run_answer": McpTool(
        "Answer a run",
        "Decide on calls that wait for an approval, or bring the output of tools that are run on your side. Ask your "
        "user first.",
        AnswerArguments,
        ("actions:approve", "runs:act"),
        _hints(repeats=True),
    ),
    "run_cancel": McpTool(
        "Cancel a run",
        "Stop a run. What it has done stays done.",
        CancelArguments,
        ("runs:act",),
        _hints(repeats=True),
    ),
}


async def list_tools(backend: Backend, caller: Caller, cursor: str | None) -> tuple[list[dict[str, Any]], str | None]:
    """Return a page of the tools that the caller's key is for, and the cursor of the next one.

    Raises:
        RpcFault: the cursor is none.
    """
    listed = [] if cursor else [tool.declaration(name) for name, tool in TOOLS.items() if _may(caller, tool)]
    if not _may(caller, TOOLS["run_start"]) or caller.conversation is not None:
        return listed, None
    try:
        page = await operations.list_agents(backend, caller, limit=_PAGE, cursor=cursor)
    except Refused as refused:
        raise RpcFault(INVALID_PARAMS, str(refused.detail), refused.code) from None
    return [*listed, *(_of_agent(agent.name) for agent in page.agents)], page.next_cursor


async def agent_of(backend: Backend, caller: Caller, tool: str) -> str | None:
    """Return the name of the agent whose tool may be called so; None if it is no agent's. Whether there is such an
    agent is seen when it is run.

    Raises:
        InsufficientScope: the caller's key starts no runs.
    """
    if not tool.startswith(_OF_AGENT):
        return None
    operations.require_scope(caller, "runs:submit")
    name = tool.removeprefix(_OF_AGENT)
    if tool_of(name) == tool:
        return name
    cursor: str | None = None
    while True:
        page = await operations.list_agents(backend, caller, limit=_PAGE, cursor=cursor)
        for agent in page.agents:
            if tool_of(agent.name) == tool:
                return agent.name
        cursor = page.next_cursor
        if cursor is None:
            return None


def tool_of(agent: str) -> str:
    """Return the name of an agent's tool: letters, digits, ``_`` and ``-``. One that has to be changed for it, or is
    like one that was, ends with a digest of the agent's: no two agents have the same, and it is known which to look
    for."""
    fit = re.sub(r"[^A-Za-z0-9_-]", "_", agent)
    if fit == agent and len(_OF_AGENT) + len(fit) <= _LONGEST and not _DIGESTED.search(fit):
        return f"{_OF_AGENT}{fit}"
    digest = hashlib.sha256(agent.encode()).hexdigest()[:_DIGEST]
    return f"{_OF_AGENT}{fit[: _LONGEST - len(_OF_AGENT) - _DIGEST - 1]}_{digest}"


def _of_agent(name: str) -> dict[str, Any]:
    description = f"Give the agent {name} something to do. Answers as run_start does."
    return McpTool(f"Ask {name}", description, AgentArguments, ("runs:submit",), _STARTS).declaration(tool_of(name))


def _may(caller: Caller, tool: McpTool) -> bool:
    return caller.scopes is None or not caller.scopes.isdisjoint(tool.scopes)


@cache
def _schema(arguments: type[Arguments]) -> dict[str, Any]:
    schema = arguments.model_json_schema()
    plain: dict[str, Any] = inlined(schema, schema.pop("$defs", {}))
    plain.pop("description", None)
    return plain
