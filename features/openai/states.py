"""A response as an object: of its run, and of what the projection has found of it."""

from __future__ import annotations

from typing import Any, Final

from palaver import operations
from palaver.errors import UnknownRun
from palaver.operations import Backend
from palaver.schemas.arguments import as_json
from palaver.schemas.models import AgentSpec, Run, Usage
from palaver.vocabulary.lifecycle import RunStatus, StopReason

from .ids import ResponseId
from .items import SERVER, approval_item, function_item
from .projection import ResponseProjection
from .servers import server_tool
from .tables import INCOMPLETE, SERVER_ERROR, STATUSES, TIERS, ResponseStatus, error_code
from .wire import ANSWER_BYTES

BACKGROUND: Final = "openai.background"
PREVIOUS: Final = "openai.previous_response_id"
MODEL: Final = "openai.model"
REQUEST: Final = "openai.request"
"""Keys of the metadata of a run: what only the response of it says, and the digest of the request behind a key."""
_OURS: Final = (BACKGROUND, PREVIOUS, MODEL, REQUEST)


async def read_projection(backend: Backend, response: ResponseId, run: Run) -> ResponseProjection:
    """Return the projection of a run's log, as far as it goes for a response."""
    projection = ResponseProjection(response, run.agent)
    async for page in operations.read_run_log(backend, run):
        for entry in page:
            projection.read(entry, entry.opaque.reasoning() if entry.opaque else "")
    return projection


async def read_response(backend: Backend, response: ResponseId) -> tuple[Run, ResponseProjection]:
    """Return the run of a response, and its projection, which go together.

    Raises:
        UnknownRun: there is no such response (any more).
    """
    run = await operations.read_run(backend, response.run_id)
    projection = await read_projection(backend, response, run)
    if response.part and not projection.begun:
        raise UnknownRun(str(response))
    if projection.over and not run.status.terminal:
        run = await operations.read_run(backend, response.run_id)
    return run, projection


def status_of(run: Run, projection: ResponseProjection) -> ResponseStatus:
    """Return the status of a response."""
    if projection.ended_by_call:
        return ResponseStatus.COMPLETED
    status = STATUSES[run.status]
    return ResponseStatus.IN_PROGRESS if run.status is RunStatus.REQUIRES_ACTION else status


def response_object(
    response: ResponseId, run: Run, status: ResponseStatus, projection: ResponseProjection | None = None
) -> dict[str, Any]:
    """Return a response, with the output that the projection has found."""
    agent, metadata = run.agent, run.metadata
    is_last = projection is not None and status.final and not projection.ended_by_call
    told = {name: text for name, text in metadata.items() if name not in _OURS}
    told |= {"palaver_run_id": run.id, "palaver_conversation_id": run.conversation_id}
    if is_last and run.stop_reason is not None:
        told["palaver_stop_reason"] = run.stop_reason
    before = response.previous
    ended_at = run.times.ended_at
    return {
        "id": str(response),
        "object": "response",
        "created_at": int(run.times.created_at.timestamp()),
        "status": status,
        "background": metadata.get(BACKGROUND) == "true",
        "completed_at": int(ended_at.timestamp())
        if ended_at and status is ResponseStatus.COMPLETED and is_last
        else None,
        "error": _error(run) if status is ResponseStatus.FAILED else None,
        "incomplete_details": _limit(run.stop_reason) if status is ResponseStatus.INCOMPLETE else None,
        "instructions": agent.instructions or None,
        "max_output_tokens": agent.max_output_tokens,
        "max_tool_calls": None if run.budget is None else run.budget.tool_calls,
        "metadata": told,
        "model": metadata.get(MODEL) or model_of(agent),
        "output": [] if projection is None else _within_limit(projection.output) + _below(response, run, status),
        "parallel_tool_calls": agent.parallel_tool_calls is not False,
        "previous_response_id": str(before) if before else metadata.get(PREVIOUS),
        "conversation": {"id": run.conversation_id},
        # What a model tells of its thoughts is always shown.
        "reasoning": {"effort": agent.reasoning_effort, "summary": "auto"},
        "temperature": _number(agent.temperature),
        "top_p": _number(agent.top_p),
        "presence_penalty": 0.0,
        "frequency_penalty": 0.0,
        "top_logprobs": 0,
        "service_tier": TIERS.get(run.priority, "default"),
        "safety_identifier": None,
        "prompt_cache_key": None,
        "tool_choice": _choice(agent),
        "tools": _tools(agent),
        "text": {"format": _form(agent)},
        "truncation": "disabled",
        "store": True,
        "usage": usage_of(run.usage) if is_last else None,
    }


