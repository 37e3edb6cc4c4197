"""The operator's rules for runs, applied to an agent and a budget.

A field that the request gives and that a rule does not allow is a fault, which names the rule. One that it leaves out
gets what the rule demands.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

from palaver.config.policy import PolicyRule, RequiredApprovals, RetryCeiling, fits
from palaver.errors import FieldError
from palaver.late import dataclass
from palaver.operations.admission.tree import pointer_of
from palaver.operations.catalog import KnownTools
from palaver.schemas.actions import Approvals
from palaver.schemas.json_pointers import pointer
from palaver.schemas.mcp_servers import OF_ALL, all_of, covers, may_fit
from palaver.schemas.models import AgentSpec, Budget
from palaver.steps.retry import MODEL_CALL, RetryPolicy
from palaver.vocabulary.limits import limit_of

Rules = Mapping[str, PolicyRule]
_CODE: Final = "policy_violation"
_PATTERNS: Final = limit_of("approval_patterns")


@dataclass(frozen=True, slots=True)
class Subject:
    """The agent and the budget that rules are applied to, and what is known about them."""

    agent: AgentSpec
    retry: RetryPolicy | None
    """The agent's policy for retries, if it has one."""
    budget: Budget | None
    budget_given: bool
    """True if the request gives the budget; else it is that of the run that is gone on with, or none."""
    rules: Rules
    """The rules for it, by name."""
    tools: KnownTools | None
    """The tools of the workers; needed for rules about risky ones."""
    owner: str = ""
    """The thing that has the agent, if it is not the request itself."""

    def gives(self, field: str) -> bool:
        """Tell whether the request gives this field of the agent."""
        return not self.owner and field in self.agent.model_fields_set

    def fault(self, path: str, why: str) -> FieldError:
        """Return the fault of a field of the agent."""
        if self.owner:
            return FieldError("/agent", _CODE, f"the {self.owner}'s {path.removeprefix('/agent')} {why}")
        return FieldError(path, _CODE, why)


@dataclass(frozen=True, slots=True)
class Governed:
    """An agent and the budget of its runs, with all that the rules demand; and what they do not allow."""

    agent: AgentSpec
    budget: Budget | None
    faults: Sequence[FieldError] = ()


def needs_tools(rules: Rules) -> bool:
    """Tell whether the rules are about tools by how they are declared."""
    return any(rule.approvals is not None and rule.approvals.require == "risky" for rule in rules.values())


def governed(subject: Subject) -> Governed:
    """Return the agent and the budget with all that the rules demand, the same objects if nothing is to be changed; and
    a fault for each field that a rule does not allow."""
    agent, rules = subject.agent, subject.rules.values()
    changes: dict[str, Any] = {
        "approvals": _approvals(subject, [rule.approvals for rule in rules if rule.approvals]),
        "max_steps": min([agent.max_steps, *(rule.max_steps for rule in rules if rule.max_steps)]),
        "retry": _retry(subject, [rule.retry for rule in rules if rule.retry]),
    }
    changed = {field: value for field, value in changes.items() if value != getattr(agent, field)}
    budget = _budget(subject.budget, [rule.budget for rule in rules if rule.budget])
    return Governed(agent.model_copy(update=changed) if changed else agent, budget, [*_faults(subject)])


def _faults(subject: Subject) -> Iterator[FieldError]:
    for name, rule in subject.rules.items():
        yield from _inline_faults(subject, name, rule)
        yield from _tool_faults(subject, name, rule.tools)
        yield from _server_faults(subject, name, rule)
        yield from _model_faults(subject, name, rule.models)
        yield from _approval_faults(subject, name, rule.approvals)
        yield from _step_faults(subject, name, rule.max_steps)
        yield from _budget_faults(subject, name, rule.budget)
        yield from _retry_faults(subject, name, rule.retry)


def _inline_faults(subject: Subject, name: str, rule: PolicyRule) -> Iterator[FieldError]:
    if not rule.inline_agents and subject.agent.version is None:
        yield subject.fault("/agent", f"is inline: the rule {name} allows only agents on the server, by their names")


