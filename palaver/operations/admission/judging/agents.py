"""The agents of a request, each by the same rules, in the order in which faults are said: where its models and servers
are, and what its models can be sent and cost. Those about tools and options have modules of their own."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import chain
from typing import Final

from palaver.errors import FieldError
from palaver.operations.admission.faults import Fault, UnknownName, field_error
from palaver.operations.admission.judging.options import agent_option_faults
from palaver.operations.admission.judging.tools import tool_faults
from palaver.operations.admission.lookup import Known, has_parts, needs_prices
from palaver.operations.admission.tree import AgentModels, AgentTree, pointer_of
from palaver.schemas.content import FilePart, ImagePart, Part
from palaver.schemas.endpoints import INLINE
from palaver.schemas.json_pointers import pointer
from palaver.schemas.mcp_servers import JOINT, VARIABLE
from palaver.schemas.models import AgentSpec, Budget, Message
from palaver.vocabulary.limits import count_exceeded, limit_of
from palaver.vocabulary.names import some_of

_NOT_ALLOWED: Final = "endpoint_not_allowed"


def tree_faults(known: Known, budget: Budget | None) -> tuple[Iterator[Fault], Iterator[Fault]]:
    """Return the faults of a request's agent, which are said first; and those of the agents below it, which are said
    last. Their runs have to keep to the ``budget`` of the run above, too."""
    if known.tree is None:
        return iter(()), iter(())
    return agent_faults(known.tree, known), _faults_below(known.tree, budget, known)


def agent_faults(tree: AgentTree, known: Known) -> Iterator[Fault]:
    """Yield the faults of the agent of a tree, at their places in a body that has it as ``agent``."""
    agent = tree.agent
    yield from _version_faults(agent)
    yield from _endpoint_faults(agent, known)
    yield from _provider_faults(tree, known.callable_providers)
    yield from tool_faults(agent, known.tools)
    yield from agent_option_faults(tree, known.policies)
    yield from _unsent_faults(agent, tree.models)
    yield from _server_faults(tree, known)


def _faults_below(tree: AgentTree, budget: Budget | None, known: Known) -> Iterator[FieldError]:
    """Yield the faults of all agents below one, at the tools that lead to them."""
    for node in tree.nodes[1:]:
        own = agent_faults(node, known)
        for each in chain(own, price_faults(budget, node.models), price_faults(node.budget, node.models)):
            fault = field_error(each)
            yield FieldError(node.place, fault.code, f"the agent {node.agent.name}: {fault.pointer} {fault.message}")


def _version_faults(agent: AgentSpec) -> Iterator[FieldError]:
    if agent.version is not None and "version" in agent.model_fields_set:
        why = (
            "is given by the server: name its agents as NAME or NAME@VERSION in the place of this one, or leave it out"
        )
        yield FieldError("/agent/version", "unknown_agent", why)


def _endpoint_faults(agent: AgentSpec, known: Known) -> Iterator[FieldError]:
    """Yield the faults of the endpoint that an agent brings for its models."""
    endpoint, hosts = agent.endpoint, known.endpoint_hosts
    if endpoint is None:
        return
    if not endpoint.allowed_by(hosts):
        allowed = f"it allows: {', '.join(hosts)}" if hosts else "it is not set"
        why = f"is at a host that PALAVER_INLINE_PROVIDER_HOSTS does not allow; {allowed}"
        yield FieldError("/agent/endpoint/base_url", _NOT_ALLOWED, why)
    if not any(name.partition("/")[0] == endpoint.name for name in agent.models):
        yield FieldError("/agent/endpoint", _NOT_ALLOWED, f"is asked for no model: call one of them {INLINE}/NAME")
    yield from secret_faults(endpoint.api_key, "/agent/endpoint/api_key", seals=known.seals)


def secret_faults(secrets: object, where: str, *, seals: bool) -> Iterator[FieldError]:
    """Yield a fault if there are ``secrets`` and no key to encrypt them with."""
    if secrets and not seals:
        yield FieldError(where, "no_secret_key", "cannot be kept: PALAVER_SECRET_KEY is not set for the API")


def _provider_faults(tree: AgentTree, callable_ones: frozenset[str] | None) -> Iterator[Fault]:
    """Yield the faults of the providers that the models of a tree's agent name: not configured, or out of reach of the
    workers."""
    models = tree.models
    for index, name in enumerate(tree.agent.models):
        where, provider = pointer_of(index), name.partition("/")[0]
        if provider == INLINE:
            yield FieldError(where, "unknown_provider", "is asked at an endpoint of the agent's own: give it one")
        elif provider not in models.providers:
            yield UnknownName(
                where, "unknown_provider", "names a provider that is not configured", provider, models.providers,
                nothing="none (see PALAVER_PROVIDERS)",
            )  # fmt: skip
        elif callable_ones and provider not in callable_ones:
            table = "PALAVER_INLINE_PROVIDER_HOSTS" if provider.startswith(f"{INLINE}:") else "PALAVER_PROVIDERS"
            why = f"their {table} lacks it, or they lack its key; they can call: {some_of(sorted(callable_ones))}"
            yield FieldError(where, "unknown_provider", f"names a provider that no worker can call: {why}")


def _unsent_faults(agent: AgentSpec, models: AgentModels) -> Iterator[FieldError]:
    """Yield the faults of options that a model cannot be sent. Of models that think, the first one has the faults of
    all."""
    for model in models.of_each_protocol:
        for path, why in model.protocol.option_faults(agent, model.name):
            yield FieldError(pointer(("agent", *path)), "unsupported_option", why)
    thinking = next((model for model in models.all if model.provider.thinks), None)
    if thinking is not None and "thinking" not in (agent.extra_body or {}):
        for path, why in thinking.protocol.thinking_faults(agent, thinking.name):
            yield FieldError(pointer(("agent", *path)), "unsupported_option", why)


def _server_faults(tree: AgentTree, known: Known) -> Iterator[FieldError]:
    """Yield the faults of the MCP servers that an agent names itself: at hosts that the operator does not allow, under
    labels that others have. One below another agent has no secrets for their headers."""
    agent = tree.agent
    for label, server in agent.mcp_servers.items():
        where = pointer(("agent", "mcp_servers", label))
        if not server.allowed_by(known.mcp_hosts):
            allowed = f"it allows: {', '.join(known.mcp_hosts)}" if known.mcp_hosts else "it is not set"
            yield FieldError(f"{where}/url", _NOT_ALLOWED, f"is at a host that {VARIABLE} does not allow; {allowed}")
        if (taken := _taken(agent, label, known)) is not None:
            yield FieldError(where, "duplicate_tool", f"is a label before the tool {taken} already: take another one")
    for label in [label for label, server in agent.mcp_servers.items() if server.headers] if tree.place else ():
        why = "are secrets of the conversation of the run, which its runs do not have"
        yield FieldError(f"/agent/mcp_servers/{label}/headers", _NOT_ALLOWED, why)


def _taken(agent: AgentSpec, label: str, known: Known) -> str | None:
    """Return a tool that is not the server's and would look as if it were. Rules and approvals go by such names."""
    names = (*agent.tools, *(tool.name for tool in agent.client_tools), *(known.tools or ()))
    return next((name for name in names if name.startswith(f"{label}{JOINT}")), None)