def model_of(agent: AgentSpec) -> str:
    """Return the model by which a client names the agent again."""
    return agent.model if agent.version is None else f"agent/{agent.name}@{agent.version}"


def usage_of(usage: Usage) -> dict[str, Any]:
    """Return what a run has used, in the words of responses."""
    return {
        "input_tokens": usage.input_tokens,
        "input_tokens_details": {
            "cached_tokens": usage.cached_tokens,
            "cache_write_tokens": usage.cache_write_tokens,
        },
        "output_tokens": usage.output_tokens,
        "output_tokens_details": {"reasoning_tokens": usage.reasoning_tokens},
        "total_tokens": usage.input_tokens + usage.output_tokens,
    }


def _within_limit(output: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the output without what calls of tools brought, from the oldest on, as far as it is longer than an answer
    may be. The stream and the native API have it all."""
    sizes = [len(item.get("output") or "") + len(item.get("arguments") or "") + 200 for item in output]
    sizes = [
        size + sum(len(part.get("text", "")) for part in item.get("content", ()))
        for size, item in zip(sizes, output, strict=True)
    ]
    left = sum(sizes) - ANSWER_BYTES
    shown = list[dict[str, Any]]()
    for size, item in zip(sizes, output, strict=True):
        if left > 0 and item["type"] == "mcp_call":
            left -= size
            continue
        shown.append(item)
    return shown


def _below(response: ResponseId, run: Run, status: ResponseStatus) -> list[dict[str, Any]]:
    """Return what waits for an action in runs below one that goes on, as the items that ask for it: each is known by
    the id of its action. They are in no stream, for no log of the run has them, and gone once they are answered."""
    if status.final:
        return []
    waiting = [action for action in run.pending_below if action.type != "question"]
    return [
        approval_item(action.model_dump(), response)
        if action.type == "approval"
        else function_item(
            f"fc_{action.id}",
            {"id": action.id, "name": action.tool, "arguments": as_json(action.arguments)},
            "completed",
        )
        for action in waiting
    ]


def _number(option: float | None) -> float:
    """Return an option of sampling as strict clients want it: what is left to the provider is 1 in OpenAI's words."""
    return 1.0 if option is None else option


def _error(run: Run) -> dict[str, Any]:
    error = run.error
    if error is None:
        return {"code": SERVER_ERROR, "type": run.stop_reason, "message": "The time that the run had is over."}
    return {"code": error_code(error["class"]), "type": error["class"], "message": error["message"]}


def _limit(reason: StopReason | None) -> dict[str, str]:
    return {"reason": INCOMPLETE.get(reason or "", "max_output_tokens")}


def _choice(agent: AgentSpec) -> Any:
    choice = agent.tool_choice
    if choice is None or isinstance(choice, str):
        return choice or "auto"
    return {"type": "function", "name": choice.name}


def _tools(agent: AgentSpec) -> list[dict[str, Any]]:
    functions: list[dict[str, Any]] = [
        {
            "type": "function",
            "name": tool.name,
            "description": tool.description,
            "parameters": tool.parameters,
            "strict": False,
        }
        for tool in agent.client_tools
    ]
    servers = [server_tool(label, server, agent.approvals) for label, server in agent.mcp_servers.items()]
    if not agent.tools:
        return [*functions, *servers]
    return [*functions, {"type": "mcp", "server_label": SERVER, "allowed_tools": list(agent.tools)}, *servers]


def _form(agent: AgentSpec) -> dict[str, Any]:
    form = agent.response_format
    return {"type": "text"} if form is None else form.model_dump(mode="json", by_alias=True, exclude_none=True)
