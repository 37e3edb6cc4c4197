"""For each script, what makes it dear: the largest things that get in, in a size that grows."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, Final

import orjson

from palaver.config.providers import Limits
from palaver.errors import ErrorClass, Failure, ProviderDetails
from palaver.schemas.actions import ServerQuestion
from palaver.schemas.conversation import ConversationFilter, ConversationPatch, Fork, NewConversation
from palaver.schemas.filters import RunFilter
from palaver.schemas.models import Message, Retry, ToolCall
from palaver.schemas.tenants import CapsChange
from palaver.steps.leases import Delivery, Delta, Lease
from palaver.steps.verdicts import AskPerson, Continue, Postpone, ToolOutcome
from palaver.store.redis import keys, provider_keys
from palaver.store.redis.reach import Reach, within
from palaver.store.scripting.contracts.listing import Measure
from palaver.store.scripting.contracts.steps import Judge
from palaver.vocabulary.ids import new_conversation_id, new_run_id
from palaver.vocabulary.lifecycle import WaitReason
from tests.contract.store_driver import AGENT, OWN, PAUSE, RESUME, StoreDriver, approve, calls, deny, output, say
from tests.cost import families
from tests.cost.case import Act, Case
from tests.feature_cases import brought_to_tests

WORDS: Final = "word " * 40


def _ids(n: int) -> list[str]:
    return [f"c{i}" for i in range(n)]


async def _settle_unknown_tools(driver: StoreDriver, n: int) -> Act:
    _, lease = await driver.begin()
    asked = tuple(ToolCall(id=call_id, name="nothing", arguments="{}") for call_id in _ids(n))
    outcomes = tuple(
        ToolOutcome(Message(role="tool", call_id=each.id, name=each.name, content=WORDS)) for each in asked
    )
    return lambda: driver.store.steps.settle(
        lease, Continue(Message(role="assistant", content="hm", tool_calls=asked), outcomes)
    )


def _settle(**how: bool) -> Callable[[StoreDriver, int], Awaitable[Act]]:
    async def prepare(driver: StoreDriver, n: int) -> Act:
        _, lease = await driver.begin()
        ids = _ids(n)
        return lambda: driver.store.steps.settle(lease, calls(*ids, **dict.fromkeys(how, ids)))  # type: ignore[arg-type]

    return prepare


async def _settle_large(driver: StoreDriver, n: int) -> Act:
    _, lease = await driver.begin()
    return lambda: driver.finish(lease, text="x" * (n * 8192))


def _settle_arguments(**how: bool) -> Callable[[StoreDriver, int], Awaitable[Act]]:
    async def prepare(driver: StoreDriver, n: int) -> Act:
        _, lease = await driver.begin()
        verdict = calls(*_ids(8), **dict.fromkeys(how, _ids(8)))  # type: ignore[arg-type]
        large = [
            replace(each, call=each.call.model_copy(update={"arguments": "x" * (1024 * n)})) for each in verdict.calls
        ]
        assert verdict.message is not None
        message = verdict.message.model_copy(update={"tool_calls": tuple(each.call for each in large)})
        return lambda: driver.store.steps.settle(lease, replace(verdict, message=message, calls=tuple(large)))

    return prepare


async def _settle_results(driver: StoreDriver, n: int) -> Act:
    _, lease = await driver.begin()
    asked = tuple(ToolCall(id=call_id, name="inline", arguments="{}") for call_id in _ids(8))
    results = [Message(role="tool", call_id=each.id, name=each.name, content="x" * (1024 * n)) for each in asked]
    message = Message(role="assistant", content="hm", tool_calls=asked)
    return lambda: driver.store.steps.settle(lease, Continue(message, tuple(map(ToolOutcome, results))))


async def _settle_answer(driver: StoreDriver, n: int) -> Act:
    _, deliveries = await driver.turn(*_ids(n))
    lease = await driver.claim(deliveries[0])
    return lambda: driver.answer(lease, WORDS)


async def _settle_seal(driver: StoreDriver, n: int) -> Act:
    _, deliveries = await driver.turn(*_ids(n))
    lease = await driver.claim(deliveries[0])
    return lambda: driver.give_up(lease)


def _decide(
    make: Callable[[StoreDriver, str, int], Awaitable[list[Any]]], **how: bool
) -> Callable[[StoreDriver, int], Awaitable[Act]]:
    async def prepare(driver: StoreDriver, n: int) -> Act:
        ids = _ids(n)
        run_id, _ = await driver.turn(*ids, **dict.fromkeys(how, ids))
        items = await make(driver, run_id, n)
        return lambda: driver.act(run_id, *items)

    return prepare


async def _approve_all(driver: StoreDriver, run_id: str, n: int) -> list[Any]:
    return [approve()]


async def _deny_each(driver: StoreDriver, run_id: str, n: int) -> list[Any]:
    return [deny(action.id, "no") for action in (await driver.get(run_id)).pending_actions]


async def _outputs(driver: StoreDriver, run_id: str, n: int) -> list[Any]:
    return [output(call_id, WORDS) for call_id in _ids(n)]


async def _large_outputs(driver: StoreDriver, n: int) -> Act:
    run_id, _ = await driver.turn(*_ids(8), client=_ids(8))
    return lambda: driver.act(run_id, *(output(call_id, "x" * (1000 * n)) for call_id in _ids(8)))


async def _words(driver: StoreDriver, n: int) -> Act:
    run_id, _ = await driver.begin()
    return lambda: driver.act(run_id, *(say(WORDS) for _ in range(n)))


async def _more_words(driver: StoreDriver, n: int) -> Act:
    run_id, _ = await driver.begin()
    for _ in range(n):
        await driver.act(run_id, say(WORDS))
    return lambda: driver.act(run_id, say(WORDS))


async def _resume(driver: StoreDriver, n: int) -> Act:
    run_id, _ = await driver.turn(*_ids(n))
    await driver.act(run_id, PAUSE)
    return lambda: driver.act(run_id, RESUME)


def _cancel(**how: bool) -> Callable[[StoreDriver, int], Awaitable[Act]]:
    async def prepare(driver: StoreDriver, n: int) -> Act:
        ids = _ids(n)
        run_id, _ = await driver.turn(*ids, **dict.fromkeys(how, ids))
        return lambda: driver.store.runs.cancel(run_id)

    return prepare


async def _rollback(driver: StoreDriver, n: int) -> Act:
    """The n-th of a conversation's runs that is rolled back."""
    conversation = None
    for _ in range(n):
        run_id, lease = await driver.begin(conversation_id=conversation)
        await driver.store.runs.cancel(run_id, mode="rollback")
        await driver.finish(lease)
        conversation = lease.conversation_id
    submitted = await driver.submit(conversation_id=conversation)
    return lambda: driver.store.runs.cancel(submitted.run_id, mode="rollback")


