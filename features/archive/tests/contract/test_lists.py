"""Lists over the store and the archive are what they were before anything left: in each order, by each filter."""

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable, Iterator
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any, Final, cast

import pytest

from features.archive.archiver import Archiver
from features.archive.database import Database
from features.archive.errors import ArchiveAway
from features.archive.tests.turns import evict, one_turn
from palaver.config.settings import Settings
from palaver.schemas.conversation import (
    Conversation,
    ConversationFilter,
    ConversationOrder,
    ConversationPatch,
    NewConversation,
)
from palaver.schemas.filters import RunFilter
from palaver.schemas.models import Run
from palaver.store import Store
from palaver.store.reading import records
from palaver.store.redis import keys
from palaver.store.redis.reach import Reach, within
from palaver.vocabulary.ids import new_run_id
from palaver.vocabulary.lifecycle import RunStatus
from tests.contract.store_driver import AGENT, StoreDriver
from tests.contract.test_agent_calls import Family
from tests.postgres import PostgresServer, running_postgres

ACME: Final = "acme00"
ORDERS: Final[tuple[ConversationOrder, ...]] = ("-updated", "updated", "-created", "created")
RUN_FILTERS: Final[tuple[RunFilter, ...]] = (
    {},
    {"status": "completed"},
    {"status": "failed,cancelled"},
    {"status": "running"},
    {"stop_reason": "final_answer"},
    {"tag": "even"},
    {"tag": 'a"tag",ü%_'},
    {"metadata": {"customer": "3"}},
    {"metadata": {"customer": "3", "a.b": "c"}},
    {"submitted_by": "ann"},
    {"agent": "support"},
    {"agent": "support@3"},
    {"agent": "nothing"},
    {"provider": "fake"},
    {"provider": "fa"},
    {"model": "fake/echo"},
    {"model": "other/echo"},
    {"tool": "calculator"},
    {"tool": "nothing"},
    {"error_class": "rate_limited"},
    {"error_code": "nothing"},
    {"retried": True},
    {"retried": False},
)
CONVERSATION_FILTERS: Final[tuple[ConversationFilter, ...]] = (
    {},
    {"title": "STRASSE"},
    {"title": "100%_"},
    {"title": "nothing"},
    {"tag": "even"},
    {"tag": 'a"tag",ü%_'},
    {"metadata": {"customer": "3"}},
    {"metadata": {"customer": "3", "a.b": "c"}},
    {"status": "completed"},
    {"status": "failed,cancelled"},
    {"status": "idle"},
    {"status": ["running", "idle"]},
)
TITLES: Final = ("In der Straße", "100%_ sure", "else", None)


@pytest.fixture(scope="module")
def postgres() -> Iterator[PostgresServer]:
    with running_postgres() as server:
        yield server


@pytest.fixture(autouse=True, params=["sqlite", "postgresql"])
def url(request: pytest.FixtureRequest, tmp_path: Path, archive_at: Callable[[str], str]) -> str:
    if request.param == "sqlite":
        return archive_at(f"sqlite:///{tmp_path}/archive.db")
    server: PostgresServer = request.getfixturevalue("postgres")
    return archive_at(server.new_database())


async def run_pages(store: Store, admitted: RunFilter, limit: int) -> list[Run]:
    found, cursor = list[Run](), None
    while True:
        page = await store.runs.list(admitted, limit=limit, cursor=cursor)
        found += [run.model_copy(update={"archived": False}) for run in page.runs]
        cursor = page.next_cursor
        if cursor is None:
            return found


async def conversation_pages(
    store: Store, admitted: ConversationFilter, order: ConversationOrder, limit: int
) -> list[Conversation]:
    found, cursor = list[Conversation](), None
    while True:
        page = await store.conversations.list(admitted, limit=limit, cursor=cursor, order=order)
        found += [conversation.model_copy(update={"archived": False}) for conversation in page.conversations]
        cursor = page.next_cursor
        if cursor is None:
            return found


