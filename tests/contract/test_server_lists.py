"""Lists of tools of the servers that a conversation names itself: kept once, under a lease, and gone with it."""

from __future__ import annotations

import pytest

from palaver.errors import StaleLease, UnknownConversation
from palaver.schemas.models import Message, ToolCall
from palaver.steps.verdicts import Continue, OpenCall
from palaver.store.redis import keys
from palaver.vocabulary.limits import limit_of
from palaver.vocabulary.step_kinds import MODEL, REMOTE
from tests.contract.store_driver import StoreDriver


async def test_the_first_is_the_one_that_all_get(driver: StoreDriver) -> None:
    _, lease = await driver.begin()
    lists, conversation_id = driver.store.server_lists, lease.conversation_id
    assert await lists.of(conversation_id, ["one", "two"]) == {}
    assert await lists.keep(lease, "one", b"[1]") == b"[1]"
    assert await lists.keep(lease, "one", b"[2]") == b"[1]"
    assert await lists.keep(lease, "two", b"[3]") == b"[3]"
    assert await lists.of(conversation_id, ["two", "one", "three"]) == {"one": b"[1]", "two": b"[3]"}


async def test_a_conversation_keeps_no_more_than_it_may_and_nobody_is_stopped_by_that(driver: StoreDriver) -> None:
    _, lease = await driver.begin()
    lists, most = driver.store.server_lists, limit_of("own_lists")
    for number in range(most):
        await lists.keep(lease, f"s{number}", b"[]")
    assert await lists.keep(lease, "one more", b"[1]") == b"[1]"
    assert await lists.of(lease.conversation_id, ["one more"]) == {}
    assert await lists.keep(lease, "s0", b"[1]") == b"[]"


async def test_who_has_lost_its_lease_keeps_nothing(driver: StoreDriver) -> None:
    _, lease = await driver.begin()
    await driver.finish(lease)
    with pytest.raises(StaleLease):
        await driver.store.server_lists.keep(lease, "one", b"[1]")
    assert await driver.store.server_lists.of(lease.conversation_id, ["one"]) == {}


async def test_a_step_of_a_call_keeps_one_too(driver: StoreDriver) -> None:
    _, lease = await driver.begin()
    call = ToolCall(id="c1", name="web__list_tools")
    message = Message(role="assistant", tool_calls=(call,))
    verdict = Continue(message, (), (OpenCall(call, True, kind=REMOTE),))
    settled = await driver.store.steps.settle(lease, verdict)
    (delivery,) = settled.deliveries
    assert delivery.queue == MODEL.queue
    of_call = await driver.claim(delivery)
    assert await driver.store.server_lists.keep(of_call, "one", b"[1]") == b"[1]"


async def test_they_go_with_their_conversation(driver: StoreDriver) -> None:
    _, lease = await driver.begin()
    await driver.store.server_lists.keep(lease, "one", b"[1]")
    await driver.finish(lease)
    await driver.store.control.delete_conversation(lease.conversation_id)
    with pytest.raises(UnknownConversation):
        await driver.store.server_lists.of(lease.conversation_id, ["one"])
    assert not await driver.redis.exists(keys.conversation(lease.conversation_id))
