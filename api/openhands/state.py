"""The state of a conversation as clients have it: what the dialect keeps with it, and the whole as they read it."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, Final, Self
from uuid import UUID

from pydantic import BaseModel, ConfigDict

from palaver.models import AgentSpec, Usage

from .confirmation import Policy
from .generations import Generation
from .statuses import ExecutionStatus

_SECRET: Final = frozenset(
    {
        "api_key", "aws_access_key_id", "aws_secret_access_key", "aws_session_token", "extra_headers", "secrets",
        "litellm_extra_body",
    }
)  # fmt: skip
"""Fields of an agent that hold keys, or may."""


class Kept(BaseModel):
    """What the dialect keeps with a conversation: what clients want back and Palaver has no field for."""

    model_config = ConfigDict(frozen=True)

    generation: Generation = Generation.NEWER
    """Of the client that began it."""
    agent: dict[str, Any]
    """As it was sent, without its keys."""
    max_iterations: int = 500
    stuck_detection: bool = True
    workspace: dict[str, Any] = {"kind": "LocalWorkspace", "working_dir": "workspace"}
    tool_module_qualnames: dict[str, str] = {}
    policy: Policy = Policy()
    analyzer: dict[str, Any] | None = None

    @classmethod
    def of_spec(cls, agent: AgentSpec | None) -> Self:
        """For a conversation that was begun through another dialect."""
        described = {"kind": "Agent", "llm": {"model": agent.model if agent else "none/none", "usage_id": "agent"}}
        return cls(agent=described, max_iterations=agent.max_steps if agent else 500)


def without_keys(value: Any) -> Any:
    """JSON of an agent without what is or may be secret."""
    if isinstance(value, list):
        return [without_keys(each) for each in value]
    if not isinstance(value, dict):
        return value
    return {name: without_keys(each) for name, each in value.items() if name not in _SECRET}


def full_state(
    conversation: UUID,
    kept: Kept,
    status: ExecutionStatus,
    *,
    title: str | None,
    tags: Mapping[str, str],
    created_at: datetime,
    updated_at: datetime,
    usage: Usage,
) -> dict[str, Any]:
    """The answer to a look at a conversation, and the value of a ``full_state``: both generations read what they know.

    Its size does not depend on how long the conversation is: sums stand for the calls that they are of.
    """
    return {
        "id": str(conversation),
        "workspace": kept.workspace,
        "persistence_dir": f"conversations/{conversation.hex}",
        "max_iterations": kept.max_iterations,
        "stuck_detection": kept.stuck_detection,
        "execution_status": status.value,
        "confirmation_policy": kept.policy.shown(),
        "security_analyzer": kept.analyzer,
        "activated_knowledge_skills": [],
        "invoked_skills": [],
        "blocked_actions": {},
        "blocked_messages": {},
        "stats": {"usage_to_metrics": _metrics(kept, usage) if usage.model_calls else {}},
        "secret_registry": {"secret_sources": {}},
        "agent_state": {},
        "title": title,
        "created_at": _instant(created_at),
        "updated_at": _instant(updated_at),
        "tags": dict(tags),
        "agent": kept.agent,
        "client_tools": [],
        "tool_module_qualnames": kept.tool_module_qualnames,
    }


def _metrics(kept: Kept, usage: Usage) -> dict[str, Any]:
    llm = kept.agent.get("llm", {})
    model = str(llm.get("model", ""))
    tokens = {
        "model": model,
        "prompt_tokens": usage.input_tokens,
        "completion_tokens": usage.output_tokens,
        "cache_read_tokens": usage.cached_tokens,
        "cache_write_tokens": usage.cache_write_tokens,
        "reasoning_tokens": usage.reasoning_tokens,
    }
    counted = {"model_name": model, "accumulated_cost": usage.cost_usd or 0.0, "accumulated_token_usage": tokens}
    return {str(llm.get("usage_id") or "default"): counted}


def _instant(at: datetime) -> str:
    return at.astimezone(UTC).isoformat().replace("+00:00", "Z")
