"""The lifecycle: one table, and each stop reason ends in one status."""

from __future__ import annotations

import re
from collections import Counter
from uuid import UUID, uuid4

import pytest

from palaver.vocabulary.ids import (
    CONVERSATION_ID,
    MAX_SHARDS,
    all_shards,
    conversation_id,
    derived_conversation_id,
    is_id,
    new_conversation_id,
    new_run_id,
    new_tag,
    of_tenant,
    parts_of_tenant,
    pick_shard,
    shard_of,
    shards_of_tenant,
    tenant_of,
    uuid_of,
)
from palaver.vocabulary.lifecycle import TRANSITIONS, RunStatus, StopReason

TERMINAL = {
    RunStatus.COMPLETED,
    RunStatus.INCOMPLETE,
    RunStatus.FAILED,
    RunStatus.CANCELLED,
    RunStatus.EXPIRED,
}


def test_nothing_leaves_a_terminal_status() -> None:
    assert {status for status in RunStatus if status.terminal} == TERMINAL


def test_every_status_can_be_reached_and_can_end() -> None:
    reached, frontier = set(), {RunStatus.QUEUED}
    while frontier:
        reached |= frontier
        frontier = {target for status in frontier for target in TRANSITIONS[status]} - reached
    assert reached == set(RunStatus)
    for status in set(RunStatus) - TERMINAL:
        assert RunStatus.CANCELLED in TRANSITIONS[status]


@pytest.mark.parametrize("reason", StopReason)
def test_each_reason_ends_in_one_terminal_status(reason: StopReason) -> None:
    assert reason.status in TERMINAL


def test_only_a_cancel_ends_a_run_that_is_cancelling() -> None:
    assert TRANSITIONS[RunStatus.CANCELLING] == {RunStatus.CANCELLED}


def test_an_id_carries_its_shard_and_is_hard_to_guess() -> None:
    ids = {new_run_id("0f") for _ in range(1000)}
    assert len(ids) == 1000
    assert {shard_of(each) for each in ids} == {"0f"}
    assert all(is_id("run", each) and not is_id("conv", each) for each in ids)
    assert is_id("run", "run_0g" + "0" * 26)
    for wrong in ("", "run_", "run_0u" + "0" * 26, "run_00" + "0" * 25, "conv_00" + "0" * 26 + "\n", "../etc"):
        assert not is_id("conv", wrong)
        with pytest.raises(ValueError, match="not an id"):
            shard_of(wrong)


def test_a_uuid_is_the_id_of_a_conversation_and_back() -> None:
    for shards in (1, 7, 256, 257, MAX_SHARDS):
        for number in (UUID(int=0), UUID(int=2**128 - 1), *(uuid4() for _ in range(100))):
            found = conversation_id(number, shards)
            assert is_id("conv", found)
            assert uuid_of(found) == number
            assert shard_of(found) in all_shards(shards)
    for wrong in ("nonsense", new_run_id("00"), "conv_00" + "z" * 26):
        with pytest.raises(ValueError, match=r"not an id|out of range"):
            uuid_of(wrong)


def test_a_new_conversation_has_a_number_whose_shard_is_its_own() -> None:
    for shard in ("00", "06", None):
        found = new_conversation_id(7, shard)
        assert shard in (None, shard_of(found))
        assert conversation_id(uuid_of(found), 7) == found


def test_shards_have_two_characters_and_more_of_them_are_others_beside_the_first() -> None:
    every = all_shards(MAX_SHARDS)
    assert len({*every}) == MAX_SHARDS == 1024
    assert all_shards(256) == every[:256] == tuple(f"{number:02x}" for number in range(256))
    assert all(is_id("run", new_run_id(shard)) for shard in every)
    # As they always were: a conversation that has a UUID is found by it.
    assert shard_of(conversation_id(UUID(int=7), 128)) == "0c"
    assert pick_shard("a key", 128) == "25"