async def everything(store: Store, limit: int) -> list[Any]:
    """What all of the lists have, and the counts."""
    runs = [await run_pages(store, admitted, limit) for admitted in RUN_FILTERS]
    some = (await run_pages(store, {}, 50))[::4]
    for run in some:
        created, ended = run.times.created_at, run.times.ended_at
        of_run = {"conversation_id": run.conversation_id}
        for admitted in ({"created_after": created}, {"created_before": created}, {"ended_after": ended}, of_run):
            runs += [await run_pages(store, cast(RunFilter, admitted), limit)]
    conversations = [
        await conversation_pages(store, admitted, order, limit) for admitted in CONVERSATION_FILTERS for order in ORDERS
    ]
    for one in (await conversation_pages(store, {}, "created", 50))[::4]:
        for name in ("created_after", "created_before", "updated_after", "updated_before"):
            at = one.created_at if name.startswith("created") else one.updated_at
            conversations += [
                await conversation_pages(store, cast(ConversationFilter, {name: at}), order, limit) for order in ORDERS
            ]
    counts = [await store.runs.counts(after=after) for after in (None, *(run.times.created_at for run in some))]
    counted = [await store.conversations.count(admitted) for admitted in CONVERSATION_FILTERS]
    return [*runs, *conversations, counts, counted]


async def begin_all(driver: StoreDriver, how_many: int) -> dict[str, list[str]]:
    """Conversations of many kinds, with their runs."""
    made = dict[str, list[str]]()
    for number in range(how_many):
        about: dict[str, Any] = {"tags": ("even", 'a"tag",ü%_') if number % 2 == 0 else ()}
        about["metadata"] = {"customer": f"{number % 5}", **({"a.b": "c"} if number % 3 == 0 else {})}
        new = NewConversation(title=TITLES[number % 4], **about)
        begun, _ = await driver.store.conversations.begin(new)
        made[begun.id] = []
        for turn in range(number % 3):
            agent = AGENT.model_copy(update={"name": "support" if number % 2 else None, "version": 3})
            submitted = await driver.submit(conversation_id=begun.id, agent=agent, **about)
            made[begun.id].append(submitted.run_id)
            if (number + turn) % 4 == 1:
                await driver.store.runs.cancel(submitted.run_id)
                continue
            lease = await driver.claim(submitted.deliveries[0])
            await (driver.give_up(lease) if (number + turn) % 4 == 2 else driver.finish(lease))
    return made


