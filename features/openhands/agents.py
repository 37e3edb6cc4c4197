"""An agent as OpenHands' client has it, as an ``AgentSpec``. docs/reference/openhands.md lists what is ignored."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Any, Final, Literal

from pydantic import Field, SecretStr

from api.kit.lenient import LenientModel, refusing
from palaver.errors import ErrorClass, FieldError, Refused
from palaver.schemas.actions import Approvals, ClientTool
from palaver.schemas.endpoints import INLINE, Endpoint
from palaver.schemas.models import AgentSpec
from palaver.schemas.protocols import ProtocolName
from palaver.schemas.stuck_limits import StuckLimits

from . import servers

_EXEMPT_ALONE: Final = ("finish", "think")
"""They have no effect outside the conversation: they need no approval, unless other calls are beside it."""


class Policy(LenientModel):
    """A confirmation policy."""

    kind: Literal["NeverConfirm", "AlwaysConfirm", "ConfirmRisky"] = "NeverConfirm"
    threshold: Literal["UNKNOWN", "LOW", "MEDIUM", "HIGH"] = "HIGH"
    confirm_unknown: bool = True

    def shown(self) -> dict[str, object]:
        """Return it as clients read it."""
        if self.kind != "ConfirmRisky":
            return {"kind": self.kind}
        return {"kind": self.kind, "threshold": self.threshold, "confirm_unknown": self.confirm_unknown}


def approvals(policy: Policy, tools: Sequence[str], *, analyzed: bool) -> Approvals:
    """Return the approvals of an agent with these tools.

    Tools declare their risk (``risky``). It counts for an agent with a security analyzer; without one the risk is
    unknown.
    """
    exempt = tuple(name for name in _EXEMPT_ALONE if name in tools)
    match policy.kind:
        case "NeverConfirm":
            return Approvals(require="never")
        case "AlwaysConfirm":
            return Approvals(require="always", exempt_alone=exempt)
        case "ConfirmRisky":
            if analyzed:
                return Approvals(require="always" if policy.threshold == "LOW" else "risky", exempt_alone=exempt)
            return Approvals(require="always" if policy.confirm_unknown else "never", exempt_alone=exempt)


DEFAULT_TOOLS: Final = {"FinishTool": "finish", "ThinkTool": "think"}
"""The tools of an agent that names no others, by their names there and here."""
_NO_PROMPT: Final = (
    "You are an agent that solves tasks with the tools that it has. Work step by step, and look at what a tool answers "
    "before you go on."
)
"""The prompt if the client leaves it to the server."""
_MODEL: Final = re.compile(r"[A-Za-z0-9_.-]{1,64}/[^\s\x00-\x1f]{1,200}")
_RETRIED: Final = (ErrorClass.RATE_LIMITED, ErrorClass.PROVIDER_ERROR, ErrorClass.CONNECTION, ErrorClass.TIMEOUT)
RETRY_FIELDS: Final = ("num_retries", "retry_multiplier", "retry_min_wait", "retry_max_wait")
"""The fields of a model that say how its calls are retried."""
_KINDS: Final = frozenset({"openai", "anthropic", "litellm_proxy", "hosted_vllm"})
"""LiteLLM's names of the protocols that there are here."""
_LEAST_SIZE: Final = 10
"""Messages that a conversation may have in any case before it is condensed."""
_USUAL_EFFORT: Final = "high"
"""The effort that the client sends by default: models that do not reason would refuse it."""


class OpenHandsLlm(LenientModel):
    """A model, and the settings of its calls."""

    model: str = Field(max_length=300)
    base_url: str | None = None
    api_key: SecretStr | None = None
    num_retries: int = Field(default=5, ge=0)
    retry_multiplier: float = Field(default=8.0, ge=0)
    retry_min_wait: float = Field(default=8, ge=0)
    retry_max_wait: float = Field(default=64, ge=0)
    temperature: float | None = None
    top_p: float | None = None
    max_output_tokens: int | None = None
    seed: int | None = None
    reasoning_effort: str | None = None
    litellm_extra_body: dict[str, Any] = Field(default={})
    usage_id: str = "default"

    def model_here(self) -> str:
        """Return the name of the model here: of a provider of this server, or at the address that comes with it. There
        it has the name that its server knows, which LiteLLM puts the name of a protocol before."""
        kind, _, name = self.model.partition("/")
        return f"{INLINE}/{name if kind in _KINDS else self.model}" if self.base_url else self.model

    def endpoint(self) -> Endpoint | None:
        """Return the endpoint of the model, if it has an address. A key without an address is not needed: providers of
        this server have theirs.

        Raises:
            ValidationError: the address is none.
        """
        if not self.base_url:
            return None
        protocol: ProtocolName = "anthropic" if self.model.startswith("anthropic/") else "chat_completions"
        return Endpoint(base_url=self.base_url, api_key=self.api_key, protocol=protocol)


class OpenHandsTool(LenientModel):
    """A tool, by its name."""

    name: str
    params: dict[str, Any] = Field(default={})


class OpenHandsSkill(LenientModel):
    """A skill: something that the agent knows."""

    content: str = ""
    trigger: Any = None


class OpenHandsContext(LenientModel):
    """Texts for the model beside the prompt."""

    system_message_suffix: str | None = None
    skills: list[OpenHandsSkill] = Field(default=[])


class OpenHandsCondenser(LenientModel):
    """A condenser, for conversations that are too long."""

    kind: str = ""
    max_tokens: int | None = None
    max_size: int | None = None

    @property
    def condense_at_messages(self) -> int | None:
        """Its ``max_size`` here: the prompt, which is an event there, is no message."""
        return None if self.max_size is None else max(self.max_size - 1, _LEAST_SIZE)