@pytest.mark.slow
@pytest.mark.parametrize("shards", [257, 1000, MAX_SHARDS])
def test_any_of_many_shards_can_be_chosen_and_is_as_likely_as_others(shards: int) -> None:
    for shard in all_shards(shards):
        found = new_conversation_id(shards, shard)
        assert shard_of(found) == shard
        assert conversation_id(uuid_of(found), shards) == found
        run = new_run_id(shard)
        assert shard_of(derived_conversation_id(run, "a seed", shards)) == shard
        assert derived_conversation_id(run, "a seed", shards) == derived_conversation_id(run, "a seed", shards)
    drawn = Counter(shard_of(new_conversation_id(shards)) for _ in range(30 * shards))
    assert len(drawn) == shards
    assert max(drawn.values()) < 90
    assert {pick_shard(str(number), shards) for number in range(30 * shards)} == {*all_shards(shards)}


def test_of_many_shards_a_tenant_has_a_few_so_that_his_caps_are_not_divided_by_all() -> None:
    assert shards_of_tenant("", MAX_SHARDS) == all_shards(MAX_SHARDS)
    assert shards_of_tenant("k7m2qx", 256) == all_shards(256)
    assert parts_of_tenant(256) == 256
    used: Counter[str] = Counter()
    for _ in range(2000):
        tag = new_tag()
        own = shards_of_tenant(tag, MAX_SHARDS)
        assert len({*own}) == parts_of_tenant(MAX_SHARDS) == 16
        used.update(own)
    assert len(used) == MAX_SHARDS
    drawn = {shard_of(new_conversation_id(MAX_SHARDS, None, tag)) for _ in range(500)}
    assert drawn == {*own} == {pick_shard(str(number), MAX_SHARDS, tag) for number in range(500)}
    for shard in own:
        found = new_conversation_id(MAX_SHARDS, shard, tag)
        assert (shard_of(found), conversation_id(uuid_of(found), MAX_SHARDS, tag)) == (shard, found)
    # It has older conversations there, of when the shards were fewer.
    other = next(shard for shard in all_shards(MAX_SHARDS) if shard not in own)
    assert shard_of(new_conversation_id(MAX_SHARDS, other, tag)) == other
    assert shard_of(derived_conversation_id(new_run_id(other, tag), "a seed", MAX_SHARDS)) == other


def test_an_id_says_whose_it_is() -> None:
    tag = "k7m2qx"
    run, conversation = new_run_id("0f", tag), new_conversation_id(7, "03", tag)
    assert re.fullmatch(r"run_0fk7m2qx_[0-9a-hjkmnp-tv-z]{26}", run)
    assert re.fullmatch(r"conv_03k7m2qx_[0-9a-hjkmnp-tv-z]{26}", conversation)
    assert is_id("run", run)
    assert is_id("conv", conversation)
    assert [tenant_of(each) for each in (run, conversation, new_run_id("0f"), new_conversation_id(7))] == [
        tag,
        tag,
        "",
        "",
    ]
    assert [shard_of(each) for each in (run, conversation)] == ["0f", "03"]
    number = uuid_of(conversation)
    assert conversation_id(number, 7, tag) == conversation
    assert conversation_id(number, 7) == of_tenant(conversation, "")
    assert uuid_of(of_tenant(conversation, "aaaaaa")) == number
    assert all(re.fullmatch(CONVERSATION_ID, each) for each in (conversation, of_tenant(conversation, "")))
    letters = run[-26:]
    for wrong in (f"run_0f_{letters}", f"run_0fk7m2q_{letters}", f"run_0fk7m2qu_{letters}", f"run_0fk7m2qx{letters}"):
        assert not is_id("run", wrong)
        with pytest.raises(ValueError, match="not an id"):
            of_tenant(wrong, "")
    assert len({new_tag() for _ in range(1000)}) == 1000


def test_what_can_be_done_to_a_run_follows_from_its_status() -> None:
    ended = {"completed", "incomplete", "failed", "cancelled", "expired"}
    assert {status for status in RunStatus if status.allows("delete")} == ended
    assert {status for status in RunStatus if status.allows("cancel")} == set(RunStatus) - ended
    assert {status for status in RunStatus if status.allows("retry")} == {"incomplete", "failed", "expired"}
