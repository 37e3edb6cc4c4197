"""The rules over a tree of agents: those below one run, too."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from palaver.config.policy import OperatorPolicy
from palaver.errors import FieldError
from palaver.operations.admission.governing.rules import Governed, Rules, Subject, governed
from palaver.operations.admission.judging.agents import price_faults
from palaver.operations.admission.lookup import needs_prices
from palaver.operations.admission.tree import AgentTree
from palaver.operations.catalog import KnownTools
from palaver.schemas.models import AgentSpec, Budget, Subagent
from palaver.steps.retry import RetryPolicy

RulesOfTree = Mapping[AgentTree, Rules]


def rules_of(tree: AgentTree, policy: OperatorPolicy, tenant: str) -> RulesOfTree:
    """Return the rules for each agent of a tree."""
    return {node: policy.rules_for(tenant, node.agent) for node in tree.nodes}


def governed_tree(
    tree: AgentTree,
    rules: RulesOfTree,
    tools: KnownTools | None,
    *,
    budget: Budget | None,
    given: bool,
    owner: str,
    submits: bool,
) -> Governed:
    """Return the agent of a tree and the budget of its runs with what the rules demand, of those below it, too; and the
    faults by the rules, or of what they demand if the agent is to run."""
    first = Subject(tree.agent, _policy(tree), budget, given, rules[tree], tools, owner)
    subjects = {node: first if node is tree else _subject_below(node, rules[node], tools) for node in tree.nodes}
    ruled = {node: governed(subject) for node, subject in subjects.items()}
    faults = [fault for each in ruled.values() for fault in each.faults]
    whole = _whole(tree, ruled)
    if submits and not faults:
        faults = [*_price_faults(tree, None, subjects, ruled)]
    return Governed(whole, ruled[tree].budget, faults)


def _subject_below(node: AgentTree, rules: Rules, tools: KnownTools | None) -> Subject:
    """Return an agent below another one, of which nothing counts as given: each of its runs has the budget that the
    rules for it allow, and no more than is left of that of the run above."""
    return Subject(node.agent, _policy(node), node.budget, False, rules, tools, f"agent {node.agent.name}")


def _policy(node: AgentTree) -> RetryPolicy | None:
    return node.retry if isinstance(node.retry, RetryPolicy) else None


def _price_faults(
    tree: AgentTree, above: Budget | None, subjects: Mapping[AgentTree, Subject], ruled: Mapping[AgentTree, Governed]
) -> Iterator[FieldError]:
    """Yield the faults of models without a price, where the budget of the runs, or that of the run ``above``, is in
    dollars: those below first."""
    own = ruled[tree].budget
    for node in tree.below.values():
        yield from _price_faults(node, own, subjects, ruled)
    yield from price_faults(own if needs_prices(own) else above, tree.models, subjects[tree].owner)


def _whole(tree: AgentTree, ruled: Mapping[AgentTree, Governed]) -> AgentSpec:
    """Return the agent of a tree as the rules demand it, with those below within it."""
    agent, below = ruled[tree].agent, dict[str, Subagent]()
    for name, node in tree.below.items():
        whole, budget = _whole(node, ruled), ruled[node].budget
        if whole is not node.agent or budget != node.budget:
            below[name] = Subagent(agent=whole, budget=budget)
    return agent.model_copy(update={"subagents": {**agent.subagents, **below}}) if below else agent