class OpenHandsAgent(LenientModel):
    """An agent."""

    kind: str = "Agent"
    llm: OpenHandsLlm
    tools: list[OpenHandsTool] = Field(default=[])
    mcp_config: dict[str, Any] = Field(default={})
    filter_tools_regex: str | None = None
    include_default_tools: list[str] | None = None
    agent_context: OpenHandsContext | None = None
    system_prompt: str | None = None
    condenser: OpenHandsCondenser | None = None


def tools_of(agent: OpenHandsAgent) -> tuple[str, ...]:
    """Return the tools of an agent by their names here, without doubles."""
    usual = list(DEFAULT_TOOLS) if agent.include_default_tools is None else agent.include_default_tools
    names = [*(tool.name for tool in agent.tools), *(DEFAULT_TOOLS[name] for name in usual if name in DEFAULT_TOOLS)]
    return tuple(dict.fromkeys(names))


def prompt_of(agent: OpenHandsAgent) -> str:
    """Return the prompt: the text that the model gets before everything else."""
    context = agent.agent_context or OpenHandsContext()
    known = [skill.content for skill in context.skills if skill.trigger is None]
    return "\n\n".join(filter(None, (agent.system_prompt or _NO_PROMPT, *known, context.system_message_suffix)))


def spec_of(
    agent: OpenHandsAgent,
    *,
    max_iterations: int = 500,
    stuck: StuckLimits | None = None,
    client_tools: Sequence[ClientTool] = (),
    policy: Policy | None = None,
    analyzed: bool = False,
) -> AgentSpec:
    """Return the spec of an agent. ``stuck`` is None where runs that repeat themselves go on.

    Raises:
        Refused: everything that it asks for and that there is not here.
    """
    faults = list(_faults(agent))
    if faults:
        raise Refused.of_faults(faults)
    llm, names = agent.llm, tools_of(agent)
    condenser = agent.condenser if agent.condenser and agent.condenser.kind != "NoOpCondenser" else None
    options: dict[str, Any] = {
        "temperature": llm.temperature,
        "top_p": None if llm.top_p == 1 else llm.top_p,
        "max_output_tokens": llm.max_output_tokens,
        "seed": llm.seed,
        "reasoning_effort": None if llm.reasoning_effort in (_USUAL_EFFORT, "") else llm.reasoning_effort,
        "extra_body": llm.litellm_extra_body or None,
    }
    with refusing("/agent/endpoint", {"base_url": ""}):
        endpoint = llm.endpoint()
    if agent.mcp_config:
        options["mcp_servers"] = servers.servers_of(agent.mcp_config).servers
    with refusing("/agent", {"mcp_servers": "mcp_config"}):
        return AgentSpec(
            model=llm.model_here(),
            endpoint=endpoint,
            instructions=prompt_of(agent),
            tools=names,
            client_tools=tuple(client_tools),
            approvals=approvals(policy or Policy(), names, analyzed=analyzed),
            max_steps=min(max_iterations, 10_000),
            condense=condenser is not None,
            condense_at=condenser.max_tokens if condenser else None,
            condense_at_messages=condenser.condense_at_messages if condenser else None,
            stuck=stuck,
            retry=retry_policy(llm),
            **options,
        )


def retry_policy(llm: OpenHandsLlm) -> dict[str, Any]:
    """Return the retry policy for model calls, with the attempts and waits of ``llm``. A provider that asks for a
    longer wait gets that."""
    longest = min(llm.retry_max_wait, 86_400.0)
    first = min(max(llm.retry_multiplier, llm.retry_min_wait), longest)
    # Half of a wait is drawn by lot: agents that failed together do not come back together.
    rule = {"attempts": min(max(llm.num_retries, 1), 100), "first": first, "max_delay": longest, "jitter": "equal"}
    return {"rules": {error_class.value: rule for error_class in _RETRIED}}


def _faults(agent: OpenHandsAgent) -> Iterator[FieldError]:
    if agent.kind != "Agent":
        yield FieldError("/agent/kind", "unsupported_option", "only agents of the kind Agent are run here")
    if not agent.llm.base_url and not _MODEL.fullmatch(agent.llm.model):
        why = "must be provider/name: a provider of this server, such as fake/tool-20"
        yield FieldError("/agent/llm/model", "unknown_provider", why)
    yield from servers.faults(agent.mcp_config)
    if agent.filter_tools_regex:
        why = "is not applied here: name the tools that the agent is to have"
        yield FieldError("/agent/filter_tools_regex", "unsupported_option", why)
    for index, tool in enumerate(agent.tools):
        if tool.params:
            why = "tools of this server take no parameters from an agent"
            yield FieldError(f"/agent/tools/{index}/params", "unsupported_option", why)


_PLACES: Final = {
    "model": "llm/model",
    "instructions": "system_prompt",
    "mcp_servers": "mcp_config",
    "condense_at": "condenser/max_tokens",
    "condense_at_messages": "condenser/max_size",
    "extra_body": "llm/litellm_extra_body",
    **{name: f"llm/{name}" for name in ("temperature", "top_p", "max_output_tokens", "seed", "reasoning_effort")},
}
"""Places in OpenHands' agent by the fields of the spec."""


def there(pointer: str) -> str:
    """Return the place in OpenHands' body for a place in an agent's spec."""
    if pointer.startswith("/agent/endpoint"):
        return "/agent/llm/api_key" if pointer.endswith("api_key") else "/agent/llm/base_url"
    if pointer.startswith("/agent/client_tools"):
        return pointer.removeprefix("/agent")
    _, agent, field, *rest = (*pointer.split("/"), "", "")
    if agent != "agent" or field not in _PLACES:
        return pointer
    return "/".join(("/agent", _PLACES[field], *filter(None, rest)))
