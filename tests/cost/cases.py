"""For each script, what makes it dear: the largest things that get in, in a size that grows."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from typing import Any, Final

from palaver.leases import Delta, Lease
from palaver.models import Message, Retry, ToolCall
from palaver.providers import Limits
from palaver.store import keys
from palaver.verdicts import Continue, ToolOutcome
from tests.contract.desk import PAUSE, RESUME, Desk, approve, calls, deny, output, say

Act = Callable[[], Awaitable[object]]
WORDS: Final = "word " * 40


@dataclass(frozen=True)
class Case:
    """``prepare`` makes a situation of a size; what it answers is the move whose script is metered."""

    script: str
    what: str
    prepare: Callable[[Desk, int], Awaitable[Act]]
    most: int = 128
    """The largest size that gets in."""


def _ids(n: int) -> list[str]:
    return [f"c{i}" for i in range(n)]


async def _settle_unknown_tools(desk: Desk, n: int) -> Act:
    _, lease = await desk.begin()
    asked = tuple(ToolCall(id=call_id, name="nothing", arguments="{}") for call_id in _ids(n))
    outcomes = tuple(
        ToolOutcome(Message(role="tool", call_id=each.id, name=each.name, content=WORDS)) for each in asked
    )
    return lambda: desk.store.steps.settle(
        lease, Continue(Message(role="assistant", content="hm", tool_calls=asked), outcomes)
    )


def _settle(**how: bool) -> Callable[[Desk, int], Awaitable[Act]]:
    async def prepare(desk: Desk, n: int) -> Act:
        _, lease = await desk.begin()
        ids = _ids(n)
        return lambda: desk.store.steps.settle(lease, calls(*ids, **dict.fromkeys(how, ids)))  # type: ignore[arg-type]

    return prepare


async def _settle_large(desk: Desk, n: int) -> Act:
    _, lease = await desk.begin()
    return lambda: desk.finish(lease, text="x" * (n * 8192))


def _settle_arguments(**how: bool) -> Callable[[Desk, int], Awaitable[Act]]:
    async def prepare(desk: Desk, n: int) -> Act:
        _, lease = await desk.begin()
        verdict = calls(*_ids(8), **dict.fromkeys(how, _ids(8)))  # type: ignore[arg-type]
        large = [
            replace(each, call=each.call.model_copy(update={"arguments": "x" * (1024 * n)})) for each in verdict.calls
        ]
        assert verdict.message is not None
        message = verdict.message.model_copy(update={"tool_calls": tuple(each.call for each in large)})
        return lambda: desk.store.steps.settle(lease, replace(verdict, message=message, calls=tuple(large)))

    return prepare


async def _settle_results(desk: Desk, n: int) -> Act:
    _, lease = await desk.begin()
    asked = tuple(ToolCall(id=call_id, name="inline", arguments="{}") for call_id in _ids(8))
    results = [Message(role="tool", call_id=each.id, name=each.name, content="x" * (1024 * n)) for each in asked]
    message = Message(role="assistant", content="hm", tool_calls=asked)
    return lambda: desk.store.steps.settle(lease, Continue(message, tuple(map(ToolOutcome, results))))


async def _settle_answer(desk: Desk, n: int) -> Act:
    _, deliveries = await desk.turn(*_ids(n))
    lease = await desk.claim(deliveries[0])
    return lambda: desk.answer(lease, WORDS)


async def _settle_seal(desk: Desk, n: int) -> Act:
    _, deliveries = await desk.turn(*_ids(n))
    lease = await desk.claim(deliveries[0])
    return lambda: desk.give_up(lease)


def _decide(
    make: Callable[[Desk, str, int], Awaitable[list[Any]]], **how: bool
) -> Callable[[Desk, int], Awaitable[Act]]:
    async def prepare(desk: Desk, n: int) -> Act:
        ids = _ids(n)
        run_id, _ = await desk.turn(*ids, **dict.fromkeys(how, ids))
        items = await make(desk, run_id, n)
        return lambda: desk.act(run_id, *items)

    return prepare


async def _approve_all(desk: Desk, run_id: str, n: int) -> list[Any]:
    return [approve()]


async def _deny_each(desk: Desk, run_id: str, n: int) -> list[Any]:
    return [deny(action.id, "no") for action in (await desk.get(run_id)).pending_actions]


async def _outputs(desk: Desk, run_id: str, n: int) -> list[Any]:
    return [output(call_id, WORDS) for call_id in _ids(n)]


async def _large_outputs(desk: Desk, n: int) -> Act:
    run_id, _ = await desk.turn(*_ids(8), client=_ids(8))
    return lambda: desk.act(run_id, *(output(call_id, "x" * (1000 * n)) for call_id in _ids(8)))


async def _words(desk: Desk, n: int) -> Act:
    run_id, _ = await desk.begin()
    return lambda: desk.act(run_id, *(say(WORDS) for _ in range(n)))


async def _more_words(desk: Desk, n: int) -> Act:
    run_id, _ = await desk.begin()
    for _ in range(n):
        await desk.act(run_id, say(WORDS))
    return lambda: desk.act(run_id, say(WORDS))


async def _resume(desk: Desk, n: int) -> Act:
    run_id, _ = await desk.turn(*_ids(n))
    await desk.act(run_id, PAUSE)
    return lambda: desk.act(run_id, RESUME)


def _cancel(**how: bool) -> Callable[[Desk, int], Awaitable[Act]]:
    async def prepare(desk: Desk, n: int) -> Act:
        ids = _ids(n)
        run_id, _ = await desk.turn(*ids, **dict.fromkeys(how, ids))
        return lambda: desk.store.runs.cancel(run_id)

    return prepare


async def _rollback(desk: Desk, n: int) -> Act:
    """The n-th of a conversation's runs that is rolled back."""
    conversation = None
    for _ in range(n):
        run_id, lease = await desk.begin(conversation_id=conversation)
        await desk.store.runs.cancel(run_id, mode="rollback")
        await desk.finish(lease)
        conversation = lease.conversation_id
    submitted = await desk.submit(conversation_id=conversation)
    return lambda: desk.store.runs.cancel(submitted.run_id, mode="rollback")


