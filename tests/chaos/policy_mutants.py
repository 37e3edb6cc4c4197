"""Mutants of the operator's policy, of second persons and of agents on the server (ADRs 0097, 0012): each takes one
condition away, and the test that is named must say so."""

from __future__ import annotations

from typing import Final

from tests.chaos.mutation import by_name, tested

_POLICY: Final = "tests/unit/test_api_policy.py"
_PERSONS: Final = "tests/contract/test_second_person.py"
_AGENTS: Final = "tests/contract/test_agents.py"
_SERVED: Final = "tests/unit/test_api_server_agents.py"
_LUA: Final = "palaver/store/scripting/lua/"
_GOVERNING: Final = "palaver/operations/admission/governing/"
_RULES: Final = f"{_GOVERNING}rules.py"

MUTANTS: Final = by_name(
    tested(
        "who submitted approves",
        _PERSONS,
        f"{_LUA}act.lua",
        "item.type == ItemType.APPROVE and (speaks or not is_second_person(name))",
        "item.type == ItemType.APPROVE and speaks",
    ),
    tested("who speaks in the same request approves", _PERSONS, f"{_LUA}act.lua", "(speaks or not is_", "(not is_"),
    tested(
        "who spoke into the run approves",
        "tests/contract/test_voices.py",
        f"{_LUA}_input.lua",
        "return not spoken[1] and not spoken[2]",
        "return not spoken[2]",
    ),
    tested(
        "who spoke without a name approves under another one",
        "tests/contract/test_voices.py",
        f"{_LUA}_input.lua",
        "return not spoken[1] and not spoken[2]",
        "return not spoken[1]",
    ),
    tested("words through the conversation are nobody's", _PERSONS, f"{_LUA}append.lua", "      spoke(args.by)\n", ""),
    tested("words that steer are nobody's", _PERSONS, f"{_LUA}submit.lua", "        spoke(args.submitted_by)\n", ""),
    tested(
        "the arguments are changed by the second person alone",
        _PERSONS,
        f"{_LUA}act.lua",
        "if action.second_person and item.type == ItemType.EDIT then",
        "if false then",
    ),
    tested("a waiver is taken", _POLICY, _RULES, 'tools and approvals.require == "never" and', "False and"),
    tested("an exemption is taken", _POLICY, _RULES, "if any(_waives(pattern, tool) for tool in tools):", "if False:"),
    tested(
        "what is left out gets no floor",
        _POLICY,
        _RULES,
        "agent.model_copy(update=changed) if changed else agent, budget",
        "agent, budget",
    ),
    tested(
        "the loosest budget counts",
        _POLICY,
        _RULES,
        "fields[field] = most if given is None else min(given, most)",
        "fields[field] = most if given is None else max(given, most)",
    ),
    tested(
        "a tool that nobody has declared is safe",
        _POLICY,
        _RULES,
        "for tool in subject.agent.tools if tool not in safe)",
        "for tool in subject.agent.tools if tool in known and tool not in safe)",
    ),
    tested(
        "the agent of a conversation keeps its waiver",
        _POLICY,
        f"{_GOVERNING}__init__.py",
        "if not owner or governed.agent is not tree.agent or caller.agents is not None:",
        "if not owner or caller.agents is not None:",
    ),
    tested(
        "a key for some agents runs any",
        _SERVED,
        f"{_GOVERNING}keys.py",
        "caller.agents.isdisjoint(referred(agent))",
        "False",
    ),
    tested(
        "a key is of the request as it was completed",
        _SERVED,
        "palaver/store/runs/runs.py",
        "said = received or submission",
        "said = submission",
    ),
    tested(
        "a repeated version is a new one",
        _AGENTS,
        f"{_LUA}keep_agent.lua",
        "if THERE and redis.call('HGET', keys.versions, 'spec:' .. NEWEST_VERSION) == args.spec then",
        "if false then",
    ),
    tested(
        "a removed agent's numbers are given again",
        _AGENTS,
        f"{_LUA}remove_agent.lua",
        "redis.call('HSET', keys.versions, 'removed', 1)",
        "redis.call('DEL', keys.versions)",
    ),
    tested(
        "another tenant's agent",
        _AGENTS,
        "palaver/store/redis/agent_keys.py",
        'return f"{{palaver:agents:{tenant}}}" if tenant else "{palaver:agents}"',
        'return "{palaver:agents}"',
    ),
)
