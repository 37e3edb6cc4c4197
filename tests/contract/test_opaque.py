"""What a provider wants back is in the log, with the message that it belongs to, and in nothing that is shown."""

from __future__ import annotations

from palaver.schemas.models import Message, Retry, ToolCall
from palaver.schemas.opaque import Opaque
from palaver.steps.verdicts import Continue, Finish, OpenCall
from palaver.store.redis import keys
from palaver.vocabulary.lifecycle import StopReason
from tests.contract.store_driver import StoreDriver

THOUGHT = Opaque("chat_completions/fake/x", '{"reasoning_content":"hidden thought \\u00fc","n":1.50}')
LAST = Opaque("chat_completions/fake/x", '{"reasoning_content":"hidden end"}')


async def conversation(driver: StoreDriver) -> tuple[str, str]:
    """A run with a call and an answer, both with something that their provider wants back; its conversation."""
    run_id, lease = await driver.begin()
    call = ToolCall(id="c1", name="calculator")
    asks = Continue(
        Message(role="assistant", tool_calls=(call,)), calls=(OpenCall(call, idempotent=True),), opaque=THOUGHT
    )
    (delivery,) = (await driver.store.steps.settle(lease, asks)).deliveries
    (delivery,) = (await driver.answer(await driver.claim(delivery))).deliveries
    lease = await driver.claim(delivery)
    assert [entry.opaque for entry in lease.log.entries] == [None, THOUGHT, None]
    answer = Finish(Message(role="assistant", content="done"), StopReason.END_TURN, opaque=LAST)
    await driver.store.steps.settle(lease, answer)
    return run_id, lease.conversation_id


async def test_it_is_in_the_log_and_in_no_event(driver: StoreDriver) -> None:
    run_id, conversation_id = await conversation(driver)
    log = await driver.store.runs.entries(conversation_id)
    assert [entry.opaque for entry in log if entry.opaque] == [THOUGHT, LAST]
    assert not any(b"hidden" in event.to_json() for entry in log for event in (entry.text() or []) + [entry.event()])
    assert not any(b"hidden" in event.to_json() for event in await driver.events(run_id))
    await driver.redis.delete(keys.feed(run_id))
    from_log = await driver.events(run_id)
    assert [event.type for event in from_log].count("message.created") == 3
    assert not any(b"hidden" in event.to_json() for event in from_log)


async def test_it_counts_as_memory_of_the_conversation_and_goes_with_its_run(driver: StoreDriver) -> None:
    run_id, conversation_id = await conversation(driver)
    entries = await driver.redis.xrange(keys.log(conversation_id))
    size = sum(len(fields[b"data"]) + len(fields.get(b"opaque", b"")) for _, fields in entries)
    assert int(await driver.redis.hget(keys.conversation(conversation_id), "bytes")) == size
    await driver.store.control.delete_run(run_id)
    left = await driver.redis.xrange(keys.log(conversation_id))
    size = sum(len(fields[b"data"]) for _, fields in left)
    assert int(await driver.redis.hget(keys.conversation(conversation_id), "bytes")) == size


async def test_a_fork_has_it(driver: StoreDriver) -> None:
    run_id, _ = await conversation(driver)
    fork = await driver.store.control.retry(run_id, Retry(from_step=2))
    lease = await driver.claim(fork.deliveries[0])
    assert [entry.opaque for entry in lease.log.entries if entry.opaque] == [THOUGHT]


async def test_a_repeated_claim_brings_the_log_from_its_beginning(driver: StoreDriver) -> None:
    """How a worker asks whose conversation is in another model's form."""
    run_id, _ = await conversation(driver)
    fork = await driver.store.control.retry(run_id, Retry(from_step=2))
    first = await driver.claim(fork.deliveries[0], nonce="n", known=2)
    again = await driver.claim(fork.deliveries[0], nonce="n", known=0)
    assert (again.fence, again.try_number, again.log.rebuilt) == (first.fence, first.try_number, True)
    assert [entry.opaque for entry in again.log.entries if entry.opaque] == [THOUGHT]
    assert (await driver.kinds(fork.run_id)).count("step.started") == 1