async def _submit_messages(desk: Desk, n: int) -> Act:
    messages = tuple(Message(role="user", content=WORDS) for _ in range(8 * n))
    return lambda: desk.submit(messages)


async def _submit_large(desk: Desk, n: int) -> Act:
    messages = tuple(Message(role="user", content="x" * (1024 * n)) for _ in range(4))
    return lambda: desk.submit(messages)


async def _interrupt(desk: Desk, n: int) -> Act:
    _, lease = await desk.begin()
    for _ in range(n):
        await desk.submit(conversation_id=lease.conversation_id)
    return lambda: desk.submit(conversation_id=lease.conversation_id, on_conflict="interrupt")


async def _queue(desk: Desk, n: int) -> Act:
    _, lease = await desk.begin()
    for _ in range(n):
        await desk.submit(conversation_id=lease.conversation_id)
    return lambda: desk.submit(conversation_id=lease.conversation_id)


async def _steer(desk: Desk, n: int) -> Act:
    _, lease = await desk.begin()
    messages = tuple(Message(role="user", content=WORDS) for _ in range(8 * n))
    return lambda: desk.submit(messages, conversation_id=lease.conversation_id, on_conflict="steer")


async def _long(desk: Desk, n: int) -> tuple[str, Lease]:
    """A run that has ended, with about 8 n entries in its log: its id, and its last lease."""
    messages = tuple(Message(role="user", content=WORDS) for _ in range(8 * n))
    run_id, lease = await desk.begin(input=messages)
    await desk.finish(lease)
    return run_id, lease


async def _claim(desk: Desk, n: int) -> Act:
    messages = tuple(Message(role="user", content=WORDS) for _ in range(8 * n))
    submitted = await desk.submit(messages)
    return lambda: desk.claim(submitted.deliveries[0])


