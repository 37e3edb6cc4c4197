"""Agents on the server: named, versioned, bounded, each of its tenant."""

from __future__ import annotations

from typing import Any

import pytest

from palaver.errors import StateConflict, UnknownAgent
from palaver.schemas.models import AgentSpec
from palaver.store import Store
from palaver.store.agents.agents import ANY_VERSION
from palaver.store.redis import agent_keys
from palaver.vocabulary.limits import limit_of

ONE = AgentSpec(model="fake/tool-20", instructions="one")
TWO = AgentSpec(model="fake/tool-20", instructions="two")


async def test_each_different_one_is_a_new_version_and_an_equal_one_is_not(store: Store) -> None:
    first, new = await store.agents.keep("", "support", ONE, by="ann")
    assert (first.version, first.created_by, new) == (1, "ann", True)
    assert (first.agent.name, first.agent.version) == ("support", 1)
    again, new = await store.agents.keep("", "support", ONE.model_copy(update={"name": "support"}), by="bob")
    assert (again, new) == (first, False)
    second, new = await store.agents.keep("", "support", TWO)
    assert (second.version, second.oldest, second.newest, new) == (2, 1, 2, False)
    assert (await store.agents.get("", "support")).agent.instructions == "two"
    old = await store.agents.get("", "support", 1)
    assert (old.agent.instructions, old.newest) == ("one", 2)
    third, _ = await store.agents.keep("", "support", ONE)
    assert third.version == 3


async def test_what_is_expected_is_compared_and_a_repeat_finds_it_done(store: Store) -> None:
    with pytest.raises(StateConflict) as refused:
        await store.agents.keep("", "support", ONE, expected=ANY_VERSION)
    assert refused.value.code == "agent_changed"
    await store.agents.keep("", "support", ONE, expected=0)
    await store.agents.keep("", "support", TWO, expected=1)
    assert (await store.agents.keep("", "support", TWO, expected=1))[0].version == 2
    for expected in (0, 1):
        with pytest.raises(StateConflict, match="its newest version is 2"):
            await store.agents.keep("", "support", ONE, expected=expected)
        with pytest.raises(StateConflict, match="its newest version is 2"):
            await store.agents.remove("", "support", expected=expected)
    await store.agents.remove("", "support", expected=2)


async def test_a_removed_one_is_gone_and_its_numbers_are_not_given_again(store: Store, redis: Any) -> None:
    await store.agents.keep("", "support", ONE)
    await store.agents.keep("", "support", TWO)
    await store.agents.remove("", "support")
    for version in (None, 1, 2):
        with pytest.raises(UnknownAgent):
            await store.agents.get("", "support", version)
    with pytest.raises(UnknownAgent):
        await store.agents.remove("", "support")
    assert not (await store.agents.list("", limit=10)).agents
    assert await redis.pttl(agent_keys.agent_versions("", "support")) > 0
    back, new = await store.agents.keep("", "support", TWO)
    assert (back.version, back.oldest, new) == (3, 3, True)
    assert await redis.pttl(agent_keys.agent_versions("", "support")) == -1
    with pytest.raises(UnknownAgent):
        await store.agents.get("", "support", 2)


async def test_the_oldest_version_goes(store: Store, redis: Any) -> None:
    most = limit_of("agent_versions")
    for number in range(most + 2):
        await store.agents.keep("", "support", AgentSpec(model="fake/tool-20", max_steps=number + 1))
    newest = await store.agents.get("", "support")
    assert (newest.version, newest.oldest) == (most + 2, 3)
    with pytest.raises(UnknownAgent):
        await store.agents.get("", "support", 2)
    assert (await store.agents.get("", "support", 3)).agent.max_steps == 3
    assert await redis.hlen(agent_keys.agent_versions("", "support")) == 2 * most + 2
    await store.agents.remove("", "support")
    assert await redis.hlen(agent_keys.agent_versions("", "support")) == 3


async def test_there_are_only_so_many(store: Store, redis: Any) -> None:
    await redis.hset(agent_keys.agents(""), mapping={f"a{number}": 1 for number in range(limit_of("agents"))})
    with pytest.raises(StateConflict) as refused:
        await store.agents.keep("", "support", ONE)
    assert refused.value.code == "agents_full"
    await store.agents.keep("abcdef", "support", ONE)
    await redis.delete(agent_keys.agents(""))


async def test_pages_go_by_name(store: Store) -> None:
    for name in ("c", "a", "b"):
        await store.agents.keep("", name, ONE)
    first = await store.agents.list("", limit=2)
    assert ([agent.name for agent in first.agents], first.last, first.more) == (["a", "b"], "b", True)
    rest = await store.agents.list("", after=first.last, limit=2)
    assert ([agent.name for agent in rest.agents], rest.more) == (["c"], False)


async def test_each_tenant_has_its_own(store: Store) -> None:
    await store.agents.keep("", "support", ONE)
    await store.agents.keep("abcdef", "support", TWO)
    assert (await store.agents.get("", "support")).agent.instructions == "one"
    assert (await store.agents.get("abcdef", "support")).agent.instructions == "two"
    with pytest.raises(UnknownAgent):
        await store.agents.get("ghjkmn", "support")
    await store.agents.remove("abcdef", "support")
    assert [agent.name for agent in (await store.agents.list("", limit=9)).agents] == ["support"]
