"""The operator's rules for runs. Read from the TOML file ``PALAVER_POLICY``.

    [rules.refunds]
    when = { tenants = ["acme"], agents = ["support*"] }    # all of these must fit; left out: any
    approvals = { require = ["refund", "pay_*"], approver = "other" }

    [rules.limits]
    models = ["fake/*"]
    max_steps = 50
    budget = { tokens = 200000, seconds = 3600 }
    retry = { attempts = 5 }

A rule is a floor or a ceiling, and never allows what another one forbids: of several that fit, the strictest counts.
"""

from __future__ import annotations

from collections.abc import Iterable
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Annotated, Final, Literal

from pydantic import ConfigDict, Field, StringConstraints, model_validator

from palaver.config.toml_file import read_strictly
from palaver.schemas.actions import ToolPattern
from palaver.schemas.fields import AtMost, DataModel, Strict
from palaver.schemas.mcp_servers import may_fit
from palaver.schemas.models import AgentSpec, Budget
from palaver.vocabulary.limits import limit_of

_VARIABLE: Final = "PALAVER_POLICY"
DEFAULT_TENANT: Final = "default"
"""The name, in a rule, of the tenant that has no tag."""

Pattern = Annotated[str, StringConstraints(pattern=r"^[^\s\x00-\x1f]{1,265}$")]
"""A name, or a glob as in a shell: ``openai/*``."""
Patterns = Annotated[tuple[Pattern, ...], AtMost("policy_patterns"), Field(min_length=1)]
ToolPatterns = Annotated[tuple[ToolPattern, ...], AtMost("policy_patterns"), Field(min_length=1)]
RuleName = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9_-]{1,64}$")]


class When(Strict):
    """The runs that a rule is for: those that all of these fit. One that is left out fits any."""

    tenants: Patterns | None = None
    """Names of tenants; ``default`` is the one that there is without any other."""
    agents: Patterns | None = None
    """Names of agents. An inline agent has the name that its request gives it, perhaps none: a rule that binds
    everybody leaves this out."""
    tools: Patterns | None = None
    """Names of server tools, one of which the agent has."""
    models: Patterns | None = None
    """``provider/name`` of models, one of which the agent may ask."""

    def fits(self, tenant: str, agent: AgentSpec) -> bool:
        """Tell whether a run of ``agent`` is one of them."""
        return (
            _any_fits(self.tenants, (tenant,))
            and _any_fits(self.agents, (agent.name or "",))
            and (_any_fits(self.tools, agent.tools) or self._may_fit_own(agent))
            and _any_fits(self.models, agent.models)
        )

    def _may_fit_own(self, agent: AgentSpec) -> bool:
        return any(may_fit(pattern, label) for label in agent.mcp_servers for pattern in self.tools or ())


class RequiredApprovals(Strict):
    """Calls that wait for an approval, whatever a request says."""

    require: Literal["risky", "always"] | ToolPatterns
    """The calls: of tools that are declared ``risky``, of all tools (``always``), or of the tools of these names."""
    approver: Literal["any", "other"] = "any"
    """``other``: a second person approves them, who had no part in the run. With ``risky`` and ``always``, that is so
    for every call of the agent that waits."""


class RetryCeiling(Strict):
    """The most that may be tried again when a call of a model fails."""

    attempts: int | None = Field(default=None, ge=1)
    """Attempts of a call, the first one included."""
    max_elapsed: float | None = Field(default=None, ge=0)
    """Seconds from the first attempt to the last one."""
    patience: float | None = Field(default=None, ge=0)
    """Seconds that a call waits for the end of an outage."""


class PolicyRule(Strict):
    """One rule."""

    when: When = When()
    approvals: RequiredApprovals | None = None
    inline_agents: bool = True
    """False: only agents on the server."""
    tools: ToolPatterns | None = None
    """The only server tools that an agent may have."""
    mcp_hosts: Annotated[tuple[Pattern, ...], AtMost("policy_patterns")] | None = None
    """The only hosts at which an agent may have MCP servers of its own; an empty list: it may have none."""
    models: Patterns | None = None
    """The only models that an agent may have, its fallbacks included."""
    max_steps: int | None = Field(default=None, ge=1)
    """Model calls of a run."""
    budget: Budget | None = None
    """The most that a budget may allow. A run without one gets this."""
    retry: RetryCeiling | None = None

    @model_validator(mode="after")
    def _demands_something(self) -> PolicyRule:
        if self.inline_agents and self.mcp_hosts is None and not any(getattr(self, name) for name in _DEMANDS):
            raise ValueError(f"demands nothing; a rule has {', '.join(_DEMANDS)} or inline_agents")
        return self


_DEMANDS: Final = ("approvals", "tools", "mcp_hosts", "models", "max_steps", "budget", "retry")


class OperatorPolicy(DataModel):
    """All rules, by name."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    rules: Annotated[dict[RuleName, PolicyRule], Field(max_length=limit_of("policy_rules"))] = Field(default={})

    def rules_for(self, tenant: str, agent: AgentSpec) -> dict[str, PolicyRule]:
        """Return the rules that a run of ``agent`` has to keep, by name."""
        return {name: rule for name, rule in self.rules.items() if rule.when.fits(tenant, agent)}


NO_POLICY: Final = OperatorPolicy()


def load_policy(path: Path | None) -> OperatorPolicy:
    """The rules of the file; none when there is no file.

    Raises:
        ConfigurationError: when it cannot be read, or something in it does not fit; says where.
    """
    return NO_POLICY if path is None else read_strictly(OperatorPolicy, path, _VARIABLE)


def fits(patterns: Iterable[str], name: str) -> bool:
    """Tell whether one of the patterns fits a name."""
    return any(fnmatchcase(name, pattern) for pattern in patterns)


def _any_fits(patterns: Iterable[str] | None, names: Iterable[str]) -> bool:
    return patterns is None or any(fits(patterns, name) for name in names)