async def _submit_messages(driver: StoreDriver, n: int) -> Act:
    messages = tuple(Message(role="user", content=WORDS) for _ in range(8 * n))
    return lambda: driver.submit(messages)


async def _submit_large(driver: StoreDriver, n: int) -> Act:
    messages = tuple(Message(role="user", content="x" * (1024 * n)) for _ in range(4))
    return lambda: driver.submit(messages)


async def _interrupt(driver: StoreDriver, n: int) -> Act:
    _, lease = await driver.begin()
    for _ in range(n):
        await driver.submit(conversation_id=lease.conversation_id)
    return lambda: driver.submit(conversation_id=lease.conversation_id, on_conflict="interrupt")


async def _queue(driver: StoreDriver, n: int) -> Act:
    _, lease = await driver.begin()
    for _ in range(n):
        await driver.submit(conversation_id=lease.conversation_id)
    return lambda: driver.submit(conversation_id=lease.conversation_id)


async def _steer(driver: StoreDriver, n: int) -> Act:
    _, lease = await driver.begin()
    messages = tuple(Message(role="user", content=WORDS) for _ in range(8 * n))
    return lambda: driver.submit(messages, conversation_id=lease.conversation_id, on_conflict="steer")


async def _append(driver: StoreDriver, n: int) -> Act:
    _, lease = await _long(driver, 1)
    messages = tuple(Message(role="user", content=WORDS) for _ in range(8 * n))
    return lambda: driver.store.history.append(lease.conversation_id, messages)


