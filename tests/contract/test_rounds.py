"""Rounds over many shards: who sweeps shares them, none is left out when one of them is gone, and a mark that is lost
makes nobody wait for longer than a round."""

from __future__ import annotations

from collections import Counter
from contextlib import suppress
from typing import Any

import pytest
from fakeredis import FakeServer
from redis.exceptions import ConnectionError

from palaver.config.settings import Settings
from palaver.errors import NoRoom
from palaver.store import Store
from palaver.store.redis import fleet_keys
from palaver.store.redis.busy import MARKED_AGAIN, BusyMarks
from palaver.store.redis.reach import Reach, within
from palaver.store.redis.rounds import EVERY, FULL_ROUND, SEATS, SILENCE, Rounds
from palaver.vocabulary.ids import MAX_SHARDS, all_shards, shard_of
from tests.contract.clock import TurnedRedis
from tests.contract.store_driver import StoreDriver

MANY = {*all_shards(MAX_SHARDS)}
LOOKS = 4


class Sweepers:
    """Some who sweep a store with many shards; time passes when they are told to."""

    def __init__(self, names: int, shards: int = MAX_SHARDS) -> None:
        self.now = 0.0
        self.redis = TurnedRedis(server=FakeServer())
        settings = Settings(redis_url="redis://127.0.0.1:1/0", shards=shards)
        connection: Any = self.redis
        self.all = {f"w{name}": Rounds(connection, settings, lambda: self.now) for name in range(names)}
        self.marks = BusyMarks(connection, lambda: self.now)

    async def pass_seconds(self, seconds: float, *silent: str) -> None:
        for _ in range(int(seconds / EVERY)):
            self.now += EVERY
            for name, rounds in self.all.items():
                if name not in silent:
                    await rounds.share(name)

    async def mark(self, *shards: str) -> None:
        for shard in shards:
            self.marks.touch(shard)
        assert self.marks._saying is not None
        await self.marks._saying

    def parts(self, *gone: str) -> dict[str, set[str]]:
        return {
            name: {shard for shard in MANY if rounds.has(shard)}
            for name, rounds in self.all.items()
            if name not in gone
        }

    def looked_at(self, name: str, seconds: int) -> Counter[str]:
        """How often each shard has its turn in so many seconds."""
        return Counter(shard for _ in range(seconds * LOOKS) for shard in self.all[name].turn("due", LOOKS))


def _covers(parts: dict[str, set[str]]) -> bool:
    return sum(map(len, parts.values())) == MAX_SHARDS and set().union(*parts.values()) == MANY


async def test_a_few_shards_are_everybodys_and_nobody_is_asked() -> None:
    few = Sweepers(1, shards=16)
    await few.redis.aclose()
    rounds = few.all["w0"]
    await rounds.share("w0")
    assert rounds.turn("due", LOOKS) == rounds.seldom("expired") == rounds.shards == all_shards(16)
    assert all(map(rounds.has, rounds.shards))


async def test_each_shard_is_in_one_part_and_two_look_at_it_now_and_then() -> None:
    sweepers = Sweepers(5)
    await sweepers.pass_seconds(3)
    parts = sweepers.parts()
    assert _covers(parts)
    assert min(map(len, parts.values())) > MAX_SHARDS / 5 / 2
    seen: Counter[str] = Counter()
    for rounds in sweepers.all.values():
        seen.update({shard for _ in range(round(FULL_ROUND)) for shard in rounds.seldom("expired")})
    assert seen == dict.fromkeys(MANY, 2)


@pytest.mark.parametrize("says", [True, False], ids=["dead", "silent"])
async def test_who_is_gone_leaves_a_part_to_the_others_and_theirs_remain(says: bool) -> None:
    sweepers = Sweepers(4)
    await sweepers.pass_seconds(3)
    before = sweepers.parts()
    if says:
        # As by the one who saw it die.
        await sweepers.redis.hdel(fleet_keys.SWEEPERS, "w2")
    await sweepers.pass_seconds(1 if says else SILENCE + 2, "w2")
    after = sweepers.parts("w2")
    assert _covers(after)
    assert all(before[name] <= part for name, part in after.items())

    # It was stopped, and goes on: for a moment two look at what is its.
    await sweepers.pass_seconds(3)
    assert sweepers.parts() == before


async def test_who_is_gone_for_long_is_forgotten() -> None:
    sweepers = Sweepers(2)
    await sweepers.pass_seconds(3)
    await sweepers.pass_seconds(6 * SILENCE, "w1")
    assert await sweepers.redis.hkeys(fleet_keys.SWEEPERS) == [b"w0"]
    assert sweepers.parts("w1")["w0"] == MANY


@pytest.mark.slow
async def test_so_many_share_and_others_take_the_place_of_one_that_is_gone() -> None:
    sweepers = Sweepers(SEATS + 4)
    await sweepers.pass_seconds(4)
    parts = sweepers.parts()
    assert _covers(parts)
    waiting = [name for name, part in parts.items() if not part]
    assert len(waiting) == 4
    assert all(not sweepers.all[name].turn("due", LOOKS) for name in waiting)
    gone = next(name for name, part in parts.items() if part)
    await sweepers.pass_seconds(SILENCE + 3, gone)
    parts = sweepers.parts(gone)
    assert _covers(parts)
    assert len([part for part in parts.values() if part]) == SEATS