def part_faults(input: str | Sequence[Message], models: AgentModels) -> Iterator[FieldError]:
    """Yield a fault for each part of ``input``, an image or a file above all, that one of the models cannot be sent:
    it is refused here, and never left out."""
    if isinstance(input, str) or not has_parts(input):
        return
    blind = next((model for model in models.all if not model.provider.fetches), None)
    for index, message in enumerate(input):
        for place, part in enumerate(() if isinstance(message.content, str) else message.content):
            for model in models.of_each_protocol:
                if what := model.protocol.lacks(message.role, part):
                    why = f"{what} cannot be sent to {model.name}: its provider speaks {model.protocol.name}"
                    yield _unsupported(index, place, why)
            if blind is not None and _is_fetched(part):
                why = f"cannot be sent by its address to {blind.name}, whose provider is to fetch none"
                yield _unsupported(index, place, f"{why}: send a data: URL")


def _is_fetched(part: Part) -> bool:
    return isinstance(part, ImagePart | FilePart) and not part.inline


def _unsupported(index: int, place: int, why: str) -> FieldError:
    return FieldError(pointer(("input", index, "content", place)), "unsupported_content", why)


def price_faults(budget: Budget | None, models: AgentModels, owner: str = "") -> Iterator[FieldError]:
    """Yield a fault for each model whose use cannot be counted in dollars, if ``budget`` limits these. ``owner`` has
    the agent, if the request has none."""
    for model in models.all if needs_prices(budget) else ():
        provider, _, name = model.name.partition("/")
        if model.provider.price(name) is None:
            why = f"has no price: a budget in dollars needs one, in [providers.{provider}.prices] of PALAVER_PROVIDERS"
            if owner:
                yield FieldError("/budget/cost_usd", "unknown_price", f"the {owner}'s {model.pointer} {why}")
            else:
                yield FieldError(model.pointer, "unknown_price", why)


def kept_faults(name: str, agent: AgentSpec) -> Iterator[FieldError]:
    """Yield the faults that an agent has only if it is to be kept on the server under that name."""
    if agent.name not in (None, name):
        yield FieldError("/agent/name", "validation_error", "is not the name in the path: leave it out")
    if agent.endpoint is not None and agent.endpoint.api_key is not None:
        why = "is not kept with an agent: set the provider up in PALAVER_PROVIDERS, or give the key with each run"
        yield FieldError("/agent/endpoint/api_key", _NOT_ALLOWED, why)
    if len(agent.model_dump_json().encode()) > limit_of("agent_bytes"):
        count_exceeded("agent_bytes")
        yield FieldError("/agent", "validation_error", f"has more than {limit_of('agent_bytes')} bytes as JSON")


def ordered_faults(agent: AgentSpec | str | None, pointer: str) -> Iterator[FieldError]:
    """Yield the faults that an agent at ``pointer`` has only if runs of it begin later: what is kept until then is not
    sealed."""
    if isinstance(agent, AgentSpec) and agent.endpoint is not None and agent.endpoint.api_key is not None:
        why = "is not kept with an order: set the provider up in PALAVER_PROVIDERS"
        yield FieldError(f"{pointer}/endpoint/api_key", _NOT_ALLOWED, why)
