"""What grows has a most; what is long is done a part at a time, and nobody is shown the middle of it."""

from __future__ import annotations

from typing import Any

import pytest
from redis.exceptions import ConnectionError

from palaver.config.settings import Settings
from palaver.errors import ResponseTooLarge, StateConflict, UnknownConversation, UnknownRun
from palaver.schemas.actions import Item
from palaver.schemas.filters import RunFilter
from palaver.schemas.models import Message, Retry, ToolCall
from palaver.steps.leases import Delta
from palaver.steps.verdicts import Continue, ToolOutcome
from palaver.store import Store
from palaver.store.redis import keys
from palaver.store.runs.runs import Submitted
from palaver.store.scripting.contracts.declaration import Script
from palaver.vocabulary.lifecycle import RunStatus, StopReason
from palaver.vocabulary.limits import exceeded, limit_of
from tests.contract.store_driver import PAUSE, RESUME, StoreDriver, approve, deny, output, say

FEW = {"max_entries": 100, "max_queued": 3}


@pytest.fixture
def narrow(redis: Any, settings: Settings) -> StoreDriver:
    """A store whose conversations are soon full."""
    return StoreDriver(Store(redis, settings.model_copy(update=FEW)), redis)


def many(count: int, text: str = "word") -> tuple[Message, ...]:
    return tuple(Message(role="user", content=f"{text} {number}") for number in range(count))


async def refused(code: str, driver: StoreDriver, conversation_id: str, **more: Any) -> None:
    with pytest.raises(StateConflict) as conflict:
        await driver.submit(conversation_id=conversation_id, **more)
    assert conflict.value.code == code


class TestFullConversations:
    async def test_a_run_ends_before_the_model_call_that_has_no_room(self, narrow: StoreDriver) -> None:
        run_id, lease = await narrow.begin(input=many(80))
        while True:
            (delivery,) = await narrow.ask(lease, "c1")
            settled = await narrow.answer(await narrow.claim(delivery))
            if not settled.deliveries:
                break
            lease = await narrow.claim(settled.deliveries[0])
        run = await narrow.get(run_id)
        assert (run.status, run.stop_reason) == (RunStatus.INCOMPLETE, StopReason.CONVERSATION_FULL)
        before = exceeded["entries"]
        await refused("conversation_full", narrow, lease.conversation_id)
        assert exceeded["entries"] == before + 1

    async def test_one_with_too_much_in_it(self, redis: Any, settings: Settings) -> None:
        driver = StoreDriver(Store(redis, settings.model_copy(update={"max_conversation_bytes": 1 << 20})), redis)
        run_id, _ = await driver.begin(input=many(3, "x" * 300_000))
        _, lease = await driver.begin(input=many(3, "x" * 300_000))
        await driver.finish(lease)
        await driver.begin(conversation_id=lease.conversation_id)
        run_id = (await driver.submit(many(1, "x" * 300_000), conversation_id=lease.conversation_id)).run_id
        assert (await driver.get(run_id)).status is RunStatus.QUEUED

    async def test_what_is_deleted_makes_room(self, narrow: StoreDriver) -> None:
        first, lease = await narrow.begin(input=many(97))
        await narrow.finish(lease)
        conversation = lease.conversation_id
        await refused("conversation_full", narrow, conversation)
        await narrow.store.control.delete_run(first)
        bytes_left = int(await narrow.redis.hget(keys.conversation(conversation), "bytes"))
        assert bytes_left == 0

    async def test_words_into_a_run_there(self, narrow: StoreDriver) -> None:
        run_id, lease = await narrow.begin(input=many(98))
        before = exceeded["entries"]
        with pytest.raises(StateConflict) as conflict:
            await narrow.act(run_id, say("more"))
        assert (conflict.value.code, exceeded["entries"]) == ("conversation_full", before + 1)
        await narrow.finish(lease)


class TestQueues:
    async def test_a_conversation_takes_so_many_unfinished_runs(self, narrow: StoreDriver) -> None:
        _, lease = await narrow.begin()
        queued = [await narrow.submit(conversation_id=lease.conversation_id) for _ in range(2)]
        await refused("queue_full", narrow, lease.conversation_id)
        await narrow.store.runs.cancel(queued[0].run_id)
        await narrow.submit(conversation_id=lease.conversation_id)

    async def test_who_interrupts_them_gets_in(self, narrow: StoreDriver) -> None:
        first, lease = await narrow.begin()
        for _ in range(2):
            await narrow.submit(conversation_id=lease.conversation_id)
        made = await narrow.submit(conversation_id=lease.conversation_id, on_conflict="interrupt")
        await narrow.hand_back(lease)
        assert (await narrow.get(first)).status is RunStatus.CANCELLED
        assert (await narrow.store.runs.conversation(lease.conversation_id)).active_run == made.run_id