def _tool_faults(subject: Subject, name: str, allowed: Iterable[str] | None) -> Iterator[FieldError]:
    for index, tool in enumerate(subject.agent.tools if allowed is not None else ()):
        if not fits(allowed or (), tool):
            why = f"is a tool that the rule {name} does not allow; it allows: {_listed(allowed)}"
            yield subject.fault(f"/agent/tools/{index}", why)


def _server_faults(subject: Subject, name: str, rule: PolicyRule) -> Iterator[FieldError]:
    """Yield the faults of MCP servers of the agent's own. A rule about tools has to allow whatever tools one has."""
    for label, server in subject.agent.mcp_servers.items():
        where = pointer(("agent", "mcp_servers", label))
        if rule.mcp_hosts is not None and not fits(rule.mcp_hosts, server.host):
            why = f"is at a host that the rule {name} does not allow; it allows: {_listed(rule.mcp_hosts) or 'none'}"
            yield subject.fault(where, why)
        if rule.tools is not None and not any(covers(pattern, label) for pattern in rule.tools):
            why = f"may have tools that the rule {name} does not allow: it would have to allow {all_of(label)}"
            yield subject.fault(where, why)


def _model_faults(subject: Subject, name: str, allowed: Iterable[str] | None) -> Iterator[FieldError]:
    for index, model in enumerate(subject.agent.models if allowed is not None else ()):
        if not fits(allowed or (), model):
            why = f"is a model that the rule {name} does not allow; it allows: {_listed(allowed)}"
            yield subject.fault(pointer_of(index), why)


def _approval_faults(subject: Subject, name: str, required: RequiredApprovals | None) -> Iterator[FieldError]:
    if required is None or not subject.gives("approvals"):
        return
    approvals, tools = subject.agent.approvals, _asked_for(required, subject)
    why = f"waives an approval that the rule {name} demands"
    if tools and approvals.require == "never" and "require" in approvals.model_fields_set:
        yield subject.fault("/agent/approvals/require", f"{why}: leave it out")
    for field in ("exempt", "exempt_alone"):
        for index, pattern in enumerate(getattr(approvals, field)):
            if any(_waives(pattern, tool) for tool in tools):
                yield subject.fault(f"/agent/approvals/{field}/{index}", f"{why}: take it out")


def _step_faults(subject: Subject, name: str, most: int | None) -> Iterator[FieldError]:
    if most is not None and subject.gives("max_steps") and subject.agent.max_steps > most:
        yield subject.fault("/agent/max_steps", f"is more than the rule {name} allows: {most}")


def _budget_faults(subject: Subject, name: str, ceiling: Budget | None) -> Iterator[FieldError]:
    if ceiling is None or subject.budget is None or not subject.budget_given:
        return
    for field, most in ceiling:
        given = getattr(subject.budget, field)
        if most is not None and given is not None and given > most:
            yield FieldError(f"/budget/{field}", _CODE, f"is more than the rule {name} allows: {most:g}")


def _retry_faults(subject: Subject, name: str, ceiling: RetryCeiling | None) -> Iterator[FieldError]:
    given, policy = subject.agent.retry, subject.retry
    if ceiling is None or not subject.gives("retry") or not isinstance(given, dict) or policy is None:
        return
    why = f"is more than the rule {name} allows"
    for error_class, rule in policy.rules.items():
        if ceiling.attempts is not None and rule.attempts > ceiling.attempts:
            where = f"/agent/retry/rules/{error_class.value}/attempts"
            yield subject.fault(where, f"{why}: {ceiling.attempts}")
    for field in ("max_elapsed", "patience"):
        most = getattr(ceiling, field)
        if most is not None and field in given and getattr(policy, field).total_seconds() > most:
            yield subject.fault(f"/agent/retry/{field}", f"{why}: {most:g}")