async def _append_behind_cancelled(driver: StoreDriver, n: int) -> Act:
    run_id, lease = await driver.begin()
    await driver.store.runs.cancel(run_id)
    for _ in range(n):
        await driver.store.history.append(lease.conversation_id, (Message(role="user", content=WORDS),) * 4)
    return lambda: driver.store.history.append(lease.conversation_id, (Message(role="user", content=WORDS),))


async def _append_behind_rolled_back(driver: StoreDriver, n: int) -> Act:
    """A run answers what is behind n parts that are withdrawn."""
    conversation = None
    for _ in range(n):
        run_id, lease = await driver.begin(conversation_id=conversation)
        await driver.store.runs.cancel(run_id, mode="rollback")
        await driver.finish(lease)
        conversation = lease.conversation_id
    await driver.store.history.append(str(conversation), (Message(role="user", content=WORDS),))
    return lambda: driver.submit((), conversation_id=conversation)


async def _open_turn(driver: StoreDriver, n: int) -> str:
    """A conversation at whose end a turn of n calls is open, all but one with results."""
    run_id, deliveries = await driver.turn(*_ids(n + 1))
    for lease in (await _claim_all(driver, deliveries))[:-1]:
        await driver.answer(lease, WORDS)
    return (await driver.get(run_id)).conversation_id


async def _unattended(driver: StoreDriver, n: int) -> Act:
    run_id, _ = await driver.turn(*_ids(n), queue=OWN)
    look = partial(driver.store.due.attend, OWN, attended=False, ready_for=-60, limit=1)
    await look()
    step = orjson.loads(await driver.redis.hget(keys.steps(run_id), "1/c0"))
    text = orjson.dumps({**step, "unattended": step["unattended"] - 4_000_000})
    await driver.redis.hset(keys.steps(run_id), "1/c0", text)
    return look


async def _fill(driver: StoreDriver, n: int) -> Act:
    """As many tenants at their cap, of which each has a step that waits."""
    for number in range(n):
        tag = f"{number:06}"
        await driver.store.caps.change(tag, CapsChange(max_in_flight=1))
        with within(Reach(tag)):
            await driver.begin()
            await driver.submit()
    return driver.store.due.fill


async def _claim_all(driver: StoreDriver, deliveries: Sequence[Delivery]) -> list[Lease]:
    """Claim these, and those that get room with each claim."""
    due, leases = [*deliveries], []
    while due:
        lease = await driver.claim(due.pop(0))
        due += lease.deliveries
        leases.append(lease)
    return leases


async def _find_place(driver: StoreDriver, n: int) -> Act:
    conversation = await _open_turn(driver, n)
    return lambda: driver.store.history.fork(conversation, Fork())


async def _withdrawn_parts(driver: StoreDriver, conversation: str, n: int) -> None:
    """The conversation as if n parts of its log behind position 1000 had been withdrawn."""
    parts = orjson.dumps([[1000 + 2 * i, 1001 + 2 * i, ""] for i in range(n)])
    fields = {"withdrawn": parts, "withdrawn_at": 1000 + 2 * n}
    await driver.redis.hset(keys.conversation(conversation), mapping=fields)