async def _heavy(desk: Desk, n: int) -> Lease:
    """A run that has ended, in a log of n messages of 400 KB: its last lease."""
    conversation, lease = None, None
    for _ in range(n // 2):
        messages = tuple(Message(role="user", content="x" * 400_000) for _ in range(2))
        _, lease = await desk.begin(input=messages, conversation_id=conversation)
        await desk.finish(lease)
        conversation = lease.conversation_id
    assert lease is not None
    return lease


async def _claim_heavy(desk: Desk, n: int) -> Act:
    submitted = await desk.submit(conversation_id=(await _heavy(desk, n)).conversation_id)
    return lambda: desk.claim(submitted.deliveries[0])


async def _read_heavy(desk: Desk, n: int) -> Act:
    conversation = (await _heavy(desk, n)).conversation_id
    return lambda: desk.store.runs.entries(conversation, limit=10_000)


async def _fork_heavy(desk: Desk, n: int) -> Act:
    run_id = (await _heavy(desk, n)).run_id
    return lambda: desk.store.control.retry(run_id, Retry(from_step=1, input="again"))


async def _delete_heavy(desk: Desk, n: int) -> Act:
    conversation = (await _heavy(desk, n)).conversation_id
    return lambda: desk.store.control.delete_conversation(conversation)


async def _claim_with_calls(desk: Desk, n: int) -> Act:
    _, deliveries = await desk.turn(*_ids(n))
    return lambda: desk.claim(deliveries[0])


async def _read(desk: Desk, n: int) -> Act:
    _, lease = await _long(desk, n)
    return lambda: desk.store.runs.entries(lease.conversation_id, limit=10_000)


async def _fork(desk: Desk, n: int) -> Act:
    run_id, _ = await _long(desk, n)
    return lambda: desk.store.control.retry(run_id, Retry(from_step=1, input="again"))


async def _delete_run(desk: Desk, n: int) -> Act:
    run_id, _ = await _long(desk, n)
    return lambda: desk.store.control.delete_run(run_id)


async def _delete_conversation(desk: Desk, n: int) -> Act:
    _, lease = await _long(desk, n)
    return lambda: desk.store.control.delete_conversation(lease.conversation_id)


async def _lost(desk: Desk, n: int) -> Act:
    _, deliveries = await desk.turn(*_ids(n))
    leases = [await desk.claim(delivery) for delivery in deliveries]
    return lambda: desk.lose(leases[0])


async def _expired(desk: Desk, n: int) -> Act:
    ids = _ids(n)
    run_id, _ = await desk.turn(*ids, approval=ids)
    return lambda: desk.hasten(run_id, "1/c0")


async def _late(desk: Desk, n: int) -> Act:
    run_id, _ = await desk.turn(*_ids(n))
    await desk.redis.hset(keys.run(run_id), "deadline", 1)
    return lambda: desk.hasten(run_id, "end")


async def _hand_back(desk: Desk, n: int) -> Act:
    _, deliveries = await desk.turn(*_ids(n))
    lease = await desk.claim(deliveries[0])
    return lambda: desk.hand_back(lease)


async def _postponed(desk: Desk) -> Lease:
    _, lease = await desk.begin()
    await desk.postpone(lease)
    return lease


async def _postpone(desk: Desk, n: int) -> Act:
    return lambda: _postponed(desk)


async def _recall(desk: Desk, n: int) -> Act:
    lease = await _postponed(desk)
    return lambda: desk.store.steps.recall(lease.run_id, lease.conversation_id, lease.step)


async def _renew(desk: Desk, n: int) -> Act:
    leases = [(await desk.begin())[1] for _ in range(n)]
    return lambda: desk.store.steps.renew(leases)


async def _feed(desk: Desk, n: int) -> Act:
    _, lease = await desk.begin()
    return lambda: desk.store.steps.feed([Delta(lease, WORDS)] * n)


LIMITS: Final = Limits(max_in_flight=1, requests_per_minute=60, tokens_per_minute=100_000)


async def _crowd(desk: Desk, n: int) -> None:
    """A provider that 8 n calls wait for, behind one in flight."""
    for i in range(8 * n):
        await desk.store.providers.admit("fake", f"call{i}", LIMITS, 1000)


async def _admit(desk: Desk, n: int) -> Act:
    await _crowd(desk, n)
    return lambda: desk.store.providers.admit("fake", "another", LIMITS, 1000)


async def _admit_late(desk: Desk, n: int) -> Act:
    """They were to come long ago."""
    await _crowd(desk, n)
    waiting = keys.of_provider("fake")[2]
    names = await desk.redis.zrange(waiting, 0, -1)
    now = (await desk.redis.time())[0] * 1000
    await desk.redis.zadd(waiting, {name: now - 10_000 + i for i, name in enumerate(names)})
    return lambda: desk.store.providers.admit("fake", "another", LIMITS, 1000)


async def _release(desk: Desk, n: int) -> Act:
    """All the places come free at once."""
    narrow, wide = Limits(max_in_flight=1), Limits(max_in_flight=8 * n)
    for i in range(8 * n):
        await desk.store.providers.admit("fake", f"call{i}", narrow, 0)
    return lambda: desk.store.providers.release("fake", "call0", wide, tokens=0, used=0)


async def _cool(desk: Desk, n: int) -> Act:
    await _crowd(desk, n)
    return lambda: desk.store.providers.cool("fake", 60, "call1")


async def _hold(desk: Desk, n: int) -> Act:
    names = [f"call{i}" for i in range(4 * n)]
    for name in names:
        await desk.store.providers.admit("fake", name, replace(LIMITS, max_in_flight=1000), 1)
    return lambda: desk.store.providers.hold("fake", names)


CASES: Final = (
    Case("settle", "calls of tools that there are not", _settle_unknown_tools),
    Case("settle", "tool calls", _settle()),
    Case("settle", "client tools", _settle(client=True)),
    Case("settle", "approvals", _settle(approval=True)),
    Case("settle", "8 KiB of an answer", _settle_large),
    Case("settle", "8 KiB of arguments of tool calls", _settle_arguments()),
    Case("settle", "8 KiB of arguments of client tools", _settle_arguments(client=True)),
    Case("settle", "8 KiB of results of inline tools", _settle_results),
    Case("settle", "a result beside open calls", _settle_answer),
    Case("settle", "an end that seals open calls", _settle_seal),
    Case("act", "one approval of all calls", _decide(_approve_all, approval=True)),
    Case("act", "denials", _decide(_deny_each, approval=True)),
    Case("act", "outputs of client tools", _decide(_outputs, client=True)),
    Case("act", "8 KB of outputs", _large_outputs),
    Case("act", "messages", _words),
    Case("act", "a message behind others", _more_words),
    Case("act", "parked steps that are resumed", _resume),
    Case("cancel", "tool calls", _cancel()),
    Case("cancel", "approvals", _cancel(approval=True)),
    Case("cancel", "rollbacks before it", _rollback),
    Case("submit", "8 messages", _submit_messages, most=125),
    Case("submit", "4 KiB of a message", _submit_large, most=256),
    Case("submit", "runs in the queue that it interrupts", _interrupt, most=98),
    Case("submit", "runs in the queue before it", _queue, most=98),
    Case("submit", "8 messages into a run", _steer, most=125),
    Case("claim", "8 entries of the log", _claim, most=120),
    Case("claim", "entries of 400 KB", _claim_heavy, most=32),
    Case("claim", "open calls", _claim_with_calls),
    Case("read", "8 entries of the log", _read, most=120),
    Case("read", "entries of 400 KB", _read_heavy, most=32),
    Case("copy_log", "8 entries of the log", _fork, most=120),
    Case("copy_log", "entries of 400 KB", _fork_heavy, most=32),
    Case("delete_run", "8 entries of the log", _delete_run, most=120),
    Case("delete_conversation", "8 entries of the log", _delete_conversation, most=120),
    Case("delete_conversation", "entries of 400 KB", _delete_heavy, most=32),
    Case("attend", "a lost call beside others", _lost),
    Case("attend", "an approval that expires beside others", _expired),
    Case("attend", "calls of a run that is late", _late),
    Case("hand_back", "open calls", _hand_back),
    Case("postpone", "nothing that grows", _postpone),
    Case("recall", "nothing that grows", _recall),
    Case("renew", "leases", _renew),
    Case("feed", "deltas", _feed, most=100),
    Case("admit", "8 calls that wait", _admit),
    Case("admit", "8 calls that are late", _admit_late),
    Case("release", "8 calls that wait", _release),
    Case("cool", "8 calls that wait", _cool),
    Case("hold", "4 calls in flight", _hold),
)
"""The worst that is known, script by script."""
