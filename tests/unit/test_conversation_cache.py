"""What a worker remembers of conversations is bounded, and what it holds after a run is no work for the collector."""

from __future__ import annotations

import gc
import tracemalloc
from collections.abc import AsyncIterator, Iterator

import pytest

from palaver.config.settings import Settings
from palaver.schemas.models import AgentSpec, Message
from palaver.steps.leases import LogMessage
from palaver.steps.verdicts import Condensed
from palaver.store import Store
from palaver.vocabulary.step_kinds import MODEL
from tests.contract.clock import TurnedDatabase
from tests.contract.store_driver import StoreDriver
from tests.model_server import ModelServer
from tests.unit.test_conversations import asks, entries, lease, result, user
from tests.unit.test_one_step import worker
from workers.protocols import CHAT_COMPLETIONS, MESSAGES
from workers.steps import conversation_cache
from workers.steps.attempt import Attempt
from workers.steps.conversation_cache import ConversationCache
from workers.steps.conversations import CachedConversation
from workers.steps.registry import handler_of
from workers.steps.runtime import Runtime
from workers.steps.step import make_attempt

SHORT, LONG = 2, 100
"""Messages."""


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def talk(messages: int, text: str = "hello") -> list[LogMessage]:
    said = [Message(role="assistant" if i % 2 else "user", content=f"{text} {i}") for i in range(messages)]
    return entries(*said)


def made(messages: int, text: str = "hello") -> CachedConversation:
    conversation = CachedConversation(CHAT_COMPLETIONS, "fake/echo")
    conversation.extend(talk(messages, text), messages, 7)
    return conversation


@pytest.fixture
def traced() -> Iterator[None]:
    tracemalloc.start()
    try:
        yield
    finally:
        tracemalloc.stop()


def test_a_short_conversation_is_forgotten_once_its_run_has_ended() -> None:
    cache = ConversationCache()
    cache.keep("conv", made(SHORT))
    cache.rest("conv")
    assert (cache.get("conv"), len(cache), cache.size) == (None, 0, 0)


def test_the_next_turn_of_a_long_one_reads_only_what_is_new() -> None:
    cache = ConversationCache()
    cache.load(None, lease(*talk(LONG)), CHAT_COMPLETIONS)
    cache.rest("conv")
    known = cache.get("conv")
    assert known is not None
    assert known.position == LONG
    more = cache.load(known, lease(*entries(user("and now?"), start=LONG + 1)), CHAT_COMPLETIONS)
    assert more.messages() == [*made(LONG).messages(), CHAT_COMPLETIONS.message(user("and now?"))]
    assert cache.get("conv") is more


def test_it_can_be_forgotten_and_rest_twice() -> None:
    cache = ConversationCache()
    cache.rest("conv")
    cache.keep("conv", made(LONG))
    cache.rest("conv")
    before = cache.size
    cache.rest("conv")
    assert (len(cache), cache.size) == (1, before)


def test_a_packed_conversation_is_what_it_was() -> None:
    turns = entries(
        user("go"), asks("a"), result("a"), asks("b"), result("b", is_error=True), asks("c"), start=LONG + 1
    )
    before = CachedConversation(MESSAGES, "fake/echo")
    before.extend([*talk(LONG), *turns], LONG + len(turns), 7)
    after = CachedConversation.unpacked(before.packed(), MESSAGES)
    assert after.turns("") == before.turns("") != ()
    for name in CachedConversation.__slots__:
        assert getattr(after, name) == getattr(before, name), name
    condensed = Condensed("short", LONG)
    assert after.having(condensed).messages() == before.having(condensed).messages()


def test_each_comes_back_in_its_protocol() -> None:
    cache = ConversationCache()
    for protocol in (CHAT_COMPLETIONS, MESSAGES, CHAT_COMPLETIONS):
        conversation = CachedConversation(protocol)
        conversation.extend(talk(LONG), LONG)
        cache.keep(f"conv_{protocol.name}", conversation)
        cache.rest(f"conv_{protocol.name}")
    for protocol in (CHAT_COMPLETIONS, MESSAGES):
        known = cache.get(f"conv_{protocol.name}")
        assert known is not None
        assert known.protocol is protocol


@pytest.mark.slow
def test_a_thousand_that_have_ended_are_no_work_for_the_collector() -> None:
    cache, counts = ConversationCache(), []
    for number in range(1_000):
        cache.keep(f"conv_{number}", made(LONG))
        cache.rest(f"conv_{number}")
        if number in (99, 999):
            gc.collect()
            counts.append(len(gc.get_objects()))
    assert len(cache) == 1_000
    assert counts[1] - counts[0] < 50


@pytest.mark.slow
def test_one_between_two_steps_is_a_few_objects_however_long() -> None:
    kept = made(1_000)
    gc.collect()
    assert sum(gc.is_tracked(each) for each in gc.get_referents(kept)) <= 8
    assert not any(map(gc.is_tracked, kept.messages()))