async def _go_back(driver: StoreDriver, n: int) -> Act:
    """To the results of n calls."""
    run_id, deliveries = await driver.turn(*_ids(n))
    conversation = (await driver.get(run_id)).conversation_id
    for lease in await _claim_all(driver, deliveries):
        settled = await driver.answer(lease, WORDS)
    entries = (await driver.store.runs.conversation(conversation)).entries
    await driver.finish(await driver.claim(settled.deliveries[0]))
    await _withdrawn_parts(driver, conversation, n)
    return lambda: driver.store.history.withdraw(conversation, entries)


async def _fork_withdrawn(driver: StoreDriver, n: int) -> Act:
    conversation = (await _long(driver, 1))[1].conversation_id
    await _withdrawn_parts(driver, conversation, 64 * n)
    return lambda: driver.store.history.fork(conversation, Fork())


async def _long(driver: StoreDriver, n: int) -> tuple[str, Lease]:
    """A run that has ended, with about 8 n entries in its log: its id, and its last lease."""
    messages = tuple(Message(role="user", content=WORDS) for _ in range(8 * n))
    run_id, lease = await driver.begin(input=messages)
    await driver.finish(lease)
    return run_id, lease


async def _claim(driver: StoreDriver, n: int) -> Act:
    messages = tuple(Message(role="user", content=WORDS) for _ in range(8 * n))
    submitted = await driver.submit(messages)
    return lambda: driver.claim(submitted.deliveries[0])