@pytest.fixture
def archived_in_part(
    driver: StoreDriver, redis: Any, archiver: Archiver
) -> Callable[[dict[str, list[str]]], Awaitable[None]]:
    """Archives all, and lets a part of it go."""

    async def act(made: dict[str, list[str]]) -> None:
        while await archiver.look():
            pass
        for conversation in random.Random(7).sample([*made], len(made) * 2 // 3):
            await evict(redis, conversation, *made[conversation])

    return act


@pytest.mark.parametrize("limit", [2, 50])
async def test_lists_are_as_if_nothing_had_left(
    driver: StoreDriver, store: Store, limit: int, archived_in_part: Callable[[dict[str, list[str]]], Awaitable[None]]
) -> None:
    made = await begin_all(driver, 15)
    running, _ = await driver.begin()
    before = await everything(store, 50)
    await archived_in_part(made)
    after = await everything(store, limit)
    for then, now in zip(before, after, strict=True):
        assert now == then
    assert running in [run.id for run in await run_pages(store, {}, limit)]


@pytest.mark.parametrize("order", ORDERS)
async def test_what_comes_back_between_two_reads_is_listed(
    driver: StoreDriver,
    store: Store,
    settings: Settings,
    redis: Any,
    archiver: Archiver,
    monkeypatch: pytest.MonkeyPatch,
    order: ConversationOrder,
) -> None:
    """Another client asks for it when the store was looked at, and the archive was not yet."""
    made = dict([await one_turn(driver) for _ in range(3)])
    while await archiver.look():
        pass
    (gone, run), *_ = made.items()
    await evict(redis, gone, run)
    other = Store(redis, settings)
    for name in ("find_runs", "find_conversations"):
        find = getattr(Database, name)

        async def later(*values: Any, find: Any = find) -> Any:
            await other.runs.get(run)
            return await find(*values)

        monkeypatch.setattr(Database, name, later)
    try:
        assert {each.id for each in await conversation_pages(store, {}, order, 2)} == {*made}
        assert await redis.exists(keys.conversation(gone))
        await evict(redis, gone, run)
        assert [each.id for each in await run_pages(store, {}, 50)] == [*made.values()][::-1]
        assert await redis.exists(keys.run(run))
    finally:
        await other.memories.close()


async def test_what_goes_on_once_it_is_back_is_listed_once(
    driver: StoreDriver, store: Store, redis: Any, archiver: Archiver
) -> None:
    """The archive has it at the place where it was."""
    made = dict([await one_turn(driver) for _ in range(3)])
    while await archiver.look():
        pass
    (gone, run), *_ = made.items()
    await evict(redis, gone, run)
    again, _ = await driver.begin(conversation_id=gone)
    for limit in (1, 50):
        assert [each.id for each in await conversation_pages(store, {}, "updated", limit)] == [*[*made][1:], gone]
        assert [each.id for each in await run_pages(store, {}, limit)] == [again, *[*made.values()][::-1]]


async def test_each_tenant_sees_its_own(
    driver: StoreDriver, store: Store, archived_in_part: Callable[[dict[str, list[str]]], Awaitable[None]]
) -> None:
    made = await begin_all(driver, 6)
    with within(Reach(ACME)):
        theirs = await begin_all(driver, 6)
    reaches = (Reach(""), Reach(ACME), Reach("nobody"), Reach("", all_tenants=True))
    before = []
    for reach in reaches:
        with within(reach):
            before.append(await everything(store, 50))
    await archived_in_part({**made, **theirs})
    for reach, then in zip(reaches, before, strict=True):
        with within(reach):
            assert await everything(store, 50) == then


async def test_what_has_changed_is_listed_as_it_is_now(
    driver: StoreDriver, store: Store, redis: Any, archiver: Archiver
) -> None:
    """The archive has it as it was."""
    begun, _ = await store.conversations.begin(NewConversation(tags=("old",)))
    run = await driver.submit(conversation_id=begun.id)
    await driver.finish(await driver.claim(run.deliveries[0]))
    await archiver.look()
    await store.conversations.change(begun.id, ConversationPatch(tags=("new",)))
    assert await conversation_pages(store, {"tag": "old"}, "-updated", 50) == []
    assert [each.id for each in await conversation_pages(store, {"tag": "new"}, "-updated", 50)] == [begun.id]
    await archiver.look()
    await evict(redis, begun.id, run.run_id)
    assert [each.id for each in await conversation_pages(store, {"tag": "new"}, "-updated", 50)] == [begun.id]


async def test_what_the_store_has_is_looked_up_as_far_as_its_page_goes(
    driver: StoreDriver, store: Store, archiver: Archiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The newest are in both: a page of them is no reason to go through all of these."""
    for _ in range(60):
        await store.conversations.begin(NewConversation())
    while await archiver.look():
        pass
    found, find = list[int](), Database.find_conversations

    async def counted(*values: Any) -> Any:
        rows = await find(*values)
        found.append(len(rows.records))
        return rows

    monkeypatch.setattr(Database, "find_conversations", counted)
    for order in ORDERS:
        page = await store.conversations.list({}, limit=10, order=order)
        assert len(page.conversations) == 10
    assert found == [10] * len(ORDERS)


async def test_what_goes_on_is_listed_while_the_archive_is_away(
    driver: StoreDriver, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    running, _ = await driver.begin()

    async def away(*_: Any) -> Any:
        raise ArchiveAway("of this test")

    for name in ("find_runs", "find_conversations", "run_counts", "count_conversations"):
        monkeypatch.setattr(f"features.archive.database.Database.{name}", away)
    unfinished = ",".join(status for status in RunStatus if not status.terminal)
    assert [run.id for run in await run_pages(store, {"status": unfinished}, 50)] == [running]
    with pytest.raises(ArchiveAway):
        await run_pages(store, {}, 50)
    with pytest.raises(ArchiveAway):
        await conversation_pages(store, {}, "-updated", 50)


async def test_what_is_deleted_is_on_no_list_though_the_archive_has_it_yet(
    driver: StoreDriver, store: Store, redis: Any, archiver: Archiver
) -> None:
    conversations, runs = [], []
    for _ in range(2):
        run, lease = await driver.begin()
        await driver.finish(lease)
        conversations.append(lease.conversation_id)
        runs.append(run)
    await archiver.look()
    for conversation, run in zip(conversations, runs, strict=True):
        await evict(redis, conversation, run)
    await store.control.delete_conversation(conversations[0])
    assert [run.id for run in await run_pages(store, {}, 50)] == runs[1:]
    assert [each.id for each in await conversation_pages(store, {}, "created", 50)] == conversations[1:]
    await archiver.look()
    assert [each.id for each in await conversation_pages(store, {}, "created", 50)] == conversations[1:]


async def test_times_count_wherever_they_are_from(
    driver: StoreDriver, store: Store, redis: Any, archiver: Archiver
) -> None:
    run, lease = await driver.begin()
    await driver.finish(lease)
    await archiver.look()
    await evict(redis, lease.conversation_id, run)
    before = datetime.now(timezone(timedelta(hours=5))) - timedelta(minutes=1)
    assert [each.id for each in await run_pages(store, {"created_after": before}, 50)] == [run]
    after = datetime.now(timezone(timedelta(hours=-5))) + timedelta(minutes=1)
    assert [each.id for each in await run_pages(store, {"created_before": after}, 50)] == [run]
    assert (await store.runs.counts(after=before)).statuses[RunStatus.COMPLETED] == 1
    assert len(await conversation_pages(store, {"updated_after": before}, "created", 50)) == 1


@pytest.mark.parametrize("at", [10**15, -(10**15), 2**62])
async def test_a_cursor_that_no_list_gave_is_refused(store: Store, at: int) -> None:
    with pytest.raises(ValueError, match="is no time"):
        await store.runs.list({}, limit=1, cursor=records.cursor((at, new_run_id("00"))))


async def test_few_that_fit_are_found_a_part_at_a_time(
    driver: StoreDriver, store: Store, redis: Any, archiver: Archiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No statement looks at more rows than it may."""
    for place in range(12):
        begun, _ = await store.conversations.begin(NewConversation(tags=("odd",) if place in (1, 7) else ()))
        while await archiver.look():
            pass
        await evict(redis, begun.id)
    monkeypatch.setattr("features.archive.searching._LOOKED", 3)
    for order in ORDERS:
        assert len(await conversation_pages(store, {"tag": "odd"}, order, 50)) == 2
        assert len(await conversation_pages(store, {}, order, 2)) == 12
    assert (await store.conversations.count({"tag": "odd"}, most_looked=1000)).count == 2
    assert not (await store.conversations.count({"tag": "odd"}, most_looked=5)).complete


async def test_runs_are_counted_up_to_a_number_of_them(
    driver: StoreDriver, store: Store, redis: Any, archiver: Archiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = dict([await one_turn(driver) for _ in range(5)])
    while await archiver.look():
        pass
    for conversation, run in made.items():
        await evict(redis, conversation, run)
    for most, counted in ((6, (5, True)), (5, (5, False)), (2, (2, False))):
        monkeypatch.setattr("palaver.store.reading.listing.limit_of", {"count_looked": most}.__getitem__)
        found = await store.runs.counts()
        assert (found.statuses[RunStatus.COMPLETED], found.complete) == counted


async def test_children_are_listed_that_are_in_the_archive_and_stay_there(
    store: Store, redis: Any, archiver: Archiver
) -> None:
    driver = Family(store, redis)
    parent, (its,) = await driver.waiting()
    (woken,) = await driver.follow([await driver.end(its)])
    (following,) = (await driver.reply(woken)).deliveries
    lease = await driver.claim(following)
    await driver.finish(lease)
    await archiver.look()
    await evict(redis, lease.conversation_id, parent)
    await evict(redis, its.conversation_id, its.run_id)
    assert [run.id for run in await run_pages(store, {"parent": parent}, 50)] == [its.run_id]
    assert not await redis.exists(keys.run(its.run_id), keys.conversation(its.conversation_id))