def test_they_are_bounded_by_number() -> None:
    cache = ConversationCache(capacity=50)
    for number in range(1_200):
        cache.keep(f"conv_{number}", made(SHORT))
    assert len(cache) == 1_100
    assert cache.get("conv_99") is None
    assert cache.get("conv_100") is not None


@pytest.mark.parametrize("rests", [False, True])
def test_they_are_bounded_by_memory(monkeypatch: pytest.MonkeyPatch, rests: bool) -> None:
    monkeypatch.setattr(conversation_cache, "_MAX_BYTES", 1 << 20)
    cache = ConversationCache()
    for number in range(100):
        cache.keep(f"conv_{number}", made(LONG, "x" * 200))
        if rests:
            cache.rest(f"conv_{number}")
    assert cache.size <= 1 << 20
    assert 20 < len(cache) < 60
    cache.keep("conv_huge", made(1, "x" * (2 << 20)))
    assert len(cache) == 1, "the newest one stays: its next step is near"


@pytest.mark.parametrize("rests", [False, True])
def test_one_that_no_step_is_for_goes_after_a_while(rests: bool) -> None:
    clock = Clock()
    cache = ConversationCache(clock=clock)
    cache.keep("conv_old", made(LONG))
    if rests:
        cache.rest("conv_old")
    clock.now = 200.0
    cache.keep("conv_newer", made(LONG))
    assert cache.get("conv_old") is not None
    clock.now = 400.0
    cache.keep("conv_newest", made(LONG))
    assert (cache.get("conv_old"), len(cache)) == (None, 2)


@pytest.mark.slow
@pytest.mark.parametrize("messages", [SHORT, LONG])
@pytest.mark.parametrize("rests", [False, True])
@pytest.mark.usefixtures("traced")
def test_the_size_is_what_they_take(messages: int, rests: bool) -> None:
    cache = ConversationCache()
    before = tracemalloc.get_traced_memory()[0]
    for number in range(200):
        cache.keep(f"conv_{number:036}", made(messages))
        if rests and messages == LONG:
            cache.rest(f"conv_{number:036}")
    taken = tracemalloc.get_traced_memory()[0] - before
    assert cache.size == pytest.approx(taken, rel=0.25)


@pytest.fixture
async def working(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[tuple[StoreDriver, Runtime]]:
    """A model worker in this process, and the store that it works with."""
    settings, redis = Settings(redis_url="redis://127.0.0.1:1/0"), TurnedDatabase().client()
    store = Store(redis, settings)
    monkeypatch.setattr(Store, "connect", lambda *_, **__: store)
    async with ModelServer() as model, worker(store, settings, model) as runtime:
        yield StoreDriver(store, redis), runtime


async def test_a_run_that_is_next_finds_the_conversation_and_the_last_one_leaves_none(
    working: tuple[StoreDriver, Runtime],
) -> None:
    driver, runtime = working
    first = await driver.submit(agent=AgentSpec(model="fake/echo"))
    (delivery,) = first.deliveries
    conversation = delivery.conversation_id
    second = await driver.submit(agent=AgentSpec(model="fake/echo"), conversation_id=conversation)
    await make_attempt(handler_of, runtime, MODEL, first.run_id, conversation, "1")
    assert runtime.conversations.get(conversation) is not None
    await make_attempt(handler_of, runtime, MODEL, second.run_id, conversation, "1")
    assert (await driver.store.runs.get(second.run_id)).status == "completed"
    assert runtime.conversations.get(conversation) is None


async def test_between_the_steps_of_a_run_it_stays(working: tuple[StoreDriver, Runtime]) -> None:
    driver, runtime = working
    submitted = await driver.submit(agent=AgentSpec(model="fake/tool-1", tools=("calculator",)))
    (delivery,) = submitted.deliveries
    await make_attempt(handler_of, runtime, MODEL, delivery.run_id, delivery.conversation_id, "1")
    assert runtime.conversations.get(delivery.conversation_id) is not None
    await make_attempt(handler_of, runtime, MODEL, delivery.run_id, delivery.conversation_id, "2")
    assert (await driver.store.runs.get(delivery.run_id)).status == "completed"
    assert len(runtime.conversations) == 0


@pytest.mark.slow
async def test_a_step_is_let_go_with_all_that_it_read(working: tuple[StoreDriver, Runtime]) -> None:
    driver, runtime = working
    gc.collect()
    for model in ("fake/echo", "fake/say-5", "fake/tool-1"):
        agent = AgentSpec(model=model, tools=("calculator",))
        (delivery,) = (await driver.submit(agent=agent)).deliveries
        await make_attempt(handler_of, runtime, MODEL, delivery.run_id, delivery.conversation_id, "1")
        assert sum(type(each) is Attempt for each in gc.get_objects()) == 0, "without a collection"
