"""The capabilities of a worker process: the tools that it has, and the providers that it can call."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Final, Literal

from palaver.config.providers import Provider
from palaver.errors import ConfigurationError, ErrorClass, NoWorker, classify
from palaver.late import dataclass
from palaver.schemas.endpoints import INLINE
from palaver.schemas.models import AgentSpec
from palaver.steps.leases import Lease
from palaver.steps.verdicts import Postpone
from palaver.store import Store
from palaver.store.fleet.fleet import KNOWN_FOR
from palaver.vocabulary.addresses import host_and_port
from palaver.vocabulary.lifecycle import WaitReason
from palaver.vocabulary.limits import count_exceeded, limit_of

from ..models.refused_keys import RefusedKeys
from ..sources import Toolbox
from .declared_tools import DeclaredTools

_SOONEST: Final = 0.1
"""Seconds until another worker may take what one lacks: the next delivery goes to any of them."""
_SHARE: Final = 0.25
"""A step waits again for this share of the time that it has waited for its worker. It is offered nine times in the
first second and 27 times in the first minute, which finds one worker among many. When one comes that has what it needs,
it has waited a quarter longer than it had to, or a little more."""
_LATEST: Final = 15.0
"""Seconds that it waits again at most."""
_LATEST_KNOWN: Final = 1.0
"""The same, where another worker is known to have it: as one with children beside many that have a loop alone."""
_LONGEST_WAIT: Final = limit_of("no_worker_told")
"""Seconds after which it fails whatever workers tell: one that tells of it may not take this step, or lack something
else that the step needs."""


@dataclass(frozen=True, slots=True)
class MissingCapability:
    """Something that a step needs and a worker lacks."""

    kind: Literal["tool", "provider", "key"]
    name: str
    """The name of the tool or the provider; for a key, the variable that would hold it."""
    provider: str = ""
    """The provider whose key it is; empty for one of our own."""

    @property
    def code(self) -> str:
        """As a run's ``waiting`` names it."""
        return f"{self.kind}:{self.name}"

    def __str__(self) -> str:
        match self.kind:
            case "tool":
                return f"the tool {self.name!r}"
            case "provider" if self.name.startswith(f"{INLINE}:"):
                return f"the provider {self.name!r}, in its PALAVER_INLINE_PROVIDER_HOSTS"
            case "provider":
                return f"the provider {self.name!r}, by an entry in its PALAVER_PROVIDERS"
            case "key" if not self.provider:
                return f"a key of {self.name}, which the secrets of the conversation are sealed with"
            case "key":
                return f"the key of the provider {self.provider!r}, in the variable {self.name}"

    async def anywhere(self, store: Store) -> bool:
        """Tell whether a worker reports that it has it, or did lately: one of any queue, which may lack something
        else."""
        if self.kind == "tool":
            lately = datetime.now(UTC) - timedelta(seconds=KNOWN_FOR)
            sets = [declared.tools for declared in (await store.tools.declared()).values() if declared.seen_at > lately]
            return any(tool.name == self.name for tools in sets for tool in tools)
        if self == SECRET_KEY:
            # Workers do not tell which keys they have.
            return True
        providers = await store.fleet.providers()
        return providers is None or (self.provider or self.name) in providers


SECRET_KEY: Final = MissingCapability("key", "PALAVER_SECRET_KEY")
"""The key that opens the secrets of a conversation: a worker without it does none of its steps."""


