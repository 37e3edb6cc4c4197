"""Conversations as a resource: begun under an id of one's own, described, changed, and gone in time."""

from __future__ import annotations

from typing import Any
from uuid import uuid4

import pytest

from palaver.config.settings import Settings
from palaver.errors import NewerVersion, NoRoom, StateConflict, UnknownConversation
from palaver.schemas.conversation import Conversation, ConversationPatch, NewConversation
from palaver.schemas.models import AgentSpec
from palaver.store import Store
from palaver.store.conversations.conversations import DialectText
from palaver.store.redis import keys
from palaver.vocabulary.ids import new_conversation_id
from tests.contract.store_driver import AGENT, StoreDriver
from tests.waiting import aeventually

ABOUT: dict[str, Any] = {"title": "Ünited", "metadata": {"customer": "c-17"}, "tags": ("a", "b"), "agent": AGENT}


async def begin(store: Store, conversation_id: str | None = None, **about: Any) -> Conversation:
    """A conversation that was not there."""
    found, there = await store.conversations.begin(NewConversation(**about), conversation_id)
    assert not there
    return found


async def test_a_chosen_id_is_begun_once(store: Store) -> None:
    chosen = store.runs.conversation_of_number(uuid4())
    made = await begin(store, chosen, **ABOUT)
    assert (made.id, made.title, made.metadata, made.tags) == (chosen, "Ünited", {"customer": "c-17"}, ("a", "b"))
    assert (made.agent, made.status, made.revision, made.updated_at) == (AGENT, "idle", 0, made.created_at)
    again, there = await store.conversations.begin(NewConversation(title="another"), chosen)
    assert there
    assert again == made


async def test_what_a_run_began_is_there_too(driver: StoreDriver) -> None:
    _, lease = await driver.begin()
    found, there = await driver.store.conversations.begin(NewConversation(title="mine"), lease.conversation_id)
    assert there
    assert (found.title, found.status) == ("hello", "running")
    await driver.finish(lease)
    assert (await driver.store.runs.conversation(lease.conversation_id)).status == "completed"


async def test_what_is_given_takes_the_place_of_what_there_was(store: Store) -> None:
    made = await begin(store, **ABOUT)
    titled = await store.conversations.change(made.id, ConversationPatch(title="New"))
    assert (titled.title, titled.metadata, titled.tags, titled.agent) == ("New", made.metadata, made.tags, AGENT)
    assert titled.revision == 1
    assert titled.updated_at >= made.updated_at
    bare = await store.conversations.change(made.id, ConversationPatch(title=None, metadata={}, tags=(), agent=None))
    assert (bare.title, bare.metadata, bare.tags, bare.agent, bare.revision) == (None, {}, (), None, 2)
    same = await store.conversations.change(made.id, ConversationPatch())
    assert same.model_dump(exclude={"revision", "updated_at"}) == bare.model_dump(exclude={"revision", "updated_at"})


async def test_of_two_who_change_the_same_one_has_to_look_again(store: Store) -> None:
    made = await begin(store)
    await store.conversations.change(made.id, ConversationPatch(title="one", revision=0))
    with pytest.raises(StateConflict) as conflict:
        await store.conversations.change(
            made.id, ConversationPatch(title="two", revision=0), dialect_texts={"d": "two"}
        )
    assert conflict.value.code == "conversation_revised"
    assert (await store.runs.conversation(made.id)).title == "one"
    assert await store.conversations.dialect_text(made.id, "d") == DialectText(None, 1)
    assert (await store.conversations.change(made.id, ConversationPatch(title="two", revision=1))).title == "two"


async def test_a_dialect_keeps_a_text_of_its_own(store: Store) -> None:
    made, _ = await store.conversations.begin(NewConversation(), dialect_texts={"one": "x" * 10, "two": "y"})
    assert await store.conversations.dialect_text(made.id, "one") == DialectText("x" * 10, 0)
    await store.conversations.change(made.id, ConversationPatch(revision=0), dialect_texts={"one": "z", "two": None})
    assert await store.conversations.dialect_text(made.id, "one") == DialectText("z", 1)
    assert await store.conversations.dialect_text(made.id, "two") == DialectText(None, 1)