@pytest.mark.slow
async def test_too_many_that_begin_at_once_are_soon_as_many_as_there_are_seats() -> None:
    sweepers = Sweepers(SEATS + 4)
    # Each looks before any of them has said that it is there.
    for name, rounds in sweepers.all.items():
        await rounds.share(name)
        await sweepers.redis.delete(fleet_keys.SWEEPERS)
    assert all(rounds._seated for rounds in sweepers.all.values())
    await sweepers.pass_seconds(6)
    assert _covers(sweepers.parts())
    assert await sweepers.redis.hlen(fleet_keys.SWEEPERS) == SEATS


@pytest.mark.slow
async def test_what_is_marked_is_looked_at_each_second_by_the_one_whose_it_is() -> None:
    sweepers = Sweepers(3)
    await sweepers.pass_seconds(3)
    await sweepers.mark("0a", "zz")
    await sweepers.pass_seconds(1)
    for shard in ("0a", "zz"):
        (own,) = (name for name, rounds in sweepers.all.items() if rounds.has(shard))
        assert sweepers.looked_at(own, 10)[shard] >= 10
        for other in sweepers.all.keys() - {own}:
            assert sweepers.looked_at(other, 10)[shard] <= 1
    # Nothing happens there any more.
    await sweepers.pass_seconds(MARKED_AGAIN * 2)
    assert not any(sweepers.looked_at(name, 10)["zz"] > 1 for name in sweepers.all)


async def test_a_process_marks_a_shard_once_in_a_while() -> None:
    sweepers = Sweepers(1)
    for _ in range(3):
        await sweepers.mark("0a", "0b")
    assert await sweepers.redis.hgetall(fleet_keys.BUSY) == {b"0a": b"1", b"0b": b"1"}
    sweepers.now += MARKED_AGAIN
    await sweepers.mark("0b")
    assert await sweepers.redis.hgetall(fleet_keys.BUSY) == {b"0a": b"1", b"0b": b"2"}
    sweepers.marks.touch_of("palaver:workers")
    sweepers.marks.touch_of("{palaver:batches}:due")
    assert await sweepers.redis.hlen(fleet_keys.BUSY) == 2


async def test_what_is_marked_and_whose_mark_is_lost_has_its_turn_in_a_round() -> None:
    sweepers = Sweepers(1)
    await sweepers.pass_seconds(3)
    await sweepers.mark("0a")
    await sweepers.redis.delete(fleet_keys.BUSY)
    await sweepers.pass_seconds(2)
    assert {*sweepers.looked_at("w0", round(FULL_ROUND))} == MANY


async def test_marks_of_more_shards_than_a_second_allows_for_have_their_turns_one_after_the_other() -> None:
    sweepers = Sweepers(1)
    await sweepers.pass_seconds(3)
    await sweepers.mark(*MANY)
    await sweepers.pass_seconds(1)
    assert len([shard for _ in range(LOOKS) for shard in sweepers.all["w0"].turn("due", LOOKS)]) <= 256 + LOOKS * 9
    assert sweepers.looked_at("w0", 4).keys() == MANY


async def test_while_nobody_can_say_who_shares_each_looks_at_everything(monkeypatch: pytest.MonkeyPatch) -> None:
    sweepers = Sweepers(2)
    await sweepers.pass_seconds(3)
    before = sweepers.parts()

    async def away(*_: object) -> Any:
        raise ConnectionError

    with monkeypatch.context() as patched:
        for rounds in sweepers.all.values():
            patched.setattr(rounds, "_ask", away)
        await sweepers.pass_seconds(1)
        assert sweepers.parts() == {"w0": MANY, "w1": MANY}
        assert sweepers.looked_at("w0", 4).keys() == MANY
    await sweepers.pass_seconds(SILENCE)
    assert sweepers.parts() == before


async def test_a_tenant_has_room_for_as_many_runs_as_all_have(redis: Any, settings: Settings) -> None:
    store = Store(redis, settings.model_copy(update={"shards": MAX_SHARDS, "max_runs": 64}))
    now = store.capacity._clock()
    store.capacity._clock = lambda: now
    driver, begun = StoreDriver(store, redis), list[str]()
    with within(Reach("k7m2qx")):
        # Of its 16 shards, each has room for a sixteenth of the runs.
        await _submit_until(40, driver, begun)
    assert len({*map(shard_of, begun)}) <= 16
    assert await store.capacity.runs_of_a_shard() == 4
    await _submit_until(64, driver, begun)
    assert await store.capacity.runs() == 64
    # The count is one of lately.
    assert await store.capacity.runs_of_a_shard() == 4
    now += 10.1
    assert await store.capacity.runs_of_a_shard() == 1
    with within(Reach("k7m2qx")), pytest.raises(NoRoom, match="as many runs"):
        await _submit_to_each(driver)


async def _submit_until(count: int, driver: StoreDriver, begun: list[str]) -> None:
    """Until so many are begun: one that meets a full shard is refused, and the next one meets another."""
    while len(begun) < count:
        with suppress(NoRoom):
            begun.append((await driver.submit()).run_id)


async def _submit_to_each(driver: StoreDriver) -> None:
    for _ in range(200):
        await driver.submit()
