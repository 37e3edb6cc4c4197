"""The copies that forks begin with: each is its maker's own, and one that is refused takes nothing with it."""

from __future__ import annotations

from typing import Any

import pytest
from redis.exceptions import ConnectionError

from palaver.errors import IdempotencyMismatch, StateConflict
from palaver.schemas.conversation import ConversationPatch, Fork, NewConversation
from palaver.store.redis import keys
from tests.contract.store_driver import AGENT, StoreDriver
from tests.contract.test_bounds import Breaking, ended, many
from tests.contract.test_going_back import told, two_turns

TURN = ["let me see", "42"]


async def broken_off(driver: StoreDriver, conversation: str, target: str) -> None:
    """A fork whose process dies when the log is copied."""
    with Breaking(driver, "copy_log", 1), pytest.raises(ConnectionError):
        await driver.store.history.fork(conversation, Fork(), target)


@pytest.mark.parametrize("name", ["the fork", "another conversation"])
async def test_a_refused_fork_takes_nothing_with_it(driver: StoreDriver, name: str) -> None:
    source, _ = await two_turns(driver)
    fork = driver.store.history.fork
    made, _ = await fork(source, Fork(), idempotency_key="k")
    target = made.id if name == "the fork" else (await driver.begin())[1].conversation_id
    if target == made.id:
        await driver.begin(conversation_id=made.id)
    before = await driver.store.runs.conversation(target), await driver.store.runs.entries(target, limit=1000)
    with pytest.raises(IdempotencyMismatch):
        await fork(source, Fork(title="no"), target, idempotency_key="k")
    after = await driver.store.runs.conversation(target), await driver.store.runs.entries(target, limit=1000)
    assert after == before


async def test_a_conversation_does_not_begin_with_a_copy_that_was_left(driver: StoreDriver) -> None:
    source, target = (await ended(driver, many(300)))[1], driver.store.runs.new_conversation("00")
    await broken_off(driver, source, target)
    begun, there = await driver.store.conversations.begin(NewConversation(), target)
    assert (begun.entries, there) == (0, False)
    assert await told(driver, target) == ["now"]


async def test_a_fork_does_not_begin_with_the_copy_of_another(driver: StoreDriver) -> None:
    source, target = (await ended(driver, many(300)))[1], driver.store.runs.new_conversation("00")
    other, (first, _) = await two_turns(driver)
    await broken_off(driver, source, target)
    forked, _ = await driver.store.history.fork(other, Fork(through=first), target)
    assert (forked.forked_from, forked.entries) == (other, first)
    assert await told(driver, target) == ["first", *TURN, "first done", "now"]


async def test_a_fork_does_not_go_further_than_it_is_to(driver: StoreDriver) -> None:
    source, target = (await ended(driver, many(300)))[1], driver.store.runs.new_conversation("00")
    await broken_off(driver, source, target)
    forked, _ = await driver.store.history.fork(source, Fork(through=3), target)
    assert [each.position for each in await driver.store.runs.entries(target, limit=1000)] == [1, 2, 3]
    assert forked.entries == 3
    assert await told(driver, target) == ["word 0", "word 1", "now"]


async def test_a_copy_that_is_left_goes(driver: StoreDriver, redis: Any) -> None:
    source, target = (await ended(driver, many(300)))[1], driver.store.runs.new_conversation("00")
    await broken_off(driver, source, target)
    left = [key async for key in redis.scan_iter("*:cop*")]
    assert len(left) == 2
    for key in left:
        assert 0 < await redis.ttl(key) <= 600
    await driver.store.history.fork(source, Fork(), target)
    assert sorted([key async for key in redis.scan_iter("*:cop*")]) == sorted(left)
    assert await redis.ttl(keys.log(target)) > 600


@pytest.mark.parametrize("parts", [1, 2])
async def test_a_fork_has_nothing_of_a_run_that_is_half_deleted(driver: StoreDriver, parts: int) -> None:
    run_id, conversation = await ended(driver, many(500))
    with Breaking(driver, "delete_run", parts), pytest.raises(ConnectionError):
        await driver.store.control.delete_run(run_id)
    with pytest.raises(StateConflict) as refused:
        await driver.store.history.fork(conversation, Fork())
    assert refused.value.code == "conversation_changed"
    await driver.store.control.delete_run(run_id)
    forked, _ = await driver.store.history.fork(conversation, Fork())
    assert not await driver.store.runs.entries(forked.id, limit=1000)


async def test_a_fork_has_nothing_of_a_run_whose_deletion_ends_meanwhile(
    driver: StoreDriver, monkeypatch: pytest.MonkeyPatch
) -> None:
    run_id, conversation = await ended(driver, many(500))
    with Breaking(driver, "delete_run", 1), pytest.raises(ConnectionError):
        await driver.store.control.delete_run(run_id)
    opened = driver.store.vault.opened

    async def delete_in_between(*given: Any) -> Any:
        await driver.store.control.delete_run(run_id)
        return await opened(*given)

    monkeypatch.setattr(driver.store.vault, "opened", delete_in_between)
    with pytest.raises(StateConflict) as refused:
        await driver.store.history.fork(conversation, Fork())
    assert refused.value.code == "conversation_changed"


async def test_a_fork_has_the_agent_that_its_writers_wrote(
    driver: StoreDriver, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = (await driver.begin())[1].conversation_id
    opened = driver.store.vault.opened

    async def change_in_between(*given: Any) -> Any:
        patch = ConversationPatch(agent=AGENT.model_copy(update={"instructions": "another one"}))
        await driver.store.conversations.change(made, patch, agent_by={"bob"})
        return await opened(*given)

    monkeypatch.setattr(driver.store.vault, "opened", change_in_between)
    with pytest.raises(StateConflict) as refused:
        await driver.store.history.fork(made, Fork())
    assert refused.value.code == "conversation_changed"
    # One with an agent of its own has nothing of that.
    forked, _ = await driver.store.history.fork(made, Fork(agent=AGENT), agent_by={"ann"})
    assert (await driver.store.runs.agent_of(forked.id)).by == {"ann"}
