"""The state of a conversation as clients have it: the part that the dialect stores, and the whole as they read it."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from datetime import UTC, datetime
from enum import StrEnum
from typing import Any, Final, Self
from uuid import UUID

from pydantic import ConfigDict, Field, field_validator

from palaver.schemas.actions import ClientTool
from palaver.schemas.fields import DataModel
from palaver.schemas.models import AgentSpec, Usage

from .agents import Policy
from .content import described
from .tables import ExecutionStatus


class Generation(StrEnum):
    """A generation of clients, by the fields and kinds of events that they take."""

    OLDER = "1.7"
    """SDK 1.7.3 and those near it."""
    NEWER = "1.58"
    """SDK 1.58.2 and those near it."""

    @classmethod
    def of_fields(cls, names: Collection[str]) -> Self:
        """Return the generation of a client by the fields that it sends to begin a conversation: newer ones always send
        two that older ones do not have."""
        return cls.NEWER if "client_tools" in names or "tags" in names else cls.OLDER


_SECRET: Final = frozenset(
    {"auth", "aws_access_key_id", "env", "extra_headers", "headers", "litellm_extra_body", "mcp_tools", "secrets"}
)
"""Fields of an agent that hold keys, or may."""
_SECRET_ENDINGS: Final = ("key", "token", "secret", "password")
"""Endings of the names of others."""


class ClientState(DataModel):
    """The state that the dialect stores with a conversation: fields that clients want back and Palaver has none for.

    However it is made, it has no keys, neither where it is stored nor where it is shown.
    """

    model_config = ConfigDict(frozen=True)

    generation: Generation = Generation.NEWER
    """The generation of the client that began it."""
    agent: dict[str, Any]
    """The agent as it was sent, without its keys."""
    max_iterations: int = 500
    stuck_detection: bool = True
    workspace: dict[str, Any] = Field(default={"kind": "LocalWorkspace", "working_dir": "workspace"})
    tool_module_qualnames: dict[str, str] = Field(default={})
    policy: Policy = Policy()
    analyzer: dict[str, Any] | None = None
    paused_after: str | None = None
    """The newest run when it was paused while nothing ran, empty if there was none: any later run undoes that."""
    deleted_with: str | None = None
    """The newest run when it was to be deleted while something ran: any later run undoes that."""

    @field_validator("agent")
    @classmethod
    def _agent_without_keys(cls, agent: dict[str, Any]) -> dict[str, Any]:
        cleaned: dict[str, Any] = _without_keys(agent)
        return cleaned

    @field_validator("workspace")
    @classmethod
    def _workspace_without_keys(cls, workspace: dict[str, Any]) -> dict[str, Any]:
        return _words(workspace, "kind", "working_dir")

    @field_validator("analyzer")
    @classmethod
    def _analyzer_without_keys(cls, analyzer: dict[str, Any] | None) -> dict[str, Any] | None:
        return analyzer and _words(analyzer, "kind")

    @property
    def streams(self) -> bool:
        """True if its client wants the deltas of a model's answer. Only the newer one can take them."""
        llm = self.agent.get("llm")
        return self.generation is Generation.NEWER and isinstance(llm, dict) and llm.get("stream") is True

    def changed(self, **changes: Any) -> Self:
        """Return a copy with other values of some fields."""
        return type(self)(**{**dict(self), **changes})

    def text(self) -> str:
        """Return the text that is stored."""
        return self.model_dump_json(exclude_defaults=True)

    @classmethod
    def of_spec(cls, agent: AgentSpec | None) -> Self:
        """Return the state of a conversation that was begun through another dialect: clients of any generation may come
        to it, and nothing in their requests tells them apart, so they get what both know."""
        described = {"kind": "Agent", "llm": {"model": agent.model if agent else "none/none", "usage_id": "agent"}}
        return cls(generation=Generation.OLDER, agent=described, max_iterations=agent.max_steps if agent else 500)


def _without_keys(value: Any) -> Any:
    if isinstance(value, list):
        return [_without_keys(part) for part in value]
    if not isinstance(value, dict):
        return value
    return {name: _without_keys(part) for name, part in value.items() if not _may_be_secret(name)}


def _may_be_secret(name: str) -> bool:
    return name.lower() in _SECRET or name.lower().endswith(_SECRET_ENDINGS)


def _words(fields: Mapping[str, Any], *names: str) -> dict[str, Any]:
    return {name: fields[name] for name in names if isinstance(fields.get(name), str)}


def full_state(
    conversation: UUID,
    state: ClientState,
    status: ExecutionStatus,
    *,
    title: str | None,
    tags: Mapping[str, str],
    created_at: datetime,
    updated_at: datetime,
    usage: Usage,
    client_tools: Sequence[ClientTool],
) -> dict[str, Any]:
    """Return the answer to a look at a conversation, and the value of a ``full_state``: both generations read the
    fields that they know.

    Its size does not depend on the length of the conversation: it has sums and not the single calls.
    """
    return {
        "id": str(conversation),
        "workspace": state.workspace,
        "persistence_dir": f"conversations/{conversation.hex}",
        "max_iterations": state.max_iterations,
        "stuck_detection": state.stuck_detection,
        "execution_status": status.value,
        "confirmation_policy": state.policy.shown(),
        "security_analyzer": state.analyzer,
        "activated_knowledge_skills": [],
        "invoked_skills": [],
        "blocked_actions": {},
        "blocked_messages": {},
        "stats": {"usage_to_metrics": _metrics(state, usage) if usage.model_calls else {}},
        "secret_registry": {"secret_sources": {}},
        "agent_state": {},
        "title": title,
        "created_at": _instant(created_at),
        "updated_at": _instant(updated_at),
        "tags": dict(tags),
        "agent": state.agent,
        "client_tools": [described(tool) for tool in client_tools],
        "tool_module_qualnames": state.tool_module_qualnames,
    }


def _metrics(state: ClientState, usage: Usage) -> dict[str, Any]:
    llm = state.agent.get("llm", {})
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