async def _heavy(driver: StoreDriver, n: int) -> Lease:
    """A run that has ended, in a log of n messages of 400 KB: its last lease."""
    conversation, lease = None, None
    for _ in range(n // 2):
        messages = tuple(Message(role="user", content="x" * 400_000) for _ in range(2))
        _, lease = await driver.begin(input=messages, conversation_id=conversation)
        await driver.finish(lease)
        conversation = lease.conversation_id
    assert lease is not None
    return lease


async def _claim_heavy(driver: StoreDriver, n: int) -> Act:
    submitted = await driver.submit(conversation_id=(await _heavy(driver, n)).conversation_id)
    return lambda: driver.claim(submitted.deliveries[0])


async def _read_heavy(driver: StoreDriver, n: int) -> Act:
    conversation = (await _heavy(driver, n)).conversation_id
    return lambda: driver.store.runs.entries(conversation, limit=10_000)


async def _fork_heavy(driver: StoreDriver, n: int) -> Act:
    run_id = (await _heavy(driver, n)).run_id
    return lambda: driver.store.control.retry(run_id, Retry(from_step=1, input="again"))


async def _delete_heavy(driver: StoreDriver, n: int) -> Act:
    conversation = (await _heavy(driver, n)).conversation_id
    return lambda: driver.store.control.delete_conversation(conversation)


async def _claim_with_calls(driver: StoreDriver, n: int) -> Act:
    _, deliveries = await driver.turn(*_ids(n))
    return lambda: driver.claim(deliveries[0])


async def _read(driver: StoreDriver, n: int) -> Act:
    _, lease = await _long(driver, n)
    return lambda: driver.store.runs.entries(lease.conversation_id, limit=10_000)


async def _fork(driver: StoreDriver, n: int) -> Act:
    run_id, _ = await _long(driver, n)
    return lambda: driver.store.control.retry(run_id, Retry(from_step=1, input="again"))


async def _delete_run(driver: StoreDriver, n: int) -> Act:
    run_id, _ = await _long(driver, n)
    return lambda: driver.store.control.delete_run(run_id)


async def _begin_conversation(driver: StoreDriver, n: int) -> Act:
    about = NewConversation(title="t" * 200, agent=AGENT.model_copy(update={"instructions": "x" * (n * 1024)}))
    return lambda: driver.store.conversations.begin(about, dialect_texts={"dialect": "x" * (n * 1024)})


async def _change_conversation(driver: StoreDriver, n: int) -> Act:
    made, _ = await driver.store.conversations.begin(NewConversation(agent=AGENT))
    about = ConversationPatch(agent=AGENT.model_copy(update={"instructions": "x" * (n * 1024)}), revision=0)
    return lambda: driver.store.conversations.change(made.id, about, dialect_texts={"dialect": "x" * (n * 1024)})


async def _find_conversations(driver: StoreDriver, n: int) -> Act:
    for _ in range(8 * n):
        await driver.store.conversations.begin(
            NewConversation(title="t" * 200, tags=("odd",), metadata={"k": "v" * 512})
        )
    wanted: ConversationFilter = {"title": "t", "metadata": {"k": "v"}, "status": "idle"}
    return lambda: driver.store.conversations.list(wanted, limit=200)


async def _forget_conversations(driver: StoreDriver, n: int) -> Act:
    gone = {new_conversation_id(1): 1.0 for _ in range(8 * n)}
    for each in (keys.conversations("00"), keys.conversations("00", ":updated"), keys.expiring("00")):
        await driver.redis.zadd(each, gone)
    return driver.store.due.forget_conversations


async def _delete_conversation(driver: StoreDriver, n: int) -> Act:
    _, lease = await _long(driver, n)
    return lambda: driver.store.control.delete_conversation(lease.conversation_id)


async def _lost(driver: StoreDriver, n: int) -> Act:
    _, deliveries = await driver.turn(*_ids(n))
    leases = await _claim_all(driver, deliveries)
    return lambda: driver.lose(leases[0])


async def _lost_in_many_shards(driver: StoreDriver, n: int) -> Act:
    step = {"since": 1_000, "losses": 1, "row": 1, "age": 400}
    losses = [{"member": f"{new_run_id('00')}/1", "expiry": 16_400, "step": step} for _ in range(n)]
    judge = Judge(due=keys.due("00"), losses=orjson.dumps(losses), unrenewed_before=None)
    return lambda: driver.store.scripts.run(judge)


async def _expired(driver: StoreDriver, n: int) -> Act:
    ids = _ids(n)
    run_id, _ = await driver.turn(*ids, approval=ids)
    return lambda: driver.hasten(run_id, "1/c0")


async def _late(driver: StoreDriver, n: int) -> Act:
    run_id, _ = await driver.turn(*_ids(n))
    await driver.redis.hset(keys.run(run_id), "deadline", 1)
    return lambda: driver.hasten(run_id, "end")


async def _hand_back(driver: StoreDriver, n: int) -> Act:
    _, deliveries = await driver.turn(*_ids(n))
    lease = await driver.claim(deliveries[0])
    return lambda: driver.hand_back(lease)


async def _ask(driver: StoreDriver, n: int) -> Act:
    _, deliveries = await driver.turn(*_ids(n))
    lease = await driver.claim(deliveries[0])
    asked = AskPerson(ServerQuestion(asker="crm", message="Which one?"), 60.0, "{}")
    return lambda: driver.store.steps.settle(lease, asked)


async def _postponed(driver: StoreDriver) -> Lease:
    _, lease = await driver.begin()
    await driver.postpone(lease)
    return lease


async def _postpone(driver: StoreDriver, n: int) -> Act:
    return lambda: _postponed(driver)


async def _promote(driver: StoreDriver, n: int) -> Act:
    lease = await _postponed(driver)
    return lambda: driver.store.steps.promote([(lease.conversation_id, lease.run_id, lease.step)])


async def _renew(driver: StoreDriver, n: int) -> Act:
    leases = [(await driver.begin())[1] for _ in range(n)]
    return lambda: driver.store.steps.renew(leases)


async def _feed(driver: StoreDriver, n: int) -> Act:
    _, lease = await driver.begin()
    return lambda: driver.store.steps.write_deltas([Delta(lease, WORDS)] * n)


async def _runs(driver: StoreDriver, n: int, agent_bytes: int = 1000) -> None:
    """16 n runs, each with a long agent."""
    agent = AGENT.model_copy(update={"instructions": "x" * agent_bytes})
    for _ in range(16 * n):
        await driver.submit(agent=agent)


async def _find(driver: StoreDriver, n: int) -> Act:
    """None of them fits, though all may."""
    await _runs(driver, n)
    nobody = RunFilter(tag="none", agent="nobody", metadata={"a": "b"}, status=("queued", "running", "failed"))
    return lambda: driver.store.runs.list(nobody, limit=200)


async def _find_beside_agents(driver: StoreDriver, n: int) -> Act:
    """What is short does not fit, and each agent is as long as they are many: to read them all is a square."""
    await _runs(driver, n, agent_bytes=1000 * n)
    nobody = RunFilter(tag="none", agent="nobody", provider="none", model="none/none", tool="none")
    return lambda: driver.store.runs.list(nobody, limit=200)


async def _find_all(driver: StoreDriver, n: int) -> Act:
    await _runs(driver, n)
    return lambda: driver.store.runs.list(RunFilter(status=("queued", "running")), limit=16 * n)


LIMITS: Final = Limits(max_in_flight=1, requests_per_minute=60, tokens_per_minute=100_000)


async def _crowd(driver: StoreDriver, n: int) -> None:
    """A provider that 8 n calls wait for, behind one in flight."""
    for i in range(8 * n):
        await driver.store.providers.admit("fake", f"call{i}", LIMITS, 1000)


async def _admit(driver: StoreDriver, n: int) -> Act:
    await _crowd(driver, n)
    return lambda: driver.store.providers.admit("fake", "another", LIMITS, 1000)


async def _admit_late(driver: StoreDriver, n: int) -> Act:
    """They were to come long ago."""
    await _crowd(driver, n)
    waiting = provider_keys.of_gate("fake")[2]
    names = await driver.redis.zrange(waiting, 0, -1)
    now = (await driver.redis.time())[0] * 1000
    await driver.redis.zadd(waiting, {name: now - 10_000 + i for i, name in enumerate(names)})
    return lambda: driver.store.providers.admit("fake", "another", LIMITS, 1000)


async def _release(driver: StoreDriver, n: int) -> Act:
    """All the places come free at once."""
    narrow, wide = Limits(max_in_flight=1), Limits(max_in_flight=8 * n)
    for i in range(8 * n):
        await driver.store.providers.admit("fake", f"call{i}", narrow, 0)
    return lambda: driver.store.providers.release("fake", "call0", wide, tokens=0, used=0)


async def _cool(driver: StoreDriver, n: int) -> Act:
    await _crowd(driver, n)
    return lambda: driver.store.providers.cool_down("fake", 60, "call1")


FAILURE: Final = Failure.of(ErrorClass.CONNECTION, code="connect_refused", provider=ProviderDetails("fake", "echo"))


async def _fail(driver: StoreDriver, call: str) -> None:
    await driver.store.providers.report_failure("fake", call, FAILURE, counts_as=call, answered=None)


async def _break_down(driver: StoreDriver, n: int) -> Act:
    """The probe of a provider fails that 8 n calls wait for."""
    for i in range(8 * n + 5):
        await _fail(driver, f"call{i}")
    return lambda: _fail(driver, "another")


async def _come_back(driver: StoreDriver, n: int) -> Act:
    """All of them have slept for so long that they are to be woken at once."""
    await _break_down(driver, n)
    return lambda: driver.store.providers.report_answer("fake", "another")


async def _hold(driver: StoreDriver, n: int) -> Act:
    names = [f"call{i}" for i in range(4 * n)]
    for name in names:
        await driver.store.providers.admit("fake", name, replace(LIMITS, max_in_flight=1000), 1)
    return lambda: driver.store.providers.renew_places("fake", names)


async def _create_tenant(driver: StoreDriver, n: int) -> Act:
    for number in range(n):
        await driver.store.tenants.create(f"tenant-{number}")
    return lambda: driver.store.tenants.create("one-more")


async def _keep_secrets(driver: StoreDriver, n: int) -> Act:
    submitted = await driver.submit()
    conversation_id, vault = submitted.deliveries[0].conversation_id, driver.store.vault
    values: dict[str, str | None] = {f"SECRET_{k}": "x" * 512 for k in range(n)}
    await vault.keep(conversation_id, values)
    return lambda: vault.keep(conversation_id, values)


async def _keep_server_list(driver: StoreDriver, n: int) -> Act:
    _, lease = await driver.begin()
    text = orjson.dumps([{"name": f"tool_{number}", "description": "x" * 1024} for number in range(n)])
    return lambda: driver.store.server_lists.keep(lease, "0" * 32, text)


async def _keep_agent(driver: StoreDriver, n: int) -> Act:
    agents, instructions = driver.store.agents, "x" * 1024 * n
    await agents.keep("", "support", AGENT)
    return lambda: agents.keep("", "support", AGENT.model_copy(update={"instructions": instructions}))


async def _remove_agent(driver: StoreDriver, n: int) -> Act:
    for steps in range(n):
        await driver.store.agents.keep("", "support", AGENT.model_copy(update={"max_steps": steps + 1}))
    return lambda: driver.store.agents.remove("", "support")


async def _wait_for_caps(driver: StoreDriver, n: int) -> None:
    """Steps of ``n`` tenants that wait for a cap of theirs."""
    for number in range(n):
        tag = f"{number:06}"
        await driver.store.caps.change(tag, CapsChange(usd_per_day=1))
        for _ in range(4):
            with within(Reach(tag)):
                _, lease = await driver.begin()
            wait = await driver.store.caps.reserve(lease, 1, spent=0, least=2, most=3, tokens=1)
            assert wait is not None
            await driver.store.steps.settle(lease, Postpone(wait.seconds, wait.code, WaitReason.TENANT_LIMIT))


async def _measure(driver: StoreDriver, n: int) -> Act:
    lists = tuple(f"runs:{i}" for i in range(64 * n))
    for each in lists:
        await driver.redis.zadd(f"{{p00}}:{each}", {"a": 1})
    return lambda: driver.store.scripts.run(Measure(due=keys.due("00"), oldest=None, newest=None, lists=lists))


async def _find_allowed(driver: StoreDriver, n: int) -> Act:
    """All of them may begin at once."""
    await _wait_for_caps(driver, n)
    for number in range(n):
        await driver.store.caps.change(f"{number:06}", CapsChange(usd_per_day=None))
    return driver.store.caps.allowed


async def _reserve(driver: StoreDriver, n: int) -> Act:
    await _wait_for_caps(driver, n)
    await driver.store.caps.change("", CapsChange(usd_per_month=1))
    _, lease = await driver.begin()
    return lambda: driver.store.caps.reserve(lease, 1, spent=0, least=2, most=3, tokens=1)


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
    Case("settle", "an end of a run among those of its parent", families.end_child, most=199),
    Case("settle", "approvals below other runs", families.wait_below),
    Case("append", "messages", _append),
    Case("append", "messages behind others that wait", _append_behind_cancelled),
    Case("submit", "parts of a log that are withdrawn, and nothing to say", _append_behind_rolled_back),
    Case("find_place", "results of an open turn", _find_place),
    Case("withdraw_after", "calls of a turn and parts that are withdrawn", _go_back),
    Case("fork", "parts of a log that are withdrawn", _fork_withdrawn),
    Case("act", "one approval of all calls", _decide(_approve_all, approval=True)),
    Case("act", "denials", _decide(_deny_each, approval=True)),
    Case("act", "denials below other runs", families.deny_below),
    Case("act", "outputs of client tools", _decide(_outputs, client=True)),
    Case("act", "8 KB of outputs", _large_outputs),
    Case("act", "messages", _words),
    Case("act", "a message behind others", _more_words),
    Case("act", "parked steps that are resumed", _resume),
    Case("cancel", "tool calls", _cancel()),
    Case("cancel", "approvals", _cancel(approval=True)),
    Case("cancel", "calls that wait for runs of agents", families.cancel_parent),
    Case("cancel", "rollbacks before it", _rollback),
    Case("submit", "8 messages", _submit_messages, most=125),
    Case("submit", "runs that its parent began before it", families.begin_child, most=199),
    Case("submit", "4 KiB of a message", _submit_large, most=256),
    Case("submit", "runs in the queue that it interrupts", _interrupt, most=98),
    Case("submit", "runs in the queue before it", _queue, most=98),
    Case("submit", "8 messages into a run", _steer, most=125),
    Case("claim", "8 entries of the log", _claim, most=120),
    Case("claim", "entries of 400 KB", _claim_heavy, most=32),
    Case("claim", "open calls", _claim_with_calls),
    Case("read_log", "8 entries of the log", _read, most=120),
    Case("read_log", "entries of 400 KB", _read_heavy, most=32),
    Case("copy_log", "8 entries of the log", _fork, most=120),
    Case("copy_log", "entries of 400 KB", _fork_heavy, most=32),
    Case("begin_conversation", "KiB of an agent and of a dialect's text", _begin_conversation, most=195),
    Case("change_conversation", "KiB of an agent and of a dialect's text", _change_conversation, most=195),
    Case("forget_conversations", "8 conversations that have expired", _forget_conversations, most=125),
    Case("delete_run", "8 entries of the log", _delete_run, most=120),
    Case("delete_conversation", "8 entries of the log", _delete_conversation, most=120),
    Case("delete_conversation", "entries of 400 KB", _delete_heavy, most=32),
    Case("measure", "64 lists", _measure),
    Case("find_allowed", "tenants with steps that may begin", _find_allowed, most=50, least=4),
    Case("reserve", "tenants with steps that wait", _reserve, most=50, least=4),
    Case("create_tenant", "tenants that are there", _create_tenant, most=10_000),
    Case("keep_agent", "KiB of an agent", _keep_agent, most=195),
    Case("remove_agent", "versions", _remove_agent, most=100),
    Case("keep_secrets", "secrets of 512 characters", _keep_secrets, most=64),
    Case("keep_server_list", "tools of 1 KiB", _keep_server_list, most=64),
    Case("sweep", "a lost call beside others", _lost),
    Case("sweep", "an approval that expires beside others", _expired),
    Case("sweep", "calls of a run that is late", _late),
    Case("sweep", "calls of a run whose parent has ended", families.look_at_parent),
    Case("judge", "steps that are lost together", _lost_in_many_shards, most=1_000),
    Case("hand_back", "open calls", _hand_back),
    Case("postpone", "nothing that grows", _postpone),
    Case("ask", "open calls", _ask),
    Case("promote", "nothing that grows", _promote),
    Case("find", "16 runs that do not fit", _find, most=125, least=4),
    Case("find", "16 runs with long agents that do not fit", _find_beside_agents, most=62, least=4),
    Case("find", "16 runs that fit", _find_all, most=12, least=4),
    Case("find", "8 conversations that do not fit", _find_conversations, most=125),
    Case("attend", "a call that no worker takes, beside others, for too long", _unattended),
    Case("fill", "tenants at their cap", _fill),
    Case("renew", "leases", _renew),
    Case("write_deltas", "deltas", _feed, most=100),
    Case("admit", "8 calls that wait", _admit, least=4),
    Case("admit", "8 calls that are late", _admit_late, least=4),
    Case("release", "8 calls that wait", _release),
    Case("cool_down", "8 calls that wait", _cool, least=4),
    Case("report_failure", "8 calls that wait", _break_down, least=4),
    Case("report_answer", "8 calls that wait", _come_back),
    Case("renew_places", "4 calls in flight", _hold),
    *(case for cases in brought_to_tests("SCRIPTS", "costs").values() for case in cases),
)
"""The worst that is known, script by script."""