def _asked_for(required: RequiredApprovals, subject: Subject) -> tuple[str, ...]:
    """Return the tools of the agent whose calls have to wait. One that no worker has declared may be risky, and so is
    each of a server of the agent's own: all that one has are named together."""
    known, servers = subject.tools or {}, subject.agent.mcp_servers
    own = tuple(all_of(label) for label in servers)
    match required.require:
        case "always":
            return (*subject.agent.tools, *own)
        case "risky":
            safe = {tool for tool, versions in known.items() if not any(version.risky for version in versions)}
            return (*(tool for tool in subject.agent.tools if tool not in safe), *own)
        case patterns:
            named = (tool for tool in subject.agent.tools if fits(patterns, tool))
            of_servers = (all_of(label) for label in servers if any(may_fit(pattern, label) for pattern in patterns))
            return (*named, *of_servers)


def _waives(pattern: str, tool: str) -> bool:
    """Tell whether a pattern fits a tool, or perhaps one of a server."""
    return fits((pattern,), tool) or (tool.endswith(OF_ALL) and may_fit(pattern, tool.removesuffix(OF_ALL)))


def _approvals(subject: Subject, demanded: list[RequiredApprovals]) -> Approvals:
    """Return the agent's approvals with what is demanded. A tool is named by its name: it may be declared otherwise
    later."""
    asked_for = {required: _asked_for(required, subject) for required in demanded}
    if not any(tools or (required.require == "risky" and subject.agent.tools) for required, tools in asked_for.items()):
        return subject.agent.approvals
    named = [tool for required, tools in asked_for.items() if not isinstance(required.require, str) for tool in tools]
    approvals, all_of_them = subject.agent.approvals, [tool for tools in asked_for.values() for tool in tools]
    always = any(required.require == "always" and tools for required, tools in asked_for.items())
    second = [tool for required in demanded for tool in _for_a_second_person(required, asked_for[required])]
    changes = {
        "require": "always" if always else _with_names(approvals.require, named),
        "exempt": _without(approvals.exempt, all_of_them),
        "exempt_alone": _without(approvals.exempt_alone, all_of_them),
        "second_person": _few((*approvals.second_person, *second), ("*",)),
    }
    return approvals.model_copy(update=changes)


def _for_a_second_person(required: RequiredApprovals, tools: tuple[str, ...]) -> tuple[str, ...]:
    if required.approver != "other":
        return ()
    # Which calls wait then, the worker sees from the declarations that it has.
    return ("*",) if isinstance(required.require, str) else tools


def _with_names(require: str | tuple[str, ...], names: Iterable[str]) -> str | tuple[str, ...]:
    """Return what an agent requires, with the calls of these tools: names and globs stand for risky tools, too."""
    if require == "always":
        return require
    patterns = (*(() if isinstance(require, str) else require), *names)
    return _few(patterns, "always") if patterns else "risky"


def _few(patterns: Iterable[str], otherwise: Any) -> Any:
    """Return the patterns, each once; ``otherwise`` if they are more than an agent may have."""
    distinct = tuple(dict.fromkeys(patterns))
    return distinct if len(distinct) <= _PATTERNS else otherwise


def _without(patterns: tuple[str, ...], tools: Iterable[str]) -> tuple[str, ...]:
    return tuple(pattern for pattern in patterns if not any(_waives(pattern, tool) for tool in tools))


def _budget(budget: Budget | None, ceilings: list[Budget]) -> Budget | None:
    fields = dict(budget or {})
    for ceiling in ceilings:
        for field, most in ceiling:
            if most is not None:
                given = fields.get(field)
                fields[field] = most if given is None else min(given, most)
    return budget if fields == dict(budget or {}) else Budget(**fields)


def _retry(subject: Subject, ceilings: list[RetryCeiling]) -> Any:
    """Return the agent's policy for retries of model calls, with no more than the ceilings allow."""
    if not ceilings:
        return subject.agent.retry
    before = policy = MODEL_CALL if subject.retry is None else subject.retry.over(MODEL_CALL)
    for ceiling in ceilings:
        policy = policy.below(**dict(ceiling))
    return subject.agent.retry if policy == before else policy.dump()


def _listed(patterns: Iterable[str] | None) -> str:
    return ", ".join([*(patterns or ())][:20])
