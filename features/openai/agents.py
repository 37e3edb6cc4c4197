"""The agent of a request: one on the server, or a model with the options of the request."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, Final, get_args

from palaver import operations
from palaver.errors import FieldError, Refused, UnknownAgent
from palaver.operations import Backend, Caller
from palaver.schemas.agents import ServerAgent, split_reference
from palaver.schemas.conversation import Conversation
from palaver.schemas.fields import AgentReference
from palaver.schemas.mcp_servers import tool_name

from .items import SERVER
from .servers import is_elsewhere

ON_SERVER: Final = "agent/"
_REFERENCE: Final = re.compile(get_args(AgentReference)[1].pattern)
_NO_TOOL: Final = (
    f'is not run here: there are functions, tools of this server as {{"type": "mcp", "server_label": "{SERVER}", '
    '"allowed_tools": ["NAME"]}, and MCP servers by their server_url'
)


async def agent_of(
    model: str | None,
    options: Mapping[str, Any],
    instructions: str | None,
    backend: Backend,
    caller: Caller,
    conversation: Conversation | None = None,
) -> tuple[str | dict[str, Any] | None, frozenset[str]]:
    """Return the agent that a request names, as the body of a submit has it; None for that of the ``conversation``. One
    on the server, or of the conversation, that the request changes is an agent of the request: its own fields stay
    where nothing is said of them, and instructions come behind its own. Return with it those who wrote the one that is
    changed, as `operations.begin` takes them.

    Raises:
        Refused: ``unknown_agent``, ``agent_not_allowed``.
    """
    known, writers = None if conversation is None else conversation.agent, frozenset[str]()
    if model is None and known is None:
        if options or instructions:
            raise Refused.of_faults([FieldError("/model", "no_agent", "is required with options of it")])
        return None, writers
    reference = None if model is None else reference_of(model)
    if not options and not instructions and (reference is not None or model is None):
        return reference, writers
    if model is not None and reference is None:
        return {"model": model, **options, **({"instructions": instructions} if instructions else {})}, writers
    if reference is not None:
        kept = await kept_agent(reference, backend, caller)
        known, writers = kept.agent, frozenset({kept.created_by or ""})
    elif conversation is not None:
        standing = await operations.standing_agent(backend, conversation.id)
        known, writers = standing.spec, standing.by
    own = {} if known is None else known.model_dump(mode="json", by_alias=True, exclude_defaults=True)
    own.pop("version", None)
    own.pop("subagents", None)
    both = "\n\n".join(filter(None, (own.get("instructions"), instructions)))
    servers = {**own.get("mcp_servers", {}), **options.get("mcp_servers", {})}
    return {**own, **options, **({"mcp_servers": servers} if servers else {}), "instructions": both}, writers


def reference_of(model: str) -> str | None:
    """Return the agent on the server that a model is; None for a model of a provider.

    Raises:
        Refused: ``unknown_agent``, no agent has such a name.
    """
    if "/" in model and not model.startswith(ON_SERVER):
        return None
    reference = model.removeprefix(ON_SERVER)
    if not _REFERENCE.fullmatch(reference):
        raise unknown_agent()
    return reference


async def kept_agent(reference: str, backend: Backend, caller: Caller) -> ServerAgent:
    """Return an agent on the server.

    Raises:
        Refused: ``unknown_agent``, ``agent_not_allowed``.
    """
    try:
        return await operations.read_agent(backend, *split_reference(reference), caller)
    except UnknownAgent:
        raise unknown_agent() from None


def unknown_agent() -> Refused:
    """Return the refusal of a model that requests may not name."""
    return Refused.of_faults([FieldError("/model", "unknown_agent", "is not on the server")])


def options_of(body: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields of an agent that the fields of a request of OpenAI's are.

    Raises:
        Refused: one cannot be carried.
    """
    options: dict[str, Any] = {
        name: body[name]
        for name in ("temperature", "top_p", "max_output_tokens", "parallel_tool_calls")
        if body.get(name) is not None
    }
    if body.get("tools"):
        options |= _tools(body["tools"])
    if (choice := body.get("tool_choice")) is not None:
        options["tool_choice"] = _choice(choice)
    if (effort := (body.get("reasoning") or {}).get("effort")) is not None:
        options["reasoning_effort"] = effort
    if (form := (body.get("text") or {}).get("format")) is not None and form.get("type") != "text":
        options["response_format"] = _form(form)
    return options


def chat_options(body: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields of an agent that only chat completions have in another form.

    Raises:
        Refused: one cannot be carried.
    """
    options: dict[str, Any] = {name: body[name] for name in ("seed", "reasoning_effort") if body.get(name) is not None}
    most = body.get("max_completion_tokens") or body.get("max_tokens")
    if most is not None:
        options["max_output_tokens"] = most
    if (stop := body.get("stop")) is not None:
        options["stop"] = [stop] if isinstance(stop, str) else stop
    match body.get("response_format"):
        case {"type": "json_schema", "json_schema": dict() as form}:
            options["response_format"] = {"type": "json_schema", **_form(form)}
        case {"type": "json_object"}:
            options["response_format"] = {"type": "json_object"}
    return options


def _form(form: Mapping[str, Any]) -> dict[str, Any]:
    known = ("type", "name", "schema", "strict")
    return {name: form[name] for name in known if form.get(name) is not None}


def _tools(tools: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for place, tool in enumerate(tools):
        where = f"/tools/{place}"
        match tool:
            case {"type": "function", "function": dict() as function}:
                found.setdefault("client_tools", []).append(_function(function, where))
            case {"type": "function"}:
                found.setdefault("client_tools", []).append(_function(tool, where))
            case {"type": "mcp"} if is_elsewhere(tool):
                continue
            case {"type": "mcp"}:
                found.setdefault("tools", []).extend(_names(tool.get("allowed_tools"), f"{where}/allowed_tools"))
                if (approval := tool.get("require_approval")) is not None:
                    found["approvals"] = _approvals(approval, f"{where}/require_approval")
            case _:
                raise Refused.of_faults([FieldError(f"{where}/type", "unsupported_option", _NO_TOOL)])
    return found


def _function(tool: Mapping[str, Any], where: str) -> dict[str, Any]:
    name = tool.get("name")
    if not isinstance(name, str):
        raise Refused.at(f"{where}/name", "must be a text")
    told = {"name": name, "description": tool.get("description") or ""}
    parameters = tool.get("parameters")
    return told if parameters is None else {**told, "parameters": parameters}


def _names(allowed: Any, where: str) -> list[str]:
    match allowed:
        case {"tool_names": list() as names} | (list() as names) if all(isinstance(name, str) for name in names):
            return names
    raise Refused.at(where, "must name the tools: all is none of them")


def _approvals(approval: Any, where: str) -> dict[str, Any]:
    match approval:
        case "always" | "never":
            return {"require": approval}
        case dict():
            always, never = approval.get("always"), approval.get("never")
            found: dict[str, Any] = {}
            if always is not None:
                found["require"] = _names(always, f"{where}/always")
            if never is not None:
                found["exempt"] = _names(never, f"{where}/never")
            return found
    raise Refused.at(where, "must be always, never, or an object of them")


def _choice(choice: Any) -> Any:
    match choice:
        case str():
            return choice
        case {"type": "mcp", "server_label": str() as label, "name": str() as name} if label != SERVER:
            return {"name": tool_name(label, name)}
        case {"type": "function", "function": {"name": name}} | {"type": "function" | "mcp", "name": name}:
            return {"name": name}
    why = "is none of auto, none, required, and a tool by its name"
    raise Refused.of_faults([FieldError("/tool_choice", "unsupported_option", why)])