class TestSteering:
    async def test_words_that_wait_have_a_most(self, driver: StoreDriver) -> None:
        run_id, lease = await driver.begin()
        large: list[Item] = [say("x" * (limit_of("steering") // 4)) for _ in range(3)]
        await driver.act(run_id, *large)
        for _ in range(2):
            with pytest.raises(StateConflict) as conflict:
                await driver.act(run_id, *large)
            assert conflict.value.code == "steering_full"
        await refused("steering_full", driver, lease.conversation_id, input="x" * 400_000, on_conflict="steer")
        await driver.act(run_id, say("a word"))
        (delivery,) = (await driver.finish(lease)).deliveries
        again = await driver.claim(delivery)
        assert [len(text) for text in driver.said(again)[-4:-1]] == [limit_of("steering") // 4] * 3
        assert driver.said(again)[-1] == "a word"

    async def test_room_comes_back_once_they_are_told(self, driver: StoreDriver) -> None:
        run_id, lease = await driver.begin()
        third = say("x" * (limit_of("steering") // 3))
        await driver.act(run_id, PAUSE, third, third)
        await driver.hand_back(lease)
        with pytest.raises(StateConflict):
            await driver.act(run_id, third)
        await driver.act(run_id, RESUME)
        await driver.act(run_id, third)


async def test_many_items_are_done_in_one_pass_and_each_is_told(driver: StoreDriver) -> None:
    ids = [f"a{i}" for i in range(20)] + [f"c{i}" for i in range(20)]
    run_id, _ = await driver.turn(*ids, approval=ids[:20], client=ids[20:])
    pending = {action.call_id: action for action in (await driver.get(run_id)).pending_actions}
    items: list[Item] = [deny(pending[call_id].id) for call_id in ids[:10]]
    acted = await driver.act(run_id, *items, *(output(call_id, call_id) for call_id in ids[20:]), approve())
    assert (await driver.get(run_id)).pending_actions == ()
    told = dict(await driver.results(run_id))
    assert {call_id: told[call_id] for call_id in ids[20:]} == {call_id: call_id for call_id in ids[20:]}
    assert all("denied" in told[call_id] for call_id in ids[:10])
    due, begun = [*acted.settled.deliveries], []
    while due:
        lease = await driver.claim(due.pop(0))
        due += lease.deliveries
        begun.append(lease.step)
        await driver.answer(lease)
    assert sorted(begun) == sorted(f"1/{i}" for i in ids[10:20])


async def test_a_verdict_that_is_too_large_for_one_script_is_refused_before_redis(driver: StoreDriver) -> None:
    _, lease = await driver.begin()
    asked = tuple(ToolCall(id=f"c{i}", name="inline") for i in range(5))
    told = [Message(role="tool", call_id=each.id, name=each.name, content="x" * (1 << 20)) for each in asked]
    verdict = Continue(Message(role="assistant", content="hm", tool_calls=asked), tuple(map(ToolOutcome, told)))
    before = await driver.everything()
    with pytest.raises(ResponseTooLarge):
        await driver.store.steps.settle(lease, verdict)
    assert await driver.everything() == before
    await driver.finish(lease)


async def test_a_log_of_large_entries_is_read_a_few_at_a_time(driver: StoreDriver) -> None:
    large = many(12, "x" * 300_000)
    _, lease = await driver.begin(input=large)
    assert driver.said(lease) == [message.content for message in large]
    pages = [page async for page in driver.store.runs.pages(lease.conversation_id)]
    assert len(pages) > 1
    assert max(sum(len(str(entry.data)) for entry in page) for page in pages) < 9 * 300_100
    assert [entry.position for page in pages for entry in page] == list(range(1, len(large) + 3))
    await driver.finish(lease)


async def test_a_feed_keeps_so_many_bytes(driver: StoreDriver, redis: Any) -> None:
    run_id, lease = await driver.begin()
    text = "x" * (1 << 20)
    for _ in range(2 * limit_of("feed_bytes") // len(text)):
        await driver.store.steps.write_deltas([Delta(lease, text)])
    kept = sum(len(fields[b"data"]) for _, fields in await redis.xrange(keys.feed(run_id)))
    assert limit_of("feed_bytes") / 4 < kept < 1.1 * limit_of("feed_bytes")
    await driver.finish(lease)
    last = (await driver.get(run_id)).last_event_id
    assert [event.type for event in await driver.store.feeds.page(run_id, after=last - 1)] == ["run.finished"]


class Breaking:
    """Lets so many calls of a script through and then breaks the connection, as the death of a process would."""

    def __init__(self, driver: StoreDriver, script: str, calls: int) -> None:
        self._scripts, self._script, self._left = driver.store.scripts, script, calls
        self._run = self._scripts.run

    async def _counted(self, script: Script[Any]) -> Any:
        if script.name == self._script:
            self._left -= 1
            if self._left < 0:
                raise ConnectionError("gone")
        return await self._run(script)

    def __enter__(self) -> None:
        self._scripts.run = self._counted  # type: ignore[method-assign]

    def __exit__(self, *_: object) -> None:
        self._scripts.run = self._run  # type: ignore[method-assign]


async def ended(driver: StoreDriver, input: Any = "hello", conversation_id: str | None = None) -> tuple[str, str]:
    """A run that has ended: its id, and its conversation's."""
    run_id, lease = await driver.begin(input=input, conversation_id=conversation_id)
    await driver.finish(lease)
    return run_id, lease.conversation_id


class TestLongDeletions:
    async def test_a_run_that_is_half_deleted_is_gone_for_everybody(self, driver: StoreDriver) -> None:
        run_id, conversation = await ended(driver, many(500))
        other, _ = await ended(driver, "two", conversation)
        with Breaking(driver, "delete_run", 1), pytest.raises(ConnectionError):
            await driver.store.control.delete_run(run_id)
        with pytest.raises(UnknownRun):
            await driver.get(run_id)
        with pytest.raises(UnknownRun):
            await driver.events(run_id)
        listed = await driver.store.runs.list(RunFilter(conversation_id=conversation), limit=10)
        assert [run.id for run in listed.runs] == [other]
        _, lease = await driver.begin(input="three", conversation_id=conversation)
        assert driver.said(lease) == ["two", "bye", "three"]
        await driver.store.control.delete_run(run_id)
        assert run_id not in {entry.run_id for entry in await driver.log(other)}
        await driver.finish(lease)

    async def test_a_conversation_that_is_half_deleted_is_gone_for_everybody(
        self, driver: StoreDriver, redis: Any
    ) -> None:
        _, conversation = await ended(driver, many(300))
        second, _ = await ended(driver, many(300), conversation)
        with Breaking(driver, "delete_conversation", 1), pytest.raises(ConnectionError):
            await driver.store.control.delete_conversation(conversation)
        with pytest.raises(UnknownConversation):
            await driver.store.runs.conversation(conversation)
        with pytest.raises(UnknownConversation):
            await driver.store.runs.entries(conversation)
        with pytest.raises(UnknownConversation):
            await driver.submit(conversation_id=conversation)
        with pytest.raises(UnknownConversation):
            await driver.store.control.retry(second, Retry(from_step=1))
        await driver.store.control.delete_conversation(conversation)
        assert await driver.everything() == {}
        with pytest.raises(UnknownConversation):
            await driver.store.control.delete_conversation(conversation)


class TestLongForks:
    async def fork(self, driver: StoreDriver, run_id: str, **more: Any) -> Submitted:
        return await driver.store.control.retry(run_id, Retry(from_step=1, input="again"), **more)

    async def test_a_long_log_is_copied_as_it_is(self, driver: StoreDriver) -> None:
        run_id, _ = await ended(driver, many(450))
        made = await self.fork(driver, run_id)
        lease = await driver.claim(made.deliveries[0])
        assert driver.said(lease) == [*(message.content for message in many(450)), "again"]
        copied = await driver.redis.hmget(keys.conversation(lease.conversation_id), ["entries", "bytes"])
        log = await driver.redis.xrange(keys.log(lease.conversation_id))
        assert list(map(int, copied)) == [int(log[-1][0].split(b"-")[0]), sum(len(f[b"data"]) for _, f in log)]
        assert await driver.redis.ttl(keys.log(lease.conversation_id)) == -1
        await driver.finish(lease)

    async def test_what_is_deleted_meanwhile_is_not_copied(self, driver: StoreDriver, redis: Any) -> None:
        first, conversation = await ended(driver, many(300))
        run_id, _ = await ended(driver, many(300), conversation)
        run = driver.store.scripts.run

        async def delete_in_between(script: Script[Any]) -> Any:
            reply = await run(script)
            if script.name == "copy_log":
                driver.store.scripts.run = run  # type: ignore[method-assign]
                await driver.store.control.delete_run(first)
            return reply

        driver.store.scripts.run = delete_in_between  # type: ignore[method-assign]
        with pytest.raises(StateConflict) as conflict:
            await self.fork(driver, run_id)
        assert conflict.value.code == "conversation_changed"
        assert [key async for key in redis.scan_iter("*:log:*")] == [keys.log(conversation).encode()]
        made = await self.fork(driver, run_id)
        lease = await driver.claim(made.deliveries[0])
        assert len(driver.said(lease)) == 301
        await driver.finish(lease)

    async def test_a_copy_that_no_run_came_to_leaves_nothing(self, driver: StoreDriver, redis: Any) -> None:
        run_id, _ = await ended(driver)
        made = await self.fork(driver, run_id, idempotency_key="once")
        again = await self.fork(driver, run_id, idempotency_key="once")
        assert (again.run_id, again.replayed) == (made.run_id, True)
        assert len([key async for key in redis.scan_iter("*:conv:*")]) == 2
        await driver.finish(await driver.claim(made.deliveries[0]))