class Capabilities:
    """The tools and the providers of one worker process."""

    def __init__(self, tools: Toolbox, providers: Mapping[str, Provider], hosts: Sequence[str] = ()) -> None:
        """``providers`` is the whole table; it has those whose key is set, or that need none. ``hosts`` are those at
        which agents' own endpoints may be."""
        self.tools = tools
        self.declared: DeclaredTools | None = None
        """The reader of tools that are elsewhere, where steps need those."""
        self._hosts = frozenset(hosts)
        self.providers = {name: provider for name, provider in providers.items() if provider.has_key}
        self.refused_keys = RefusedKeys(self.providers)
        self.missing_keys = {
            name: provider.api_key_env
            for name, provider in providers.items()
            if provider.api_key_env and not provider.has_key
        }
        """Variables that are not set, by the provider that cannot be called for it."""

    @property
    def provider_names(self) -> tuple[str, ...]:
        """The names of providers that it can call, those of endpoints included, and none that refuse its key."""
        inline = {f"{INLINE}:{host_and_port(host)[0]}" for host in self._hosts}
        return (*(name for name in self.providers if not self.refused_keys.refuses(name)), *sorted(inline))

    def _calls(self, agent: AgentSpec) -> bool:
        """Tell whether it can call the agent's model."""
        if agent.endpoint is not None and agent.provider == agent.endpoint.name:
            return agent.endpoint.allowed_by(self._hosts)
        return agent.provider in self.providers

    @property
    def lacks(self) -> tuple[str, ...]:
        """Codes for everything that its own table names and it cannot do."""
        missing = (MissingCapability("key", variable).code for variable in sorted(set(self.missing_keys.values())))
        return (*missing, *self.refused_keys.codes)

    def lacking(self, lease: Lease) -> MissingCapability | None:
        """Return the first need of a step that is not met here, if there is one: for a call its tool, else the provider
        and the tools of the agent."""
        agent, asks_model = lease.agent, lease.kind.asks_model
        if asks_model and not self._calls(agent):
            variable = self.missing_keys.get(agent.provider)
            return (
                MissingCapability("key", variable, agent.provider)
                if variable
                else MissingCapability("provider", agent.provider)
            )
        has = self.tools.__contains__ if asks_model else self.tools.has_here
        for name in agent.tools if asks_model else (lease.answers.name,):
            # What the model made up is not lacked: it is told so. An agent needs no tool.
            if not has(name) and name in agent.tools and name not in agent.subagents:
                return MissingCapability("tool", name)
        return None

    async def missing_capability(
        self, store: Store, lease: Lease, lack: MissingCapability | None = None
    ) -> Postpone | None:
        """Gives a step up for another worker if this one lacks what it needs, or has a ``lack`` that was found already;
        None if it lacks nothing.

        Raises:
            NoWorker: no worker has had it for too long.
        """
        lack = lack or self.lacking(lease)
        if lack is not None and lack.kind == "tool" and await self._has_come(lack.name):
            lack = self.lacking(lease)
        return None if lack is None else await self.left_to_others(store, lack, lease.lacking_for)

    async def left_to_others(self, store: Store, lack: MissingCapability, lacking_for: float) -> Postpone:
        """Give a step up for a worker that has what this one lacks, as `missing_capability` does."""
        if lacking_for > _LONGEST_WAIT:
            count_exceeded("no_worker_told")
            raise NoWorker(f"for four hours no worker that took the step could do it: the last one lacks {lack}")
        if lacking_for > KNOWN_FOR and not await _may_be_anywhere(lack, store):
            count_exceeded("no_worker")
            raise NoWorker(f"for an hour no worker has had {lack}")
        known = lack.kind == "tool" and lack.name in self.tools
        delay = offered_again(lacking_for, _LATEST_KNOWN if known else _LATEST)
        return Postpone(delay, lack.code, WaitReason.NO_WORKER)

    async def _has_come(self, tool: str) -> bool:
        """Tell whether another worker has declared a ``tool`` since the last look."""
        if self.declared is None:
            return False
        try:
            return await self.declared.has(tool)
        except Exception as error:
            if classify(error).error_class is not ErrorClass.STORAGE:
                raise
            return False


async def _may_be_anywhere(lack: MissingCapability, store: Store) -> bool:
    """Tell whether a worker has it, or it cannot be known because the store is away."""
    try:
        return await lack.anywhere(store)
    except Exception as error:
        # Nothing was begun: this is no failure of the step, least of all one to tell a model of.
        if classify(error).error_class is not ErrorClass.STORAGE:
            raise
        return True


def require_provider(providers: Mapping[str, Provider], hosts: Sequence[str] = ()) -> None:
    """Raises:
    ConfigurationError: none of them can be called, so that a worker could do no step of a model.
    """
    if hosts:
        return
    if not providers:
        raise ConfigurationError(
            "PALAVER_PROVIDERS: a model worker without a provider can do nothing: point it at a TOML file with a table "
            "[providers.NAME]"
        )
    if not any(provider.has_key for provider in providers.values()):
        unset = ", ".join(f"{provider.api_key_env} (of {name})" for name, provider in providers.items())
        raise ConfigurationError(f"no provider can be called: the variables with their keys are not set: {unset}")


def offered_again(waited: float, latest: float = _LATEST) -> float:
    """Seconds until a step, whose workers have lacked something for ``waited`` seconds, is offered to them again."""
    return min(max(_SOONEST, waited * _SHARE), latest)
