"""The first words: the title of a conversation that nobody gave one, and how a run is shown."""

from __future__ import annotations

from palaver.schemas.conversation import ConversationPatch, NewConversation
from palaver.schemas.models import Message, Retry
from palaver.store.redis import keys
from tests.contract.store_driver import AGENT, StoreDriver

WORDS = "Which  invoices of March\nare still open? " + "And " * 50


async def _title(driver: StoreDriver, conversation_id: str) -> str | None:
    return (await driver.store.runs.conversation(conversation_id)).title


async def test_the_first_words_are_the_title(driver: StoreDriver) -> None:
    run_id, lease = await driver.begin(input=WORDS)
    title = await _title(driver, lease.conversation_id)
    assert title is not None
    assert title.startswith("Which invoices of March are still open? And")
    assert len(title) <= 60
    run = await driver.store.runs.get(run_id)
    assert run.input_preview is not None
    assert run.input_preview.startswith("Which invoices of March are still open? And")
    assert len(run.input_preview) <= 120
    await driver.finish(lease)
    await driver.submit("Thanks!", conversation_id=lease.conversation_id)
    assert await _title(driver, lease.conversation_id) == title


async def test_a_title_is_found(driver: StoreDriver) -> None:
    _, lease = await driver.begin(input="ÜBER alles")
    found = await driver.store.conversations.list({"title": "über"}, order="-created", limit=5)
    assert [each.id for each in found.conversations] == [lease.conversation_id]


async def test_a_title_that_somebody_gave_stays(driver: StoreDriver) -> None:
    made, _ = await driver.store.conversations.begin(NewConversation(title="Mine", agent=AGENT))
    await driver.submit("hello", conversation_id=made.id)
    assert await _title(driver, made.id) == "Mine"


async def test_a_title_that_somebody_took_away_stays_away(driver: StoreDriver) -> None:
    _, lease = await driver.begin(input="hello")
    await driver.store.conversations.change(lease.conversation_id, ConversationPatch(title=None))
    await driver.finish(lease)
    await driver.submit("again", conversation_id=lease.conversation_id)
    assert await _title(driver, lease.conversation_id) is None


async def test_words_without_a_run_are_a_title_too(driver: StoreDriver) -> None:
    made, _ = await driver.store.conversations.begin(NewConversation(agent=AGENT))
    await driver.store.history.append(made.id, [Message(role="user", content="First things first")])
    submitted = await driver.submit("second", conversation_id=made.id)
    assert await _title(driver, made.id) == "First things first"
    assert (await driver.store.runs.get(submitted.run_id)).input_preview == "second"


async def test_words_that_are_deleted_are_no_title(driver: StoreDriver) -> None:
    run_id, lease = await driver.begin(input="my password is swordfish")
    await driver.finish(lease)
    await driver.store.control.delete_run(run_id)
    assert await _title(driver, lease.conversation_id) is None
    kept = await driver.redis.hgetall(keys.conversation(lease.conversation_id))
    assert not [name for name, text in kept.items() if b"swordfish" in text]


async def test_a_title_that_was_changed_stays_without_the_run(driver: StoreDriver) -> None:
    run_id, lease = await driver.begin(input="hello")
    await driver.store.conversations.change(lease.conversation_id, ConversationPatch(title="Mine"))
    await driver.finish(lease)
    await driver.store.control.delete_run(run_id)
    assert await _title(driver, lease.conversation_id) == "Mine"


async def test_a_retry_is_shown_by_what_it_goes_on_with(driver: StoreDriver) -> None:
    run_id, lease = await driver.begin(input="what is it?")
    await driver.give_up(lease)
    again = await driver.store.control.retry(run_id, Retry())
    assert (await driver.store.runs.get(again.run_id)).input_preview == "what is it?"