async def test_of_positions_that_watchers_leave_the_smallest_stays_a_while(driver: StoreDriver, redis: Any) -> None:
    store, conversations = driver.store, driver.store.conversations
    made = await begin(store)
    assert await conversations.position_left(made.id, "d") is None
    for position in (100, 140, 60, 101):
        await conversations.leave_position(made.id, "d", position, 20)
    assert await conversations.position_left(made.id, "d") == 60
    # Each dialect tells its own watchers.
    assert await conversations.position_left(made.id, "e") is None
    assert await store.runs.conversation(made.id) == made
    # The one that comes last is there for its whole time.
    await redis.expire(keys.left(made.id), 1)
    await conversations.leave_position(made.id, "d", 140, 20)
    assert await redis.pttl(keys.left(made.id)) > 1000
    await redis.pexpire(keys.left(made.id), 1)

    async def gone() -> bool:
        return await conversations.position_left(made.id, "d") is None

    await aeventually(gone)


async def test_another_agent_answers_from_the_next_run_on(driver: StoreDriver) -> None:
    run_id, lease = await driver.begin()
    other = AgentSpec(model="fake/other", max_steps=3)
    await driver.store.conversations.change(lease.conversation_id, ConversationPatch(agent=other))
    await driver.finish(lease)
    assert (await driver.get(run_id)).agent == AGENT
    following, lease = await driver.begin(conversation_id=lease.conversation_id, agent=None)
    assert (await driver.get(following)).agent == other
    await driver.finish(lease)


async def test_nothing_is_changed_that_is_not_there_or_goes(driver: StoreDriver, redis: Any) -> None:
    store, gone = driver.store, new_conversation_id(1)
    made = await begin(store)
    await redis.hset(keys.conversation(made.id), "deleting", 1)
    for unknown in (gone, made.id, "nonsense"):
        with pytest.raises(UnknownConversation):
            await store.conversations.change(unknown, ConversationPatch(title="x"))
        with pytest.raises(UnknownConversation):
            await store.conversations.dialect_text(unknown, "d")
    with pytest.raises(StateConflict) as conflict:
        await store.conversations.begin(NewConversation(), made.id)
    assert conflict.value.code == "conversation_busy"
    await store.control.delete_conversation(made.id)
    assert await driver.everything() == {}


async def test_what_newer_code_has_written_stays(store: Store, redis: Any) -> None:
    made = await begin(store)
    await redis.hset(keys.conversation(made.id), "version", 99)
    with pytest.raises(NewerVersion):
        await store.conversations.change(made.id, ConversationPatch(title="x"))


async def test_a_full_store_takes_neither(redis: Any, settings: Settings) -> None:
    store = Store(redis, settings)
    made = await begin(store)

    async def full() -> bool:
        return True

    store.capacity.nearly_full = full  # type: ignore[method-assign]
    with pytest.raises(NoRoom):
        await store.conversations.begin(NewConversation())
    with pytest.raises(NoRoom):
        await store.conversations.change(made.id, ConversationPatch(title="x"))
    # It is small, and goes soon.
    await store.conversations.leave_position(made.id, "d", 7, 20)
    assert await store.conversations.position_left(made.id, "d") == 7


async def test_one_that_is_used_again_is_not_taken_out_of_the_lists(driver: StoreDriver, redis: Any) -> None:
    _, lease = await driver.begin()
    await driver.finish(lease)
    expiring = keys.expiring("00")
    await redis.zadd(expiring, {lease.conversation_id: 1})
    assert await driver.store.due.forget_conversations() == 0, "Redis has not let it go yet"
    _, lease = await driver.begin(conversation_id=lease.conversation_id)
    assert await redis.zscore(expiring, lease.conversation_id) is None
    await driver.finish(lease)


async def test_expired_ones_go_part_by_part(store: Store, redis: Any) -> None:
    kept = await begin(store)
    expired = [new_conversation_id(1) for _ in range(25)]
    lists = [keys.conversations("00"), keys.conversations("00", ":updated"), keys.expiring("00")]
    for each in lists:
        await redis.zadd(each, dict.fromkeys(expired, 9))
    assert [await store.due.forget_conversations(limit=10) for _ in range(4)] == [10, 10, 5, 0]
    for each in lists:
        assert await redis.zrange(each, 0, -1) == [kept.id.encode()]
